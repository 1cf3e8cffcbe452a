//! Names of steps, inputs, state, items and branches.

use super::steps::{Listed, Steps};
use super::{Checker, END};
use crate::document::problem::Problem;
use crate::document::yaml::{Entry, Place, SourcePosition};
use crate::suggest::shown;

const LENGTH_MAX: usize = 100;

/// Names that expressions know.
pub const ROOTS: [&str; 5] = ["inputs", "state", "run", "result", "error"];

/// Words of the language of expressions.
const WORDS: [&str; 14] =
    ["and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None", "loop"];

impl<'a> Checker<'a, '_> {
    pub fn names(&mut self, steps: &Steps<'a>) {
        if let Some(place) = self.root.field("flow")
            && !is_plain(&self.flow.flow)
            && place.node.as_text().is_some()
        {
            self.invalid_name(&place, &self.flow.flow, "a flow");
        }
        let inputs = self.root.field_or_self("inputs");
        if inputs.path == "inputs" {
            inputs.entries().iter().for_each(|entry| self.identifier(&inputs, entry));
        }
        for (id, listed) in steps.all.iter().enumerate() {
            self.problems.step = (!listed.step.name.is_empty()).then(|| listed.step.name.clone());
            self.step_name(steps, id, listed);
            self.stored_names(listed);
        }
        self.problems.step = None;
    }

    fn step_name(&mut self, steps: &Steps<'a>, id: usize, listed: &Listed<'a>) {
        let name = listed.step.name.as_str();
        let Some(place) = listed.place.field("name").filter(|place| place.node.as_text().is_some()) else { return };
        if name == END {
            let problem = Problem::error("reserved_name", &place, "`end` is the end of the flow and cannot be a step");
            self.problems.add(problem.hint("choose another name"));
        } else if !is_plain(name) {
            self.invalid_name(&place, name, "a step");
        } else if let Some(first) = steps.names.get(name).filter(|first| **first != id) {
            let line = steps.all[*first].place.field_or_self("name").node.at.line;
            let problem =
                Problem::error("duplicate_step", &place, format!("two steps have the name `{name}`; first in line {line}"));
            self.problems.add(problem.hint("choose another name"));
        }
    }

    /// Checks names that expressions read.
    fn stored_names(&mut self, listed: &Listed<'a>) {
        let place = &listed.place;
        let mut single = |place: Option<Place<'a>>| {
            if let Some(place) = place
                && let Some(name) = place.node.as_text()
                && !is_identifier(name)
            {
                self.invalid_identifier(&place, name, place.node.at);
            }
        };
        single(place.field("store"));
        place.field_or_self("catch").items().for_each(|catch| single(catch.field("store")));
        let item = place.field("each").and_then(|each| each.field("as"));
        single(item.clone());
        if let Some(item) = item.filter(|item| item.node.as_text().is_some_and(|name| ROOTS.contains(&name))) {
            let message = format!("`{}` has a meaning in all expressions", item.node.as_text().unwrap_or_default());
            self.problems.add(Problem::error("reserved_name", &item, message).hint("choose another name"));
        }
        let maps = [place.field("set"), place.field("join").and_then(|join| join.field("take"))];
        for map in maps.into_iter().flatten() {
            map.entries().iter().for_each(|entry| self.identifier(&map, entry));
        }
        if let Some(branches) = place.field("parallel") {
            for entry in branches.entries().iter().filter(|entry| !is_plain(&entry.key)) {
                self.invalid_name(&branches.below(&entry.key, &entry.node), &entry.key, "a branch");
            }
        }
    }

    fn identifier(&mut self, map: &Place<'a>, entry: &Entry) {
        if !is_identifier(&entry.key) && entry.key != "<<" && !entry.key.is_empty() {
            let place = Place { node: map.node, path: format!("{}[{:?}]", map.path, entry.key) };
            self.invalid_identifier(&place, &entry.key, entry.key_at);
        }
    }

    fn invalid_identifier(&mut self, place: &Place, name: &str, at: SourcePosition) {
        let message = format!("`{}` is not a name that expressions can read", shown(name));
        let problem = Problem::error("invalid_name", place, message).at(at);
        self.problems.add(problem.hint("use letters, digits and `_`, and begin with a letter"));
    }

    fn invalid_name(&mut self, place: &Place, name: &str, what: &str) {
        let problem = Problem::error("invalid_name", place, format!("`{}` is not a name of {what}", shown(name)));
        self.problems.add(problem.hint(format!("use letters, digits, `_` and `-`, {LENGTH_MAX} at most")));
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().count() <= LENGTH_MAX && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.len() <= LENGTH_MAX
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !WORDS.contains(&name)
}
