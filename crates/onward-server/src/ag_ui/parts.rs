//! Attachments: parts of messages at the client, blocks in the log.
//!
//! Owns the conversion between the two. Bytes that the log names by their hash are a file with our provider name at the client,
//! which shows it and sends the name back.
//!
//! Invariant AG5: a part that was sent to a client and comes back is the same block.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Value, json};

use crate::hex;

/// Provider name of files that a hash names.
const PROVIDER: &str = "onward";

/// Base64 decoder that accepts input with and without padding.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

/// Size limit of the attachments that a client gets, as it sends them back with the next request. Attachments beyond it are sent
/// by hash.
pub(super) struct AttachmentLimit(usize);

impl AttachmentLimit {
    pub fn unlimited() -> AttachmentLimit {
        AttachmentLimit(usize::MAX)
    }

    /// Returns half of the size of a request, so that there is room for something new.
    pub fn within(request_bytes: usize) -> AttachmentLimit {
        AttachmentLimit(request_bytes / 2)
    }

    fn take(&mut self, bytes: usize) -> bool {
        let remaining = self.0.checked_sub(bytes);
        self.0 = remaining.unwrap_or(self.0);
        remaining.is_some()
    }
}

/// Converts a part of a message to a block.
pub(super) fn block(part: &Value) -> Option<Value> {
    if part["type"] == "text" {
        return Some(json!({"type": "text", "text": part["text"]}));
    }
    if part["type"] == "binary" {
        let media_type = part["mimeType"].as_str().unwrap_or("application/octet-stream");
        let field = |name: &str| part[name].as_str().filter(|value| !value.is_empty());
        let given = match (field("data"), field("url"), field("id")) {
            (Some(data), _, _) => json!({"base64": data}),
            (None, Some(url), _) => json!({"url": url}),
            (None, None, hash) => json!({"hash": hash?}), // hash that the upload returned
        };
        return Some(json!({"type": "attachment", "media_type": media_type, "source": given}));
    }
    let source = &part["source"];
    // The media type of a URL is only a default; the provider that fetches it determines the real one.
    let is_picture = part["type"] == "image" && source["type"] == "url";
    let media_type = source["mimeType"].as_str().unwrap_or(if is_picture { "image/png" } else { "application/octet-stream" });
    let given = match source["type"].as_str()? {
        "data" => json!({"base64": source["value"]}),
        "url" => json!({"url": source["value"]}),
        "file" if source["provider"] == PROVIDER => json!({"hash": source["value"]}),
        _ => return None, // file of another provider
    };
    Some(json!({"type": "attachment", "media_type": media_type, "source": given}))
}

pub(super) fn is_attachment(block: &Value) -> bool {
    block["type"] == "attachment"
}

/// Returns the content of a message with these blocks: a text, or parts if there are attachments.
pub(super) fn content(blocks: &[Value], limit: &mut AttachmentLimit) -> Value {
    if !blocks.iter().any(is_attachment) {
        return blocks.iter().filter_map(|block| block["text"].as_str()).collect::<String>().into();
    }
    blocks.iter().filter_map(|block| part(block, limit)).collect()
}

fn part(block: &Value, limit: &mut AttachmentLimit) -> Option<Value> {
    if !is_attachment(block) {
        return Some(json!({"type": "text", "text": block["text"].as_str()?}));
    }
    let media_type = block["media_type"].as_str()?;
    let is_sort = |sort: &&str| media_type.split('/').next() == Some(*sort);
    let sort = ["image", "audio", "video"].into_iter().find(is_sort).unwrap_or("document");
    let file = |hash: &str| json!({"type": "file", "provider": PROVIDER, "value": hash, "mimeType": media_type});
    let (given, value) = block["source"].as_object()?.iter().next()?;
    let value = value.as_str()?;
    let source = match given.as_str() {
        "url" => json!({"type": "url", "value": value, "mimeType": media_type}),
        "base64" if limit.take(value.len()) => json!({"type": "data", "value": value, "mimeType": media_type}),
        "base64" => file(&hash(value)?),
        "hash" => file(value),
        _ => return None,
    };
    Some(json!({"type": sort, "source": source}))
}

/// Returns the hash that an upload of the bytes would return.
fn hash(base64: &str) -> Option<String> {
    Some(hex::sha256(&BASE64.decode(base64).ok()?))
}

#[cfg(test)]
mod tests;
