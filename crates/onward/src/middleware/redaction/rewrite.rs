//! JSON text with some values replaced, and all other bytes as they were.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Redaction;

/// Values nested deeper are replaced as a whole, because nothing in them is checked.
const DEPTH_MAX: usize = 128;

/// The fields of an object in their order, also those that it has twice.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields<'de>, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry::<String, &'de RawValue>()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Returns the text with what `redaction` replaces, or `None` if that is nothing. Text that is not JSON is returned as one
/// replacement.
pub(super) fn rewrite(redaction: &Redaction, text: &str) -> Option<String> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(value) => rewritten(redaction, value, 0),
        Err(_) => Some(quoted(&redaction.replacement)),
    }
}

fn rewritten(redaction: &Redaction, value: &RawValue, depth: usize) -> Option<String> {
    let text = value.get();
    match text.as_bytes().first()? {
        b'{' | b'[' if depth >= DEPTH_MAX => Some(quoted(&redaction.replacement)),
        b'{' => {
            let Fields(fields) = serde_json::from_str(text).ok()?;
            let mut changed = false;
            let fields: Vec<String> = fields
                .into_iter()
                .map(|(name, value)| {
                    let new = if redaction.is_field(&name) {
                        Some(quoted(&redaction.replacement))
                    } else {
                        rewritten(redaction, value, depth + 1)
                    };
                    changed |= new.is_some();
                    format!("{}:{}", quoted(&name), new.as_deref().unwrap_or(value.get()))
                })
                .collect();
            changed.then(|| format!("{{{}}}", fields.join(",")))
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            let new: Vec<Option<String>> = items.iter().map(|item| rewritten(redaction, item, depth + 1)).collect();
            new.iter().any(Option::is_some).then(|| {
                let items: Vec<&str> = items.iter().zip(&new).map(|(item, new)| new.as_deref().unwrap_or(item.get())).collect();
                format!("[{}]", items.join(","))
            })
        }
        b'"' => redaction.replaced(&serde_json::from_str::<String>(text).ok()?).map(|text| quoted(&text)),
        _ => None,
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
