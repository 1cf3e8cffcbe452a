//! Writes a workflow as a flow: its inputs, and its steps with their names and loops.

mod next;
mod step;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::{DiveField, DiveFields, Notes, text_of};
use super::translate::{self, Names};
use super::{identifier, slug, unique};
use crate::import::writer::Yaml;

/// A workflow that becomes a flow.
pub(super) struct DiveFlow<'f> {
    pub name: &'f str,
    /// Agents by their names in the document.
    pub agents: &'f [(String, String)],
    pub model: Option<&'f str>,
}

/// A step of a workflow, before it is written.
struct DiveStep<'a> {
    name: String,
    /// The comment above it.
    comment: Option<String>,
    fields: DiveFields<'a>,
    each: Option<DiveEach>,
    store: Option<String>,
}

struct DiveEach {
    name: String,
    items: Result<Value, (String, String)>,
}

impl DiveFlow<'_> {
    pub(super) fn write(&self, mut workflow: DiveFields<'_>, description: Option<&str>, notes: &mut Notes<'_>) -> String {
        let mut yaml = Yaml::default();
        if let Some(comment) = notes.comment_above(workflow.line) {
            yaml.comment(&comment);
        }
        yaml.field("flow", &self.name.into());
        let _ = workflow.take("Name");
        let own = workflow.plain_text("Description", notes);
        if let Some(description) = own.as_deref().or(description) {
            yaml.field("description", &description.trim_end().into());
        }
        let mut names = Names::default();
        names.known.insert("inputs".to_owned(), "inputs".to_owned());
        self.inputs(&mut workflow, &mut yaml, notes);
        self.output(&mut workflow, notes);
        for trigger in workflow.maps("Triggers", notes) {
            let hint = "start runs over HTTP, or with `onward webhook create`";
            notes.add(trigger.line, &trigger.path, "a trigger", "a document has no triggers", Some(hint));
        }
        let steps = self.steps(workflow.maps("Steps", notes), &mut names, notes);
        yaml.open("steps");
        // Steps that jump to each other by their names in the document.
        let targets: BTreeMap<String, String> =
            steps.iter().map(|(original, step)| (original.clone(), step.name.clone())).collect();
        if steps.is_empty() {
            notes.add(workflow.line, &workflow.path, "the workflow", "it has no steps", Some("add a step"));
        }
        for (_, step) in steps {
            self.step(step, &names, &targets, &mut yaml, notes);
        }
        yaml.close();
        workflow.finish(notes);
        yaml.finish()
    }

    fn inputs(&self, workflow: &mut DiveFields<'_>, yaml: &mut Yaml, notes: &mut Notes<'_>) {
        let inputs = workflow.maps("Inputs", notes);
        if inputs.is_empty() {
            return;
        }
        yaml.open("inputs");
        for mut input in inputs {
            let Some(name) = input.text("Name", notes) else {
                notes.add(input.line, &input.path, "an input", "it has no name", None);
                continue;
            };
            let mut fields = Map::new();
            match input.text("Type", notes).as_deref().map(str::to_ascii_lowercase).as_deref() {
                None | Some("any") => {}
                Some("string" | "text") => drop(fields.insert("type".to_owned(), "string".into())),
                Some("int" | "integer") => drop(fields.insert("type".to_owned(), "integer".into())),
                Some("float" | "number") => drop(fields.insert("type".to_owned(), "number".into())),
                Some("bool" | "boolean") => drop(fields.insert("type".to_owned(), "boolean".into())),
                Some("list" | "array") => drop(fields.insert("type".to_owned(), "array".into())),
                Some("map" | "object" | "dict") => drop(fields.insert("type".to_owned(), "object".into())),
                Some(other) => {
                    let hint = "write a JSON Schema";
                    notes.add(input.line, &input.path, format!("the type `{other}`"), "it is not a type of JSON", Some(hint));
                }
            }
            let required = input.take("Required");
            match (input.take("Default"), required) {
                (Some(default), _) => drop(fields.insert("default".to_owned(), default.node.to_value())),
                (None, Some(required)) if required.node.to_value() == Value::Bool(false) => {
                    notes.field(&required, "an input without a default is required", "add a `default`");
                }
                (None, _) => {}
            }
            if let Some(description) = input.plain_text("Description", notes) {
                fields.insert("description".to_owned(), description.trim_end().into());
            }
            input.finish(notes);
            yaml.field(&identifier(&name), &Value::Object(fields));
        }
        yaml.close();
    }

    fn output(&self, workflow: &mut DiveFields<'_>, notes: &mut Notes<'_>) {
        if let Some(output) = workflow.take("Output") {
            notes.field(
                &output,
                "the output of the run is the whole state",
                "choose with `output:`, and write files with `action: write`",
            );
        }
    }

    /// Reads the names of all steps, what they store, and what they run for: later steps refer to them.
    fn steps<'a>(&self, all: Vec<DiveFields<'a>>, names: &mut Names, notes: &mut Notes<'_>) -> Vec<(String, DiveStep<'a>)> {
        let mut taken = BTreeSet::from(["end".to_owned()]);
        let mut steps = Vec::new();
        for (index, mut fields) in all.into_iter().enumerate() {
            let original = fields.text("Name", notes).unwrap_or_else(|| format!("step {}", index + 1));
            let name = unique(&slug(&original), &mut taken);
            let store = fields.text("Store", notes).map(|store| {
                let name = identifier(store.strip_prefix("state.").unwrap_or(&store));
                names.known.insert(store, format!("state.{name}"));
                names.known.insert("state".to_owned(), "state".to_owned());
                name
            });
            let comment = notes.comment_above(fields.line);
            steps.push((original, DiveStep { name, comment, fields, each: None, store }));
        }
        for (_, step) in &mut steps {
            step.each = self.each(&mut step.fields, names, notes);
        }
        steps
    }

    fn each(&self, fields: &mut DiveFields<'_>, names: &Names, notes: &mut Notes<'_>) -> Option<DiveEach> {
        let field = fields.take("Each")?;
        let mut each = DiveFields::of(field.node, &field.path, notes)?;
        let name = each.text("As", notes).map_or_else(|| "item".to_owned(), |name| identifier(&name));
        let items = match each.take("Items") {
            None => Err((String::new(), "it has no items".to_owned())),
            Some(items) => self.items(&items, names, notes),
        };
        each.finish(notes);
        if let Err((what, why)) = &items {
            notes.add(
                field.line,
                &field.path,
                format!("`Each` over `{what}`"),
                why,
                Some("write `each.in`; it is an empty list now"),
            );
        }
        Some(DiveEach { name, items })
    }

    /// Translates the items of a loop: a list, or an expression.
    fn items(&self, field: &DiveField<'_>, names: &Names, notes: &mut Notes<'_>) -> Result<Value, (String, String)> {
        match field.node.to_value() {
            Value::String(text) => {
                let inner = translate::whole(&text).or_else(|| text.trim().strip_prefix("${")?.strip_suffix('}'));
                let inner = inner.unwrap_or(&text).to_owned();
                translate::expression(&inner, names).map(Value::String).map_err(|why| (text, why))
            }
            value @ Value::Array(_) => Ok(self.value(&value, names, field, notes)),
            other => Err((text_of(&other), "the items are not a list".to_owned())),
        }
    }

    /// Translates the texts of a value.
    fn value(&self, value: &Value, names: &Names, field: &DiveField<'_>, notes: &mut Notes<'_>) -> Value {
        match value {
            Value::String(text) => {
                let (translated, unmapped) = translate::text(text, names);
                for (what, why) in unmapped {
                    let hint = "write it as `{{ .. }}`; it stays as it is now";
                    notes.add(field.line, &field.path, format!("`{what}`"), why, Some(hint));
                }
                Value::String(translated)
            }
            Value::Array(items) => items.iter().map(|item| self.value(item, names, field, notes)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| (key.clone(), self.value(value, names, field, notes)));
                Value::Object(fields.collect())
            }
            other => other.clone(),
        }
    }
}
