//! The conversation as an AG-UI client keeps it.

use std::collections::BTreeMap;

use onward_core::conversation::{Entry, EntryCursor};
use onward_core::stream::EntrySaid;
use onward_core::{Hash, RunKey};
use onward_runtime::{ENTRIES_MAX, EntryQuery, Runtime, RuntimeError};
use serde_json::{Value, json};

/// The conversation that ends in `leaf`, oldest first: as much of it as goes into a page.
pub(super) async fn conversation(runtime: &Runtime, key: &RunKey, leaf: Option<Hash>) -> Result<Vec<Entry>, RuntimeError> {
    let Some(leaf) = leaf else { return Ok(Vec::new()) };
    let query = EntryQuery { leaf: Some(leaf.into()), before: None, limit: ENTRIES_MAX };
    Ok(runtime.read_entries(key, query).await?.entries)
}

/// One entry.
pub(super) async fn entry(runtime: &Runtime, key: &RunKey, said: &EntrySaid) -> Result<Option<Entry>, RuntimeError> {
    let cursor = EntryCursor { id: said.id, generation: Some(said.generation) };
    let query = EntryQuery { leaf: Some(cursor), before: None, limit: 1 };
    Ok(runtime.read_entries(key, query).await?.entries.pop())
}

/// What an entry says.
pub(super) struct Said {
    pub text: String,
    pub reasoning: String,
    /// Id, name and arguments.
    pub calls: Vec<(String, String, String)>,
    /// Id of the call, and what came of it.
    pub results: Vec<(String, String)>,
    /// The id that whoever said it gave it.
    pub id: Option<String>,
}

impl Said {
    pub fn read(entry: &Entry) -> Said {
        let content: Value = entry.content.read().unwrap_or_else(|_| Value::String("(not readable here)".to_owned()));
        let mut said = Said { text: String::new(), reasoning: String::new(), calls: Vec::new(), results: Vec::new(), id: None };
        said.id = content["id"].as_str().map(str::to_owned);
        match (&content, content["blocks"].as_array(), content["text"].as_str()) {
            (Value::String(text), ..) => said.text.clone_from(text),
            (_, Some(blocks), _) => blocks.iter().for_each(|block| said.take(block)),
            (_, _, Some(text)) => text.clone_into(&mut said.text),
            _ => said.text = content.to_string(),
        }
        said
    }

    /// What a tool says beside its results, with the id of that message: the model is told it as a report. Clients show what tools say only
    /// below the calls that asked for it, so it is shown as something that comes from the agent.
    pub fn report(&self, entry: &str) -> Option<(String, String)> {
        let id = if self.results.is_empty() { entry.to_owned() } else { format!("{entry}-report") };
        (!self.text.trim().is_empty()).then(|| (id, format!("A tool reports:\n{}", self.text)))
    }

    fn take(&mut self, block: &Value) {
        let text = |name: &str| block[name].as_str().unwrap_or_default();
        match text("type") {
            "text" | "refusal" => self.text.push_str(text("text")),
            "reasoning" => self.reasoning.push_str(text("text")),
            "tool_call" => self.calls.push((text("id").to_owned(), text("name").to_owned(), text("arguments").to_owned())),
            "tool_result" => {
                let blocks = block["blocks"].as_array().map(Vec::as_slice).unwrap_or_default();
                let result = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
                self.results.push((text("call_id").to_owned(), result));
            }
            _ => {}
        }
    }
}

/// The messages of a conversation; `names` has the ids under which the client knows entries.
pub(super) fn messages(entries: &[Entry], names: &BTreeMap<Hash, String>) -> Vec<Value> {
    entries.iter().flat_map(|entry| message(entry, names)).collect()
}

fn message(entry: &Entry, names: &BTreeMap<Hash, String>) -> Vec<Value> {
    let said = Said::read(entry);
    let id = name(entry, &said, names);
    match entry.role.as_str() {
        role @ ("user" | "system" | "developer") => vec![json!({"id": id, "role": role, "content": said.text})],
        "assistant" => {
            let mut message = json!({"id": id, "role": "assistant"});
            if !said.text.is_empty() || said.calls.is_empty() {
                message["content"] = Value::String(said.text);
            }
            if !said.calls.is_empty() {
                message["toolCalls"] = said.calls.iter().map(call_of).collect();
            }
            vec![message]
        }
        "tool" => {
            let result = |(at, (call, content)): (usize, &(String, String))| json!({"id": result_id(&id, at), "role": "tool", "toolCallId": call, "content": content});
            let mut messages: Vec<Value> = said.results.iter().enumerate().map(result).collect();
            let report = said.report(&id);
            messages.extend(report.map(|(id, text)| json!({"id": id, "role": "assistant", "content": text})));
            messages
        }
        _ => Vec::new(),
    }
}

fn call_of((id, name, arguments): &(String, String, String)) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// The id of a message that says one of an entry's results.
pub(super) fn result_id(entry: &str, at: usize) -> String {
    if at == 0 { entry.to_owned() } else { format!("{entry}-{at}") }
}

/// The id under which a client knows an entry.
pub(super) fn name(entry: &Entry, said: &Said, names: &BTreeMap<Hash, String>) -> String {
    let given = names.get(&entry.id).cloned().or_else(|| said.id.clone().filter(|_| entry.role.as_str() == "user"));
    given.unwrap_or_else(|| entry.id.to_string())
}
