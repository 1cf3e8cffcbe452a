//! Numbers that may exceed 2^53, as JSON text: many JSON parsers read numbers as floats and round them.
//!
//! Used as `#[serde(with = "…::text_number")]`. Reads numbers and text; writes text.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

/// A number, or an optional one.
pub trait TextNumber: Copy + Into<Option<u64>> {
    fn from_read(number: Option<u64>) -> Option<Self>;
}

impl TextNumber for u64 {
    fn from_read(number: Option<u64>) -> Option<u64> {
        number
    }
}

impl TextNumber for Option<u64> {
    fn from_read(number: Option<u64>) -> Option<Option<u64>> {
        Some(number)
    }
}

pub fn serialize<T: TextNumber, S: Serializer>(number: &T, serializer: S) -> Result<S::Ok, S::Error> {
    match (*number).into() {
        Some(number) => serializer.collect_str(&number),
        None => serializer.serialize_none(),
    }
}

pub fn deserialize<'de, T: TextNumber, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let number = deserializer.deserialize_any(NumberVisitor)?;
    T::from_read(number).ok_or_else(|| D::Error::custom("invalid type: null, expected a number"))
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 0 to 2^64 - 1, or its text")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<u64>, E> {
        Ok(Some(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<u64>, E> {
        text.parse().map(Some).map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }

    fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
