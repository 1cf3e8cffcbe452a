//! Writes the edges of a step. All edges of Dive that match are followed; here it is the first one, or paths that run at once.

use std::collections::{BTreeMap, BTreeSet};

use super::DiveFlow;
use crate::import::dive::fields::{DiveField, DiveFields, Notes, text_of};
use crate::import::dive::translate::{self, Names};
use crate::import::writer::Yaml;

impl DiveFlow<'_> {
    pub(super) fn next(
        &self,
        fields: &mut DiveFields<'_>,
        names: &Names,
        targets: &BTreeMap<String, String>,
        yaml: &mut Yaml,
        notes: &mut Notes<'_>,
    ) {
        let ends = fields.flag("End").unwrap_or(false);
        let mut edges: Vec<(Option<String>, String)> = Vec::new();
        for mut edge in fields.maps("Next", notes) {
            let step = edge.text("Step", notes).unwrap_or_default();
            let goto = match (targets.get(&step), step.to_ascii_lowercase().as_str()) {
                (Some(name), _) => name.clone(),
                (None, "end") => "end".to_owned(),
                (None, _) => {
                    notes.add(
                        edge.line,
                        &edge.path,
                        format!("the step `{step}`"),
                        "the workflow does not have it",
                        Some("the edge is left out"),
                    );
                    continue;
                }
            };
            let when = edge.take("Condition").map(|condition| self.condition(&condition, names, notes));
            edge.finish(notes);
            edges.push((when, goto));
        }
        if edges.is_empty() {
            if ends {
                yaml.field("next", &"end".into());
            }
            return;
        }
        let conditions: Vec<&str> = edges.iter().filter_map(|(when, _)| when.as_deref()).collect();
        let always = edges.len() - conditions.len();
        let (path, line) = (fields.path.clone(), fields.line);
        match (edges.as_slice(), always) {
            ([(None, goto)], _) => yaml.field("next", &goto.as_str().into()),
            (_, 0) => {
                if conditions.len() > 1 && !are_exclusive(&conditions) {
                    let why = "all edges that match were followed, each as a path; now only the first is";
                    let hint = "if several can match, use `next: { all: [..] }` with a `join`";
                    notes.add(line, &path, "the conditions of `Next`", why, Some(hint));
                }
                yaml.open("next");
                for (when, goto) in &edges {
                    edge(yaml, when.as_deref(), goto);
                }
                // A path ended if no condition held.
                edge(yaml, None, "end");
                yaml.close();
            }
            _ => {
                let why = "the paths of several edges run at the same time, and their state is not joined";
                notes.add(line, &path, "several edges of `Next`", why, Some("add a `join` where the paths meet"));
                yaml.open("next");
                yaml.open("all");
                let mut taken = BTreeSet::new();
                for (when, goto) in &edges {
                    if !taken.insert(goto.clone()) {
                        notes.add(
                            line,
                            &path,
                            format!("a second edge to `{goto}`"),
                            "a step starts once",
                            Some("join the conditions with `or`"),
                        );
                        continue;
                    }
                    edge(yaml, when.as_deref(), goto);
                }
                yaml.close();
                yaml.close();
            }
        }
    }

    fn condition(&self, field: &DiveField<'_>, names: &Names, notes: &mut Notes<'_>) -> String {
        let text = text_of(&field.node.to_value());
        let inner = translate::whole(&text).unwrap_or(&text);
        match translate::expression(inner, names) {
            Ok(translated) => translated,
            Err(why) => {
                notes.add(
                    field.line,
                    &field.path,
                    format!("the condition `{text}`"),
                    why,
                    Some("write `when`; it is `false` now"),
                );
                "false".to_owned()
            }
        }
    }
}

fn edge(yaml: &mut Yaml, when: Option<&str>, goto: &str) {
    yaml.item();
    if let Some(when) = when {
        yaml.field("when", &when.into());
    }
    yaml.field("goto", &goto.into());
    yaml.close();
}

/// Returns whether two of these conditions can never hold at once, as far as their texts show: one is the other with `not` or the opposite
/// comparison, or all compare the same name with different texts.
fn are_exclusive(conditions: &[&str]) -> bool {
    if let [first, second] = conditions {
        let negated = |one: &str, other: &str| other == format!("not {one}") || other == format!("not ({one})");
        let opposite = |one: &str, other: &str| {
            [(" == ", " != "), (" < ", " >= "), (" > ", " <= ")].iter().any(|(sign, opposite)| {
                let is_one = one.matches(sign).count() == 1 && !one.contains(" and ") && !one.contains(" or ");
                is_one && one.replace(sign, opposite) == other
            })
        };
        if negated(first, second) || negated(second, first) || opposite(first, second) || opposite(second, first) {
            return true;
        }
    }
    let sides: Vec<_> = conditions.iter().filter_map(|condition| condition.split_once(" == ")).collect();
    let is_literal =
        |text: &str| text.len() > 1 && text.starts_with('\'') && text.ends_with('\'') && text.matches('\'').count() == 2;
    let values: BTreeSet<&str> = sides.iter().map(|(_, value)| *value).collect();
    sides.len() == conditions.len()
        && values.len() == conditions.len()
        && sides.iter().all(|(name, value)| *name == sides[0].0 && is_literal(value))
}
