//! Whether arguments mean the same to everybody who reads them: a person who approves them, and the program that gets them.
//!
//! Must never change them.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// What a reader of JSON would make something else of: a name that comes twice, of which one value is dropped, or a whole number that does
/// not fit. The text is known to be JSON.
pub(crate) fn changed_by_reading(text: &str) -> Option<String> {
    match serde_json::from_str::<Faithful>(text) {
        Ok(_) => too_large(text).map(|number| format!("the number {number} does not fit")),
        Err(error) => Some(error.to_string()),
    }
}

/// The first whole number that is not one of 64 bits.
fn too_large(text: &str) -> Option<&str> {
    let mut outside = text;
    while let Some(at) = outside.find(|letter: char| letter == '"' || letter == '-' || letter.is_ascii_digit()) {
        let rest = &outside[at..];
        let length = if rest.starts_with('"') {
            string_length(rest)
        } else {
            let length =
                rest.find(|letter: char| !matches!(letter, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(rest.len());
            let number = &rest[..length];
            let is_whole = !number.contains(['.', 'e', 'E']);
            if is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                return Some(number);
            }
            length
        };
        outside = &rest[length..];
    }
    None
}

/// How long the string is that the text begins with, quotes included.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !is_escaped => return at + 1,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

/// Any JSON in which no name comes twice.
struct Faithful;

impl<'de> Deserialize<'de> for Faithful {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Faithful, D::Error> {
        deserializer.deserialize_any(Reading)
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Faithful;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Faithful, A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format!("the name `{name}` comes twice")));
            }
            names.insert(name);
            map.next_value::<Faithful>()?;
        }
        Ok(Faithful)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Faithful, A::Error> {
        while seq.next_element::<Faithful>()?.is_some() {}
        Ok(Faithful)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Faithful, E> {
        Ok(Faithful)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Faithful, E> {
        Ok(Faithful)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Faithful, E> {
        Ok(Faithful)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Faithful, E> {
        Ok(Faithful)
    }
    fn visit_str<E>(self, _: &str) -> Result<Faithful, E> {
        Ok(Faithful)
    }
    fn visit_unit<E>(self) -> Result<Faithful, E> {
        Ok(Faithful)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_everybody_reads_alike_is_taken() {
        for text in [
            "{}",
            r#"{"n": 1.0, "e": 1e3, "big": 18446744073709551615, "low": -9223372036854775808, "t": [true, null, {"a": 1}]}"#,
            r#"{"text": "123456789012345678901234567890 \" 123456789012345678901234567890", "a": {"n": 1}, "b": {"n": 1}}"#,
        ] {
            assert_eq!(changed_by_reading(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_that_comes_twice_and_a_number_that_does_not_fit_are_told() {
        for (text, why) in [
            (r#"{"n": 1, "n": 2}"#, "`n` comes twice"),
            (r#"{"a": [{"n": 1, "m": 1, "n": 2}]}"#, "`n` comes twice"),
            (r#"{"n": 123456789012345678901234567890}"#, "123456789012345678901234567890 does not fit"),
            (r#"{"n": [-9223372036854775809]}"#, "-9223372036854775809 does not fit"),
        ] {
            let said = changed_by_reading(text).unwrap_or_default();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
