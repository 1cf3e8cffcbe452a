//! Tests of the parent module.

use super::*;

#[test]
fn a_message_without_a_word_is_empty() {
    let has_content = |json: &str| !is_empty_message(&Payload::from_json_text(json.to_owned()));
    for nothing in [
        r#""""#,
        r#"{"blocks":[{"type":"tool_call","id":"a","name":"f","arguments":"{}"},{"type":"text","text":" "}]}"#,
        r#"" \n\t""#,
        "null",
        r#"{"text":""}"#,
        r#"{"id":"u1","text":"  "}"#,
        r#"{"blocks":[]}"#,
        r#"{"blocks":[{"type":"text","text":""},{"type":"text","text":" "}]}"#,
    ] {
        assert!(!has_content(nothing), "{nothing}");
    }
    for something in [
        r#""a""#,
        "0",
        "{}",
        "[]",
        r#"{"order":7}"#,
        r#"{"text":7}"#,
        r#"{"text":"","blocks":[{"type":"text","text":"a"}]}"#,
        r#"{"blocks":[{"type":"text","text":""},{"type":"attachment","media_type":"image/png","source":{"url":"http://x/y"}}]}"#,
    ] {
        assert!(has_content(something), "{something}");
    }
    assert!(!is_empty_message(&Payload::binary("application/octet-stream", b"".to_vec())), "only the agent can interpret it");
}
