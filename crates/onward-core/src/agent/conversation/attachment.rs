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
pub fn with_faults_told(content: &Payload) -> Option<Value> {
    // A cheap test first: most entries have no attachment, and whole conversations are read here.
    std::str::from_utf8(content.data()).ok().filter(|text| text.contains("\"attachment\""))?;
    let mut value = content.read::<Value>().ok()?;
    blocks_fault(&value)?;
    tell_faults(&mut value);
    Some(value)
}

fn tell_faults(value: &mut Value) {
    let Some(blocks) = value["blocks"].as_array_mut() else { return };
    for block in blocks {
        let why = match block["type"].as_str() {
            Some("attachment") => fault(block),
            Some("tool_result") => {
                tell_faults(block);
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
mod tests {
    use super::*;

    const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    #[test]
    fn what_can_be_shown_to_nobody_has_a_fault_and_says_which() {
        let fault = |json: &str| attachment_fault(&Payload::from_json_text(json.to_owned()));
        let attached = |media_type: &str, source: &str| {
            let block = format!(r#"{{"type":"attachment","media_type":"{media_type}","source":{source}}}"#);
            let alone = fault(&format!(r#"{{"blocks":[{{"type":"text","text":"a"}},{block}]}}"#));
            let in_result = fault(&format!(r#"{{"blocks":[{{"type":"tool_result","call_id":"c","blocks":[{block}]}}]}}"#));
            assert_eq!(alone, in_result);
            alone.unwrap_or("nothing")
        };
        for (media_type, source) in [
            ("image/png", format!(r#"{{"hash":"{HASH}"}}"#)),
            ("application/vnd.ms-excel", r#"{"base64":"AA=="}"#.to_owned()),
            ("text/plain; charset=utf-8", r#"{"base64":"AA=="}"#.to_owned()),
            ("image/svg+xml", r#"{"url":"https://x/y"}"#.to_owned()),
        ] {
            assert_eq!(attached(media_type, &source), "nothing");
        }
        for hash in ["", "ab12", &HASH[1..], &HASH.to_uppercase(), &format!("{HASH}0"), &format!("../{}", &HASH[3..])] {
            assert!(attached("image/png", &format!(r#"{{"hash":"{hash}"}}"#)).contains("`hash` is not a SHA-256 hash"), "{hash}");
        }
        for media_type in ["", "png", "image/", "image/ png; charset=x", "image/p ng"] {
            assert!(attached(media_type, r#"{"url":"https://x/y"}"#).contains("media_type"), "{media_type}");
        }
        for source in ["{}", "null", r#""x""#, r#"{"hash":1}"#, r#"{"file":"x"}"#, r#"{"url":"a","base64":"AA=="}"#] {
            assert_eq!(attached("image/png", source), SOURCE, "{source}");
        }
        for url in [
            "",
            " ",
            "x",
            "file:///etc/passwd",
            "ftp://x/y",
            "gopher://x",
            "//x/y",
            "javascript:x",
            "http:x",
            "httpx://y",
            "http://a\\nb",
        ] {
            assert!(attached("image/png", &format!(r#"{{"url":"{url}"}}"#)).contains("`url` is invalid"), "{url}");
        }
        for url in ["http://x", "HTTPS://x/y", "data:image/png;base64,AAAA"] {
            assert_eq!(attached("image/png", &format!(r#"{{"url":"{url}"}}"#)), "nothing");
        }
        for bytes in ["", "=", "data:image/png;base64,AAAA", "A-_A"] {
            assert!(attached("image/png", &format!(r#"{{"base64":"{bytes}"}}"#)).contains("Base64"), "{bytes}");
        }
    }

    #[test]
    fn what_can_be_shown_to_nobody_is_told_and_everything_else_is_as_it_was() {
        let good = json!({"type": "attachment", "media_type": "image/png", "source": {"hash": HASH}});
        let bad = json!({"type": "attachment", "media_type": "image/png", "source": {"base64": "?"}});
        let told =
            json!({"type": "text", "text": "[an attachment that no model can be shown: its `base64` is not valid Base64]"});
        let content = |attached: &Value| {
            let result = json!({"type": "tool_result", "call_id": "c", "blocks": [attached, good]});
            json!({"text": "x", "blocks": [{"type": "text", "text": "a"}, attached, good, 7, result]})
        };
        assert_eq!(with_faults_told(&Payload::json(&content(&bad)).unwrap()), Some(content(&told)));
        assert_eq!(with_faults_told(&Payload::json(&content(&good)).unwrap()), None);
    }

    #[test]
    fn what_an_agent_reads_in_its_own_way_has_none() {
        for json in
            [r#""look""#, "7", "null", "[]", r#"{"blocks":7}"#, r#"{"blocks":[7,{"type":"order"}]}"#, r#"{"type":"attachment"}"#]
        {
            assert_eq!(attachment_fault(&Payload::from_json_text(json.to_owned())), None, "{json}");
        }
        assert_eq!(attachment_fault(&Payload::binary("application/octet-stream", b"\xff".to_vec())), None);
    }
}
