//! Tests of the parent module.

use super::*;
use onward_core::Payload;
use serde_json::json;

fn call_id(text: &str) -> CallId {
    CallId::parse(text).unwrap()
}

fn task_frame(task: &str, seq: u64, frame: Value) -> TaskFrame {
    TaskFrame { generation: 0, task: call_id(task), attempt: 1, seq, frame: Payload::json(&frame).unwrap() }
}

fn text(drafts: &mut Drafts, seq: u64, text: &str) -> NewText {
    drafts.push(&task_frame("1", seq, json!({"type": "text", "text": text})))
}

fn begin(drafts: &mut Drafts) {
    assert_eq!(drafts.push(&task_frame("1", 0, json!({"type": "begin"}))), NewText::Nothing);
}

fn more(text: &str) -> NewText {
    NewText::More(text.to_owned())
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
fn another_attempt_with_the_same_text_is_shown_from_where_it_goes_on() {
    let mut drafts = Drafts::default();
    begin(&mut drafts);
    assert_eq!(text(&mut drafts, 1, "It is s"), more("It is s"));
    drafts.reset(0, &call_id("1"));
    begin(&mut drafts);
    assert_eq!(text(&mut drafts, 1, "It "), NewText::Nothing);
    assert_eq!(text(&mut drafts, 2, "is seven"), more("even"));
    assert_eq!(drafts.finish("It is seven"), NewText::Nothing);
}

#[test]
fn another_attempt_with_another_text_is_shown_anew() {
    let mut drafts = Drafts::default();
    begin(&mut drafts);
    text(&mut drafts, 1, "It is s");
    drafts.reset(0, &call_id("1"));
    begin(&mut drafts);
    assert_eq!(text(&mut drafts, 1, "Maybe"), NewText::Anew("Maybe".to_owned()));
    drafts.end(0, &call_id("1"), true);
    assert_eq!(drafts.finish("No."), NewText::Anew("No.".to_owned()), "the entry differs from the second attempt");
}

#[test]
fn behind_a_gap_nothing_is_shown_until_the_entry_is_there() {
    let mut drafts = Drafts::default();
    begin(&mut drafts);
    assert_eq!(text(&mut drafts, 1, "It "), more("It "));
    assert_eq!(text(&mut drafts, 3, "seven"), NewText::Nothing);
    assert_eq!(text(&mut drafts, 4, "."), NewText::Nothing);
    assert_eq!(drafts.finish("It is seven."), more("is seven."));
    drafts.reset_all();
    assert_eq!(text(&mut drafts, 5, "from the middle of one that began before"), NewText::Nothing);
}

#[test]
fn text_of_other_tasks_is_no_answer_and_two_answers_are_not_mixed() {
    let mut drafts = Drafts::default();
    assert_eq!(drafts.push(&task_frame("9", 0, json!({"type": "text", "text": "progress"}))), NewText::Nothing);
    begin(&mut drafts);
    text(&mut drafts, 1, "one");
    drafts.push(&task_frame("2", 0, json!({"type": "begin"})));
    assert_eq!(drafts.push(&task_frame("2", 1, json!({"type": "text", "text": "two"}))), NewText::Nothing);
    drafts.end(0, &call_id("1"), false);
    assert_eq!(drafts.push(&task_frame("2", 2, json!({"type": "text", "text": "!"}))), more("two!"));
}
