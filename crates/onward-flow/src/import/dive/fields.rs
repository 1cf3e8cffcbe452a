//! Reads maps of the document field by field, and notes the fields that were not read.

use serde_json::Value;

use crate::document::source::Source;
use crate::document::yaml::{Kind, YamlNode};
use crate::import::Unmapped;

/// What the readers share: the text, and the notes.
pub(super) struct Notes<'a> {
    pub source: &'a Source,
    pub list: Vec<Unmapped>,
}

/// The fields of a map that are not read yet. Names count without case and underscores.
pub(super) struct DiveFields<'a> {
    pub path: String,
    pub line: usize,
    entries: Vec<(&'a str, usize, &'a YamlNode)>,
}

/// A field.
#[derive(Clone)]
pub(super) struct DiveField<'a> {
    pub path: String,
    pub line: usize,
    pub node: &'a YamlNode,
}

impl Notes<'_> {
    pub fn add(&mut self, line: usize, path: &str, what: impl Into<String>, why: impl Into<String>, hint: Option<&str>) {
        self.list.push(Unmapped {
            line: Some(line),
            path: path.to_owned(),
            what: what.into(),
            why: why.into(),
            hint: hint.map(str::to_owned),
        });
    }

    /// Notes a field as a whole.
    pub fn field(&mut self, field: &DiveField<'_>, why: &str, hint: &str) {
        self.add(field.line, &field.path, format!("`{}`", last(&field.path)), why, Some(hint));
    }

    /// Returns the comment right above a line.
    pub fn comment_above(&self, line: usize) -> Option<String> {
        let mut lines = Vec::new();
        let mut above = line.checked_sub(1)?;
        while above > 0 {
            match self.source.line(above).trim().strip_prefix('#') {
                Some(comment) => lines.push(comment.trim().to_owned()),
                None => break,
            }
            above -= 1;
        }
        lines.reverse();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn folded(name: &str) -> String {
    name.chars().filter(|char| *char != '_').flat_map(char::to_lowercase).collect()
}

impl DiveField<'_> {
    fn text(&self, notes: &mut Notes<'_>) -> Option<String> {
        match self.node.to_value() {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => {
                notes.field(self, &format!("a text is expected, not {}", self.node.describe()), "write a text");
                None
            }
        }
    }
}

impl<'a> DiveFields<'a> {
    /// Reads a node as a map; another value is noted.
    pub fn of(node: &'a YamlNode, path: &str, notes: &mut Notes<'_>) -> Option<DiveFields<'a>> {
        let Kind::Map(entries) = &node.kind else {
            let what = format!("`{}`", if path.is_empty() { "the document" } else { last(path) });
            notes.add(node.at.line, path, what, format!("a map is expected, not {}", node.describe()), None);
            return None;
        };
        let entries = entries.iter().map(|entry| (entry.key.as_str(), entry.key_at.line, &entry.node)).collect();
        Some(DiveFields { path: path.to_owned(), line: node.at.line, entries })
    }

    /// Takes a field that is not empty.
    pub fn take(&mut self, name: &str) -> Option<DiveField<'a>> {
        let index = self.entries.iter().position(|(key, _, _)| folded(key) == folded(name))?;
        let (key, line, node) = self.entries.remove(index);
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        let is_empty = matches!(&node.kind, Kind::Scalar { value: Value::Null, .. });
        (!is_empty).then_some(DiveField { path, line, node })
    }

    /// Takes a text; a number or boolean counts as its text.
    pub fn text(&mut self, name: &str, notes: &mut Notes<'_>) -> Option<String> {
        self.take(name)?.text(notes)
    }

    /// Takes a text that has no expressions here. Notes those that it has; they stay as they are.
    pub fn plain_text(&mut self, name: &str, notes: &mut Notes<'_>) -> Option<String> {
        let field = self.take(name)?;
        let text = field.text(notes)?;
        if text.contains("${") {
            let what = format!("`${{..}}` in `{}`", last(&field.path));
            notes.add(field.line, &field.path, what, "the text has no expressions here", Some("write the value into the text"));
        }
        Some(text)
    }

    /// Returns a text without taking it.
    pub fn peek_text(&self, name: &str) -> Option<String> {
        let (_, _, node) = self.entries.iter().find(|(key, _, _)| folded(key) == folded(name))?;
        node.as_text().map(str::to_owned)
    }

    pub fn flag(&mut self, name: &str) -> Option<bool> {
        self.take(name)?.node.to_value().as_bool()
    }

    pub fn texts(&mut self, name: &str, notes: &mut Notes<'_>) -> Option<Vec<String>> {
        let field = self.take(name)?;
        match field.node.to_value() {
            Value::Array(items) if items.iter().all(Value::is_string) => {
                Some(items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect())
            }
            _ => {
                notes.field(&field, "a list of texts is expected", "write a list");
                None
            }
        }
    }

    /// Takes the maps of a list.
    pub fn maps(&mut self, name: &str, notes: &mut Notes<'_>) -> Vec<DiveFields<'a>> {
        let Some(field) = self.take(name) else { return Vec::new() };
        let Kind::List(items) = &field.node.kind else {
            notes.field(&field, "a list is expected", "write a list");
            return Vec::new();
        };
        let read = |(index, item)| DiveFields::of(item, &format!("{}[{index}]", field.path), notes);
        items.iter().enumerate().filter_map(read).collect()
    }

    /// Takes the entries of a map of texts.
    pub fn text_map(&mut self, name: &str, notes: &mut Notes<'_>) -> Vec<(String, String)> {
        let Some(field) = self.take(name) else { return Vec::new() };
        let Some(fields) = DiveFields::of(field.node, &field.path, notes) else { return Vec::new() };
        fields.rest().into_iter().map(|(key, field)| (key, text_of(&field.node.to_value()))).collect()
    }

    /// Returns all fields that are left.
    pub fn rest(self) -> Vec<(String, DiveField<'a>)> {
        let path = self.path;
        let named = |(key, line, node): (&str, usize, &'a YamlNode)| {
            (key.to_owned(), DiveField { path: format!("{path}.{key}"), line, node })
        };
        self.entries.into_iter().map(named).collect()
    }

    /// Notes all fields that are left.
    pub fn finish(self, notes: &mut Notes<'_>) {
        for (_, field) in self.rest() {
            notes.field(&field, "it is not a field that is known here", "see what it did, and add it by hand");
        }
    }
}

/// Writes a value as a text.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
