//! Limits on schemas: small, shallow, without external references, and metered in every subschema.
//!
//! Walks a schema along the keywords that hold subschemas. A reference may only point to what this walk has visited, so that
//! nothing unmetered is evaluated (KI3).

use std::collections::{BTreeMap, BTreeSet};

use onward_flow::schema_rules::{DEPTH_MAX, REFUSED, Subschemas, subschemas};
use serde_json::{Map, Value, json};

use super::budget::METER;

pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;

const DRAFTS: [&str; 4] = ["draft/2020-12/schema", "draft/2019-09/schema", "draft-07/schema", "draft-06/schema"];

/// Returns the schema with a meter before every subschema, or the reason why it is refused.
///
/// Each subschema `S` becomes `{"allOf": [meter, S]}`: the library evaluates keywords in its own order, but a list in sequence.
/// This moves the subschemas, so references are adjusted.
pub fn metered(schema: Value) -> Result<Value, String> {
    let draft = schema.get("$schema").cloned();
    let name = draft.as_ref().map_or(Some(DRAFTS[0]), Value::as_str).unwrap_or_default();
    if !DRAFTS.iter().any(|known| name.trim_end_matches('#').ends_with(known)) {
        return Err("`$schema` names an unsupported draft".to_owned());
    }
    let mut walk = Walk::default();
    let mut schema = walk.visit(schema, "#", "#", 0)?;
    if let Some(reference) = walk.references.iter().find(|reference| !walk.moved.contains_key(*reference)) {
        return Err(format!("the reference `{}` names no subschema of it", shown(reference)));
    }
    walk.point(&mut schema);
    if let (Some(draft), Some(fields)) = (draft, schema.as_object_mut()) {
        fields.insert("$schema".to_owned(), draft);
    }
    Ok(schema)
}

#[derive(Default)]
struct Walk {
    /// New pointers of the subschemas, by their old ones.
    moved: BTreeMap<String, String>,
    references: BTreeSet<String>,
}

impl Walk {
    fn visit(&mut self, schema: Value, old: &str, new: &str, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(format!("it nests deeper than {DEPTH_MAX} levels"));
        }
        self.moved.insert(old.to_owned(), new.to_owned());
        let mut fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(_) => return Ok(schema),
            _ => return Err(format!("`{}` is not a schema", shown(old))),
        };
        self.check_keywords(&fields, old)?;
        fields.remove("$schema");
        fields.remove("$id");
        let mut weight = 1;
        for (keyword, value) in fields.iter_mut() {
            let (old, new) = (format!("{old}/{}", escaped(keyword)), format!("{new}/allOf/1/{}", escaped(keyword)));
            weight += match (subschemas(keyword, value), value) {
                (Some(Subschemas::List), Value::Array(items)) => {
                    for (number, item) in items.iter_mut().enumerate() {
                        *item = self.visit(item.take(), &format!("{old}/{number}"), &format!("{new}/{number}"), depth + 1)?;
                    }
                    items.len() as u64
                }
                (Some(Subschemas::Map | Subschemas::Definitions), Value::Object(map)) => {
                    for (name, item) in map.iter_mut().filter(|(_, item)| !item.is_array()) {
                        let name = escaped(name);
                        *item = self.visit(item.take(), &format!("{old}/{name}"), &format!("{new}/{name}"), depth + 1)?;
                    }
                    if keyword == "patternProperties" { map.len() as u64 } else { 1 }
                }
                (Some(Subschemas::One), value) => {
                    *value = self.visit(value.take(), &old, &new, depth + 1)?;
                    1
                }
                (_, value) => size(value, depth)?,
            };
        }
        Ok(json!({"allOf": [{METER: weight}, fields]}))
    }

    /// Adjusts references to the new pointers.
    fn point(&self, schema: &mut Value) {
        let Some(fields) = schema.pointer_mut("/allOf/1").and_then(Value::as_object_mut) else { return };
        for (keyword, value) in fields.iter_mut() {
            match (subschemas(keyword, value), value) {
                (_, value) if keyword == "$ref" => {
                    let now = value.as_str().and_then(|reference| self.moved.get(&decoded(reference)));
                    *value = now.map_or(Value::Null, |now| Value::String(encoded(now)));
                }
                (Some(Subschemas::List), Value::Array(items)) => items.iter_mut().for_each(|item| self.point(item)),
                (Some(Subschemas::Map | Subschemas::Definitions), Value::Object(map)) => {
                    map.values_mut().for_each(|item| self.point(item));
                }
                (Some(Subschemas::One), value) => self.point(value),
                _ => {}
            }
        }
    }

    fn check_keywords(&mut self, fields: &Map<String, Value>, pointer: &str) -> Result<(), String> {
        if let Some(keyword) = REFUSED.iter().chain([&METER]).find(|keyword| fields.contains_key(**keyword)) {
            return Err(format!("`{keyword}` is not supported"));
        }
        let is_root = pointer == "#";
        if !is_root && (fields.contains_key("$id") || fields.contains_key("$schema")) {
            return Err("`$id` and `$schema` are allowed only at the top of the schema".to_owned());
        }
        match fields.get("$ref") {
            None => {}
            Some(Value::String(reference)) if reference == "#" || reference.starts_with("#/") => {
                self.references.insert(decoded(reference));
            }
            Some(reference) => {
                return Err(format!("the reference `{}` is external; only `#/…` is supported", shown(&reference.to_string())));
            }
        }
        Ok(())
    }
}

/// Counts the values in `value`.
fn size(value: &Value, depth: usize) -> Result<u64, String> {
    if depth > DEPTH_MAX {
        return Err(format!("it nests deeper than {DEPTH_MAX} levels"));
    }
    Ok(match value {
        Value::Array(items) => items.iter().try_fold(1, |sum, item| Ok::<_, String>(sum + size(item, depth + 1)?))?,
        Value::Object(fields) => fields.values().try_fold(1, |sum, item| Ok::<_, String>(sum + size(item, depth + 1)?))?,
        Value::String(text) => 1 + text.len() as u64 / 32,
        _ => 1,
    })
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns the pointer of a reference, with percent-encoding decoded.
fn decoded(reference: &str) -> String {
    let mut bytes = Vec::with_capacity(reference.len());
    let mut rest = reference.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a pointer as a reference, with percent-encoding of characters that a fragment must not contain.
fn encoded(pointer: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"#/~$-._".contains(&byte);
    pointer.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn shown(text: &str) -> String {
    text.chars().take(200).collect()
}
