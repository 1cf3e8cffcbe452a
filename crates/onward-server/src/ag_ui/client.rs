//! Messages that the client has.
//!
//! On a `MESSAGES_SNAPSHOT` an AG-UI client keeps its messages in their order, drops those that are missing from the snapshot,
//! and appends new ones. Therefore snapshots use the ids that the client has, and if the result would have another order, a
//! shorter snapshot removes the messages in the way first.

use std::collections::BTreeMap;

use onward_core::Hash;
use serde_json::{Value, json};

use super::messages::EntryContent;

pub(super) struct KnownMessages {
    /// Ids of the client's messages, in its order, without streamed reasoning.
    ids: Vec<String>,
    /// Messages of the request, to find the client's ids of our entries.
    came_with: Vec<Value>,
}

impl KnownMessages {
    pub fn new(messages: &[Value]) -> KnownMessages {
        let ids = messages.iter().filter_map(|message| message["id"].as_str()).map(str::to_owned).collect();
        KnownMessages { ids, came_with: messages.to_vec() }
    }

    /// Finds the ids that the client uses for entries: in their order, by the id that a user gave, otherwise by equal content.
    pub fn recognize(&self, conversation: &[EntryContent], names: &mut BTreeMap<Hash, String>) {
        let mut known = self.came_with.iter();
        for entry in conversation {
            let ours = entry.role.as_str();
            // A caller's `system` message is not an instruction of the agent loop; its entry has another role.
            let is_role = |role: &Value| match &entry.reported_as {
                Some(reported_as) => role == reported_as.as_str(),
                None => role == ours || (role == "system" && ours == "developer"),
            };
            let is_same = |message: &Value| match entry.id.as_ref().filter(|_| ours == "user") {
                Some(id) => message["id"] == id.as_str(),
                None => is_same_message(message, entry),
            };
            let mut rest = known.clone();
            let found = rest.find(|message| is_role(&message["role"]) && is_same(message));
            if let Some(id) = found.and_then(|message| message["id"].as_str()) {
                names.entry(entry.entry).or_insert_with(|| id.to_owned());
                known = rest;
            }
        }
    }

    /// Records the message that an event creates at the client.
    pub fn record_event(&mut self, event: &Value) {
        let id = match event["type"].as_str() {
            Some("TEXT_MESSAGE_START" | "TOOL_CALL_RESULT") => &event["messageId"],
            Some("TOOL_CALL_START") => &event["parentMessageId"],
            _ => return,
        };
        if let Some(id) = id.as_str()
            && !self.ids.iter().any(|known| known == id)
        {
            self.ids.push(id.to_owned());
        }
    }

    /// Returns the events after which the client has these messages, in this order.
    pub fn replace(&mut self, messages: &[Value]) -> Vec<Value> {
        let wanted: Vec<&str> = messages.iter().filter_map(|message| message["id"].as_str()).collect();
        let kept: Vec<&String> = self.ids.iter().filter(|id| wanted.contains(&id.as_str())).collect();
        let common = kept.iter().zip(&wanted).take_while(|(kept, wanted)| kept.as_str() == **wanted).count();
        let mut out = Vec::new();
        if common < kept.len() {
            out.push(json!({"type": "MESSAGES_SNAPSHOT", "messages": messages[..common]}));
        }
        out.push(json!({"type": "MESSAGES_SNAPSHOT", "messages": messages}));
        self.ids = wanted.into_iter().map(str::to_owned).collect();
        out
    }
}

fn is_same_message(message: &Value, entry: &EntryContent) -> bool {
    let content = match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    };
    if message["role"] == "tool" {
        return entry.results.iter().any(|(call, _)| message["toolCallId"] == call.as_str());
    }
    let calls = message["toolCalls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_calls = calls.iter().map(|call| call["id"].as_str()).eq(entry.calls.iter().map(|(id, ..)| Some(id.as_str())));
    content == entry.text && (message["role"] != "assistant" || has_calls)
}

#[cfg(test)]
mod tests;
