//! Empty messages. Owns what is empty, the same in every API. Must never treat content as empty that an agent may interpret in
//! its own way.

use serde::Deserialize;
use serde_json::Value;

use crate::Payload;

/// Blocks of models and tools, which are not shown to a model as a user's.
const NOT_A_USERS: [&str; 5] = ["tool_call", "tool_result", "reasoning", "refusal", "opaque"];

/// Returns true if a message is empty: no text, or no block with content. Content that is not JSON or has another shape is left
/// to the agent.
pub fn is_empty_message(message: &Payload) -> bool {
    #[derive(Deserialize)]
    struct MessageContent {
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
        Ok(message @ Value::Object(_)) => match serde_json::from_value::<MessageContent>(message) {
            Ok(MessageContent { text: None, blocks: None }) | Err(_) => false,
            Ok(MessageContent { text, blocks }) => {
                text.as_deref().is_none_or(is_blank) && blocks.iter().flatten().all(has_nothing)
            }
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests;
