//! Answers while they arrive: which words of a stream are new to whoever reads along.
//!
//! Words on a screen cannot be taken back. An attempt that is made anew is compared with what is there already: as long as it says the
//! same, nothing is shown twice, and where it says something else, it is shown from its beginning, and said so. Pure: knows of no screen.
//!
//! Invariant CH1: what was shown of a draft is a beginning of what it has said, or is told to be void before anything else is shown.

use onward_core::Place;
use onward_core::stream::Spoken;
use serde_json::Value;

/// What there is to show.
#[derive(Debug, PartialEq, Eq)]
pub enum Words {
    Nothing,
    /// Behind what was shown.
    More(String),
    /// In the place of what was shown.
    Anew(String),
}

/// A task of a generation.
type TaskAt = (u32, Place);

#[derive(Debug)]
struct Draft {
    task: TaskAt,
    /// What this attempt has said.
    said: String,
    shown: String,
    seq: u64,
    /// Nothing is missing in what was heard of this attempt, which is a model's.
    is_followed: bool,
    has_ended: bool,
}

/// All answers that are not entries yet. One is shown while it arrives; what others say is shown when it is an entry.
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
        // Only models begin so.
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

    /// Another attempt of the task begins.
    pub fn reset(&mut self, generation: u32, task: &Place) {
        let task = (generation, task.clone());
        self.drafts.iter_mut().filter(|draft| draft.task == task).for_each(Draft::begin_again);
    }

    /// Nobody knows what is missing: every answer is compared from its beginning.
    pub fn reset_all(&mut self) {
        self.drafts.iter_mut().for_each(Draft::begin_again);
    }

    /// The task is over. One that failed becomes no entry.
    pub fn end(&mut self, generation: u32, task: &Place, is_completed: bool) {
        let task = (generation, task.clone());
        if !is_completed {
            return self.drafts.retain(|draft| draft.task != task);
        }
        self.drafts.iter_mut().filter(|draft| draft.task == task).for_each(|draft| draft.has_ended = true);
    }

    /// An answer is final: what of it was not shown.
    pub fn finish(&mut self, text: &str) -> Words {
        let is_it = |draft: &Draft| !draft.shown.is_empty() && text.starts_with(&draft.shown);
        if let Some(at) = self.drafts.iter().position(is_it) {
            let shown = self.drafts.remove(at).shown;
            let rest = &text[shown.len()..];
            return if rest.is_empty() { Words::Nothing } else { Words::More(rest.to_owned()) };
        }
        // What was shown and is over is not what was said in the end.
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

    /// CH1.
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

    fn place(text: &str) -> Place {
        Place::parse(text).unwrap()
    }

    fn spoken(task: &str, seq: u64, frame: Value) -> Spoken {
        Spoken { generation: 0, task: place(task), attempt: 1, seq, frame: Payload::json(&frame).unwrap() }
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
        drafts.end(0, &place("1"), true);
        assert_eq!(drafts.finish("It is seven."), more("seven."));
        assert_eq!(drafts.finish("And eight."), more("And eight."), "one that nobody heard");
    }

    #[test]
    fn another_attempt_that_says_the_same_is_shown_from_where_it_goes_on() {
        let mut drafts = Drafts::default();
        begin(&mut drafts);
        assert_eq!(text(&mut drafts, 1, "It is s"), more("It is s"));
        drafts.reset(0, &place("1"));
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
        drafts.reset(0, &place("1"));
        begin(&mut drafts);
        assert_eq!(text(&mut drafts, 1, "Maybe"), Words::Anew("Maybe".to_owned()));
        drafts.end(0, &place("1"), true);
        assert_eq!(drafts.finish("No."), Words::Anew("No.".to_owned()), "and the entry says something else again");
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
        drafts.end(0, &place("1"), false);
        assert_eq!(drafts.hear(&spoken("2", 2, json!({"type": "text", "text": "!"}))), more("two!"));
    }
}
