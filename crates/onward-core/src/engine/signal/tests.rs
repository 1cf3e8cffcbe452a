//! Tests of the parent module.

use super::*;

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, text, expected) in [
        ("user.*", "user.message", true),
        ("user.*", "user", false),
        ("*", "anything", true),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c", false),
        ("*.done", "task.7.done", true),
        ("plain", "plain", true),
        ("ab*ba", "aba", false),
    ] {
        assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
    }
}
