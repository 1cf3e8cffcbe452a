//! Attachments of messages. Owns their names, and the check for attachments that no model can be shown, the same in every API.
//! Must never reject content that an agent may interpret in its own way.

use serde_json::{Value, json};

use crate::Payload;

/// The number of hexadecimal digits of a SHA-256 hash.
const HASH_DIGITS: usize = 64;

/// Returns true if this is the name of an attachment: the SHA-256 hash of its bytes, in lower-case hexadecimal digits.
pub fn names_attachment(hash: &str) -> bool {
    hash.len() == HASH_DIGITS && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns the fault of the first invalid attachment in the `blocks` of a message or entry. Content that is not JSON or has
/// another shape is left to the agent.
pub fn attachment_fault(content: &Payload) -> Option<&'static str> {
    blocks_fault(&content.read::<Value>().ok()?)
}

/// Checks the blocks. Attachments are in messages and in tool results, and no deeper.
fn blocks_fault(value: &Value) -> Option<&'static str> {
    value["blocks"].as_array()?.iter().find_map(|block| match block["type"].as_str()? {
        "attachment" => fault(block),
        "tool_result" => blocks_fault(block),
        _ => None,
    })
}

/// Returns the message or entry with a text in place of each invalid attachment; `None` if there is none.
pub fn with_faults_replaced(content: &Payload) -> Option<Value> {
    // A cheap test first: most entries have no attachment, and whole conversations are read here.
    std::str::from_utf8(content.data()).ok().filter(|text| text.contains("\"attachment\""))?;
    let mut value = content.read::<Value>().ok()?;
    blocks_fault(&value)?;
    replace_faults(&mut value);
    Some(value)
}

fn replace_faults(value: &mut Value) {
    let Some(blocks) = value["blocks"].as_array_mut() else { return };
    for block in blocks {
        let why = match block["type"].as_str() {
            Some("attachment") => fault(block),
            Some("tool_result") => {
                replace_faults(block);
                None
            }
            _ => None,
        };
        if let Some(why) = why {
            *block = json!({"type": "text", "text": format!("[an attachment that no model can be shown: {why}]")});
        }
    }
}

fn fault(attachment: &Value) -> Option<&'static str> {
    if !attachment["media_type"].as_str().is_some_and(is_media_type) {
        return Some("its `media_type` is invalid; an example is `image/png`");
    }
    let source = attachment["source"].as_object().filter(|source| source.len() == 1).and_then(|source| source.iter().next());
    match source {
        Some((sort, Value::String(text))) => match sort.as_str() {
            "hash" => (!names_attachment(text)).then_some("its `hash` is not a SHA-256 hash of 64 lower-case hexadecimal digits"),
            "base64" => (!is_base64(text)).then_some("its `base64` is not valid Base64"),
            "url" => (!is_url(text)).then_some("its `url` is invalid: it must begin with http://, https:// or data:"),
            _ => Some(SOURCE),
        },
        _ => Some(SOURCE),
    }
}

const SOURCE: &str = "its `source` must be exactly one text named `hash`, `base64` or `url`";

/// Returns true for URLs that may be passed to a provider, which fetches them; this program never does.
fn is_url(text: &str) -> bool {
    let has_scheme = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    ["http://", "https://", "data:"].into_iter().any(has_scheme) && !text.chars().any(char::is_control)
}

fn is_media_type(text: &str) -> bool {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte));
    // Parameters after it, such as a charset, are not checked.
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    essence.split_once('/').is_some_and(|(sort, of_sort)| is_word(sort) && is_word(of_sort))
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

#[cfg(test)]
mod tests;
