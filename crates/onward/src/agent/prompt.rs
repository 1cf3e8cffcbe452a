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
use onward_core::conversation::{Entry, SUMMARY, with_faults_replaced};
use onward_llm::{Attachment, Block, Message, Role, Source, ToolCall, ToolResult};
use serde::Deserialize;
use serde_json::Value;

use super::refused::leave_out_as_before;

/// Placeholder for a result that is not recorded.
const NO_RESULT: &str = "there is no result of this call";

/// Prefix of a tool's message that answers no call.
const REPORT: &str = "A tool reports:\n";

/// The conversation as messages, and the texts of its system entries.
pub(crate) struct PromptMessages {
    pub system: Vec<String>,
    pub messages: Vec<Message>,
}

/// Converts entries into messages for a model of `provider`.
pub(crate) fn to_messages(entries: &[Entry], provider: &str) -> PromptMessages {
    let mut out = PromptMessages { system: Vec::new(), messages: Vec::new() };
    for entry in entries {
        let blocks = blocks(&entry.content);
        match entry.role.as_str() {
            "system" => out.system.push(text_of(&blocks)),
            "assistant" => {
                leave_out_as_before(provider, &entry.content, &mut out.messages);
                out.messages.push(Message { role: Role::Assistant, blocks });
            }
            "tool" => out.messages.push(Message { role: Role::Tool, blocks }),
            SUMMARY => {
                out.messages.push(Message::user(format!("Summary of the conversation so far:\n{}", text_of(&blocks))));
            }
            _ => out.messages.push(Message { role: Role::User, blocks }),
        }
    }
    out.system.retain(|text| !is_blank(text));
    out.messages = answered(out.messages.into_iter().filter_map(without_blanks).collect());
    out
}

/// Truncates texts over `chars_max` characters in the middle.
pub(crate) fn truncate(messages: &mut [Message], chars_max: usize) {
    messages.iter_mut().for_each(|message| truncate_texts(&mut message.blocks, chars_max));
}

fn truncate_texts(blocks: &mut [Block], chars_max: usize) {
    // A provider may have signed its reasoning together with the tool calls.
    let is_signed = blocks.iter().any(|block| match block {
        Block::Reasoning(reasoning) => reasoning.payload.is_some(),
        block => matches!(block, Block::Opaque(_)),
    });
    for block in blocks {
        match block {
            Block::Text { text, citations } => {
                let is_cut = truncate_text(text, chars_max);
                citations.retain(|_| !is_cut); // they refer to the whole text
            }
            Block::ToolResult(result) => truncate_texts(&mut result.blocks, chars_max),
            Block::Attachment(attachment) => {
                if let Some(mut words) = attachment.words()
                    && truncate_text(&mut words, chars_max)
                {
                    *block = Block::text(words);
                }
            }
            Block::ToolCall(call) if !is_signed => truncate_arguments(&mut call.arguments, chars_max),
            _ => {}
        }
    }
}

/// Truncates the texts in arguments, which stay an object, because providers accept nothing else.
fn truncate_arguments(arguments: &mut String, chars_max: usize) {
    fn truncate_value(value: &mut Value, chars_max: usize) {
        match value {
            Value::String(text) => {
                truncate_text(text, chars_max);
            }
            Value::Array(values) => values.iter_mut().for_each(|value| truncate_value(value, chars_max)),
            Value::Object(fields) => fields.values_mut().for_each(|value| truncate_value(value, chars_max)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    if arguments.len() <= chars_max {
        return;
    }
    match serde_json::from_str(arguments) {
        Ok(mut value) => {
            truncate_value(&mut value, chars_max);
            *arguments = value.to_string();
        }
        Err(_) => {
            truncate_text(arguments, chars_max);
        }
    }
}

/// Truncates a text in the middle; returns whether it was longer.
fn truncate_text(text: &mut String, chars_max: usize) -> bool {
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
    let mut out = Vec::with_capacity(messages.len());
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
        out.extend(without_blanks(Message { role, blocks: plain }));
    }
    out
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Removes empty blocks from the message; returns `None` if nothing is left (PR2).
fn without_blanks(Message { role, mut blocks }: Message) -> Option<Message> {
    blocks.retain(|block| !matches!(block, Block::Text { text, .. } | Block::Refusal { text } if is_blank(text)));
    if role == Role::User {
        // Providers do not accept tool calls, results and refusals from a user.
        blocks.retain(|block| matches!(block, Block::Text { .. } | Block::Attachment(_)));
    }
    let is_content = |block: &Block| !matches!(block, Block::Reasoning(_));
    blocks.iter().any(is_content).then_some(Message { role, blocks })
}

/// Returns the blocks of an entry's content. Invalid attachments become texts, because not every API rejects them.
pub(crate) fn blocks(content: &Payload) -> Vec<Block> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Blocks { blocks: Vec<Block>, text: Option<String> },
        WithText { text: String },
        Nothing(()),
    }
    if !content.is_json() && !content.content_type().starts_with("text/") {
        let (media_type, source) = (content.content_type().to_owned(), Source::bytes(content.data()));
        return vec![Block::Attachment(Attachment { media_type, source })];
    }
    let without_blanks = match with_faults_replaced(content) {
        Some(replaced) => serde_json::from_value(replaced).ok(),
        None => content.read::<Content>().ok(),
    };
    match without_blanks {
        Some(Content::Nothing(())) => Vec::new(),
        Some(Content::Text(text) | Content::WithText { text }) => vec![Block::text(text)],
        Some(Content::Blocks { blocks, text: Some(text) }) if blocks.is_empty() => vec![Block::text(text)],
        Some(Content::Blocks { blocks, .. }) => blocks,
        None => vec![Block::text(String::from_utf8_lossy(content.data()))],
    }
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
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    let mut open: Vec<String> = Vec::new();
    let mut requested: BTreeSet<String> = BTreeSet::new();
    let mut reports: Vec<Message> = Vec::new();
    for message in messages {
        if message.role == Role::Tool {
            let (mut results, mut reported) = (Vec::new(), Vec::new());
            for block in message.blocks {
                match block {
                    Block::ToolResult(result) if requested.contains(&result.call_id) => {
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
                out.push(Message { role: Role::Tool, blocks: results });
            }
            reports.extend(report(reported));
            if open.is_empty() {
                out.append(&mut reports);
            }
            continue;
        }
        close(&mut open, &mut out);
        out.append(&mut reports);
        if message.role == Role::Assistant {
            open.extend(message.blocks.iter().filter_map(|block| match block {
                Block::ToolCall(call) => Some(call.id.clone()),
                _ => None,
            }));
            requested.extend(open.iter().cloned());
        }
        out.push(message);
    }
    close(&mut open, &mut out);
    out.append(&mut reports);
    out
}

/// Converts a tool's message that answers no call into a user message, because providers accept only results of calls from tools.
fn report(mut blocks: Vec<Block>) -> Option<Message> {
    match blocks.first_mut()? {
        Block::Text { text, .. } => text.insert_str(0, REPORT),
        _ => blocks.insert(0, Block::text(REPORT.trim_end())),
    }
    Some(Message { role: Role::User, blocks })
}

fn close(open: &mut Vec<String>, out: &mut Vec<Message>) {
    let missing: Vec<Block> = open
        .drain(..)
        .map(|call_id| Block::ToolResult(ToolResult { call_id, blocks: vec![Block::text(NO_RESULT)], is_error: true }))
        .collect();
    if !missing.is_empty() {
        out.push(Message { role: Role::Tool, blocks: missing });
    }
}

#[cfg(test)]
mod tests;
