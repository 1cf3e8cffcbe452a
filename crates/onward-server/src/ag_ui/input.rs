//! Request of an AG-UI client, and the part of it that an agent gets.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::{Payload, RunId};
use onward_runtime::Runtime;
use serde::Deserialize;
use serde_json::{Value, json};

use super::messages::Said;
use super::parts::{self, Room};
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
    /// Returns whether it is approved, and the feedback. A canceled interrupt is not approved; a resolved one must contain
    /// `approved`, so that an unreadable response approves nothing.
    pub fn decision(&self) -> Result<(bool, Option<String>), RequestError> {
        if self.status == ResumeStatus::Cancelled {
            return Ok((false, Some("canceled".to_owned())));
        }
        let approved = self.payload.as_bool().or(self.payload["approved"].as_bool()).ok_or_else(|| {
            let why = format!("`payload` of the response to {} has no boolean `approved`", self.interrupt_id);
            RequestError::JsonInvalid { why }
        })?;
        Ok((approved, self.payload["feedback"].as_str().map(str::to_owned)))
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
    pub fn told(&self) -> Value {
        let blocks = self.content["blocks"].as_array();
        blocks.map_or_else(|| Value::String(self.text.clone()), |blocks| parts::content(blocks, &mut Room::endless()))
    }

    pub fn payload(&self) -> Payload {
        Payload::from_json_text(self.content.to_string())
    }

    /// Returns whether an entry is this message: it has the same id, or no id and the same text.
    pub fn is_said_by(&self, said: &Said) -> bool {
        match &said.id {
            Some(id) => *id == self.id,
            None => said.text.trim() == self.text.trim(),
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
    let is_said = message["content"].is_string() || message["content"].is_array();
    (!is_said).then(|| format!("`content` of message `{id}` must be a text or a list of parts"))
}

/// Returns a message of the thread's first request in the format of the run's input, with its parts as blocks.
fn brought_along(message: &Value) -> Value {
    let mut message = message.clone();
    if let Some(parts) = message["content"].as_array() {
        let blocks: Vec<Value> = parts.iter().filter_map(parts::block).collect();
        let has_more = blocks.iter().any(parts::is_attachment);
        message["content"] = if has_more { json!({"blocks": blocks}) } else { parts::content(&blocks, &mut Room::endless()) };
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

    pub fn says(&self, message: &UserMessage) -> Again {
        let Some(known) = self.messages.iter().find(|known| known["id"] == message.id.as_str()) else { return Again::New };
        let known = UserMessage::recorded(known).filter(|_| known["role"] == "user");
        // A client that got the conversation from us may have only the text of a message.
        let is_it = |known: &UserMessage| known.content == message.content || (message.is_text() && known.text == message.text);
        if known.as_ref().is_some_and(is_it) { Again::Same } else { Again::Other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(messages: Value) -> RunAgentInput {
        serde_json::from_value(json!({"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": []})).unwrap()
    }

    #[test]
    fn a_thread_is_a_run_whose_name_people_recognize_where_that_is_possible() {
        let run = |thread: &str| RunAgentInput { thread_id: thread.to_owned(), ..input(json!([])) }.run("support");
        assert_eq!(run("t-1").unwrap().as_str(), "support:t-1");
        let odd = run("a/b c").unwrap();
        assert!(odd.as_str().starts_with("support:") && !odd.as_str().contains('/'), "{odd}");
        assert_ne!(odd, run("a/b d").unwrap());
        assert!(run("").is_err());
    }

    #[test]
    fn only_what_was_said_since_the_last_answer_is_new() {
        let user = |id: &str| json!({"id": id, "role": "user", "content": id});
        let answer = json!({"id": "a", "role": "assistant", "content": "well"});
        let input = input(json!([user("1"), answer, user("2"), {"id": "s", "role": "system", "content": "x"}, user("3")]));
        let ids = |messages: Vec<UserMessage>| messages.into_iter().map(|message| message.id).collect::<Vec<_>>();
        assert_eq!(ids(input.new_messages()), ["2", "3"]);
        let started = input.start(&input.new_messages()[1]);
        let known = Started::read(&started);
        let said =
            |id: &str, role: &str, text: &str| UserMessage::read(&json!({"id": id, "role": role, "content": text})).unwrap();
        assert_eq!(known.says(&said("1", "user", "1")), Again::Same);
        assert_eq!(known.says(&said("4", "user", "4")), Again::New);
        for other in [said("1", "user", "one"), said("a", "user", "well"), said("s", "user", "x")] {
            assert_eq!(known.says(&other), Again::Other, "{other:?}");
        }
        assert_eq!(started.read::<Value>().unwrap()["text"], "3");
    }

    #[test]
    fn a_message_that_says_nothing_is_refused_and_passed_over_when_another_one_follows() {
        let user = |id: &str, content: Value| json!({"id": id, "role": "user", "content": content});
        let image = json!([{"type": "image", "source": {"type": "url", "value": "http://x/y"}}]);
        for nothing in [json!(""), json!(" "), json!([]), json!([{"type": "text", "text": ""}])] {
            let only = input(json!([user("1", nothing.clone())]));
            assert_eq!(only.check().unwrap_err().code, "message_empty", "{nothing}");
            let then = input(json!([user("1", nothing), user("2", json!("hello"))]));
            then.check().unwrap();
            let said = then.new_messages();
            assert_eq!(said.iter().map(|message| message.id.as_str()).collect::<Vec<_>>(), ["2"]);
            assert_eq!(then.start(&said[0]).read::<Value>().unwrap()["messages"].as_array().unwrap().len(), 1);
        }
        input(json!([user("1", image)])).check().unwrap();
        input(json!([])).check().unwrap();
    }

    #[test]
    fn a_message_that_nobody_would_be_told_is_refused() {
        let refused = |message: Value| input(json!([message])).check().is_err();
        for bad in [
            json!({"role": "user", "content": "no id"}),
            json!({"id": "", "role": "user", "content": "no id"}),
            json!({"id": 5, "role": "user", "content": "a number"}),
            json!({"id": "1", "role": "user", "content": 5}),
            json!({"id": "1", "role": "user", "content": {"text": "an object"}}),
            json!({"id": "1", "role": "user"}),
            json!({"id": "1", "role": "User", "content": "hello"}),
            json!({"id": "1", "content": "hello"}),
            json!("hello"),
        ] {
            assert!(refused(bad.clone()), "{bad}");
        }
        for good in
            [json!({"id": "1", "role": "user", "content": "hello"}), json!({"id": "1", "role": "activity", "content": {}})]
        {
            assert!(!refused(good.clone()), "{good}");
        }
    }

    #[test]
    fn an_id_stands_for_one_message() {
        let user = |text: &str| json!({"id": "1", "role": "user", "content": text});
        assert_eq!(input(json!([user("a"), user("b")])).check().unwrap_err().code, "json_invalid");
        let twice = input(json!([user("a"), user("a")]));
        twice.check().unwrap();
        let said = twice.new_messages();
        assert_eq!(said.len(), 1);
        assert_eq!(twice.start(&said[0]).read::<Value>().unwrap()["messages"], json!([user("a")]));
    }

    #[test]
    fn parts_become_blocks() {
        let parts = json!([{"type": "text", "text": "see"}, {"type": "image", "source": {"type": "url", "value": "http://x/y", "mimeType": "image/png"}}]);
        let message = UserMessage::read(&json!({"id": "1", "role": "user", "content": parts})).unwrap();
        assert_eq!(message.text, "see");
        assert_eq!(
            message.content["blocks"][1],
            json!({"type": "attachment", "media_type": "image/png", "source": {"url": "http://x/y"}})
        );
        let only = UserMessage::read(&json!({"id": "1", "role": "user", "content": [{"type": "text", "text": "a"}]})).unwrap();
        assert_eq!(only.content, json!({"id": "1", "text": "a"}));
        let known = Started { messages: vec![json!({"id": "1", "role": "user", "content": parts})] };
        assert_eq!(known.says(&message), Again::Same);
        assert_eq!(known.says(&UserMessage { content: json!({"id": "1", "text": "see"}), ..message }), Again::Same);
        assert_eq!(known.says(&only), Again::Other);
        let began = input(json!([{"id": "1", "role": "user", "content": parts}, {"id": "2", "role": "user", "content": "so?"}]));
        let started = Started::read(&began.start(&began.new_messages()[1]));
        assert_eq!(started.messages[0]["content"]["blocks"], began.new_messages()[0].content["blocks"]);
        assert_eq!(started.says(&began.new_messages()[0]), Again::Same);
        assert_eq!(started.says(&only), Again::Other);
    }

    #[test]
    fn bytes_are_taken_and_a_part_that_nobody_would_be_told_of_is_refused() {
        let said = |part: Value| input(json!([{"id": "1", "role": "user", "content": [{"type": "text", "text": "see"}, part]}]));
        for (given, source, value) in [("data", "base64", "aGV5"), ("url", "url", "https://x/y")] {
            let message = said(json!({"type": "binary", "mimeType": "image/png", given: value})).new_messages().remove(0);
            let expected = json!({"type": "attachment", "media_type": "image/png", "source": {source: value}});
            assert_eq!(message.content["blocks"][1], expected);
        }
        for unknown in [
            json!({"type": "hologram"}),
            json!({"type": "binary", "mimeType": "image/png"}),
            json!({"type": "image", "source": {"type": "id", "value": "x"}}),
        ] {
            let refused = said(unknown.clone());
            assert_eq!(refused.check().unwrap_err().code, "json_invalid", "{unknown}");
            assert!(refused.new_messages().is_empty(), "a client sends it again with the next one");
        }
    }

    #[test]
    fn what_is_resolved_is_approved_only_if_it_says_so() {
        let decision = |status: &str, payload: Value| {
            let resume: Resume =
                serde_json::from_value(json!({"interruptId": "i", "status": status, "payload": payload})).unwrap();
            resume.decision()
        };
        assert_eq!(decision("resolved", json!({"approved": true})).unwrap(), (true, None));
        assert_eq!(decision("resolved", json!(true)).unwrap(), (true, None));
        assert_eq!(decision("resolved", json!({"approved": false, "feedback": "no"})).unwrap(), (false, Some("no".to_owned())));
        assert_eq!(decision("resolved", json!(false)).unwrap(), (false, None));
        assert!(!decision("cancelled", json!({"approved": true})).unwrap().0);
        for unreadable in
            [json!(null), json!({}), json!({"approved": "no"}), json!({"approved": 0}), json!({"approve": false}), json!("false")]
        {
            assert!(decision("resolved", unreadable.clone()).is_err(), "{unreadable}");
        }
    }
}
