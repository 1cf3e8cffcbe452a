//! Expressions and templates of a step: whether they compile, and what they read.

use serde_json::Value;

use super::Checker;
use super::steps::Listed;
use crate::document::problem::Problem;
use crate::document::yaml::{Kind, Place, SourcePosition};
use crate::document::{Next, Step};
use crate::expression::{Expression, ExpressionError, NamePath, Template};

/// A name that an expression reads.
pub struct Read {
    pub path: NamePath,
    pub at: SourcePosition,
    /// The place in the document.
    pub place: String,
    pub scope: NamesInScope,
}

/// What an expression can read beside inputs, state and the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamesInScope {
    /// Whether it is evaluated after the step: the names that the step stores exist.
    pub is_after: bool,
    pub has_result: bool,
    pub has_item: bool,
}

const BEFORE: NamesInScope = NamesInScope { is_after: false, has_result: false, has_item: false };
const CALL: NamesInScope = NamesInScope { is_after: false, has_result: false, has_item: true };
const CHOICE: NamesInScope = NamesInScope { is_after: false, has_result: true, has_item: false };
const NEXT: NamesInScope = NamesInScope { is_after: true, has_result: true, has_item: false };
const UNDO: NamesInScope = NamesInScope { is_after: true, has_result: true, has_item: true };

impl<'a> Checker<'a, '_> {
    /// Compiles all texts of a step and returns what they read.
    pub fn texts(&mut self, listed: &Listed<'a>) -> Vec<Read> {
        let (step, place) = (listed.step, &listed.place);
        self.problems.step = (!step.name.is_empty()).then(|| step.name.clone());
        let mut reads = Vec::new();
        self.plain_fields(place);
        for field in ["prompt", "approval", "wait", "sleep", "system", "set", "with", "show", "deciders"] {
            if let Some(place) = place.field(field) {
                self.template(&place, CALL, &mut reads);
            }
        }
        if let Some(key) = place.field("memo").and_then(|memo| memo.field("key")) {
            self.template(&key, CALL, &mut reads);
        }
        if let Some(place) = place.field("when") {
            self.expression(&place, BEFORE, &mut reads);
        }
        if let Some(items) = place.field("each").and_then(|each| each.field("in")) {
            self.items(&items, &mut reads);
        }
        if let Some(on) = place.field("switch").and_then(|switch| switch.field("on")) {
            self.expression(&on, CHOICE, &mut reads);
        }
        if let Some(with) = place.field("on_failure").and_then(|undo| undo.field("with")) {
            self.template(&with, UNDO, &mut reads);
        }
        self.conditions(step, place, &mut reads);
        self.problems.step = None;
        reads
    }

    /// Compiles the output of the flow and returns what it reads.
    pub fn output_texts(&mut self) -> Vec<Read> {
        let mut reads = Vec::new();
        if let Some(output) = self.root.field("output") {
            self.template(&output, BEFORE, &mut reads);
        }
        reads
    }

    fn conditions(&mut self, step: &Step, place: &Place<'a>, reads: &mut Vec<Read>) {
        let Some(next) = place.field("next") else { return };
        let edges = match &step.next {
            Some(Next::All(_)) => next.field_or_self("all"),
            _ => next,
        };
        for when in edges.items().filter_map(|edge| edge.field("when")) {
            self.expression(&when, NEXT, reads);
        }
    }

    fn items(&mut self, place: &Place<'a>, reads: &mut Vec<Read>) {
        let Some(text) = place.node.as_text() else { return self.template(place, BEFORE, reads) };
        self.expression(place, BEFORE, reads);
        let inner = text.trim().trim_start_matches("{{").trim_end_matches("}}").trim();
        let is_literal = inner.parse::<f64>().is_ok()
            || matches!(inner, "true" | "false" | "none")
            || (inner.len() > 1
                && ['"', '\''].iter().any(|quote| {
                    inner
                        .strip_prefix(*quote)
                        .and_then(|rest| rest.strip_suffix(*quote))
                        .is_some_and(|text| !text.contains(*quote))
                }));
        if is_literal {
            let message = format!("expected a list or a map, found {inner}");
            self.problems.add(Problem::error("wrong_type", place, message));
        }
    }

    /// Lists templates in fields that are none.
    fn plain_fields(&mut self, place: &Place<'a>) {
        for field in ["agent", "task", "child", "model", "queue"] {
            let Some(place) = place.field(field) else { continue };
            if place.node.as_text().is_some_and(|text| text.contains("{{")) {
                self.problems.add(Problem::error("not_a_template", &place, format!("`{field}` cannot be a template")));
            }
        }
    }

    fn expression(&mut self, place: &Place<'a>, scope: NamesInScope, reads: &mut Vec<Read>) {
        let Some(text) = place.node.as_text() else { return };
        match Expression::compile(text) {
            Ok(expression) => self.reads(place, text, expression.names(), scope, reads),
            Err(error) => self.invalid(place, &error, "expression"),
        }
    }

    /// Compiles all texts of a value.
    fn template(&mut self, place: &Place<'a>, scope: NamesInScope, reads: &mut Vec<Read>) {
        match &place.node.kind {
            Kind::List(_) => place.items().for_each(|item| self.template(&item, scope, reads)),
            Kind::Map(entries) => {
                entries.iter().for_each(|entry| self.template(&place.below(&entry.key, &entry.node), scope, reads));
            }
            Kind::Scalar { value: Value::String(text), .. } if text.contains('{') => match Template::of_text(text) {
                Ok(template) => self.reads(place, text, template.names(), scope, reads),
                Err(error) => self.invalid(place, &error, "template"),
            },
            Kind::Scalar { .. } | Kind::Broken => {}
        }
    }

    fn invalid(&mut self, place: &Place<'a>, error: &ExpressionError, what: &str) {
        let at = error.offset.map_or(place.node.at, |offset| self.source.inside(place.node, offset));
        let message = format!("the {what} is not valid: {}", error.message);
        self.problems.add(Problem::error("invalid_expression", place, message).at(at));
    }

    fn reads(&mut self, place: &Place<'a>, text: &str, names: &[NamePath], scope: NamesInScope, reads: &mut Vec<Read>) {
        for path in names {
            let offset = offset(text, path).unwrap_or(0);
            let at = self.source.inside(place.node, offset);
            reads.push(Read { path: path.clone(), at, place: place.path.clone(), scope });
        }
    }
}

/// Returns where a text names a path: all of it, or else its beginning.
fn offset(text: &str, path: &[String]) -> Option<usize> {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let find = |name: &str| {
        let is_whole = |at: &usize| {
            !is_part(text[..*at].chars().next_back())
                && !text[..*at].ends_with('.')
                && !is_part(text[*at + name.len()..].chars().next())
        };
        text.match_indices(name).map(|(at, _)| at).find(is_whole)
    };
    (1..=path.len()).rev().find_map(|length| find(&path[..length].join(".")))
}
