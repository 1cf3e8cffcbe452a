//! Reads fields of maps, with problems for those that are unknown, missing or of the wrong type.

use serde_json::Value;

use super::FlowReader;
use crate::document::Span;
use crate::document::problem::Problem;
use crate::document::yaml::{Kind, Place};
use crate::suggest::{nearest, shown};

/// Most fields that a hint lists.
const FIELDS_SHOWN_MAX: usize = 10;

/// Names that people use for fields, and what they are here.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("id", "name"),
    ("if", "when"),
    ("condition", "when"),
    ("foreach", "each"),
    ("for_each", "each"),
    ("for", "each"),
    ("loop", "each"),
    ("then", "next"),
    ("goto", "next"),
    ("on_error", "catch"),
    ("input", "with"),
    ("args", "with"),
    ("arguments", "with"),
    ("params", "with"),
    ("body", "with"),
    ("schema", "output"),
    ("save", "store"),
    ("save_as", "store"),
    ("retries", "retry"),
    ("signal", "wait"),
    ("compensate", "on_failure"),
    ("undo", "on_failure"),
    ("title", "flow"),
    ("to", "goto"),
    ("items", "in"),
    ("max_attempts", "attempts"),
    ("delay", "backoff"),
];

/// A map whose fields are known.
pub struct Object<'a> {
    place: Place<'a>,
}

impl<'a> Object<'a> {
    pub fn new(place: &Place<'a>) -> Object<'a> {
        Object { place: place.clone() }
    }

    /// Returns the place of a field, unless it could not be read.
    pub fn get(&self, field: &str) -> Option<Place<'a>> {
        self.place.field(field).filter(|place| !matches!(place.node.kind, Kind::Broken))
    }

    pub fn has(&self, field: &str) -> bool {
        self.place.node.get(field).is_some()
    }
}

impl FlowReader {
    /// Returns the fields of a map, and lists those that are unknown.
    pub fn object<'a>(&mut self, place: &Place<'a>, what: &str, fields: &[&str]) -> Option<Object<'a>> {
        if !self.is_map(place, what) {
            return None;
        }
        for entry in place.entries() {
            let key = entry.key.as_str();
            if fields.contains(&key) || key == "<<" || key.is_empty() {
                continue;
            }
            let other = OTHER_NAMES.iter().find(|(name, field)| *name == key && fields.contains(field)).map(|(_, field)| *field);
            let known = nearest(key, fields.iter().copied()).or(other);
            let problem = Problem::error("unknown_field", place, format!("{what} has no field `{}`", shown(key)));
            let problem = match known {
                Some(_) => problem.suggest(known),
                None if fields.len() > FIELDS_SHOWN_MAX => problem,
                None => problem.hint(format!("fields are {}", fields.join(", "))),
            };
            self.problems.add(Problem { path: place.below(key, &entry.node).path, ..problem.at(entry.key_at) });
        }
        Some(Object::new(place))
    }

    /// Lists a field that is missing.
    pub fn missing(&mut self, place: &Place, what: &str, field: &str) {
        self.problems.add(Problem::error("missing_field", place, format!("{what} needs the field `{field}`")));
    }

    /// Lists a value of the wrong type.
    pub fn wrong(&mut self, place: &Place, expected: &str) {
        if !matches!(place.node.kind, Kind::Broken) {
            let message = format!("expected {expected}, found {}", place.node.describe());
            self.problems.add(Problem::error("wrong_type", place, message));
        }
    }

    /// Returns whether a value is a map; lists it otherwise.
    pub fn is_map(&mut self, place: &Place, expected: &str) -> bool {
        let is_map = matches!(place.node.kind, Kind::Map(_));
        if !is_map {
            self.wrong(place, expected);
        }
        is_map
    }

    /// Returns the items of a list; lists another value as a problem.
    pub fn items<'a>(&mut self, place: &Place<'a>, expected: &str, hint: &str) -> Vec<Place<'a>> {
        if matches!(place.node.kind, Kind::List(_)) {
            return place.items().collect();
        }
        if !matches!(place.node.kind, Kind::Broken) {
            let message = format!("expected {expected}, found {}", place.node.describe());
            self.problems.add(Problem::error("wrong_type", place, message).hint(hint));
        }
        Vec::new()
    }

    /// Returns the text of a value; lists another value as a problem.
    pub fn text_of(&mut self, place: &Place) -> Option<String> {
        match &place.node.kind {
            Kind::Scalar { value: Value::String(text), .. } => return Some(text.clone()),
            Kind::Scalar { value: value @ (Value::Bool(_) | Value::Number(_)), .. } => {
                let message = format!("expected a text, found {}", place.node.describe());
                self.problems.add(Problem::error("wrong_type", place, message).hint(format!("quote it: \"{value}\"")));
            }
            Kind::Map(entries) if entries.len() == 1 && entries[0].key_at.column == place.node.at.column + 1 => {
                let message = "expected a text, found a map";
                self.problems.add(Problem::error("wrong_type", place, message).hint("quote a template: \"{{ .. }}\""));
            }
            _ => self.wrong(place, "a text"),
        }
        None
    }

    pub fn text(&mut self, object: &Object, field: &str) -> Option<String> {
        let place = object.get(field)?;
        self.text_of(&place)
    }

    pub fn required_text(&mut self, object: &Object, field: &str) -> Option<String> {
        if !object.has(field) {
            let what = match field {
                "flow" => "a flow",
                "name" => "a step",
                "goto" => "a way",
                "in" => "`each`",
                _ => "this",
            };
            self.missing(&object.place, what, field);
        }
        self.text(object, field)
    }

    pub fn flag(&mut self, object: &Object, field: &str) -> bool {
        let Some(place) = object.get(field) else { return false };
        if let Kind::Scalar { value: Value::Bool(flag), .. } = &place.node.kind {
            return *flag;
        }
        let word = place.node.as_text().map(str::to_lowercase);
        let message = format!("expected `true` or `false`, found {}", place.node.describe());
        let problem = Problem::error("wrong_type", &place, message);
        self.problems.add(match word.as_deref() {
            Some("yes" | "on" | "y") => problem.hint("write `true`: YAML 1.2 reads this word as a text"),
            Some("no" | "off" | "n") => problem.hint("write `false`: YAML 1.2 reads this word as a text"),
            _ => problem,
        });
        false
    }

    /// Returns a whole number from 1.
    pub fn count_of(&mut self, place: &Place, most: u32) -> Option<u32> {
        let Kind::Scalar { value: Value::Number(number), .. } = &place.node.kind else {
            let digits = place.node.as_text().map(|text| text.replace('_', ""));
            let problem =
                Problem::error("wrong_type", place, format!("expected a whole number, found {}", place.node.describe()));
            match digits.filter(|digits| digits.parse::<u32>().is_ok()) {
                Some(digits) => self.problems.add(problem.hint(format!("write {digits}"))),
                None => self.problems.add(problem),
            }
            return None;
        };
        let count = number.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| (1..=most).contains(count));
        if count.is_none() {
            let message = format!("expected a whole number from 1 to {most}, found {number}");
            self.problems.add(Problem::error("out_of_range", place, message));
        }
        count
    }

    pub fn span(&mut self, object: &Object, field: &str) -> Option<Span> {
        let place = object.get(field)?;
        if let Kind::Scalar { value: Value::Number(number), .. } = &place.node.kind {
            let message = format!("the duration {number} has no unit");
            self.problems.add(Problem::error("invalid_duration", &place, message).hint(format!("write `{number}s` for seconds")));
            return None;
        }
        let text = self.text_of(&place)?;
        self.span_of(&place, &text)
    }

    /// Returns the duration that a text is; lists it otherwise.
    pub fn span_of(&mut self, place: &Place, text: &str) -> Option<Span> {
        match text.parse::<Span>() {
            Ok(span) => Some(span),
            Err(error) => {
                let problem = Problem::error("invalid_duration", place, error.to_string());
                self.problems.add(match error.hint() {
                    Some(hint) => problem.hint(hint),
                    None => problem,
                });
                None
            }
        }
    }
}
