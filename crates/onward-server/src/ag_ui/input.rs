//! Request of an AG-UI client, and the part of it that an agent gets.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::{Payload, RunId};
use onward_runtime::Runtime;
use serde::Deserialize;
use serde_json::{Value, json};

use super::messages::EntryContent;
use super::parts::{self, AttachmentLimit};
use crate::http::problem::{Problem, RequestError};

/// Longest thread id that is used in the run id unchanged; longer ones are hashed.
const THREAD_BYTES_MAX: usize = 128;

/// AG-UI's `RunAgentInput`. Unknown fields are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunAgentInput {
    pub thread_id: String,
    pub run_id: String,
    #[serde(default)]
    pub messages: Vec<Value>,
    #[serde(default)]
    tools: Value,
    #[serde(default)]
    context: Value,
    #[serde(default)]
    state: Value,
    #[serde(default)]
    forwarded_props: Value,
    #[serde(default)]
    pub resume: Vec<Resume>,
}

/// Response to an interrupt.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resume {
    pub interrupt_id: String,
    status: ResumeStatus,
    #[serde(default)]
    payload: Value,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ResumeStatus {
    Resolved,
    Cancelled,
}

impl Resume {
    /// Returns whether it is approved, the feedback, and the structured answer. A canceled interrupt is not approved; a resolved one must contain
    /// `approved`, so that an unreadable response approves nothing.
    pub fn decision(&self) -> Result<(bool, Option<String>, Option<Payload>), RequestError> {
        if self.status == ResumeStatus::Cancelled {
            return Ok((false, Some("canceled".to_owned()), None));
        }
        let approved = self.payload.as_bool().or(self.payload["approved"].as_bool()).ok_or_else(|| {
            let why = format!("`payload` of the response to {} has no boolean `approved`", self.interrupt_id);
            RequestError::JsonInvalid { why }
        })?;
        let answer = self.payload.get("answer").filter(|answer| approved && !answer.is_null());
        let answer = answer.map(|answer| Payload::json(answer).expect("a JSON value is JSON"));
        Ok((approved, self.payload["feedback"].as_str().map(str::to_owned), answer))
    }
}

/// Message of a user.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UserMessage {
    pub id: String,
    pub text: String,
    /// Content for the agent: `{id, text}`, or `{id, blocks}` if there is more than text.
    pub content: Value,
    /// Error about a part that is not supported; the message is refused, because the agent would not get that part.
    pub unreadable: Option<String>,
}

impl UserMessage {
    fn read(message: &Value) -> Option<UserMessage> {
        let id = message["id"].as_str()?.to_owned();
        let mut unreadable = None;
        let (text, blocks) = match &message["content"] {
            Value::String(text) => (text.clone(), None),
            Value::Array(parts) => {
                unreadable = parts.iter().find(|part| parts::block(part).is_none()).map(|part| {
                    let kind = part["type"].as_str().unwrap_or_default();
                    format!("message `{id}` has an unsupported part of type `{kind}`: send a text, data or a URL")
                });
                let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
                let is_text = parts.iter().all(|part| part["type"] == "text");
                (text, (!is_text).then(|| parts.iter().filter_map(parts::block).collect::<Vec<Value>>()))
            }
            _ => return None,
        };
        let content = match blocks {
            None => json!({"id": id, "text": text}),
            Some(blocks) => json!({"id": id, "blocks": blocks}),
        };
        Some(UserMessage { id, text, content, unreadable })
    }

    /// Reads a message from the recorded input of a run.
    fn recorded(message: &Value) -> Option<UserMessage> {
        let Some(blocks) = message["content"]["blocks"].as_array() else { return UserMessage::read(message) };
        let (id, text) = (message["id"].as_str()?.to_owned(), blocks.iter().filter_map(|block| block["text"].as_str()).collect());
        Some(UserMessage { content: json!({"id": id, "blocks": blocks}), id, text, unreadable: None })
    }

    /// Returns the content in the client's format.
    pub fn sent(&self) -> Value {
        let blocks = self.content["blocks"].as_array();
        blocks
            .map_or_else(|| Value::String(self.text.clone()), |blocks| parts::content(blocks, &mut AttachmentLimit::unlimited()))
    }

    pub fn payload(&self) -> Payload {
        Payload::from_json_text(self.content.to_string())
    }

    /// Returns whether an entry is this message: it has the same id, or no id and the same text.
    pub fn matches_entry(&self, entry: &EntryContent) -> bool {
        match &entry.id {
            Some(id) => *id == self.id,
            None => entry.text.trim() == self.text.trim(),
        }
    }

    fn is_refused(&self) -> bool {
        self.check().is_err()
    }

    fn check(&self) -> Result<(), Problem> {
        match &self.unreadable {
            Some(why) => Err(RequestError::JsonInvalid { why: why.clone() }.into()),
            None => Ok(Runtime::check_message(&self.payload())?),
        }
    }

    fn is_text(&self) -> bool {
        self.content["text"].is_string()
    }
}

fn of_user(message: &Value) -> Option<UserMessage> {
    UserMessage::read(message).filter(|_| message["role"] == "user")
}

/// Returns an error about the form of a message. It is refused, because ignoring it would go unnoticed.
fn misshapen(message: &Value) -> Option<String> {
    const ROLES: [&str; 7] = ["user", "assistant", "system", "developer", "tool", "activity", "reasoning"];
    let Some(role) = message["role"].as_str().filter(|role| ROLES.contains(role)) else {
        return Some(format!("the role of a message must be one of {}", ROLES.join(", ")));
    };
    if role != "user" {
        return None;
    }
    let Some(id) = message["id"].as_str().filter(|id| !id.is_empty()) else {
        return Some("a user message has no `id`".to_owned());
    };
    let has_content = message["content"].is_string() || message["content"].is_array();
    (!has_content).then(|| format!("`content` of message `{id}` must be a text or a list of parts"))
}

/// Returns a message of the thread's first request in the format of the run's input, with its parts as blocks.
fn brought_along(message: &Value) -> Value {
    let mut message = message.clone();
    if let Some(parts) = message["content"].as_array() {
        let blocks: Vec<Value> = parts.iter().filter_map(parts::block).collect();
        let has_more = blocks.iter().any(parts::is_attachment);
        message["content"] =
            if has_more { json!({"blocks": blocks}) } else { parts::content(&blocks, &mut AttachmentLimit::unlimited()) };
    }
    message
}

impl RunAgentInput {
    /// Returns the id of the thread's run.
    pub fn run(&self, kind: &str) -> Result<RunId, RequestError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let thread = &self.thread_id;
        if thread.is_empty() {
            return Err(RequestError::JsonInvalid { why: "`threadId` is empty".to_owned() });
        }
        let is_plain = thread.len() <= THREAD_BYTES_MAX && thread.bytes().all(plain);
        let named = match is_plain {
            true => format!("{kind}:{thread}"),
            false => format!("{kind}:{}", onward_core::Hash::of_parts(&[b"thread", thread.as_bytes()])),
        };
        RunId::new(named).map_err(|error| RequestError::JsonInvalid { why: format!("invalid `threadId`: {error}") })
    }

    /// Returns the user messages since the last response. Invalid messages are skipped: a client keeps a refused message, such as
    /// an empty one, and sends it again with the next one.
    pub fn new_messages(&self) -> Vec<UserMessage> {
        self.since_answered().filter(|message| !message.is_refused()).collect()
    }

    /// Refuses messages that are not valid in AG-UI, two messages with the same id and different content, and a last message
    /// without content, because a turn needs something to respond to.
    pub fn check(&self) -> Result<(), Problem> {
        if let Some(why) = self.messages.iter().find_map(misshapen) {
            return Err(RequestError::JsonInvalid { why }.into());
        }
        let mut known: BTreeMap<String, Value> = BTreeMap::new();
        for UserMessage { id, content, .. } in self.messages.iter().filter_map(of_user) {
            if known.insert(id.clone(), content.clone()).is_some_and(|first| first != content) {
                let why = format!("two messages with different content have the id `{id}`");
                return Err(RequestError::JsonInvalid { why }.into());
            }
        }
        self.since_answered().last().map_or(Ok(()), |last| last.check())
    }

    fn since_answered(&self) -> impl Iterator<Item = UserMessage> {
        let is_answer = |message: &Value| matches!(message["role"].as_str(), Some("assistant" | "tool"));
        let from = self.messages.iter().rposition(is_answer).map_or(0, |last| last + 1);
        let mut known = BTreeSet::new();
        self.messages[from..].iter().filter_map(of_user).filter(move |message| known.insert(message.id.clone()))
    }

    /// Returns the input of a new thread's run: the last message, in the format of the signal, and the rest of the request.
    pub fn start(&self, last: &UserMessage) -> Payload {
        let mut input = last.content.clone();
        let is_refused = |message: &&Value| of_user(message).is_some_and(|message| message.is_refused());
        let mut known = BTreeSet::new();
        let mut is_new = |message: &&Value| of_user(message).is_none_or(|message| known.insert(message.id));
        let messages = self.messages.iter().filter(|message| !is_refused(message));
        input["messages"] = messages.filter(|message| is_new(message)).map(brought_along).collect();
        let rest = [("tools", &self.tools), ("context", &self.context), ("state", &self.state)];
        for (name, value) in rest.into_iter().chain([("forwarded_props", &self.forwarded_props)]) {
            if !value.is_null() {
                input[name] = value.clone();
            }
        }
        Payload::from_json_text(input.to_string())
    }
}

/// Messages that a run was started with.
#[derive(Default)]
pub(super) struct Started {
    messages: Vec<Value>,
}

/// Relation of a message to the ones that a run was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    New,
    Same,
    /// Another message has the same id.
    Other,
}

impl Started {
    pub fn read(input: &Payload) -> Started {
        let input: Value = input.read().unwrap_or_default();
        Started { messages: input["messages"].as_array().cloned().unwrap_or_default() }
    }

    pub fn compare(&self, message: &UserMessage) -> Again {
        let Some(known) = self.messages.iter().find(|known| known["id"] == message.id.as_str()) else { return Again::New };
        let known = UserMessage::recorded(known).filter(|_| known["role"] == "user");
        // A client that got the conversation from us may have only the text of a message.
        let is_it = |known: &UserMessage| known.content == message.content || (message.is_text() && known.text == message.text);
        if known.as_ref().is_some_and(is_it) { Again::Same } else { Again::Other }
    }
}

#[cfg(test)]
mod tests;
