//! Model answers while they stream: decides which text of a stream is new on the screen.
//!
//! Printed text cannot be removed. A new attempt is compared with the printed text: an equal prefix is not printed again, and a
//! different text is printed from its start after a note. Does no I/O.
//!
//! Invariant CH1: the printed part of a draft is a prefix of its text, or is declared void before other text is printed.

use onward_core::CallId;
use onward_core::stream::TaskFrame;
use serde_json::Value;

/// Text to print.
#[derive(Debug, PartialEq, Eq)]
pub enum NewText {
    Nothing,
    /// Continues the printed text.
    More(String),
    /// Replaces the printed text.
    Anew(String),
}

/// A task of a generation.
type TaskAt = (u32, CallId);

#[derive(Debug)]
struct AnswerDraft {
    task: TaskAt,
    /// Text of this attempt.
    text: String,
    shown: String,
    seq: u64,
    /// Every frame of this attempt since its first was received.
    is_followed: bool,
    has_ended: bool,
}

/// All answers that are not entries yet. One is printed while it arrives; the others are printed when they become entries.
#[derive(Debug, Default)]
pub struct Drafts {
    drafts: Vec<AnswerDraft>,
}

impl Drafts {
    pub fn push(&mut self, task_frame: &TaskFrame) -> NewText {
        let task = (task_frame.generation, task_frame.task.clone());
        let Ok(frame) = task_frame.frame.read::<Value>() else { return NewText::Nothing };
        let kind = frame.get("type").and_then(Value::as_str).unwrap_or_default();
        let at = self.drafts.iter().position(|draft| draft.task == task);
        // Only model calls start with this frame.
        let Some(at) = at.or_else(|| (kind == "begin" && task_frame.seq == 0).then(|| self.add(task))) else {
            return NewText::Nothing;
        };
        let draft = &mut self.drafts[at];
        draft.is_followed = (draft.is_followed && task_frame.seq == draft.seq) || task_frame.seq == 0;
        draft.seq = task_frame.seq + 1;
        if !matches!(kind, "text" | "refusal") || !draft.is_followed {
            return NewText::Nothing;
        }
        draft.text.push_str(frame.get("text").and_then(Value::as_str).unwrap_or_default());
        let shows_another = self.drafts[..at].iter().any(|other| !other.has_ended && !other.text.is_empty());
        if shows_another { NewText::Nothing } else { self.drafts[at].advance() }
    }

    fn add(&mut self, task: TaskAt) -> usize {
        self.drafts.push(AnswerDraft {
            task,
            text: String::new(),
            shown: String::new(),
            seq: 0,
            is_followed: true,
            has_ended: false,
        });
        self.drafts.len() - 1
    }

    /// Starts another attempt of the task.
    pub fn reset(&mut self, generation: u32, task: &CallId) {
        let task = (generation, task.clone());
        self.drafts.iter_mut().filter(|draft| draft.task == task).for_each(AnswerDraft::begin_again);
    }

    /// Restarts all drafts after frames were lost: each answer is compared again from its start.
    pub fn reset_all(&mut self) {
        self.drafts.iter_mut().for_each(AnswerDraft::begin_again);
    }

    /// Marks a completed task as ended. Removes the draft of a failed one, which becomes no entry.
    pub fn end(&mut self, generation: u32, task: &CallId, is_completed: bool) {
        let task = (generation, task.clone());
        if !is_completed {
            return self.drafts.retain(|draft| draft.task != task);
        }
        self.drafts.iter_mut().filter(|draft| draft.task == task).for_each(|draft| draft.has_ended = true);
    }

    /// Takes the final text of an answer and returns the part that was not printed.
    pub fn finish(&mut self, text: &str) -> NewText {
        let is_it = |draft: &AnswerDraft| !draft.shown.is_empty() && text.starts_with(&draft.shown);
        if let Some(at) = self.drafts.iter().position(is_it) {
            let shown = self.drafts.remove(at).shown;
            let rest = &text[shown.len()..];
            return if rest.is_empty() { NewText::Nothing } else { NewText::More(rest.to_owned()) };
        }
        // A draft that was printed and has ended does not match the final text.
        let is_void = |draft: &AnswerDraft| draft.has_ended && !draft.shown.is_empty();
        match self.drafts.iter().position(is_void) {
            Some(at) => {
                self.drafts.remove(at);
                NewText::Anew(text.to_owned())
            }
            None if text.is_empty() => NewText::Nothing,
            None => NewText::More(text.to_owned()),
        }
    }
}

impl AnswerDraft {
    fn begin_again(&mut self) {
        self.text.clear();
        self.seq = 0;
        self.is_followed = false;
        self.has_ended = false;
    }

    /// Returns the text that was not printed yet (CH1).
    fn advance(&mut self) -> NewText {
        if self.shown.starts_with(&self.text) {
            return NewText::Nothing;
        }
        let words = match self.text.strip_prefix(&self.shown) {
            Some(more) => NewText::More(more.to_owned()),
            None => NewText::Anew(self.text.clone()),
        };
        self.shown.clone_from(&self.text);
        words
    }
}

#[cfg(test)]
mod tests;
