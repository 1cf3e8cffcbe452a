//! Tests of the parent module.

use super::*;

fn json(text: &str) -> Hash {
    Hash::of(&Payload::from_json_text(text.to_owned()))
}

#[test]
fn spelling_does_not_matter() {
    for (a, b) in [
        (r#"{"a":1,"b":2}"#, r#"{ "b" : 2, "a" : 1 }"#),
        ("1", "1.0"),
        ("100", "1e2"),
        ("0", "-0"),
        ("0.5", "5E-1"),
        (r#""A""#, r#""\u0041""#),
        ("[]", "[ ]"),
    ] {
        assert_eq!(json(a), json(b), "{a} {b}");
    }
}

#[test]
fn values_do_matter() {
    for (a, b) in [
        (r#"{"a":1,"b":2}"#, r#"{"a\":1,\"b":2}"#),
        ("9007199254740992", "9007199254740993"),
        ("1", r#""1""#),
        ("[1,2]", "[2,1]"),
        ("\"\u{e9}\"", "\"e\u{301}\""),
        ("1e400", "1e401"),
        ("-1", "1"),
    ] {
        assert_ne!(json(a), json(b), "{a} {b}");
    }
    assert_ne!(json("1"), Hash::of(&Payload::binary("text/plain", "1")));
}

#[test]
fn what_is_not_json_is_compared_by_its_bytes() {
    assert_ne!(json("{"), json("{ "));
    assert_eq!(json(&"[".repeat(1_000_000)), json(&"[".repeat(1_000_000)));
}

#[test]
fn hashes_of_released_versions_stay() {
    assert_eq!(json(r#"{"id":"order-42","cents":1999}"#).to_string(), "c6d3a7ec31cfb70fef39c475da291708");
}
