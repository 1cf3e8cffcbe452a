//! Converts values from JSON, to items, to texts and to JSON, within the limits of sizes.

use std::io;

use serde_json::Value;

use super::{Eval, Outcome};
use crate::expression::value::{EvalFields, EvalValue, Text};
use crate::expression::{ExpressionErrorKind as Kind, ExpressionFault, limits};

impl<'s> Eval<'s> {
    /// Makes a value of expressions from one of JSON.
    pub fn own(&mut self, value: &Value) -> Outcome<EvalValue<'s>> {
        self.spend(1)?;
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                let items = items.iter().map(|item| self.own(item)).collect::<Outcome<Vec<_>>>()?;
                self.list(items)
            }
            Value::Object(fields) => {
                let mut made = EvalFields::new();
                for (key, value) in fields {
                    self.spend_bytes(key.len())?;
                    made.insert(Text::Shared(key.as_str().into()), self.own(value)?);
                }
                self.map(made)
            }
            Value::Null => Ok(EvalValue::Null),
            Value::Bool(value) => Ok(EvalValue::Bool(*value)),
            Value::Number(_) => Ok(match EvalValue::of_json(value) {
                EvalValue::Number(number) => EvalValue::Number(number),
                _ => EvalValue::Null,
            }),
        }
    }

    /// Returns what a loop or a filter goes through: items, keys or characters.
    pub fn items(&mut self, value: &EvalValue<'s>) -> Outcome<Vec<EvalValue<'s>>> {
        match value {
            EvalValue::List(list) => {
                self.spend(list.len())?;
                Ok(list.iter().collect())
            }
            EvalValue::Map(map) => {
                self.spend(map.len())?;
                Ok(map.entries().into_iter().map(|(key, _)| EvalValue::Text(key)).collect())
            }
            EvalValue::Text(text) => {
                self.spend(text.chars().count())?;
                let mut buffer = [0; 4];
                Ok(text.chars().map(|char| EvalValue::Text(Text::Shared((&*char.encode_utf8(&mut buffer)).into()))).collect())
            }
            other => Err(ExpressionFault::new(Kind::Type, format!("{} has no items", other.kind()))),
        }
    }

    /// Writes a value into a longer text: texts as they are, all other values as JSON.
    pub fn as_text(&mut self, value: &EvalValue<'s>) -> Outcome<Text<'s>> {
        match value {
            EvalValue::Text(text) => {
                self.spend_bytes(text.len())?;
                Ok(text.clone())
            }
            other => Ok(Text::Shared(self.json_text(other, None)?.into())),
        }
    }

    /// Writes a value as JSON, with an indent if there is one.
    pub fn json_text(&mut self, value: &EvalValue<'s>, indent: Option<usize>) -> Outcome<String> {
        let mut bytes = Bounded { bytes: Vec::new(), rest: self.bytes.min(limits::VALUE_BYTES) };
        let written = match indent {
            None => serde_json::to_writer(&mut bytes, value),
            Some(width) => {
                let indent = vec![b' '; width];
                let formatter = serde_json::ser::PrettyFormatter::with_indent(&indent);
                let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
                serde::Serialize::serialize(value, &mut serializer)
            }
        };
        if written.is_err() {
            return Err(ExpressionFault::new(
                Kind::TooLarge,
                format!("the JSON has more than {} MiB", limits::VALUE_BYTES >> 20),
            ));
        }
        self.spend_bytes(bytes.bytes.len())?;
        // JSON is UTF-8.
        Ok(String::from_utf8(bytes.bytes).unwrap_or_default())
    }

    /// Makes a JSON value of the result.
    pub fn json(&mut self, value: &EvalValue<'s>) -> Outcome<Value> {
        let mut rest = limits::VALUE_BYTES;
        self.json_within(value, &mut rest, 0)
    }

    /// Makes a JSON value that lies at a depth of another one, and takes its size from the rest.
    pub fn json_within(&mut self, value: &EvalValue<'s>, rest: &mut usize, depth: usize) -> Outcome<Value> {
        if depth > limits::JSON_DEPTH {
            return Err(ExpressionFault::new(Kind::TooLarge, format!("the value has more than {} levels", limits::JSON_DEPTH)));
        }
        let bytes = 8 + value.as_text().map_or(0, str::len);
        let too_large =
            || ExpressionFault::new(Kind::TooLarge, format!("the value has more than {} MiB", limits::VALUE_BYTES >> 20));
        *rest = rest.checked_sub(bytes).ok_or_else(too_large)?;
        self.spend_bytes(bytes)?;
        self.values += 1;
        Ok(match value {
            EvalValue::Null => Value::Null,
            EvalValue::Bool(value) => Value::Bool(*value),
            EvalValue::Number(number) => Value::Number(number.to_json()),
            EvalValue::Text(text) => Value::String(text.to_string()),
            EvalValue::List(list) => {
                let mut items = Vec::with_capacity(list.len().min(1024));
                for item in list.iter() {
                    items.push(self.json_within(&item, rest, depth + 1)?);
                }
                Value::Array(items)
            }
            EvalValue::Map(map) => {
                let mut fields = serde_json::Map::new();
                for (key, value) in map.entries() {
                    *rest = rest.checked_sub(key.len()).ok_or_else(too_large)?;
                    fields.insert(key.to_string(), self.json_within(&value, rest, depth + 1)?);
                }
                Value::Object(fields)
            }
        })
    }
}

/// A buffer that refuses to grow beyond a number of bytes.
struct Bounded {
    bytes: Vec<u8>,
    rest: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest = self.rest.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
