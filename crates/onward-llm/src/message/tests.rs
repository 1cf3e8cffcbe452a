//! Tests of the parent module.

use super::*;

#[test]
fn a_type_is_known_however_it_is_written() {
    let attached = |media_type: &str| Attachment { media_type: media_type.into(), source: Source::bytes(b"hi") };
    assert_eq!(attached("TEXT/Plain; charset=utf-8").essence(), "text/plain");
    assert!(attached("Application/JSON;charset=utf-8").words().unwrap().ends_with("\nhi"));
    assert_eq!(attached("image/png").words(), None);
}

#[test]
fn a_message_is_written_as_one_text_and_read_back() {
    let call = ToolCall { id: "c1".into(), name: "pay".into(), arguments: "{\"cents\": 9007199254740993".into() };
    let payload = ProviderPayload { provider: "a".into(), json: JsonText::parse("{\"signature\":\"x\"}").unwrap() };
    let blocks = vec![
        Block::Reasoning(Reasoning { text: "hm".into(), payload: Some(payload) }),
        Block::text("yes"),
        Block::ToolCall(call),
        Block::Attachment(Attachment { media_type: "image/png".into(), source: Source::Hash("ab".into()) }),
    ];
    let message = Message { role: Role::Assistant, blocks };
    let text = serde_json::to_string(&message).unwrap();
    let expected = concat!(
        r#"{"role":"assistant","blocks":[{"type":"reasoning","text":"hm","payload":{"provider":"a","json":"{\"signature\":\"x\"}"}},"#,
        r#"{"type":"text","text":"yes"},{"type":"tool_call","id":"c1","name":"pay","arguments":"{\"cents\": 9007199254740993"},"#,
        r#"{"type":"attachment","media_type":"image/png","source":{"hash":"ab"}}]}"#,
    );
    assert_eq!(text, expected); // LM3: stored bytes are hashed, so this text must not change
    assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
}

#[test]
fn arguments_that_are_no_json_are_kept_and_reported() {
    let call = |arguments: &str| ToolCall { id: "c".into(), name: "t".into(), arguments: arguments.into() };
    assert!(call("{\"a\": ").json().is_err()); // LM1
    assert_eq!(call(" { \"a\" : 1 } ").json().unwrap().get(), "{ \"a\" : 1 }");
    assert_eq!(call("").json().unwrap().get(), "{}");
}
