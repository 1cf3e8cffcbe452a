//! Attributes: small typed values for listing and selecting runs, set by the code or at the start.
//!
//! Owns the types, their limits and their text form. Values of two types are never equal. Must never hold data that the code needs: that is the state.
//!
//! Invariant AT1: a run has at most [`ATTRIBUTES_MAX`] attributes with distinct names, and no value is longer than
//! [`ATTRIBUTE_BYTES_MAX`]: they are loaded with every list.

use std::fmt;

use crate::{Name, Timestamp, choice, message};

/// The maximum number of attributes of a run.
pub const ATTRIBUTES_MAX: usize = 32;

/// The maximum length of a text value, in bytes.
pub const ATTRIBUTE_BYTES_MAX: usize = 255;

message! {
    /// The name and value of an attribute.
    #[derive(Eq)]
    pub struct Attribute { 1 => name: Name, 2 => value: AttributeValue }

    /// A condition: the attribute has one of some values.
    #[derive(Eq)]
    pub struct AttributeMatch { 1 => name: Name, 2 => values: Vec<AttributeValue> }
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

choice! {
    /// A value of an attribute.
    #[derive(Eq, PartialOrd, Ord)]
    pub enum AttributeValue {
        1 => Text / "text": String,
        2 => Int / "int": i64,
        3 => Bool / "bool": bool,
        4 => Time / "time": Timestamp,
    }
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
    /// Returns a text that is unique for each value: the key in stores. Its first letter is the type.
    pub fn to_key(&self) -> String {
        match self {
            AttributeValue::Text(text) => format!("t{text}"),
            AttributeValue::Int(number) => format!("i{number}"),
            AttributeValue::Bool(flag) => format!("b{flag}"),
            AttributeValue::Time(at) => format!("d{}", at.0),
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

macro_rules! value_from {
    ($($type:ty => $variant:ident),*) => {$(
        impl From<$type> for AttributeValue {
            fn from(value: $type) -> AttributeValue {
                AttributeValue::$variant(value)
            }
        }
    )*};
}

value_from!(String => Text, i64 => Int, bool => Bool, Timestamp => Time);

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

#[cfg(test)]
mod tests;
