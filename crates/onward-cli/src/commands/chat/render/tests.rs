//! Tests of the parent module.

use super::*;
use onward_core::Name;

fn of(role: &str, content: &str) -> Vec<EntryPart> {
    parts(&Entry::first(Name::new(role).unwrap(), Payload::from_json_text(content.to_owned())))
}

#[test]
fn words_calls_and_results_are_distinguished() {
    assert_eq!(of("user", r#""hello""#), [EntryPart::Text("hello".to_owned())]);
    let reply = r#"{"blocks":[{"type":"reasoning","text":"hm"},{"type":"text","text":"Let me "},{"type":"text","text":"see."},
        {"type":"tool_call","id":"1","name":"add","arguments":"{\"a\":\n 1}"}],"model":"m"}"#;
    let call = EntryPart::Call { id: "1".to_owned(), name: "add".to_owned(), arguments: "{\"a\": 1}".to_owned() };
    assert_eq!(of("assistant", reply), [EntryPart::Text("Let me see.".to_owned()), call]);
    let result = r#"{"blocks":[{"type":"tool_result","call_id":"1","blocks":[{"type":"text","text":"no"}],"is_error":true}]}"#;
    let result = &of("tool", result)[1];
    assert_eq!(*result, EntryPart::Result { call_id: "1".to_owned(), text: "no".to_owned(), is_error: true });
}
