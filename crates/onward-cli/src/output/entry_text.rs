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
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_an_entry_is_told_in_lines() {
        let text_of = |text: &str| indented(&Payload::from_json_text(text.to_owned()));
        assert_eq!(text_of(r#""hello\nyou""#), "  hello\n  you\n");
        assert_eq!(text_of(r#"{"text":"hi","covers":"x"}"#), "  hi\n");
        let reply = r#"{"blocks":[{"type":"reasoning","text":"hm"},{"type":"text","text":"It is 7."},
            {"type":"tool_call","id":"1","name":"add","arguments":"{\"a\":1}"}],"model":"m"}"#;
        assert_eq!(text_of(reply), "  [reasoning] hm\n  It is 7.\n  [calls add] {\"a\":1}\n");
        let result =
            r#"{"blocks":[{"type":"tool_result","call_id":"1","blocks":[{"type":"text","text":"no"}],"is_error":true}]}"#;
        assert_eq!(text_of(result), "  [failed] no\n");
        assert_eq!(text_of(r#"{"a":1}"#), "  {\"a\":1}\n");
        assert_eq!(text_of(r#""\u001b[31mred""#), "  \\u{1b}[31mred\n");
    }
}
