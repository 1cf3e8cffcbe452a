//! Empty messages. Owns what is empty, the same in every API. Must never treat content as empty that an agent may interpret in
//! its own way.

use serde::Deserialize;
use serde_json::Value;

use crate::Payload;

/// Blocks of models and tools, which are not shown to a model as a user's.
const NOT_A_USERS: [&str; 5] = ["tool_call", "tool_result", "reasoning", "refusal", "opaque"];

/// Returns true if a message is empty: no text, or no block with content. Content that is not JSON or has another shape is left
/// to the agent.
pub fn says_nothing(message: &Payload) -> bool {
    #[derive(Deserialize)]
    struct Said {
        text: Option<String>,
        blocks: Option<Vec<Value>>,
    }
    let is_blank = |text: &str| text.trim().is_empty();
    let has_nothing = |block: &Value| match block["type"].as_str() {
        Some("text") => block["text"].as_str().is_some_and(is_blank),
        kind => kind.is_some_and(|kind| NOT_A_USERS.contains(&kind)),
    };
    match message.read::<Value>() {
        Ok(Value::Null) => true,
        Ok(Value::String(text)) => is_blank(&text),
        Ok(message @ Value::Object(_)) => match serde_json::from_value::<Said>(message) {
            Ok(Said { text: None, blocks: None }) | Err(_) => false,
            Ok(Said { text, blocks }) => text.as_deref().is_none_or(is_blank) && blocks.iter().flatten().all(has_nothing),
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_a_word_says_nothing() {
        let says = |json: &str| !says_nothing(&Payload::from_json_text(json.to_owned()));
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
            assert!(!says(nothing), "{nothing}");
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
            assert!(says(something), "{something}");
        }
        assert!(!says_nothing(&Payload::binary("application/octet-stream", b"".to_vec())), "only the agent can interpret it");
    }
}
