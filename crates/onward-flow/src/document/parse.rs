//! Reads a document into the types, with all problems of its form and their positions.
//!
//! Invariant FY2: every problem of the form is listed; what is wrong in one step hides nothing in another.

mod object;
mod step;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::object::Object;
use super::problem::{Problem, Problems, Severity};
use super::source::Source;
use super::value_schema::ValueSchema;
use super::yaml::{self, Kind, Place, SourcePosition, YamlNode};
use super::{Flow, Input};
use crate::suggest::{nearest, shown};

/// A document that was read.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The flow, if the document has no errors of form.
    pub flow: Option<Flow>,
    /// What is wrong with the form, in the order of the document. [`check`](super::check()) finds the rest.
    pub problems: Vec<Problem>,
    pub positions: Positions,
    pub(super) file: String,
    /// What could be read, although it has errors.
    pub(super) draft: Option<Flow>,
    /// Paths of the steps whose ways or names could not be read.
    pub(super) unclear: BTreeSet<String>,
}

/// Where the parts of a document are.
#[derive(Debug, Clone, Default)]
pub struct Positions {
    pub(super) source: Option<Source>,
    pub(super) root: Option<YamlNode>,
}

impl Positions {
    /// Returns the position of a value by its path: `steps[2].next[0].goto`.
    pub fn at(&self, path: &str) -> Option<SourcePosition> {
        let mut node = self.root.as_ref()?;
        for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
            node = match (part.strip_suffix(']'), &node.kind) {
                (Some(index), Kind::List(items)) => items.get(index.parse::<usize>().ok()?)?,
                _ => node.get(part)?,
            };
        }
        Some(node.at)
    }

    /// Returns the position of the innermost value on a path that exists, and the name of its step.
    pub(super) fn nearest(&self, path: &str) -> (SourcePosition, Option<&str>) {
        let Some(mut node) = self.root.as_ref() else { return (SourcePosition { line: 1, column: 1 }, None) };
        let mut step = None;
        for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
            let index = part.strip_suffix(']').and_then(|index| index.parse::<usize>().ok());
            let next = match (index, &node.kind) {
                (Some(index), Kind::List(items)) => items.get(index),
                _ => node.get(part),
            };
            let Some(next) = next else { break };
            node = next;
            step = node.get("name").filter(|_| index.is_some()).and_then(YamlNode::as_text).or(step);
        }
        (node.at, step)
    }

    /// Returns the position of the step with a name, in branches too.
    pub fn step(&self, name: &str) -> Option<SourcePosition> {
        fn find(steps: &YamlNode, name: &str) -> Option<SourcePosition> {
            let Kind::List(steps) = &steps.kind else { return None };
            steps.iter().find_map(|step| {
                if step.get("name").and_then(YamlNode::as_text) == Some(name) {
                    return Some(step.at);
                }
                let Kind::Map(branches) = &step.get("parallel")?.kind else { return None };
                branches.iter().find_map(|branch| find(&branch.node, name))
            })
        }
        find(self.root.as_ref()?.get("steps")?, name)
    }
}

/// Reads a YAML or JSON document.
pub fn parse(text: &str, file_name: &str) -> Parsed {
    let mut reader = FlowReader { problems: Problems::new(file_name), unclear: BTreeSet::new() };
    let mut positions = Positions { source: Source::new(text, &mut reader.problems), root: None };
    if let Some(source) = &positions.source {
        positions.root = yaml::read(source, &mut reader.problems);
    }
    let draft = positions.root.as_ref().and_then(|root| reader.flow(&Place::root(root)));
    let problems = reader.problems.finish();
    let flow = draft.clone().filter(|_| !problems.iter().any(Problem::is_error));
    Parsed { flow, problems, positions, file: file_name.to_owned(), draft, unclear: reader.unclear }
}

/// Reads any YAML or JSON document as a value.
///
/// # Errors
/// The problems of its text.
pub fn read_value(text: &str, file_name: &str) -> Result<Value, Vec<Problem>> {
    let mut problems = Problems::new(file_name);
    let root = Source::new(text, &mut problems).and_then(|source| yaml::read(&source, &mut problems));
    let problems = problems.finish();
    match root {
        Some(root) if !problems.iter().any(Problem::is_error) => Ok(root.to_value()),
        _ => Err(problems),
    }
}

/// Reads the bytes of a file, which must be UTF-8.
pub fn parse_bytes(bytes: &[u8], file_name: &str) -> Parsed {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return parse(text, file_name),
        Err(error) => error,
    };
    let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
    let line = valid.matches('\n').count() + 1;
    let column = valid.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let mut parsed = parse("flow: invalid\nsteps: []", file_name);
    let mut problems = Problems::new(file_name);
    let at = SourcePosition { line, column };
    problems
        .add(Problem::new(Severity::Error, "invalid_utf8", at, "", "the document is not UTF-8").hint("save the file as UTF-8"));
    (parsed.flow, parsed.draft, parsed.positions) = (None, None, Positions::default());
    parsed.problems = problems.finish();
    parsed
}

const FLOW_FIELDS: &[&str] = &["flow", "description", "inputs", "steps", "output"];

pub(super) struct FlowReader {
    problems: Problems,
    unclear: BTreeSet<String>,
}

impl FlowReader {
    fn flow(&mut self, place: &Place) -> Option<Flow> {
        let object = self.object(place, "a flow", FLOW_FIELDS)?;
        let name = self.required_text(&object, "flow").unwrap_or_default();
        let steps = match object.get("steps") {
            Some(steps) => self.steps(&steps),
            None => {
                self.missing(place, "a flow", "steps");
                Vec::new()
            }
        };
        Some(Flow {
            flow: name,
            description: self.text(&object, "description"),
            inputs: object.get("inputs").map(|inputs| self.inputs(&inputs)).unwrap_or_default(),
            steps,
            output: object.get("output").map(|output| output.node.to_value()),
        })
    }

    fn inputs(&mut self, place: &Place) -> BTreeMap<String, Input> {
        if !self.is_map(place, "a map of inputs") {
            return BTreeMap::new();
        }
        let read = |entry: &yaml::Entry| {
            let place = place.below(&entry.key, &entry.node);
            Some((entry.key.clone(), self.input(&place)?))
        };
        place.entries().iter().filter_map(read).collect()
    }

    fn input(&mut self, place: &Place) -> Option<Input> {
        if let Some(text) = place.node.as_text() {
            let message = "expected a JSON Schema, found a text";
            self.problems.add(Problem::error("wrong_type", place, message).hint(format!("write {{ type: {text} }}")));
            return None;
        }
        let object = Object::new(place);
        if !self.is_map(place, "a JSON Schema") {
            return None;
        }
        let description = self.text(&object, "description");
        let rest = place.entries().iter().filter(|entry| !matches!(entry.key.as_str(), "default" | "description"));
        let input = Input {
            default: object.get("default").map(|default| default.node.to_value()),
            description,
            schema: rest.map(|entry| (entry.key.clone(), entry.node.to_value())).collect(),
        };
        let schema = input.schema.clone().into_iter().collect();
        let (Some(schema), Some(default)) = (self.schema(place, &schema), object.get("default")) else { return Some(input) };
        if let Some(problem) = schema.problems(&default.node.to_value()).first().filter(|_| !default.node.is_broken()) {
            let message = format!("the default does not fit the input: {problem}");
            self.problems.add(Problem::error("invalid_default", &default, message));
        }
        Some(input)
    }

    /// Checks a JSON Schema.
    fn schema(&mut self, place: &Place, schema: &serde_json::Value) -> Option<ValueSchema> {
        if place.node.is_broken() {
            return None;
        }
        match ValueSchema::compile(schema) {
            Ok(schema) => Some(schema),
            Err(error) => {
                let inner = error.path.iter().try_fold(place.clone(), |place, part| match part.parse() {
                    Ok(index) if matches!(place.node.kind, Kind::List(_)) => Some(place.item_or_self(index)),
                    _ => place.field(part),
                });
                let place = inner.unwrap_or_else(|| place.clone());
                let types = ["string", "number", "integer", "boolean", "array", "object", "null"];
                let problem = match place.node.as_text().filter(|_| place.path.ends_with(".type")) {
                    Some(text) => {
                        let problem =
                            Problem::error("invalid_schema", &place, format!("JSON Schema has no type `{}`", shown(text)));
                        match nearest(text, types) {
                            Some(near) => problem.suggest(Some(near)),
                            None => problem.hint(format!("types are {}", types.join(", "))),
                        }
                    }
                    None => {
                        let message = format!("this is not a valid JSON Schema: {}", error.message);
                        Problem::error("invalid_schema", &place, message)
                    }
                };
                self.problems.add(problem);
                None
            }
        }
    }
}
