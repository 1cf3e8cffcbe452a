//! Tests of the parent module.

use onward_core::Payload;

use super::*;

/// Returns an entry of a user.
pub fn of_user(content: &Value) -> EntryContent {
    let entry = Entry::first(Name::new("user").unwrap(), Payload::from_json_text(content.to_string()));
    EntryContent::read(&entry, &mut AttachmentLimit::unlimited())
}

#[test]
fn an_attachment_of_a_tool_is_sent_with_its_result() {
    let picture = json!({"type": "attachment", "media_type": "image/png", "source": {"base64": "aGV5"}});
    let result = |call: &str, blocks: &[&Value]| json!({"type": "tool_result", "call_id": call, "blocks": blocks});
    let words = json!({"type": "text", "text": "here"});
    let mut entry = of_user(&json!({"blocks": [result("c1", &[&words]), result("c2", &[&words, &picture])]}));
    entry.role = Name::new("tool").unwrap();
    let sent: Vec<Value> = messages(vec![entry], &BTreeMap::new()).iter().map(|message| message["content"].clone()).collect();
    let image = json!({"type": "image", "source": {"type": "data", "value": "aGV5", "mimeType": "image/png"}});
    assert_eq!(sent, [json!("here"), json!([words, image])]);
}
