//! Tests of the parent module.

use super::*;

#[test]
fn a_name_that_comes_twice_in_one_object_is_found_wherever_it_is() {
    for (text, name) in [
        (r#"{"n": 1, "n": 2}"#, "n"),
        (r#"{"a": [{"n": 1, "m": 1, "n": 2}]}"#, "n"),
        (r#"{"to": 1, "t\u006f": 2}"#, "to"),
        (r#"{"": 1, "": 2}"#, ""),
    ] {
        assert_eq!(repeated_name(text).as_deref(), Some(name), "{text}");
    }
    for text in [
        "{}",
        "[]",
        "no JSON",
        r#"{"n": 1e400}"#,
        r#"{"n": 123456789012345678901234567890, "a": {"n": 1}, "b": [{"n": 1}, {"n": 1}]}"#,
        r#"{"twice: x": "twice: y", "N": 1, "n": 2}"#,
    ] {
        assert_eq!(repeated_name(text), None, "{text}");
    }
}
