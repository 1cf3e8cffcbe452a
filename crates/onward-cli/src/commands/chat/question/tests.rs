//! Tests of the parent module.

use super::*;

#[test]
fn an_answer_is_yes_or_no_and_a_reason() {
    let read = |line: &str| answer(line, None, false).map(|decide| (decide.approved, decide.feedback));
    assert_eq!(read("y"), Some((true, None)));
    assert_eq!(read(" Yes "), Some((true, None)));
    assert_eq!(read("n"), Some((false, None)));
    assert_eq!(read("no, use the other account"), Some((false, Some("use the other account".to_owned()))));
    assert_eq!(read("n: too much"), Some((false, Some("too much".to_owned()))));
    for none in ["", "yesterday", "not now", "hello", "/help"] {
        assert_eq!(read(none), None, "{none}");
    }
}

#[test]
fn a_yes_to_a_question_with_a_schema_has_an_answer() {
    let read = |line: &str| answer(line, None, true).map(|decide| (decide.approved, decide.answer, decide.feedback));
    assert_eq!(read("y {\"n\": 1}"), Some((true, Some(Payload::from_json_text("{\"n\": 1}")), None)));
    assert_eq!(read("y"), Some((true, None, None)));
    assert_eq!(read("n too much"), Some((false, None, Some("too much".to_owned()))));
}
