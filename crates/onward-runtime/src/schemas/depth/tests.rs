//! Tests of the parent module.

use super::too_deep;

#[test]
fn only_brackets_outside_of_strings_count() {
    assert_eq!(too_deep(br#"{"a": "[[[[\"[[[", "b": [1]}"#, 2), None);
    assert_eq!(too_deep(b"[[1], [2], [3]]", 2), None);
    assert_eq!(too_deep(b"[\n [[1]]]", 2), Some((2, 3)));
}

#[test]
fn the_limit_itself_is_allowed() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(too_deep(nested(64).as_bytes(), 64), None);
    assert_eq!(too_deep(nested(65).as_bytes(), 64), Some((1, 65)));
}
