//! Writes the steps of a workflow: prompts, actions, scripts and sleeps.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{DiveFlow, DiveStep};
use crate::import::dive::fields::{DiveField, DiveFields, Notes, text_of};
use crate::import::dive::slug;
use crate::import::dive::translate::Names;
use crate::import::writer::Yaml;

impl DiveFlow<'_> {
    pub(super) fn step(
        &self,
        step: DiveStep<'_>,
        names: &Names,
        targets: &BTreeMap<String, String>,
        yaml: &mut Yaml,
        notes: &mut Notes<'_>,
    ) {
        let DiveStep { name, comment, mut fields, each, store } = step;
        let mut names = names.clone();
        if let Some(each) = &each {
            names.known.insert(each.name.clone(), each.name.clone());
        }
        yaml.item();
        if let Some(comment) = comment {
            yaml.comment(&comment);
        }
        yaml.field("name", &name.into());
        let kind = fields.text("Type", notes).map(|kind| kind.to_ascii_lowercase());
        let (prompt, action) = (fields.take("Prompt"), fields.take("Action"));
        let (script, seconds) = (fields.take("Script"), fields.take("Seconds"));
        if let Some(action) = &action {
            self.action(action, &mut fields, &names, yaml, notes);
        } else if let Some(prompt) = &prompt {
            self.prompt(prompt, &mut fields, &names, yaml, notes);
        } else if let Some(script) = &script {
            self.script(script, yaml, notes);
        } else if let Some(seconds) = &seconds {
            let ms = (seconds.node.to_value().as_f64().unwrap_or(0.0) * 1000.0).max(0.0) as u64;
            yaml.field("sleep", &crate::document::Span::from_ms(ms).to_string().into());
        } else {
            if let Some(kind) = kind.filter(|kind| !matches!(kind.as_str(), "prompt" | "action" | "script")) {
                notes.add(
                    fields.line,
                    &fields.path,
                    format!("the step type `{kind}`"),
                    "it has no equivalent",
                    Some("the step does nothing now"),
                );
            }
            yaml.field("set", &Value::Object(Map::new()));
        }
        let (has_prompt, has_action) = (prompt.is_some(), action.is_some());
        for extra in
            [script.filter(|_| has_prompt || has_action), seconds.filter(|_| has_prompt || has_action)].into_iter().flatten()
        {
            notes.field(&extra, "a step does one thing", "make it a step of its own");
        }
        if let Some(extra) = prompt.filter(|_| has_action) {
            notes.field(&extra, "a step does one thing", "make it a step of its own");
        }
        if let Some(each) = each {
            let mut written = Map::new();
            written.insert("in".to_owned(), each.items.unwrap_or_else(|_| Value::Array(Vec::new())));
            written.insert("as".to_owned(), each.name.into());
            yaml.field("each", &Value::Object(written));
        }
        if let Some(store) = store {
            yaml.field("store", &store.into());
        }
        self.next(&mut fields, &names, targets, yaml, notes);
        fields.finish(notes);
        yaml.close();
    }

    fn prompt(&self, prompt: &DiveField<'_>, fields: &mut DiveFields<'_>, names: &Names, yaml: &mut Yaml, notes: &mut Notes<'_>) {
        let mut text = text_of(&self.value(&prompt.node.to_value(), names, prompt, notes));
        for mut content in fields.maps("Content", notes) {
            if let Some(field) = content.take("Text") {
                let added = text_of(&self.value(&field.node.to_value(), names, &field, notes));
                text = format!("{}\n\n{}", text.trim_end(), added);
            }
            for name in ["Path", "URL", "Document", "Dynamic", "DynamicFrom"] {
                if let Some(field) = content.take(name) {
                    let hint = "read it in a step before (`action: read`, `action: http`) and name its state in the prompt";
                    notes.field(&field, "a prompt is a text", hint);
                }
            }
            content.finish(notes);
        }
        yaml.field("prompt", &text.into());
        match fields.text("Agent", notes) {
            Some(agent) => match self.agents.iter().find(|(name, _)| *name == agent) {
                Some((_, slug)) => yaml.field("agent", &slug.as_str().into()),
                None => {
                    let hint = "add it to the settings";
                    notes.add(
                        prompt.line,
                        &prompt.path,
                        format!("the agent `{agent}`"),
                        "the document does not have it",
                        Some(hint),
                    );
                    yaml.field("agent", &slug(&agent).into());
                }
            },
            None => match (self.agents.first(), self.model) {
                (Some((_, first)), _) => yaml.field("agent", &first.as_str().into()),
                (None, model) => yaml.field("model", &model.unwrap_or("default").into()),
            },
        }
    }

    fn action(&self, action: &DiveField<'_>, fields: &mut DiveFields<'_>, names: &Names, yaml: &mut Yaml, notes: &mut Notes<'_>) {
        let name = text_of(&action.node.to_value());
        let parameters = fields.take("Parameters");
        let mut given = Map::new();
        if let Some(parameters) = &parameters
            && let Value::Object(values) = self.value(&parameters.node.to_value(), names, parameters, notes)
        {
            given = values;
        }
        // Names of parameters that change; all others stay.
        let (kind, renamed): (Option<&str>, &[(&str, &str)]) = match name.to_ascii_lowercase().as_str() {
            "document.write" => (Some("write"), &[("path", "path"), ("content", "text")]),
            "document.read" => (Some("read"), &[("path", "path")]),
            "time.now" => (Some("now"), &[]),
            "print" => (Some("print"), &[("message", "message")]),
            _ => (None, &[]),
        };
        let Some(kind) = kind else {
            let hint = "serve a task of this kind with a worker";
            notes.add(action.line, &action.path, format!("the action `{name}`"), "it is not built in", Some(hint));
            yaml.field("task", &name.into());
            if !given.is_empty() {
                yaml.field("with", &Value::Object(given));
            }
            return;
        };
        yaml.field("action", &kind.into());
        let mut with = Map::new();
        for (key, value) in given {
            match renamed.iter().find(|(name, _)| name.eq_ignore_ascii_case(&key)) {
                Some((_, name)) => drop(with.insert((*name).to_owned(), value)),
                None => {
                    let what = format!("the parameter `{key}` of `{name}`");
                    notes.add(action.line, &action.path, what, "it has no equivalent", Some("it is left out"));
                }
            }
        }
        if !with.is_empty() {
            yaml.open("with");
            // The path stands before the text.
            for (key, value) in &with {
                yaml.field(key, value);
            }
            yaml.close();
        }
    }

    /// Writes a step that fails in the place of a script.
    fn script(&self, script: &DiveField<'_>, yaml: &mut Yaml, notes: &mut Notes<'_>) {
        let hint = "write a task for a worker, or `set` with expressions; the step fails now";
        notes.field(script, "scripts have no equivalent", hint);
        yaml.comment(&text_of(&script.node.to_value()));
        yaml.field("action", &"fail".into());
        let message = "This step was a script, which is not mapped.";
        yaml.field("with", &serde_json::json!({"code": "not_mapped", "message": message}));
    }
}
