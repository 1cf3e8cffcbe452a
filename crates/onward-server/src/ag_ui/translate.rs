//! Translates the stream of a run to AG-UI events.
//!
//! Owns which messages and calls are open at the client, and the client's ids of entries. Must not block: it returns what has to
//! be read.
//!
//! Invariants:
//! - AG1: every message and call that is started is ended before something replaces it, and before the response ends.
//! - AG2: output of an attempt that was reset is removed at the client before more of the task is shown.
//! - AG3: an entry whose text was streamed is not shown again; an entry that was not streamed is shown.

use std::collections::BTreeMap;

use onward_core::stream::{StreamContent, StreamEntry, TaskFrame};
use onward_core::{CallId, Hash, RunId};
use serde_json::{Value, json};

use super::input::UserMessage;
use super::messages::{EntryContent, result_id};

/// Data that the translator needs before it continues.
#[derive(Debug, PartialEq)]
pub(super) enum TranslatorNeed {
    Nothing,
    /// The whole conversation up to [`Translator::leaf`].
    Snapshot,
    /// The content of this entry.
    Entry(StreamEntry),
}

/// Output of a task so far.
#[derive(Default)]
struct TaskOutput {
    id: String,
    /// AG-UI cannot take back reasoning, so each attempt has a message of its own.
    reasoning_id: String,
    text: String,
    is_text_open: bool,
    is_reasoning_open: bool,
    /// Open calls by their number in the response.
    calls: BTreeMap<u64, String>,
    model: Option<String>,
    usage: Option<Value>,
}

#[derive(Default)]
pub(super) struct Translator {
    /// Run id, part of message ids because clients may copy messages to other threads.
    run: String,
    /// Last final entry, as of the frames that were taken.
    pub leaf: Option<Hash>,
    drafts: BTreeMap<(u32, CallId), TaskOutput>,
    /// Output of ended tasks that no entry contains yet.
    whole: Vec<TaskOutput>,
    /// Number of resets per task.
    resets: BTreeMap<(u32, CallId), u32>,
    /// The client's ids of entries.
    pub names: BTreeMap<Hash, String>,
    /// Messages that were sent to the agent and are not in its conversation yet.
    pub pending: Vec<UserMessage>,
    usage: Vec<Value>,
}

impl Translator {
    /// Creates a translator. `pending` has the messages that may not be in the conversation yet.
    pub fn new(run: &RunId, pending: Vec<UserMessage>) -> Translator {
        Translator { run: run.to_string(), pending, ..Translator::default() }
    }

    pub fn take(&mut self, content: &StreamContent, out: &mut Vec<Value>) -> TranslatorNeed {
        match content {
            StreamContent::TaskFrame(task_frame) => self.add_frame(task_frame, out),
            StreamContent::AttemptFailed(failed) => out.push(custom("attempt_failed", &json!(failed))),
            StreamContent::AttemptReset(reset) => {
                let key = (reset.generation, reset.task.clone());
                *self.resets.entry(key.clone()).or_default() += 1;
                let Some(draft) = self.drafts.get_mut(&key) else { return TranslatorNeed::Nothing };
                draft.close(out);
                let draft = self.drafts.remove(&key).unwrap_or_default();
                self.usage.extend(draft.usage());
                out.push(custom("attempt_reset", &json!(reset)));
                return TranslatorNeed::Snapshot;
            }
            StreamContent::TaskEnd(end) => {
                if let Some(mut draft) = self.drafts.remove(&(end.generation, end.task.clone())) {
                    draft.close(out);
                    self.usage.extend(draft.usage());
                    self.whole.push(draft);
                }
            }
            StreamContent::Entry(entry) => {
                let is_new = self.leaf != Some(entry.id);
                self.leaf = Some(entry.id);
                if is_new {
                    return TranslatorNeed::Entry(entry.clone());
                }
            }
            StreamContent::BranchReset(reset) => {
                self.leaf = reset.leaf;
                return self.begin_again(out);
            }
            StreamContent::StreamReset(reset) => {
                self.leaf = reset.leaf;
                return self.begin_again(out);
            }
            StreamContent::ApprovalRequested(_)
            | StreamContent::Paused(_)
            | StreamContent::Resumed(_)
            | StreamContent::End(_) => {}
        }
        TranslatorNeed::Nothing
    }

    fn begin_again(&mut self, out: &mut Vec<Value>) -> TranslatorNeed {
        self.close_all(out);
        self.drafts.clear();
        self.whole.clear();
        TranslatorNeed::Snapshot
    }

    fn add_frame(&mut self, task_frame: &TaskFrame, out: &mut Vec<Value>) {
        let key = (task_frame.generation, task_frame.task.clone());
        let resets = self.resets.get(&key).copied().unwrap_or_default();
        let draft = self.drafts.entry(key).or_insert_with(|| {
            let id = format!("{}~{}~{}", self.run, task_frame.generation, task_frame.task);
            TaskOutput { reasoning_id: format!("{id}~{resets}"), id, ..TaskOutput::default() }
        });
        let frame: Value = task_frame.frame.read().unwrap_or_default();
        draft.take(&frame, out);
    }

    /// Shows the content of an entry, except for what was streamed already.
    pub fn show(&mut self, entry: &EntryContent, out: &mut Vec<Value>) {
        match entry.role.as_str() {
            "assistant" => self.show_answer(entry, out),
            "user" => {
                if let Some(at) = self.pending.iter().position(|message| message.matches_entry(entry)) {
                    self.names.insert(entry.entry, self.pending.remove(at).id);
                }
            }
            "tool" => {
                let id = entry.name(&self.names);
                for (at, (call, content)) in entry.results.iter().enumerate() {
                    out.push(json!({
                        "type": "TOOL_CALL_RESULT", "messageId": result_id(&id, at), "toolCallId": call, "content": content, "role": "tool",
                    }));
                }
                if let Some((id, text)) = entry.report(&id) {
                    let mut report = TaskOutput { id, ..TaskOutput::default() };
                    report.take_text(&text, out);
                    report.close(out);
                }
            }
            _ => {}
        }
    }

    /// Returns whether a task is producing output.
    pub fn is_streaming(&self) -> bool {
        !self.drafts.is_empty()
    }

    fn show_answer(&mut self, entry: &EntryContent, out: &mut Vec<Value>) {
        if let Some(at) = self.whole.iter().position(|draft| draft.text == entry.text) {
            self.names.insert(entry.entry, self.whole.remove(at).id); // AG3
            return;
        }
        let id = entry.name(&self.names);
        let mut draft = TaskOutput { reasoning_id: format!("{id}~0"), id, ..TaskOutput::default() };
        draft.take(&json!({"type": "reasoning", "text": entry.reasoning}), out);
        draft.take(&json!({"type": "text", "text": entry.text}), out);
        for (call, (id, name, arguments)) in entry.calls.iter().enumerate() {
            draft.take(&json!({"type": "tool_call_begin", "call": call, "id": id, "name": name}), out);
            draft.take(&json!({"type": "tool_call_arguments", "call": call, "text": arguments}), out);
        }
        draft.close(out);
    }

    /// Ends everything that is open (AG1).
    pub fn close_all(&mut self, out: &mut Vec<Value>) {
        self.drafts.values_mut().for_each(|draft| draft.close(out));
    }

    /// Returns the token usage that model calls reported.
    pub fn usage(&self) -> Vec<Value> {
        self.usage.iter().cloned().chain(self.drafts.values().filter_map(TaskOutput::usage)).collect()
    }
}

impl TaskOutput {
    fn take(&mut self, frame: &Value, out: &mut Vec<Value>) {
        let text = frame["text"].as_str().unwrap_or_default();
        match frame["type"].as_str() {
            Some("begin") => self.model = frame["model"].as_str().map(str::to_owned),
            Some("text" | "refusal") => self.take_text(text, out),
            Some("reasoning") => self.take_reasoning(text, out),
            Some("tool_call_begin") => {
                self.close_reasoning(out);
                let call = frame["call"].as_u64().unwrap_or_default();
                let given = frame["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
                let id = given.unwrap_or_else(|| format!("{}-call-{call}", self.id));
                out.push(json!({
                    "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": frame["name"].as_str().unwrap_or_default(),
                    "parentMessageId": self.id,
                }));
                self.calls.insert(call, id);
            }
            Some("tool_call_arguments") => {
                let call = frame["call"].as_u64().unwrap_or_default();
                if let Some(id) = self.calls.get(&call).filter(|_| !text.is_empty()) {
                    out.push(json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": text}));
                }
            }
            Some("usage") => self.usage = Some(frame.clone()),
            Some(other) => out.push(custom(other, frame)),
            None => out.push(custom("value", frame)),
        }
    }

    fn take_text(&mut self, text: &str, out: &mut Vec<Value>) {
        if text.is_empty() {
            return;
        }
        self.close_reasoning(out);
        if !self.is_text_open {
            out.push(json!({"type": "TEXT_MESSAGE_START", "messageId": self.id, "role": "assistant"}));
            self.is_text_open = true;
        }
        self.text.push_str(text);
        out.push(json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": self.id, "delta": text}));
    }

    fn take_reasoning(&mut self, text: &str, out: &mut Vec<Value>) {
        if text.is_empty() {
            return;
        }
        let id = self.reasoning_id.clone();
        if !self.is_reasoning_open {
            out.push(json!({"type": "REASONING_START", "messageId": id}));
            out.push(json!({"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"}));
            self.is_reasoning_open = true;
        }
        out.push(json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": text}));
    }

    fn close_reasoning(&mut self, out: &mut Vec<Value>) {
        if std::mem::take(&mut self.is_reasoning_open) {
            out.push(json!({"type": "REASONING_MESSAGE_END", "messageId": self.reasoning_id}));
            out.push(json!({"type": "REASONING_END", "messageId": self.reasoning_id}));
        }
    }

    fn close(&mut self, out: &mut Vec<Value>) {
        self.close_reasoning(out);
        if std::mem::take(&mut self.is_text_open) {
            out.push(json!({"type": "TEXT_MESSAGE_END", "messageId": self.id}));
        }
        for id in std::mem::take(&mut self.calls).into_values() {
            out.push(json!({"type": "TOOL_CALL_END", "toolCallId": id}));
        }
    }

    fn usage(&self) -> Option<Value> {
        let usage = self.usage.as_ref()?;
        let count = |name: &str| usage[name].as_u64().unwrap_or_default();
        let (read, write) = (count("cached_read"), count("cached_write"));
        let mut used = json!({
            "inputTokens": count("input") + read + write, "outputTokens": count("output"), "reasoningTokens": count("reasoning"),
            "cachedInputTokens": read, "cacheWriteInputTokens": write,
        });
        if let Some(model) = &self.model {
            used["model"] = Value::String(model.clone());
        }
        Some(used)
    }
}

/// Returns a custom event, for what AG-UI has no event for.
pub(super) fn custom(name: &str, value: &Value) -> Value {
    json!({"type": "CUSTOM", "name": format!("onward.{name}"), "value": value})
}

#[cfg(test)]
mod tests;
