//! Tests of the parent module.

use super::*;

#[test]
fn a_content_type_is_compared_without_case_and_must_be_utf_8() {
    let json = |found| is_type(found, "application/json");
    for found in ["application/json", "Application/JSON ; charset=UTF-8", "application/json;charset=\"utf-8\"; x=y"] {
        assert!(json(found), "{found}");
    }
    for found in ["", "text/plain", "application/jsonx", "application/json; charset=utf-16", "application/json;charset=latin1"] {
        assert!(!json(found), "{found}");
    }
}

#[test]
fn names_of_internal_types_are_not_shown() {
    #[derive(Debug, serde::Deserialize)]
    struct Inner {}
    #[derive(Debug, serde::Deserialize)]
    struct Outer {
        #[expect(dead_code)]
        inner: Inner,
    }
    let RequestError::JsonInvalid { why } = parse::<Outer>(b"{\"inner\": 1}").unwrap_err() else { unreachable!() };
    assert_eq!(why, "invalid type: integer `1`, expected an object at line 1 column 11");
}
