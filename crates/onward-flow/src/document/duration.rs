//! Durations as people write them: `500ms`, `30s`, `1h30m`, `2d`, `1w`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::suggest::shown;

/// The longest duration: 100 years.
const MS_MAX: u64 = 100 * 365 * 24 * 3_600_000;

/// The units, from the longest to the shortest, with their milliseconds.
const UNITS: [(&str, u64); 6] =
    [("w", 7 * 24 * 3_600_000), ("d", 24 * 3_600_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration in whole milliseconds, written as text: `500ms`, `30s`, `1h30m`, `2d`, `1w`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    ms: u64,
}

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration: {reason}")]
pub struct SpanError {
    text: String,
    reason: String,
    hint: Option<String>,
}

impl Span {
    /// Returns the duration of this number of milliseconds, 100 years at most.
    pub fn from_ms(ms: u64) -> Span {
        Span { ms: ms.min(MS_MAX) }
    }

    /// Returns the milliseconds.
    pub fn as_ms(self) -> u64 {
        self.ms
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        Duration::from_millis(span.ms)
    }
}

impl SpanError {
    /// Returns what is wrong, without the text.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns how to write it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl FromStr for Span {
    type Err = SpanError;

    /// Parses numbers with units, the longest unit first, each unit once.
    fn from_str(text: &str) -> Result<Span, SpanError> {
        let fail = |reason: String, hint: Option<String>| SpanError { text: shown(text), reason, hint };
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(fail("it is empty".to_owned(), Some("write a number with a unit, `30s` for example".to_owned())));
        }
        let (mut total, mut units) = (0u64, UNITS.as_slice());
        while !rest.is_empty() {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, tail) = rest.split_at(digits);
            if number.is_empty() {
                return Err(fail(format!("`{}` does not begin with a number", shown(rest)), Some(hint_of_form())));
            }
            let unit_len = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_len);
            let unit = unit.trim();
            if unit.is_empty() {
                let hint = format!("add a unit: `{number}s` for seconds");
                return Err(fail(format!("`{}` has no unit", shown(number)), Some(hint)));
            }
            let Some(at) = units.iter().position(|(name, _)| *name == unit) else {
                if UNITS.iter().any(|(name, _)| *name == unit) {
                    let reason = format!("the unit `{unit}` stands twice or after a shorter one");
                    return Err(fail(reason, Some("write the longest unit first, each once".to_owned())));
                }
                return Err(fail(format!("`{}` is not a unit", shown(unit)), Some(hint_of_form())));
            };
            let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(units[at].1));
            total = ms
                .and_then(|ms| total.checked_add(ms))
                .filter(|total| *total <= MS_MAX)
                .ok_or_else(|| fail("it is longer than 100 years".to_owned(), None))?;
            (units, rest) = (&units[at + 1..], tail);
        }
        Ok(Span { ms: total })
    }
}

fn hint_of_form() -> String {
    "write numbers with the units `w`, `d`, `h`, `m`, `s` and `ms`: `1h30m`".to_owned()
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.ms;
        for (unit, ms) in UNITS {
            if rest >= ms {
                write!(f, "{}{unit}", rest / ms)?;
                rest %= ms;
            }
        }
        if self.ms == 0 { f.write_str("0s") } else { Ok(()) }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        deserializer.deserialize_any(SpanVisitor)
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration with a unit, like `30s`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Span, E> {
        Err(E::custom(format!("the duration {number} has no unit: write `{number}s` for seconds")))
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "title": "Duration",
            "description": "A duration: numbers with the units `w`, `d`, `h`, `m`, `s` and `ms`, the longest unit first.",
            "pattern": r"^\s*(?=\d)(\d+\s*w)?(\d+\s*d)?(\d+\s*h)?(\d+\s*m)?(\d+\s*s)?(\d+\s*ms)?\s*$",
            "examples": ["500ms", "30s", "1h30m", "2d", "1w"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        let table = [
            ("500ms", 500),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
            ("1m 5s", 65_000),
            ("0s", 0),
            ("90m", 5_400_000),
        ];
        for (text, ms) in table {
            assert_eq!(text.parse::<Span>().map(Span::as_ms), Ok(ms), "{text}");
        }
        assert_eq!(Span::from_ms(5_400_000).to_string(), "1h30m");
        assert_eq!(Span::from_ms(0).to_string(), "0s");
        assert_eq!(Span::from_ms(694_861_001).to_string(), "1w1d1h1m1s1ms");
        assert_eq!(serde_json::to_string(&Span::from_ms(1500)).expect("text"), "\"1s500ms\"");
    }

    #[test]
    fn other_texts_say_what_is_wrong() {
        let table = [
            ("", "it is empty"),
            ("30", "`30` has no unit"),
            ("s", "`s` does not begin with a number"),
            ("1s1h", "the unit `h` stands twice or after a shorter one"),
            ("1s2s", "the unit `s` stands twice or after a shorter one"),
            ("1.5h", "`.` is not a unit"),
            ("5 minutes", "`minutes` is not a unit"),
            ("-5s", "`-5s` does not begin with a number"),
            ("99999999999999999999s", "it is longer than 100 years"),
            ("5214w3d", "it is longer than 100 years"),
            ("10000w", "it is longer than 100 years"),
        ];
        for (text, reason) in table {
            assert_eq!(text.parse::<Span>().expect_err(text).reason(), reason, "{text}");
        }
        let error = serde_json::from_str::<Span>("30").expect_err("a number");
        assert_eq!(error.to_string(), "the duration 30 has no unit: write `30s` for seconds at line 1 column 2");
    }
}
