//! JSON from others, kept as text byte for byte.
//!
//! Such a text must never be parsed and written again: that rounds integers, reorders keys and breaks signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// The unchanged text of one JSON value.
///
/// In our own documents it is a string, so that it survives every parser and writer of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JsonText(String);

impl JsonText {
    pub fn parse(text: impl Into<String>) -> Result<JsonText, serde_json::Error> {
        let text = text.into();
        serde_json::from_str::<&RawValue>(&text)?;
        Ok(JsonText(text))
    }

    pub fn of(value: &impl Serialize) -> Result<JsonText, serde_json::Error> {
        Ok(JsonText(serde_json::to_string(value)?))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn raw(&self) -> &RawValue {
        serde_json::from_str(&self.0).expect("it was checked when it was made")
    }
}

impl From<Box<RawValue>> for JsonText {
    fn from(raw: Box<RawValue>) -> JsonText {
        JsonText(Box::<str>::from(raw).into())
    }
}

impl TryFrom<String> for JsonText {
    type Error = serde_json::Error;

    fn try_from(text: String) -> Result<JsonText, serde_json::Error> {
        JsonText::parse(text)
    }
}

impl From<JsonText> for String {
    fn from(text: JsonText) -> String {
        text.0
    }
}

/// An object under construction that keeps values of others unchanged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Object(BTreeMap<String, Box<RawValue>>);

impl Object {
    pub fn with(mut self, name: &str, value: impl Serialize) -> Object {
        self.set(name, value);
        self
    }

    pub fn with_some(self, name: &str, value: Option<impl Serialize>) -> Object {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub fn set(&mut self, name: &str, value: impl Serialize) {
        let value = to_raw_value(&value).expect("names are texts and values plain data");
        self.0.insert(name.to_owned(), value);
    }

    pub fn into_raw(self) -> Box<RawValue> {
        to_raw_value(&self).expect("names are texts and values plain data")
    }

    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.get(name).map(|raw| &**raw)
    }

    /// Returns the text at a name, if there is one.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn into_entries(self) -> impl Iterator<Item = (String, Box<RawValue>)> {
        self.0.into_iter()
    }

    /// Applies the fields that an operator or a caller adds; `null` removes a field.
    pub fn merge(&mut self, extras: &BTreeMap<String, JsonText>) {
        for (name, value) in extras {
            if value.as_str() == "null" {
                self.0.remove(name);
            } else {
                self.set(name, value.raw());
            }
        }
    }
}

/// Prefix of the error for a repeated name; the name follows.
const TWICE: &str = "twice: ";

/// Returns the first name that an object of the text has twice; `None` for invalid JSON.
pub(crate) fn repeated_name(text: &str) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let error = Names.deserialize(&mut reader).err()?.to_string();
    let name = error.strip_prefix(TWICE)?;
    // `serde_json` appends the position.
    Some(name.rsplit_once(" at line ").map_or(name, |(name, _)| name).to_owned())
}

/// Reads any JSON and keeps only the names of the open objects.
#[derive(Clone, Copy)]
struct Names;

impl<'de> DeserializeSeed<'de> for Names {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("{TWICE}{name}")));
            }
            map.next_value_seed(self)?;
        }
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self)?.is_some() {}
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
