//! Tests of the parent module.

use super::*;
use crate::log::codec::{Field, Reader};

#[test]
fn values_read_back_and_no_two_have_one_key() {
    let values = [
        AttributeValue::from(""),
        AttributeValue::from("42"),
        AttributeValue::from(42),
        AttributeValue::from(i64::MIN),
        AttributeValue::from(false),
        AttributeValue::from("false"),
        AttributeValue::from(Timestamp(42)),
    ];
    let mut keys: Vec<String> = values.iter().map(AttributeValue::to_key).collect();
    for value in &values {
        let mut out = Vec::new();
        value.encode(1, &mut out);
        let (_, raw) = Reader::new(&out).field().unwrap().unwrap();
        assert_eq!(AttributeValue::decode(raw).as_ref(), Ok(value));
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), values.len());
}

#[test]
fn typed_answers_are_parsed_in_every_form() {
    assert_eq!(AttributeValue::readings("42"), [AttributeValue::from("42"), AttributeValue::from(42)]);
    assert_eq!(AttributeValue::readings("042"), [AttributeValue::from("042")]);
    assert_eq!(AttributeValue::readings("true"), [AttributeValue::from("true"), AttributeValue::from(true)]);
}

#[test]
fn attributes_are_limited() {
    let attribute = |name: &str, value: &str| Attribute { name: Name::new(name).unwrap(), value: value.into() };
    assert_eq!(check(&[attribute("a", "1"), attribute("b", "1")]), Ok(()));
    assert!(matches!(check(&[attribute("a", "1"), attribute("a", "2")]), Err(AttributeError::Twice { .. })));
    assert!(matches!(check(&[attribute("a", &"x".repeat(256))]), Err(AttributeError::TooLong { .. })));
}
