//! Formats conversation entries as text.

use onward_core::Payload;
use serde_json::Value;

use super::escape;

/// Formats an entry with every line indented, so that its text cannot imitate a line of the CLI.
pub fn indented(content: &Payload) -> String {
    words(content).lines().map(|line| format!("  {}\n", escape::text(line))).collect()
}

/// Returns the text of an entry: a string, the `text` of an object, the blocks of a message, or the JSON itself.
pub fn words(content: &Payload) -> String {
    match content.read::<Value>() {
        Ok(value) => block_text(&value).unwrap_or_else(|| format!("{content:?}")),
        Err(_) => format!("{content:?}"),
    }
}

fn block_text(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str().or_else(|| value.get("text")?.as_str()) {
        return Some(text.to_owned());
    }
    let blocks: Option<Vec<String>> = value.get("blocks")?.as_array()?.iter().map(block).collect();
    blocks.map(|blocks| blocks.join("\n"))
}

fn block(block: &Value) -> Option<String> {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    Some(match block.get("type")?.as_str()? {
        "text" => text("text").to_owned(),
        "reasoning" => format!("[reasoning] {}", text("text")),
        "refusal" => format!("[refusal] {}", text("text")),
        "tool_call" => format!("[calls {}] {}", text("name"), text("arguments")),
        "tool_result" => {
            let is_error = block.get("is_error").and_then(Value::as_bool) == Some(true);
            format!("[{}] {}", if is_error { "failed" } else { "result" }, block_text(block).unwrap_or_default())
        }
        "attachment" => format!("[attachment {}]", text("media_type")),
        other => format!("[{other}]"),
    })
}

#[cfg(test)]
mod tests;
