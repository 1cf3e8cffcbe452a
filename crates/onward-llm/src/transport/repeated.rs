//! Names that occur twice in one object of a JSON text.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

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
