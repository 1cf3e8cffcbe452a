//! Tests of the parent module.

use super::*;
use crate::message::ToolResult;

#[test]
fn temperature_is_a_decimal_number() {
    let text = |milli| ModelRequest { temperature_milli: Some(milli), ..ModelRequest::default() }.temperature().unwrap();
    assert_eq!([0, 50, 700, 1000, 1250].map(|milli| String::from(text(milli))), ["0", "0.05", "0.7", "1", "1.25"]);
}

#[test]
fn hashes_are_replaced_also_in_results_of_tools() {
    let attachment =
        |hash: &str| Block::Attachment(Attachment { media_type: "image/png".into(), source: Source::Hash(hash.into()) });
    let result = ToolResult { call_id: "c".into(), blocks: vec![attachment("b")], is_error: false };
    let messages = vec![
        Message { role: Role::User, blocks: vec![attachment("a"), attachment("gone")] },
        Message { role: Role::Tool, blocks: vec![Block::ToolResult(result)] },
    ];
    let mut request = ModelRequest::new("m", messages);
    assert_eq!(request.hashes(), ["b", "gone", "a"], "the latest first");
    assert_eq!(request.new_hashes(), request.hashes(), "there is no response yet");
    let mut answered = request.clone();
    answered.messages.insert(1, Message { role: Role::Assistant, blocks: vec![Block::text("hm")] });
    assert_eq!(answered.new_hashes(), ["b"]);
    request.replace_attachments(|attachment| match &attachment.source {
        Source::Hash(hash) if hash != "gone" => {
            Some(Block::Attachment(Attachment { source: Source::Base64(hash.to_uppercase()), ..attachment.clone() }))
        }
        _ => None,
    });
    assert_eq!(request.hashes(), ["gone"]);
    let text = serde_json::to_string(&request).unwrap();
    assert!(text.contains(r#""base64":"A""#) && text.contains(r#""base64":"B""#) && text.contains(r#""hash":"gone""#));
}
