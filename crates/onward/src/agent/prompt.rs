//! Conversion of a conversation into messages for a model.
//!
//! Owns how an entry's content is read: a text, an object with `text`, an object with `blocks`, and anything else as its JSON.
//! Content that is not JSON is a text or an attachment. Must never fail because of a content.
//!
//! Invariants, because providers reject anything else:
//! - PR1: every tool call is followed by exactly one result before any other message.
//! - PR2: no message is empty.
//! - PR3: a request without tools has no tool calls and no results; they become texts.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::Payload;
use onward_core::conversation::{Entry, SUMMARY, with_faults_told};
use onward_llm::{Attachment, Block, Message, Role, Source, ToolCall, ToolResult};
use serde::Deserialize;
use serde_json::Value;

use super::refused::leave_out_as_before;

/// Placeholder for a result that is not recorded.
const NO_RESULT: &str = "there is no result of this call";

/// Prefix of a tool's message that answers no call.
const REPORT: &str = "A tool reports:\n";

/// The conversation as messages, and the texts of its system entries.
pub(crate) struct Told {
    pub system: Vec<String>,
    pub messages: Vec<Message>,
}

/// Converts entries into messages for a model of `provider`.
pub(crate) fn tell(entries: &[Entry], provider: &str) -> Told {
    let mut told = Told { system: Vec::new(), messages: Vec::new() };
    for entry in entries {
        let blocks = blocks(&entry.content);
        match entry.role.as_str() {
            "system" => told.system.push(text_of(&blocks)),
            "assistant" => {
                leave_out_as_before(provider, &entry.content, &mut told.messages);
                told.messages.push(Message { role: Role::Assistant, blocks });
            }
            "tool" => told.messages.push(Message { role: Role::Tool, blocks }),
            SUMMARY => {
                told.messages.push(Message::user(format!("Summary of the conversation so far:\n{}", text_of(&blocks))));
            }
            _ => told.messages.push(Message { role: Role::User, blocks }),
        }
    }
    told.system.retain(|text| !is_blank(text));
    told.messages = answered(told.messages.into_iter().filter_map(said).collect());
    told
}

/// Truncates long texts in the middle: to `old_max` before the model's last answer, to `last_max` in that answer and everything
/// after it.
pub(crate) fn cut(messages: &mut [Message], old_max: Option<usize>, last_max: Option<usize>) {
    let last_from = messages.iter().rposition(|message| message.role == Role::Assistant).unwrap_or(0);
    let (old, last) = messages.split_at_mut(last_from);
    old_max.into_iter().for_each(|max| old.iter_mut().for_each(|message| cut_texts(&mut message.blocks, max)));
    last_max.into_iter().for_each(|max| last.iter_mut().for_each(|message| cut_texts(&mut message.blocks, max)));
}

fn cut_texts(blocks: &mut [Block], chars_max: usize) {
    // A provider may have signed its reasoning together with the tool calls.
    let is_signed = blocks.iter().any(|block| match block {
        Block::Reasoning(reasoning) => reasoning.payload.is_some(),
        block => matches!(block, Block::Opaque(_)),
    });
    cut_attached(blocks, chars_max);
    for block in blocks {
        match block {
            Block::Text { text, citations } => {
                let is_cut = cut_text(text, chars_max);
                citations.retain(|_| !is_cut); // they refer to the whole text
            }
            Block::ToolResult(result) => cut_texts(&mut result.blocks, chars_max),
            Block::ToolCall(call) if !is_signed => cut_arguments(&mut call.arguments, chars_max),
            _ => {}
        }
    }
}

/// Truncates long attached texts in the middle.
pub(crate) fn cut_attached(blocks: &mut [Block], chars_max: usize) {
    for block in blocks {
        match block {
            Block::Attachment(attachment) => {
                if let Some(mut words) = attachment.words()
                    && cut_text(&mut words, chars_max)
                {
                    *block = Block::text(words);
                }
            }
            Block::ToolResult(result) => cut_attached(&mut result.blocks, chars_max),
            _ => {}
        }
    }
}

/// Truncates the texts in arguments, which stay an object, because providers accept nothing else.
fn cut_arguments(arguments: &mut String, chars_max: usize) {
    fn cut_value(value: &mut Value, chars_max: usize) {
        match value {
            Value::String(text) => {
                cut_text(text, chars_max);
            }
            Value::Array(values) => values.iter_mut().for_each(|value| cut_value(value, chars_max)),
            Value::Object(fields) => fields.values_mut().for_each(|value| cut_value(value, chars_max)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    if arguments.len() <= chars_max {
        return;
    }
    match serde_json::from_str(arguments) {
        Ok(mut value) => {
            cut_value(&mut value, chars_max);
            *arguments = value.to_string();
        }
        Err(_) => {
            cut_text(arguments, chars_max);
        }
    }
}

/// Truncates a text in the middle; returns whether it was longer.
fn cut_text(text: &mut String, chars_max: usize) -> bool {
    let count = text.chars().count();
    if count <= chars_max {
        return false;
    }
    let end = chars_max / 4;
    let at = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    let (begin_to, end_from) = (at(chars_max - end), at(count - end));
    let missing = count - chars_max;
    *text = format!("{}\n[{missing} characters are left out here]\n{}", &text[..begin_to], &text[end_from..]);
    true
}

/// Converts the messages for a request without tools (PR3).
pub(crate) fn without_tools(messages: Vec<Message>) -> Vec<Message> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut told = Vec::with_capacity(messages.len());
    for Message { role, blocks } in messages {
        let has_calls = blocks.iter().any(|block| matches!(block, Block::ToolCall(_)));
        let mut plain = Vec::with_capacity(blocks.len());
        for block in blocks {
            match block {
                Block::ToolCall(ToolCall { id, name, arguments }) => {
                    plain.push(Block::text(format!("(I called the tool `{name}` with {arguments})")));
                    names.insert(id, name);
                }
                Block::ToolResult(result) => {
                    let name = names.get(&result.call_id).map_or("a tool", String::as_str);
                    let outcome = if result.is_error { "failed" } else { "answered" };
                    plain.push(Block::text(format!("(The tool `{name}` {outcome}: {})", text_of(&result.blocks))));
                    plain.extend(result.blocks.into_iter().filter(|block| matches!(block, Block::Attachment(_))));
                }
                // Its signature covers the removed call.
                Block::Reasoning(_) if has_calls => {}
                other => plain.push(other),
            }
        }
        let role = if role == Role::Tool { Role::User } else { role };
        told.extend(said(Message { role, blocks: plain }));
    }
    told
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Removes empty blocks from the message; returns `None` if nothing is left (PR2).
fn said(Message { role, mut blocks }: Message) -> Option<Message> {
    blocks.retain(|block| !matches!(block, Block::Text { text, .. } | Block::Refusal { text } if is_blank(text)));
    if role == Role::User {
        // Providers do not accept tool calls, results and refusals from a user.
        blocks.retain(|block| matches!(block, Block::Text { .. } | Block::Attachment(_)));
    }
    let says = |block: &Block| !matches!(block, Block::Reasoning(_));
    blocks.iter().any(says).then_some(Message { role, blocks })
}

/// Returns the blocks of an entry's content. Invalid attachments become texts, because not every API rejects them.
pub(crate) fn blocks(content: &Payload) -> Vec<Block> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Blocks { blocks: Vec<Block>, text: Option<String> },
        Said { text: String },
        Nothing(()),
    }
    if !content.is_json() && !content.content_type().starts_with("text/") {
        let (media_type, source) = (content.content_type().to_owned(), Source::bytes(content.data()));
        return vec![Block::Attachment(Attachment { media_type, source })];
    }
    let said = match with_faults_told(content) {
        Some(told) => serde_json::from_value(told).ok(),
        None => content.read::<Content>().ok(),
    };
    match said {
        Some(Content::Nothing(())) => Vec::new(),
        Some(Content::Text(text) | Content::Said { text }) => vec![Block::text(text)],
        Some(Content::Blocks { blocks, text: Some(text) }) if blocks.is_empty() => vec![Block::text(text)],
        Some(Content::Blocks { blocks, .. }) => blocks,
        None => vec![Block::text(String::from_utf8_lossy(content.data()))],
    }
}

/// Returns the lengths in characters of all texts that can be truncated; `None` for an attached text that is stored elsewhere.
pub(crate) fn lengths(blocks: &[Block]) -> Vec<Option<u64>> {
    let length = |text: &str| Some(text.chars().count() as u64);
    let lengths = blocks.iter().flat_map(|block| match block {
        Block::Text { text, .. } => vec![length(text)],
        Block::ToolCall(call) => vec![length(&call.arguments)],
        Block::ToolResult(result) => lengths(&result.blocks),
        Block::Attachment(attachment) if attachment.is_text() => vec![attachment.words().and_then(|words| length(&words))],
        _ => Vec::new(),
    });
    lengths.collect()
}

pub(crate) fn text_of(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Pairs every call with its result (PR1). Removes second results. Results without a call and other tool messages become reports,
/// after the results of all calls before them.
fn answered(messages: Vec<Message>) -> Vec<Message> {
    let mut told: Vec<Message> = Vec::with_capacity(messages.len());
    let mut open: Vec<String> = Vec::new();
    let mut asked: BTreeSet<String> = BTreeSet::new();
    let mut reports: Vec<Message> = Vec::new();
    for message in messages {
        if message.role == Role::Tool {
            let (mut results, mut reported) = (Vec::new(), Vec::new());
            for block in message.blocks {
                match block {
                    Block::ToolResult(result) if asked.contains(&result.call_id) => {
                        if let Some(position) = open.iter().position(|id| *id == result.call_id) {
                            open.swap_remove(position);
                            results.push(Block::ToolResult(result));
                        }
                    }
                    Block::ToolResult(result) => reported.extend(result.blocks),
                    block => reported.push(block),
                }
            }
            if !results.is_empty() {
                told.push(Message { role: Role::Tool, blocks: results });
            }
            reports.extend(report(reported));
            if open.is_empty() {
                told.append(&mut reports);
            }
            continue;
        }
        close(&mut open, &mut told);
        told.append(&mut reports);
        if message.role == Role::Assistant {
            open.extend(message.blocks.iter().filter_map(|block| match block {
                Block::ToolCall(call) => Some(call.id.clone()),
                _ => None,
            }));
            asked.extend(open.iter().cloned());
        }
        told.push(message);
    }
    close(&mut open, &mut told);
    told.append(&mut reports);
    told
}

/// Converts a tool's message that answers no call into a user message, because providers accept only results of calls from tools.
fn report(mut blocks: Vec<Block>) -> Option<Message> {
    match blocks.first_mut()? {
        Block::Text { text, .. } => text.insert_str(0, REPORT),
        _ => blocks.insert(0, Block::text(REPORT.trim_end())),
    }
    Some(Message { role: Role::User, blocks })
}

fn close(open: &mut Vec<String>, told: &mut Vec<Message>) {
    let missing: Vec<Block> = open
        .drain(..)
        .map(|call_id| Block::ToolResult(ToolResult { call_id, blocks: vec![Block::text(NO_RESULT)], is_error: true }))
        .collect();
    if !missing.is_empty() {
        told.push(Message { role: Role::Tool, blocks: missing });
    }
}

#[cfg(test)]
mod tests {
    use onward_core::{Hash, Index, Name, Timestamp};
    use onward_llm::{JsonText, ModelReply, ProviderPayload, Reasoning};

    use super::*;

    fn entry(role: &str, content: &impl serde::Serialize) -> Entry {
        Entry {
            id: Hash([0; 16]),
            parent: None,
            role: Name::new(role).unwrap(),
            content: Payload::json(content).unwrap(),
            idempotency_key: None,
            generation: 0,
            index: Index(0),
            at: Timestamp(0),
            is_abandoned: false,
            is_aside: false,
        }
    }

    fn tell_p(entries: &[Entry]) -> Told {
        tell(entries, "p")
    }

    fn call(id: &str) -> Block {
        Block::ToolCall(ToolCall { id: id.into(), name: "t".into(), arguments: "{}".into() })
    }

    fn result(id: &str) -> serde_json::Value {
        serde_json::to_value(Message::tool_result(id, "done")).unwrap()
    }

    /// PR2, for any blocks in a user's message.
    #[test]
    fn a_users_message_has_nothing_that_providers_take_from_others_only() {
        let refusal = Block::Refusal { text: "no".into() };
        for block in [call("1"), refusal] {
            let alone = Message { role: Role::User, blocks: vec![block.clone()] };
            assert_eq!(said(alone), None);
            let beside = Message { role: Role::User, blocks: vec![block, Block::text("and this")] };
            assert_eq!(said(beside), Some(Message::user("and this")));
        }
    }

    #[test]
    fn contents_of_every_shape_are_told() {
        #[derive(serde::Serialize)]
        struct Said {
            text: &'static str,
            mood: &'static str,
        }
        let told = tell_p(&[
            entry("system", &"be brief"),
            entry("user", &"hello"),
            entry("user", &Said { text: "you", mood: "good" }),
            entry("assistant", &ModelReply { blocks: vec![Block::text("yes")], ..ModelReply::default() }),
            entry("customer", &[1, 2]),
        ]);
        assert_eq!(told.system, ["be brief"]);
        let texts: Vec<_> = told.messages.iter().map(|message| (message.role, text_of(&message.blocks))).collect();
        let user = |text: &str| (Role::User, text.to_owned());
        assert_eq!(texts, [user("hello"), user("you"), (Role::Assistant, "yes".to_owned()), user("[1,2]")]);
    }

    #[test]
    fn every_call_has_one_result_before_anybody_else_speaks() {
        let reply = ModelReply { blocks: vec![call("a"), call("b")], ..ModelReply::default() };
        let told = tell_p(&[
            entry("assistant", &reply),
            entry("tool", &result("a")),
            entry("tool", &result("a")),
            entry("tool", &result("nobody's")),
            entry("user", &"and?"),
            entry("assistant", &ModelReply { blocks: vec![call("c")], ..ModelReply::default() }),
        ]);
        let shape: Vec<(Role, usize)> = told.messages.iter().map(|message| (message.role, message.blocks.len())).collect();
        let expected = [
            (Role::Assistant, 2),
            (Role::Tool, 1),
            (Role::Tool, 1),
            (Role::User, 1),
            (Role::User, 1),
            (Role::Assistant, 1),
            (Role::Tool, 1),
        ];
        assert_eq!(shape, expected);
        assert_eq!(text_of(&told.messages[3].blocks), "A tool reports:\ndone", "nobody has asked for it");
        let Block::ToolResult(missing) = &told.messages[2].blocks[0] else { panic!() };
        assert_eq!((missing.call_id.as_str(), missing.is_error), ("b", true));
    }

    #[test]
    fn what_a_tool_says_without_being_asked_is_told_behind_the_results() {
        let reply = ModelReply { blocks: vec![call("a"), call("b")], ..ModelReply::default() };
        let told = tell_p(&[
            entry("assistant", &reply),
            entry("tool", &result("a")),
            entry("tool", &"The parcel has left Bremen."),
            entry("tool", &result("b")),
            entry("tool", &"It is in Ulm."),
        ]);
        let shape: Vec<(Role, String)> =
            told.messages.iter().map(|message| (message.role, text_of(&message.blocks))).skip(1).collect();
        let report = |text: &str| (Role::User, format!("A tool reports:\n{text}"));
        let result = || (Role::Tool, String::new());
        assert_eq!(shape, [result(), result(), report("The parcel has left Bremen."), report("It is in Ulm.")]);
    }

    #[test]
    fn what_says_nothing_is_not_told() {
        #[derive(serde::Serialize)]
        struct Blocks {
            blocks: Vec<Block>,
        }
        let thought = Block::Reasoning(Reasoning { text: "hm".into(), payload: None });
        let told = tell_p(&[
            entry("system", &" "),
            entry("user", &Blocks { blocks: Vec::new() }),
            entry("user", &""),
            entry("assistant", &Blocks { blocks: vec![thought.clone(), Block::text("")] }),
            entry("tool", &Blocks { blocks: Vec::new() }),
            entry("assistant", &Blocks { blocks: vec![thought, Block::text("yes")] }),
        ]);
        assert_eq!(told.system, Vec::<String>::new());
        let sizes: Vec<usize> = told.messages.iter().map(|message| message.blocks.len()).collect();
        assert_eq!(sizes, [2]);
    }

    #[test]
    fn of_a_long_text_the_beginning_and_the_end_are_told() {
        let result = ToolResult { call_id: "a".into(), blocks: vec![Block::text("ä".repeat(100))], is_error: false };
        let said = |role, blocks| Message { role, blocks };
        let mut messages = vec![
            said(Role::User, vec![Block::text("0123456789abcdef"), Block::text("short")]),
            said(Role::Assistant, vec![Block::text("0123456789")]),
            said(Role::Assistant, vec![Block::text("this is what it said last")]),
            said(Role::Tool, vec![Block::ToolResult(result)]),
        ];
        let whole = messages.clone();
        cut(&mut messages, None, None);
        assert_eq!(messages, whole);
        cut(&mut messages, Some(8), None);
        assert_eq!(messages[2..], whole[2..], "what was said last, and since, is whole");
        messages = whole;
        cut(&mut messages, Some(8), Some(8));
        let Block::ToolResult(result) = &messages[3].blocks[0] else { panic!("a result") };
        let told = [&messages[0].blocks[..], &messages[1].blocks, &messages[2].blocks, &result.blocks].map(text_of);
        let expected = [
            "012345\n[8 characters are left out here]\nef\nshort",
            "012345\n[2 characters are left out here]\n89",
            "this i\n[17 characters are left out here]\nst",
            "ääääää\n[92 characters are left out here]\nää",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn attached_texts_and_arguments_are_cut_and_stay_what_they_are() {
        let attached = |media_type: &str, bytes: &[u8]| {
            Block::Attachment(Attachment { media_type: media_type.into(), source: Source::bytes(bytes) })
        };
        let call = |arguments: &str| ToolCall { id: "c".into(), name: "t".into(), arguments: arguments.into() };
        let cut = |block: Block| {
            let mut blocks = vec![block];
            cut_texts(&mut blocks, 8);
            blocks.remove(0)
        };
        let picture = attached("image/png", &[0; 100]);
        assert_eq!(cut(picture.clone()), picture);
        let short = attached("text/plain", b"");
        assert_eq!(cut_attached_of(short.clone(), 100), short);
        let told = "[an attachment of type text/plain]\n01234567890123\n[70 characters are left out here]\n4567890123456789";
        let long = "0123456789".repeat(10);
        assert_eq!(cut_attached_of(attached("text/plain", long.as_bytes()), 65), Block::text(told));
        let Block::ToolCall(told) = cut(Block::ToolCall(call(r#"{"n":12345678,"of":["0123456789"]}"#))) else { panic!("a call") };
        assert_eq!(told.arguments, r#"{"n":12345678,"of":["012345\n[2 characters are left out here]\n89"]}"#);
        let Block::ToolCall(told) = cut(Block::ToolCall(call("{0123456789"))) else { panic!("a call") };
        assert_eq!(told.arguments, "{01234\n[3 characters are left out here]\n89");
        let payload = ProviderPayload { provider: "p".into(), json: JsonText::parse("1").unwrap() };
        let mut signed = vec![Block::Opaque(payload), Block::ToolCall(call(r#"{"of":"0123456789"}"#))];
        let whole = signed.clone();
        cut_texts(&mut signed, 8);
        assert_eq!(signed, whole, "a provider may have signed what was asked for");
    }

    fn cut_attached_of(block: Block, chars_max: usize) -> Block {
        let mut blocks = vec![block];
        cut_attached(&mut blocks, chars_max);
        blocks.remove(0)
    }

    #[test]
    fn what_is_not_json_is_told_or_shown() {
        let shown = |content_type: &str, data: &'static [u8]| blocks(&Payload::binary(content_type, data));
        assert_eq!(shown("application/json", b"{bad"), [Block::text("{bad")]);
        assert_eq!(shown("text/plain", b"hello"), [Block::text("hello")]);
        let picture = Attachment { media_type: "image/png".into(), source: Source::bytes(&[1, 2]) };
        assert_eq!(shown("image/png", &[1, 2]), [Block::Attachment(picture)]);
        assert_eq!(shown("application/json", b"null"), []);
    }

    #[test]
    fn words_beside_no_blocks_are_told() {
        let content = |text: &str| blocks(&Payload::from_json_text(text.to_owned()));
        assert_eq!(content(r#"{"text":"ok","blocks":[]}"#), [Block::text("ok")]);
        assert_eq!(content(r#"{"text":"ok","blocks":[{"type":"text","text":"yes"}]}"#), [Block::text("yes")]);
    }

    #[test]
    fn without_tools_calls_and_results_are_texts() {
        let thought = Block::Reasoning(Reasoning { text: "hm".into(), payload: None });
        let reply = ModelReply { blocks: vec![thought, Block::text("let me see"), call("a")], ..ModelReply::default() };
        let told = tell_p(&[entry("assistant", &reply), entry("tool", &result("a")), entry("user", &"and?")]);
        let plain = without_tools(told.messages);
        let texts: Vec<_> = plain.iter().map(|message| (message.role, text_of(&message.blocks))).collect();
        let expected = [
            (Role::Assistant, "let me see\n(I called the tool `t` with {})"),
            (Role::User, "(The tool `t` answered: done)"),
            (Role::User, "and?"),
        ];
        assert_eq!(texts, expected.map(|(role, text)| (role, text.to_owned())));
        assert!(plain.iter().flat_map(|message| &message.blocks).all(|block| matches!(block, Block::Text { .. })));
    }
}
