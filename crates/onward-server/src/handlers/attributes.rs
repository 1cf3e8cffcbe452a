//! Attributes in documents: a text, an integer, a boolean, or `{"time": …}`.

use std::collections::BTreeMap;

use onward_core::{Attribute, AttributeMatch, AttributeValue, Name, NameError, Timestamp};
use serde::{Deserialize, Serialize};

/// Value in a request body.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an attribute must be a text, an integer, true, false, or {\"time\": \"2026-11-15T05:00:00Z\"}")]
pub(crate) enum GivenValue {
    Text(String),
    Int(i64),
    Bool(bool),
    Time { time: Timestamp },
}

impl From<GivenValue> for AttributeValue {
    fn from(given: GivenValue) -> AttributeValue {
        match given {
            GivenValue::Text(text) => AttributeValue::Text(text),
            GivenValue::Int(number) => AttributeValue::Int(number),
            GivenValue::Bool(flag) => AttributeValue::Bool(flag),
            GivenValue::Time { time } => AttributeValue::Time(time),
        }
    }
}

/// Value in a response.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum ShownValue<'a> {
    Text(&'a str),
    Int(i64),
    Bool(bool),
    Time { time: Timestamp },
}

impl<'a> From<&'a AttributeValue> for ShownValue<'a> {
    fn from(value: &'a AttributeValue) -> ShownValue<'a> {
        match value {
            AttributeValue::Text(text) => ShownValue::Text(text),
            AttributeValue::Int(number) => ShownValue::Int(*number),
            AttributeValue::Bool(flag) => ShownValue::Bool(*flag),
            AttributeValue::Time(time) => ShownValue::Time { time: *time },
        }
    }
}

pub(crate) fn attributes(given: BTreeMap<String, GivenValue>) -> Result<Vec<Attribute>, NameError> {
    given.into_iter().map(|(name, value)| Ok(Attribute { name: Name::new(name)?, value: value.into() })).collect()
}

/// Returns a filter for runs that have exactly these values.
pub(crate) fn matches(given: BTreeMap<String, GivenValue>) -> Result<Vec<AttributeMatch>, NameError> {
    let wanted = |attribute: Attribute| AttributeMatch { name: attribute.name, values: vec![attribute.value] };
    Ok(attributes(given)?.into_iter().map(wanted).collect())
}
