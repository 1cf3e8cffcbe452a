//! Attributes in documents: a text, an integer, a boolean, or `{"time": …}`.

use std::collections::BTreeMap;

use onward_core::{Attribute, AttributeMatch, AttributeValue, Name, NameError, Timestamp};
use serde::{Deserialize, Serialize};

/// Value in a request body or a response.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "an attribute must be a text, an integer, true, false, or {\"time\": \"2026-11-15T05:00:00Z\"}")]
pub(crate) enum PlainValue {
    Text(String),
    Int(i64),
    Bool(bool),
    Time { time: Timestamp },
}

impl From<PlainValue> for AttributeValue {
    fn from(value: PlainValue) -> AttributeValue {
        match value {
            PlainValue::Text(text) => AttributeValue::Text(text),
            PlainValue::Int(number) => AttributeValue::Int(number),
            PlainValue::Bool(flag) => AttributeValue::Bool(flag),
            PlainValue::Time { time } => AttributeValue::Time(time),
        }
    }
}

impl From<AttributeValue> for PlainValue {
    fn from(value: AttributeValue) -> PlainValue {
        match value {
            AttributeValue::Text(text) => PlainValue::Text(text),
            AttributeValue::Int(number) => PlainValue::Int(number),
            AttributeValue::Bool(flag) => PlainValue::Bool(flag),
            AttributeValue::Time(time) => PlainValue::Time { time },
        }
    }
}

pub(crate) fn attributes(given: BTreeMap<String, PlainValue>) -> Result<Vec<Attribute>, NameError> {
    given.into_iter().map(|(name, value)| Ok(Attribute { name: Name::new(name)?, value: value.into() })).collect()
}

/// Returns a filter for runs that have exactly these values.
pub(crate) fn matches(given: BTreeMap<String, PlainValue>) -> Result<Vec<AttributeMatch>, NameError> {
    let wanted = |attribute: Attribute| AttributeMatch { name: attribute.name, values: vec![attribute.value] };
    Ok(attributes(given)?.into_iter().map(wanted).collect())
}
