//! Splits conversation entries into the parts that the chat prints.

use onward_core::Payload;
use onward_core::conversation::Entry;
use serde_json::Value;

use crate::output::said;

/// Maximum length of printed arguments and results.
const SHORT: usize = 160;

/// One part of an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// Text of the entry.
    Text(String),
    /// A tool call of a model.
    Call { id: String, name: String, arguments: String },
    /// The result of a tool call.
    Result { call_id: String, text: String, is_error: bool },
}

/// Returns the parts of an entry; all text blocks are joined into the first part.
pub fn parts(entry: &Entry) -> Vec<Part> {
    let value = entry.content.read::<Value>().unwrap_or_default();
    let Some(blocks) = value.get("blocks").and_then(Value::as_array) else {
        return vec![Part::Text(said::words(&entry.content))];
    };
    let mut parts = vec![Part::Text(String::new())];
    for block in blocks {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        match block.get("type").and_then(Value::as_str) {
            Some("text" | "refusal") => {
                if let Some(Part::Text(all)) = parts.first_mut() {
                    all.push_str(&text("text"));
                }
            }
            Some("tool_call") => {
                parts.push(Part::Call { id: text("id"), name: text("name"), arguments: short(&text("arguments")) });
            }
            Some("tool_result") => {
                let is_error = block.get("is_error").and_then(Value::as_bool) == Some(true);
                let inner = Payload::json(block).map(|block| said::words(&block)).unwrap_or_default();
                parts.push(Part::Result { call_id: text("call_id"), text: short(&inner), is_error });
            }
            _ => {}
        }
    }
    parts
}

/// Collapses whitespace into one line and truncates it.
pub fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    crate::output::clip(&line, SHORT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onward_core::{Hash, Index, Name, Timestamp};

    fn of(role: &str, content: &str) -> Vec<Part> {
        let content = Payload::from_json_text(content.to_owned());
        let (id, role) = (Hash::of(&content), Name::new(role).unwrap());
        parts(&Entry {
            id,
            parent: None,
            role,
            content,
            generation: 0,
            index: Index(0),
            at: Timestamp(0),
            is_abandoned: false,
            is_aside: false,
            idempotency_key: None,
        })
    }

    #[test]
    fn words_calls_and_results_are_told_apart() {
        assert_eq!(of("user", r#""hello""#), [Part::Text("hello".to_owned())]);
        let reply = r#"{"blocks":[{"type":"reasoning","text":"hm"},{"type":"text","text":"Let me "},{"type":"text","text":"see."},
            {"type":"tool_call","id":"1","name":"add","arguments":"{\"a\":\n 1}"}],"model":"m"}"#;
        let call = Part::Call { id: "1".to_owned(), name: "add".to_owned(), arguments: "{\"a\": 1}".to_owned() };
        assert_eq!(of("assistant", reply), [Part::Text("Let me see.".to_owned()), call]);
        let result =
            r#"{"blocks":[{"type":"tool_result","call_id":"1","blocks":[{"type":"text","text":"no"}],"is_error":true}]}"#;
        let result = &of("tool", result)[1];
        assert_eq!(*result, Part::Result { call_id: "1".to_owned(), text: "no".to_owned(), is_error: true });
    }
}
