//! What a model is told of a conversation: entries become messages.
//!
//! Owns how an entry's content is read: a text, an object with `text`, an object with `blocks`, and everything else as its own JSON. Must
//! never fail over a content: what somebody has said is told as it is.
//!
//! Invariant PR1: in what is told, every call of a tool is followed by one result before anybody else speaks, because providers refuse
//! anything else.

use onward_core::Payload;
use onward_core::conversation::{Entry, SUMMARY};
use onward_llm::{Block, Message, Role, ToolResult};
use serde::Deserialize;

/// What stands in the place of a result that nobody has recorded.
const NO_RESULT: &str = "there is no result of this call";

/// The conversation as messages, and what its system entries say.
pub(crate) struct Told {
    pub system: Vec<String>,
    pub messages: Vec<Message>,
}

pub(crate) fn tell(entries: &[Entry]) -> Told {
    let mut told = Told { system: Vec::new(), messages: Vec::new() };
    for entry in entries {
        let blocks = blocks(&entry.content);
        match entry.role.as_str() {
            "system" => told.system.push(text_of(&blocks)),
            "assistant" => told.messages.push(Message { role: Role::Assistant, blocks }),
            "tool" => told.messages.push(Message { role: Role::Tool, blocks }),
            SUMMARY => {
                told.messages.push(Message::user(format!("Summary of the conversation so far:\n{}", text_of(&blocks))));
            }
            _ => told.messages.push(Message { role: Role::User, blocks }),
        }
    }
    told.messages = answered(told.messages);
    told
}

/// What somebody has said, block by block.
pub(crate) fn blocks(content: &Payload) -> Vec<Block> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Blocks { blocks: Vec<Block> },
        Said { text: String },
    }
    match content.read::<Content>() {
        Ok(Content::Text(text) | Content::Said { text }) => vec![Block::text(text)],
        Ok(Content::Blocks { blocks }) => blocks,
        Err(_) => vec![Block::text(String::from_utf8_lossy(content.data()))],
    }
}

pub(crate) fn text_of(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Gives every call its result, and takes out results that nobody asked for (PR1).
fn answered(messages: Vec<Message>) -> Vec<Message> {
    let mut told: Vec<Message> = Vec::with_capacity(messages.len());
    let mut open: Vec<String> = Vec::new();
    for mut message in messages {
        if message.role == Role::Tool {
            message.blocks.retain(|block| match block {
                Block::ToolResult(result) => {
                    let asked = open.iter().position(|id| *id == result.call_id);
                    asked.map(|position| open.swap_remove(position)).is_some()
                }
                _ => false,
            });
            if !message.blocks.is_empty() {
                told.push(message);
            }
            continue;
        }
        close(&mut open, &mut told);
        if message.role == Role::Assistant {
            open.extend(message.blocks.iter().filter_map(|block| match block {
                Block::ToolCall(call) => Some(call.id.clone()),
                _ => None,
            }));
        }
        told.push(message);
    }
    close(&mut open, &mut told);
    told
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
    use onward_llm::{ModelReply, ToolCall};

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

    fn call(id: &str) -> Block {
        Block::ToolCall(ToolCall { id: id.into(), name: "t".into(), arguments: "{}".into() })
    }

    fn result(id: &str) -> serde_json::Value {
        serde_json::to_value(Message::tool_result(id, "done")).unwrap()
    }

    #[test]
    fn contents_of_every_shape_are_told() {
        #[derive(serde::Serialize)]
        struct Said {
            text: &'static str,
            mood: &'static str,
        }
        let told = tell(&[
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
        let told = tell(&[
            entry("assistant", &reply),
            entry("tool", &result("a")),
            entry("tool", &result("a")),
            entry("tool", &result("nobody's")),
            entry("user", &"and?"),
            entry("assistant", &ModelReply { blocks: vec![call("c")], ..ModelReply::default() }),
        ]);
        let shape: Vec<(Role, usize)> = told.messages.iter().map(|message| (message.role, message.blocks.len())).collect();
        let expected =
            [(Role::Assistant, 2), (Role::Tool, 1), (Role::Tool, 1), (Role::User, 1), (Role::Assistant, 1), (Role::Tool, 1)];
        assert_eq!(shape, expected);
        let Block::ToolResult(missing) = &told.messages[2].blocks[0] else { panic!() };
        assert_eq!((missing.call_id.as_str(), missing.is_error), ("b", true));
    }
}
