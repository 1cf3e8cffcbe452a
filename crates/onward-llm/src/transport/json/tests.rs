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
