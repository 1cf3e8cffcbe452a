//! Attributes: small typed values for listing and selecting runs, set by the code or at the start.
//!
//! Owns the types, their limits and their text form. Must never hold data that the code needs: that is the state.
//!
//! Invariant AT1: a run has at most [`ATTRIBUTES_MAX`] attributes with distinct names, and no value is longer than
//! [`ATTRIBUTE_BYTES_MAX`]: they are loaded with every list.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::log::codec::{DecodeError, Field, Raw, Reader, put_bytes, put_nested, put_number};
use crate::log::schema::{FieldLine, Proto, Schema};
use crate::{Name, Timestamp, message};

/// The maximum number of attributes of a run.
pub const ATTRIBUTES_MAX: usize = 32;

/// The maximum length of a text value, in bytes.
pub const ATTRIBUTE_BYTES_MAX: usize = 255;

message! {
    /// The name and value of an attribute.
    #[derive(Eq)]
    pub struct Attribute {
        1 => name: Name,
        2 => value: AttributeValue,
    }
}

message! {
    /// A condition: the attribute has one of some values.
    #[derive(Eq)]
    pub struct AttributeMatch {
        1 => name: Name,
        2 => values: Vec<AttributeValue>,
    }
}

impl AttributeMatch {
    /// Returns the match for a typed-in `text`.
    pub fn typed(name: Name, text: &str) -> AttributeMatch {
        AttributeMatch { name, values: AttributeValue::readings(text) }
    }

    pub fn matches(&self, attributes: &[Attribute]) -> bool {
        attributes.iter().any(|attribute| attribute.name == self.name && self.values.contains(&attribute.value))
    }
}

/// A value of an attribute. Values of two types are never equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttributeValue {
    Text(String),
    Int(i64),
    Bool(bool),
    Time(Timestamp),
}

/// Invalid attributes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    #[error("attribute `{name}` has {bytes} bytes, more than {ATTRIBUTE_BYTES_MAX}")]
    TooLong { name: Name, bytes: usize },
    #[error("a run has at most {ATTRIBUTES_MAX} attributes")]
    TooMany,
    #[error("attribute `{name}` is set twice")]
    Twice { name: Name },
}

impl AttributeValue {
    /// Returns the letter that distinguishes types in the key form.
    fn letter(&self) -> char {
        match self {
            AttributeValue::Text(_) => 't',
            AttributeValue::Int(_) => 'i',
            AttributeValue::Bool(_) => 'b',
            AttributeValue::Time(_) => 'd',
        }
    }

    /// Returns a text that is unique for each value: the key in stores.
    pub fn to_key(&self) -> String {
        let letter = self.letter();
        match self {
            AttributeValue::Text(text) => format!("{letter}{text}"),
            AttributeValue::Int(number) => format!("{letter}{number}"),
            AttributeValue::Bool(flag) => format!("{letter}{flag}"),
            AttributeValue::Time(at) => format!("{letter}{}", at.0),
        }
    }

    /// Returns every value that a typed-in `text` may mean: `42` is a number and a text.
    pub fn readings(text: &str) -> Vec<AttributeValue> {
        let mut readings = vec![AttributeValue::Text(text.to_owned())];
        if let Some(number) = text.parse::<i64>().ok().filter(|number| number.to_string() == text) {
            readings.push(AttributeValue::Int(number));
        }
        if let Ok(flag) = text.parse() {
            readings.push(AttributeValue::Bool(flag));
        }
        if let Some(at) = Timestamp::parse(text) {
            readings.push(AttributeValue::Time(at));
        }
        readings
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttributeValue::Text(text) => f.pad(text),
            AttributeValue::Int(number) => number.fmt(f),
            AttributeValue::Bool(flag) => flag.fmt(f),
            AttributeValue::Time(at) => at.fmt(f),
        }
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> AttributeValue {
        AttributeValue::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> AttributeValue {
        AttributeValue::Text(text)
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> AttributeValue {
        AttributeValue::Int(number)
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> AttributeValue {
        AttributeValue::Bool(flag)
    }
}

impl From<Timestamp> for AttributeValue {
    fn from(at: Timestamp) -> AttributeValue {
        AttributeValue::Time(at)
    }
}

/// Checks the attributes of a start request (AT1).
pub fn check(attributes: &[Attribute]) -> Result<(), AttributeError> {
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(AttributeError::TooMany);
    }
    for (position, Attribute { name, value }) in attributes.iter().enumerate() {
        check_value(name, value)?;
        if attributes[..position].iter().any(|other| other.name == *name) {
            return Err(AttributeError::Twice { name: name.clone() });
        }
    }
    Ok(())
}

pub fn check_value(name: &Name, value: &AttributeValue) -> Result<(), AttributeError> {
    match value {
        AttributeValue::Text(text) if text.len() > ATTRIBUTE_BYTES_MAX => {
            Err(AttributeError::TooLong { name: name.clone(), bytes: text.len() })
        }
        _ => Ok(()),
    }
}

/// Sets or removes the attribute `name`.
pub fn set(attributes: &mut Vec<Attribute>, name: &Name, value: Option<&AttributeValue>) {
    attributes.retain(|attribute| attribute.name != *name);
    attributes.extend(value.map(|value| Attribute { name: name.clone(), value: value.clone() }));
    attributes.sort_by(|a, b| a.name.cmp(&b.name));
}

impl Field for AttributeValue {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_nested(number, out, |out| match self {
            AttributeValue::Text(text) => put_bytes(1, text.as_bytes(), out),
            AttributeValue::Int(number) => put_number(2, ((*number << 1) ^ (*number >> 63)) as u64, out),
            AttributeValue::Bool(flag) => put_number(3, u64::from(*flag), out),
            AttributeValue::Time(at) => put_number(4, at.0, out),
        });
    }
    fn decode(raw: Raw<'_>) -> Result<AttributeValue, DecodeError> {
        let mut reader = Reader::new(raw.bytes("attribute")?);
        while let Some((number, raw)) = reader.field()? {
            return Ok(match number {
                1 => AttributeValue::Text(String::decode(raw)?),
                2 => {
                    let zigzag = raw.varint("number")?;
                    AttributeValue::Int((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
                }
                3 => AttributeValue::Bool(bool::decode(raw)?),
                4 => AttributeValue::Time(Timestamp(raw.varint("time")?)),
                _ => continue,
            });
        }
        Err(DecodeError::Invalid { what: "attribute" })
    }
    fn proto(schema: &mut Schema) -> Proto {
        schema.one_of("AttributeValue", &["doc = \"A value of an attribute.\""], "is", |schema| {
            let line = |number, name, proto| FieldLine { number, name, docs: &[], proto };
            let scalar = Proto::scalar;
            let time = Timestamp::proto(schema);
            vec![
                line(1, "text", scalar("string")),
                line(2, "int", scalar("sint64")),
                line(3, "bool", scalar("bool")),
                line(4, "time", time),
            ]
        })
    }
}

#[cfg(test)]
mod tests;
