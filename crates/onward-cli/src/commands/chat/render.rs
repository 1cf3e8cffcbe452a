//! Splits conversation entries into the parts that the chat prints.

use onward_core::Payload;
use onward_core::conversation::Entry;
use serde_json::Value;

use crate::output::entry_text;

/// Maximum length of printed arguments and results.
const SHORT: usize = 160;

/// One part of an entry.
#[derive(Debug, PartialEq, Eq)]
pub enum EntryPart {
    /// Text of the entry.
    Text(String),
    /// A tool call of a model.
    Call { id: String, name: String, arguments: String },
    /// The result of a tool call.
    Result { call_id: String, text: String, is_error: bool },
}

/// Returns the parts of an entry; all text blocks are joined into the first part.
pub fn parts(entry: &Entry) -> Vec<EntryPart> {
    let value = entry.content.read::<Value>().unwrap_or_default();
    let Some(blocks) = value.get("blocks").and_then(Value::as_array) else {
        return vec![EntryPart::Text(entry_text::words(&entry.content))];
    };
    let mut parts = vec![EntryPart::Text(String::new())];
    for block in blocks {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        match block.get("type").and_then(Value::as_str) {
            Some("text" | "refusal") => {
                if let Some(EntryPart::Text(all)) = parts.first_mut() {
                    all.push_str(&text("text"));
                }
            }
            Some("tool_call") => {
                parts.push(EntryPart::Call { id: text("id"), name: text("name"), arguments: short(&text("arguments")) });
            }
            Some("tool_result") => {
                let is_error = block.get("is_error").and_then(Value::as_bool) == Some(true);
                let inner = Payload::json(block).map(|block| entry_text::words(&block)).unwrap_or_default();
                parts.push(EntryPart::Result { call_id: text("call_id"), text: short(&inner), is_error });
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
mod tests;
