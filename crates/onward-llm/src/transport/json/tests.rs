//! Tests of the parent module.

use super::*;

#[test]
fn what_others_wrote_stays_as_it_is() {
    let text = r#"{"b": 9007199254740993, "a": 1.0,"big":123456789012345678901234567890}"#;
    let json = JsonText::parse(text).unwrap();
    let document = serde_json::to_string(&json).unwrap();
    assert_eq!(serde_json::from_str::<JsonText>(&document).unwrap(), json);
    assert_eq!(serde_json::to_string(&Object::default().with("x", json.raw())).unwrap(), format!(r#"{{"x":{text}}}"#));
    assert!(JsonText::parse("{").is_err());
    assert!(serde_json::from_str::<JsonText>("\"{\"").is_err());
}

#[test]
fn an_extra_replaces_a_field_and_null_takes_it_out() {
    let mut object = Object::default().with("model", "m").with("stream_options", 1);
    let extras = [("stream_options", "null"), ("seed", "7")];
    object.merge(&extras.map(|(name, text)| (name.to_owned(), JsonText::parse(text).unwrap())).into());
    assert_eq!(serde_json::to_string(&object).unwrap(), r#"{"model":"m","seed":7}"#);
}

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
