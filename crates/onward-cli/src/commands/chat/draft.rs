//! Model answers while they stream: decides which text of a stream is new on the screen.
//!
//! Printed text cannot be removed. A new attempt is compared with the printed text: an equal prefix is not printed again, and a
//! different text is printed from its start after a note. Does no I/O.
//!
//! Invariant CH1: the printed part of a draft is a prefix of its text, or is declared void before other text is printed.

use onward_core::CallId;
use onward_core::stream::Spoken;
use serde_json::Value;

/// Text to print.
#[derive(Debug, PartialEq, Eq)]
pub enum Words {
    Nothing,
    /// Continues the printed text.
    More(String),
    /// Replaces the printed text.
    Anew(String),
}

/// A task of a generation.
type TaskAt = (u32, CallId);

#[derive(Debug)]
struct Draft {
    task: TaskAt,
    /// Text of this attempt.
    said: String,
    shown: String,
    seq: u64,
    /// Every frame of this attempt since its first was received.
    is_followed: bool,
    has_ended: bool,
}

/// All answers that are not entries yet. One is printed while it arrives; the others are printed when they become entries.
#[derive(Debug, Default)]
pub struct Drafts {
    drafts: Vec<Draft>,
}

impl Drafts {
    pub fn hear(&mut self, spoken: &Spoken) -> Words {
        let task = (spoken.generation, spoken.task.clone());
        let Ok(frame) = spoken.frame.read::<Value>() else { return Words::Nothing };
        let kind = frame.get("type").and_then(Value::as_str).unwrap_or_default();
        let at = self.drafts.iter().position(|draft| draft.task == task);
        // Only model calls start with this frame.
        let Some(at) = at.or_else(|| (kind == "begin" && spoken.seq == 0).then(|| self.add(task))) else { return Words::Nothing };
        let draft = &mut self.drafts[at];
        draft.is_followed = (draft.is_followed && spoken.seq == draft.seq) || spoken.seq == 0;
        draft.seq = spoken.seq + 1;
        if !matches!(kind, "text" | "refusal") || !draft.is_followed {
            return Words::Nothing;
        }
        draft.said.push_str(frame.get("text").and_then(Value::as_str).unwrap_or_default());
        let shows_another = self.drafts[..at].iter().any(|other| !other.has_ended && !other.said.is_empty());
        if shows_another { Words::Nothing } else { self.drafts[at].advance() }
    }

    fn add(&mut self, task: TaskAt) -> usize {
        self.drafts.push(Draft { task, said: String::new(), shown: String::new(), seq: 0, is_followed: true, has_ended: false });
        self.drafts.len() - 1
    }

    /// Starts another attempt of the task.
    pub fn reset(&mut self, generation: u32, task: &CallId) {
        let task = (generation, task.clone());
        self.drafts.iter_mut().filter(|draft| draft.task == task).for_each(Draft::begin_again);
    }

    /// Restarts all drafts after frames were lost: each answer is compared again from its start.
    pub fn reset_all(&mut self) {
        self.drafts.iter_mut().for_each(Draft::begin_again);
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
    pub fn finish(&mut self, text: &str) -> Words {
        let is_it = |draft: &Draft| !draft.shown.is_empty() && text.starts_with(&draft.shown);
        if let Some(at) = self.drafts.iter().position(is_it) {
            let shown = self.drafts.remove(at).shown;
            let rest = &text[shown.len()..];
            return if rest.is_empty() { Words::Nothing } else { Words::More(rest.to_owned()) };
        }
        // A draft that was printed and has ended does not match the final text.
        let is_void = |draft: &Draft| draft.has_ended && !draft.shown.is_empty();
        match self.drafts.iter().position(is_void) {
            Some(at) => {
                self.drafts.remove(at);
                Words::Anew(text.to_owned())
            }
            None if text.is_empty() => Words::Nothing,
            None => Words::More(text.to_owned()),
        }
    }
}

impl Draft {
    fn begin_again(&mut self) {
        self.said.clear();
        self.seq = 0;
        self.is_followed = false;
        self.has_ended = false;
    }

    /// Returns the text that was not printed yet (CH1).
    fn advance(&mut self) -> Words {
        if self.shown.starts_with(&self.said) {
            return Words::Nothing;
        }
        let words = match self.said.strip_prefix(&self.shown) {
            Some(more) => Words::More(more.to_owned()),
            None => Words::Anew(self.said.clone()),
        };
        self.shown.clone_from(&self.said);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onward_core::Payload;
    use serde_json::json;

    fn call_id(text: &str) -> CallId {
        CallId::parse(text).unwrap()
    }

    fn spoken(task: &str, seq: u64, frame: Value) -> Spoken {
        Spoken { generation: 0, task: call_id(task), attempt: 1, seq, frame: Payload::json(&frame).unwrap() }
    }

    fn text(drafts: &mut Drafts, seq: u64, text: &str) -> Words {
        drafts.hear(&spoken("1", seq, json!({"type": "text", "text": text})))
    }

    fn begin(drafts: &mut Drafts) {
        assert_eq!(drafts.hear(&spoken("1", 0, json!({"type": "begin"}))), Words::Nothing);
    }

    fn more(text: &str) -> Words {
        Words::More(text.to_owned())
    }

    #[test]
    fn words_are_shown_once_and_the_entry_adds_what_is_missing() {
        let mut drafts = Drafts::default();
        begin(&mut drafts);
        assert_eq!((text(&mut drafts, 1, "It "), text(&mut drafts, 2, "is ")), (more("It "), more("is ")));
        drafts.end(0, &call_id("1"), true);
        assert_eq!(drafts.finish("It is seven."), more("seven."));
        assert_eq!(drafts.finish("And eight."), more("And eight."), "it has no draft");
    }

    #[test]
    fn another_attempt_that_says_the_same_is_shown_from_where_it_goes_on() {
        let mut drafts = Drafts::default();
        begin(&mut drafts);
        assert_eq!(text(&mut drafts, 1, "It is s"), more("It is s"));
        drafts.reset(0, &call_id("1"));
        begin(&mut drafts);
        assert_eq!(text(&mut drafts, 1, "It "), Words::Nothing);
        assert_eq!(text(&mut drafts, 2, "is seven"), more("even"));
        assert_eq!(drafts.finish("It is seven"), Words::Nothing);
    }

    #[test]
    fn another_attempt_that_says_something_else_is_shown_anew() {
        let mut drafts = Drafts::default();
        begin(&mut drafts);
        text(&mut drafts, 1, "It is s");
        drafts.reset(0, &call_id("1"));
        begin(&mut drafts);
        assert_eq!(text(&mut drafts, 1, "Maybe"), Words::Anew("Maybe".to_owned()));
        drafts.end(0, &call_id("1"), true);
        assert_eq!(drafts.finish("No."), Words::Anew("No.".to_owned()), "the entry differs from the second attempt");
    }

    #[test]
    fn behind_a_gap_nothing_is_shown_until_the_entry_is_there() {
        let mut drafts = Drafts::default();
        begin(&mut drafts);
        assert_eq!(text(&mut drafts, 1, "It "), more("It "));
        assert_eq!(text(&mut drafts, 3, "seven"), Words::Nothing);
        assert_eq!(text(&mut drafts, 4, "."), Words::Nothing);
        assert_eq!(drafts.finish("It is seven."), more("is seven."));
        drafts.reset_all();
        assert_eq!(text(&mut drafts, 5, "from the middle of one that began before"), Words::Nothing);
    }

    #[test]
    fn what_other_tasks_say_is_no_answer_and_two_answers_are_not_mixed() {
        let mut drafts = Drafts::default();
        assert_eq!(drafts.hear(&spoken("9", 0, json!({"type": "text", "text": "progress"}))), Words::Nothing);
        begin(&mut drafts);
        text(&mut drafts, 1, "one");
        drafts.hear(&spoken("2", 0, json!({"type": "begin"})));
        assert_eq!(drafts.hear(&spoken("2", 1, json!({"type": "text", "text": "two"}))), Words::Nothing);
        drafts.end(0, &call_id("1"), false);
        assert_eq!(drafts.hear(&spoken("2", 2, json!({"type": "text", "text": "!"}))), more("two!"));
    }
}
