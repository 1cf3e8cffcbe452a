//! Search for the attachment that a provider rejects. Providers rarely name it, so requests are repeated without some
//! attachments.
//!
//! Owns which attachments are omitted after how many refusals, and the names under which answers record them. Must never repeat
//! without end: a request may be refused for another reason.
//!
//! Invariants:
//! - AR1: the omitted attachments follow from the number of refusals, in every worker; the last trial omits all.
//! - AR2: attachments omitted for one answer are omitted for later ones; an attachment that is sent again later is not.

use onward_core::{Hash, Payload};
use onward_llm::{Attachment, Block, Message, ModelRequest, Source};
use serde::Deserialize;

/// Number of attachments that are omitted one at a time, the latest first.
const SINGLE_MAX: usize = 4;

/// Returns the name of an attachment in the list of omitted ones. It includes the provider, because another one may accept it.
fn name_of(provider: &str, attachment: &Attachment) -> String {
    let (sort, text) = match &attachment.source {
        Source::Base64(text) => ("base64", text),
        Source::Url(text) => ("url", text),
        Source::Hash(text) => ("hash", text),
    };
    Hash::of_parts(&[provider.as_bytes(), attachment.media_type.as_bytes(), sort.as_bytes(), text.as_bytes()]).to_string()
}

fn told(attachment: &Attachment) -> Block {
    Block::text(attachment.told("which the model's provider did not take"))
}

/// The attachments that each attempt after a refusal omits.
pub(super) struct Trials {
    provider: String,
    trials: Vec<Vec<String>>,
}

impl Trials {
    /// Plans the trials: none omitted; one after the other, the latest first; all since the last answer; all.
    pub fn of(provider: &str, request: &ModelRequest) -> Trials {
        let names = |attachments: Vec<&Attachment>| {
            let mut names: Vec<String> = Vec::new();
            for name in attachments.into_iter().map(|attachment| name_of(provider, attachment)) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        };
        let (all, new) = (names(request.attachments()), names(request.new_attachments()));
        let mut trials = vec![Vec::new()];
        trials.extend(all.iter().take(SINGLE_MAX).map(|name| vec![name.clone()]));
        trials.extend((1 < new.len() && new.len() < all.len()).then_some(new));
        trials.extend((all.len() > 1).then_some(all));
        Trials { provider: provider.to_owned(), trials }
    }

    /// Returns the attachments to omit after this many refusals; `None` if there is no further trial (AR1).
    pub fn after(&self, refusals: usize) -> Option<&[String]> {
        self.trials.get(refusals).map(Vec::as_slice)
    }

    /// Replaces these attachments by descriptions.
    pub fn leave_out(&self, request: &mut ModelRequest, names: &[String]) {
        if !names.is_empty() {
            request
                .replace_attachments(|attachment| names.contains(&name_of(&self.provider, attachment)).then(|| told(attachment)));
        }
    }

    pub fn leave_out_all_but_texts(request: &mut ModelRequest) {
        request.replace_attachments(|attachment| (!attachment.is_text()).then(|| told(attachment)));
    }
}

/// Replaces the attachments that were omitted for this answer in the messages before it, as for that request (AR2).
pub(super) fn leave_out_as_before(provider: &str, answer: &Payload, before: &mut [Message]) {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        left_out: Vec<String>,
    }
    let left_out = answer.read::<Answer>().map(|answer| answer.left_out).unwrap_or_default();
    if left_out.is_empty() {
        return;
    }
    for message in before {
        message
            .replace_attachments(&mut |attachment| left_out.contains(&name_of(provider, attachment)).then(|| told(attachment)));
    }
}

#[cfg(test)]
mod tests {
    use onward_llm::Role;

    use super::*;

    fn attachment(text: &str) -> Block {
        Block::Attachment(Attachment { media_type: "image/png".into(), source: Source::Base64(text.into()) })
    }

    fn said(role: Role, texts: &[&str]) -> Message {
        Message { role, blocks: texts.iter().map(|text| attachment(text)).collect() }
    }

    /// Returns the attachments that each attempt sends, until there is no further trial.
    fn shown(messages: Vec<Message>) -> Vec<String> {
        let request = ModelRequest::new("m", messages);
        let trials = Trials::of("p", &request);
        let mut shown = Vec::new();
        while let Some(left_out) = trials.after(shown.len()) {
            let mut request = request.clone();
            trials.leave_out(&mut request, left_out);
            let texts = request.attachments().into_iter().rev().map(|attachment| match &attachment.source {
                Source::Base64(text) => text.clone(),
                _ => unreachable!(),
            });
            shown.push(texts.collect());
        }
        shown
    }

    /// AR1.
    #[test]
    fn one_after_the_other_is_left_out_then_what_is_new_then_all() {
        let answer = || Message { role: Role::Assistant, blocks: vec![Block::text("hm")] };
        assert_eq!(shown(vec![said(Role::User, &["a"])]), ["a", ""]);
        assert_eq!(shown(vec![said(Role::User, &["a", "b"])]), ["ab", "a", "b", ""]);
        let old_and_new = vec![said(Role::User, &["a", "b"]), answer(), said(Role::User, &["c", "d"])];
        assert_eq!(shown(old_and_new), ["abcd", "abc", "abd", "acd", "bcd", "ab", ""]);
        let many = vec![said(Role::User, &["a", "b", "c", "d", "e", "f"]), answer(), said(Role::User, &["a"])];
        assert_eq!(shown(many), ["abcdefa", "bcdef", "abcdea", "abcdfa", "abcefa", ""], "the same one twice is one");
        assert_eq!(shown(vec![said(Role::User, &[])]), [""], "there is nothing to be left out");
    }

    /// AR2.
    #[test]
    fn what_an_answer_was_given_without_is_left_out_before_it_for_that_provider() {
        let mut messages = [said(Role::User, &["a", "b"]), said(Role::Tool, &["b"])];
        let Block::Attachment(b) = attachment("b") else { unreachable!() };
        let answer = Payload::json(&serde_json::json!({"blocks": [], "left_out": [name_of("p", &b)]})).unwrap();
        leave_out_as_before("q", &answer, &mut messages);
        leave_out_as_before("p", &Payload::from_json_text(r#""a text""#), &mut messages);
        assert_eq!(messages, [said(Role::User, &["a", "b"]), said(Role::Tool, &["b"])]);
        leave_out_as_before("p", &answer, &mut messages);
        let told = || Block::text("[an attachment of type image/png, which the model's provider did not take]");
        assert_eq!(messages[0].blocks, [attachment("a"), told()]);
        assert_eq!(messages[1].blocks, [told()]);
    }
}
