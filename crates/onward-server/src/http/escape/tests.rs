//! Tests of the parent module.

use super::*;

#[test]
fn nothing_harmful_reaches_a_terminal() {
    let evil = "a\u{1b}[31m\n\u{9b}b\u{7f}\u{202e}c\u{2028}";
    assert_eq!(text(evil), "a\\u{1b}[31m\\n\\u{9b}b\\u{7f}\\u{202e}c\\u{2028}");
    assert_eq!(text("plain é 漢"), "plain é 漢");
}

#[test]
fn json_stays_the_same_value_on_one_line() {
    let value = serde_json::json!({"a\u{202e}": "x\u{9b}\u{7f}\n"});
    let line = json(serde_json::to_string_pretty(&value).unwrap());
    assert!(!line.contains(is_harmful));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
}
