//! Attachments that a provider rejects. Providers rarely name the one, so the request is repeated once without any.
//!
//! Owns the notes that replace attachments, and the names under which replies record omitted ones.
//!
//! Invariants:
//! - AR1: after a refusal there is one more attempt, without attachments; the model gets a note in place of each.
//! - AR2: attachments omitted for one answer are omitted for later ones; an attachment that is sent again later is not.

use onward_core::{Hash, Payload};
use onward_llm::{Attachment, Block, Message, ModelRequest, Source};
use serde::Deserialize;

/// Returns the name of an attachment in the list of omitted ones. It includes the provider, because another one may accept it.
fn name_of(provider: &str, attachment: &Attachment) -> String {
    let (sort, text) = match &attachment.source {
        Source::Base64(text) => ("base64", text),
        Source::Url(text) => ("url", text),
        Source::Hash(text) => ("hash", text),
    };
    Hash::of_parts(&[provider.as_bytes(), attachment.media_type.as_bytes(), sort.as_bytes(), text.as_bytes()]).to_string()
}

fn note(attachment: &Attachment) -> Block {
    Block::text(attachment.described("which the model's provider did not take"))
}

/// Replaces all attachments of the request by descriptions and returns their names (AR1).
pub(super) fn leave_out_all(provider: &str, request: &mut ModelRequest) -> Vec<String> {
    let names = request.attachments().into_iter().map(|attachment| name_of(provider, attachment)).collect();
    request.replace_attachments(|attachment| Some(note(attachment)));
    names
}

/// Replaces the attachments that were omitted for this answer in the messages before it, as for that request (AR2).
pub(super) fn leave_out_as_before(provider: &str, answer: &Payload, before: &mut [Message]) {
    #[derive(Deserialize)]
    struct Omitted {
        #[serde(default)]
        left_out: Vec<String>,
    }
    let left_out = answer.read::<Omitted>().map(|answer| answer.left_out).unwrap_or_default();
    if left_out.is_empty() {
        return;
    }
    for message in before {
        message
            .replace_attachments(&mut |attachment| left_out.contains(&name_of(provider, attachment)).then(|| note(attachment)));
    }
}

#[cfg(test)]
mod tests;
