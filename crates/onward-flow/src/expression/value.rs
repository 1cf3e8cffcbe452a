//! Values while an expression is evaluated: borrowed from the scope where possible, shared where made, so that a copy is cheap.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;

/// A value of an expression.
#[derive(Clone, Debug)]
pub(super) enum EvalValue<'s> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Text<'s>),
    List(EvalList<'s>),
    Map(EvalMap<'s>),
}

/// A number of JSON. Integers are between the least of `i64` and the greatest of `u64`, floats are finite.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

#[derive(Clone, Debug)]
pub(super) enum Text<'s> {
    Borrowed(&'s str),
    Shared(Arc<str>),
}

#[derive(Clone, Debug)]
pub(super) enum EvalList<'s> {
    Json(&'s [Value]),
    Made(Arc<Made<Vec<EvalValue<'s>>>>),
}

#[derive(Clone, Debug)]
pub(super) enum EvalMap<'s> {
    Json(&'s serde_json::Map<String, Value>),
    Made(Arc<Made<EvalFields<'s>>>),
}

pub(super) type EvalFields<'s> = BTreeMap<Text<'s>, EvalValue<'s>>;

/// A list or map that the expression has made.
#[derive(Debug)]
pub(super) struct Made<T> {
    /// The number of made lists and maps from here to the innermost one. Bounds recursion.
    pub depth: usize,
    pub content: T,
}

impl<'s> EvalValue<'s> {
    pub fn of_json(value: &'s Value) -> EvalValue<'s> {
        match value {
            Value::Null => EvalValue::Null,
            Value::Bool(value) => EvalValue::Bool(*value),
            Value::Number(number) => EvalValue::Number(Number::of_json(number)),
            Value::String(text) => EvalValue::Text(Text::Borrowed(text)),
            Value::Array(items) => EvalValue::List(EvalList::Json(items)),
            Value::Object(fields) => EvalValue::Map(EvalMap::Json(fields)),
        }
    }

    pub fn int(number: usize) -> EvalValue<'s> {
        EvalValue::Number(Number::Int(number as i128))
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            EvalValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_true(&self) -> bool {
        match self {
            EvalValue::Null => false,
            EvalValue::Bool(value) => *value,
            EvalValue::Number(Number::Int(number)) => *number != 0,
            EvalValue::Number(Number::Float(number)) => *number != 0.0,
            EvalValue::Text(text) => !text.is_empty(),
            EvalValue::List(list) => list.len() > 0,
            EvalValue::Map(map) => map.len() > 0,
        }
    }

    /// Describes the value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            EvalValue::Null => "null",
            EvalValue::Bool(_) => "a boolean",
            EvalValue::Number(_) => "a number",
            EvalValue::Text(_) => "a text",
            EvalValue::List(_) => "a list",
            EvalValue::Map(_) => "a map",
        }
    }

    /// Returns the number of nested lists and maps that the expression has made.
    pub fn depth(&self) -> usize {
        match self {
            EvalValue::List(EvalList::Made(made)) => made.depth,
            EvalValue::Map(EvalMap::Made(made)) => made.depth,
            _ => 0,
        }
    }
}

impl Number {
    fn of_json(number: &serde_json::Number) -> Number {
        if let Some(int) = number.as_i64() {
            Number::Int(int.into())
        } else if let Some(int) = number.as_u64() {
            Number::Int(int.into())
        } else {
            Number::Float(number.as_f64().unwrap_or(0.0))
        }
    }

    /// Makes a number if JSON can write it and read it again without loss.
    pub fn of_int(int: i128) -> Option<Number> {
        (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&int).then_some(Number::Int(int))
    }

    pub fn of_float(float: f64) -> Option<Number> {
        float.is_finite().then_some(Number::Float(float))
    }

    pub fn as_float(self) -> f64 {
        match self {
            Number::Int(int) => int as f64,
            Number::Float(float) => float,
        }
    }

    pub fn to_json(self) -> serde_json::Number {
        match self {
            Number::Int(int) => match i64::try_from(int) {
                Ok(int) => int.into(),
                Err(_) => (int as u64).into(),
            },
            // Floats are finite.
            Number::Float(float) => serde_json::Number::from_f64(float).unwrap_or_else(|| 0.into()),
        }
    }

    /// Orders numbers by their exact values, so that sorting is consistent for large integers beside floats.
    pub fn compare(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Int(left), Number::Int(right)) => left.cmp(&right),
            (Number::Float(left), Number::Float(right)) => left.partial_cmp(&right).unwrap_or(Ordering::Equal),
            (Number::Int(left), Number::Float(right)) => compare_int_with_float(left, right),
            (Number::Float(left), Number::Int(right)) => compare_int_with_float(right, left).reverse(),
        }
    }
}

fn compare_int_with_float(int: i128, float: f64) -> Ordering {
    // The cast saturates, and integers have at most 65 bits.
    let whole = float.trunc() as i128;
    int.cmp(&whole).then_with(|| 0.0_f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal))
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<'s> EvalList<'s> {
    pub fn len(&self) -> usize {
        match self {
            EvalList::Json(items) => items.len(),
            EvalList::Made(made) => made.content.len(),
        }
    }

    pub fn get(&self, index: usize) -> Option<EvalValue<'s>> {
        match self {
            EvalList::Json(items) => items.get(index).map(EvalValue::of_json),
            EvalList::Made(made) => made.content.get(index).cloned(),
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = EvalValue<'s>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'s> EvalMap<'s> {
    pub fn len(&self) -> usize {
        match self {
            EvalMap::Json(fields) => fields.len(),
            EvalMap::Made(made) => made.content.len(),
        }
    }

    pub fn get(&self, key: &str) -> Option<EvalValue<'s>> {
        match self {
            EvalMap::Json(fields) => fields.get(key).map(EvalValue::of_json),
            EvalMap::Made(made) => made.content.get(key).cloned(),
        }
    }

    /// Returns the entries by key, whatever order a map of JSON has in this build.
    pub fn entries(&self) -> Vec<(Text<'s>, EvalValue<'s>)> {
        match self {
            EvalMap::Json(fields) => {
                let mut entries: Vec<_> =
                    fields.iter().map(|(key, value)| (Text::Borrowed(key.as_str()), EvalValue::of_json(value))).collect();
                if !entries.is_sorted_by(|left, right| left.0 <= right.0) {
                    entries.sort_by(|left, right| left.0.cmp(&right.0));
                }
                entries
            }
            EvalMap::Made(made) => made.content.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        }
    }
}

/// Writes the value as JSON does, with sorted keys.
impl Serialize for EvalValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            EvalValue::Null => serializer.serialize_unit(),
            EvalValue::Bool(value) => serializer.serialize_bool(*value),
            EvalValue::Number(number) => number.to_json().serialize(serializer),
            EvalValue::Text(text) => serializer.serialize_str(text),
            EvalValue::List(list) => {
                let mut sequence = serializer.serialize_seq(Some(list.len()))?;
                for item in list.iter() {
                    sequence.serialize_element(&item)?;
                }
                sequence.end()
            }
            EvalValue::Map(map) => {
                let mut fields = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in map.entries() {
                    fields.serialize_entry(&*key, &value)?;
                }
                fields.end()
            }
        }
    }
}
