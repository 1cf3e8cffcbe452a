//! The conversation as messages of an AG-UI client.

use std::collections::BTreeMap;

use onward_core::conversation::{Entry, EntryCursor, reported_text};
use onward_core::stream::StreamEntry;
use onward_core::{Hash, Name, RunKey};
use onward_runtime::{ENTRIES_MAX, EntryQuery, Runtime, RuntimeError};
use serde_json::{Value, json};

use super::parts::{self, AttachmentLimit};

/// Returns the last [`ENTRIES_MAX`] entries of the conversation that ends in `leaf`, oldest first; `limit` limits the attachments.
/// Entries after the last response are returned whole: a client sends them again, and the content must be the same.
pub(super) async fn conversation(
    runtime: &Runtime,
    key: &RunKey,
    leaf: Option<Hash>,
    mut limit: AttachmentLimit,
) -> Result<Vec<EntryContent>, RuntimeError> {
    let (mut found, mut is_answered) = (Vec::new(), false);
    let mut next = leaf.map(EntryCursor::from);
    // The latest page comes first; only one page is in memory at a time.
    while let Some(leaf) = next.filter(|_| found.len() < ENTRIES_MAX) {
        let query = EntryQuery { leaf: Some(leaf), before: None, limit: ENTRIES_MAX - found.len() };
        let page = runtime.read_entries(key, query).await?;
        for entry in page.entries.iter().rev() {
            is_answered |= matches!(entry.role.as_str(), "assistant" | "tool");
            let content = if is_answered {
                EntryContent::read(entry, &mut limit)
            } else {
                EntryContent::read(entry, &mut AttachmentLimit::unlimited())
            };
            found.push(content);
        }
        next = page.before;
    }
    found.reverse();
    Ok(found)
}

/// Reads one entry.
pub(super) async fn entry(
    runtime: &Runtime,
    key: &RunKey,
    position: &StreamEntry,
    mut limit: AttachmentLimit,
) -> Result<Option<EntryContent>, RuntimeError> {
    let cursor = EntryCursor { id: position.id, generation: Some(position.generation) };
    let query = EntryQuery { leaf: Some(cursor), before: None, limit: 1 };
    Ok(runtime.read_entries(key, query).await?.entries.pop().map(|entry| EntryContent::read(&entry, &mut limit)))
}

/// Returns whether the message id is the id of an entry: then the client got the message from us.
pub(super) async fn is_entry(runtime: &Runtime, key: &RunKey, message: &str) -> Result<bool, RuntimeError> {
    let Some(id) = Hash::parse(message) else { return Ok(false) };
    let query = EntryQuery { leaf: Some(id.into()), before: None, limit: 1 };
    match runtime.read_entries(key, query).await {
        Err(RuntimeError::EntryNotFound { .. }) => Ok(false),
        found => found.map(|_| true),
    }
}

/// Content of an entry.
pub(super) struct EntryContent {
    pub entry: Hash,
    pub role: Name,
    pub text: String,
    /// Text and attachments as parts of the client's format; a plain text if there are no attachments.
    pub content: Value,
    pub reasoning: String,
    /// Id, name and arguments.
    pub calls: Vec<(String, String, String)>,
    /// Call id and result.
    pub results: Vec<(String, Value)>,
    /// Id that the sender gave the message.
    pub id: Option<String>,
    /// Role that the caller gave a message without the right to it; the model gets the message as a report.
    pub reported_as: Option<String>,
}

impl EntryContent {
    pub fn read(entry: &Entry, limit: &mut AttachmentLimit) -> EntryContent {
        let content: Value = entry.content.read().unwrap_or_else(|_| Value::String("(not readable here)".to_owned()));
        let mut read = EntryContent {
            entry: entry.id,
            role: entry.role.clone(),
            text: String::new(),
            content: Value::Null,
            reasoning: String::new(),
            calls: Vec::new(),
            results: Vec::new(),
            id: content["id"].as_str().map(str::to_owned),
            reported_as: None,
        };
        match (&content, content["blocks"].as_array(), content["text"].as_str()) {
            (Value::String(text), ..) => read.text.clone_from(text),
            (_, Some(blocks), _) => {
                blocks.iter().for_each(|block| read.take(block, limit));
                if blocks.iter().any(parts::is_attachment) {
                    read.content = parts::content(blocks, limit);
                }
            }
            (_, _, Some(text)) => text.clone_into(&mut read.text),
            _ => read.text = content.to_string(),
        }
        if let Some(role) = content["role"].as_str().filter(|_| read.is_of("developer"))
            && let Some(text) = reported_text(role, &read.text)
        {
            (read.text, read.reported_as) = (text.to_owned(), Some(role.to_owned()));
        }
        if read.content.is_null() {
            read.content = Value::String(read.text.clone());
        }
        read
    }

    pub fn is_of(&self, role: &str) -> bool {
        self.role.as_str() == role
    }

    /// Returns the id that the client uses for the entry.
    pub fn name(&self, names: &BTreeMap<Hash, String>) -> String {
        let given = names.get(&self.entry).or_else(|| self.id.as_ref().filter(|_| self.is_of("user")));
        given.cloned().unwrap_or_else(|| self.entry.to_string())
    }

    /// Returns the text of a tool entry beside its results, with the id of its message. Clients show tool messages only below
    /// their calls, so the text is sent as a message of the agent.
    pub fn report(&self, entry: &str) -> Option<(String, String)> {
        let id = if self.results.is_empty() { entry.to_owned() } else { format!("{entry}-report") };
        (!self.text.trim().is_empty()).then(|| (id, format!("A tool reports:\n{}", self.text)))
    }

    fn take(&mut self, block: &Value, limit: &mut AttachmentLimit) {
        let text = |name: &str| block[name].as_str().unwrap_or_default();
        match text("type") {
            "text" | "refusal" => self.text.push_str(text("text")),
            "reasoning" => self.reasoning.push_str(text("text")),
            "tool_call" => self.calls.push((text("id").to_owned(), text("name").to_owned(), text("arguments").to_owned())),
            "tool_result" => {
                let blocks = block["blocks"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.results.push((text("call_id").to_owned(), parts::content(blocks, limit)));
            }
            _ => {}
        }
    }
}

/// Returns the messages of a conversation; `names` has the client's ids of entries.
pub(super) fn messages(conversation: Vec<EntryContent>, names: &BTreeMap<Hash, String>) -> Vec<Value> {
    conversation.into_iter().flat_map(|entry| message(entry, names)).collect()
}

/// `name` of messages that a caller provided as messages of the agent, to distinguish them from real ones.
const REPORTED: &str = "reported_by_caller";

fn message(entry: EntryContent, names: &BTreeMap<Hash, String>) -> Vec<Value> {
    let id = entry.name(names);
    if let Some(role) = &entry.reported_as {
        // A reported result belongs to no call of ours, and clients show results only below their calls.
        let text = if role == "tool" { format!("A tool reports:\n{}", entry.text) } else { entry.text };
        return vec![json!({"id": id, "role": "assistant", "name": REPORTED, "content": text})];
    }
    match entry.role.as_str() {
        "user" => vec![json!({"id": id, "role": "user", "content": entry.content})],
        role @ ("system" | "developer") => vec![json!({"id": id, "role": role, "content": entry.text})],
        "assistant" => {
            let mut message = json!({"id": id, "role": "assistant"});
            if !entry.text.is_empty() || entry.calls.is_empty() {
                message["content"] = Value::String(entry.text);
            }
            if !entry.calls.is_empty() {
                message["toolCalls"] = entry.calls.iter().map(call_of).collect();
            }
            vec![message]
        }
        "tool" => {
            let report = entry.report(&id);
            let results = entry.results.into_iter().enumerate();
            let mut messages: Vec<Value> = results
                .map(|(at, (call, content))| {
                    json!({"id": result_id(&id, at), "role": "tool", "toolCallId": call, "content": content})
                })
                .collect();
            messages.extend(report.map(|(id, text)| json!({"id": id, "role": "assistant", "content": text})));
            messages
        }
        _ => Vec::new(),
    }
}

fn call_of((id, name, arguments): &(String, String, String)) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// Returns the id of the message for one result of an entry.
pub(super) fn result_id(entry: &str, at: usize) -> String {
    if at == 0 { entry.to_owned() } else { format!("{entry}-{at}") }
}

#[cfg(test)]
pub(super) mod tests;
