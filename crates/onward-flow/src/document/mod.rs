//! The format of flows: the types of a document, in the order in which people write it.
//!
//! Owns the format and its JSON Schema. [`parse`] reads a document with positions, [`check`](check()) lists all problems of it.

mod calls;
mod check;
mod duration;
mod parse;
pub(crate) mod problem;
mod scalar;
mod schema;
pub(crate) mod source;
mod value_schema;
mod version;
pub(crate) mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use check::{Known, check};
pub use duration::{Span, SpanError};
pub use parse::{Parsed, Positions, parse, parse_bytes, read_value};
pub use problem::{Problem, Severity};
pub use schema::json_schema;
pub use value_schema::{ValueSchema, ValueSchemaError};
pub use version::input_schema;
pub use yaml::SourcePosition;

/// The name of the place where a flow ends.
pub const END: &str = "end";

/// A workflow as a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// The name, which is the kind of its runs.
    pub flow: String,
    /// What the flow does, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The inputs by name; a run starts with an object that has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Input>,
    /// The steps. Without `next`, the step that follows in the list comes next.
    pub steps: Vec<Step>,
    /// A template of the output; without it, the output is the whole state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// One input: a JSON Schema with a default value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Input {
    /// The value if the run is started without one. Without a default, the input is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// What the input is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// All other keywords of JSON Schema: `type`, `minimum`, `enum`, `items` and so on.
    #[serde(flatten)]
    pub schema: BTreeMap<String, Value>,
}

/// A step: exactly one kind (`prompt`, `agent`, `task`, `action`, `approval`, `wait`, `sleep`, `child`, `set`, `parallel`, `join`
/// or `switch`; `agent` is given with `prompt`), and modifiers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The name, which other steps go to: letters, digits, `_` and `-`.
    pub name: String,

    // Kinds.
    /// The prompt to a model (`model`) or an agent (`agent`). A template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Runs an agent as a child run, with `prompt` as its message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Runs a task of this kind on a worker, with the input `with`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Runs a built-in action with the arguments `with`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// A decision of a person. A template: the title of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// Waits for a signal of this name. A template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// Sleeps for a duration (`90s`, `2d`), or the seconds of an expression in `{{ }}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<String>,
    /// Starts a run of this kind, with the input `with`, and waits for its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// Sets names of the state. Templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<BTreeMap<String, Value>>,
    /// Starts branches by name, each a list of steps with a copy of the state. The flow continues with the next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<BTreeMap<String, Vec<Step>>>,
    /// Waits for branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<Join>,
    /// Chooses the next step by a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,

    // Fields of kinds.
    /// The model of a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The system prompt of a prompt to a model. A template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The JSON Schema of the answer of a model, agent, task, child, signal or approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The input of a task, child or action. Templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Value>,
    /// What the person sees: a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show: Option<Value>,
    /// The people or groups who may decide. Templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deciders: Vec<String>,
    /// The JSON Schema of the answer that a person gives when approving; the answer is `result.answer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// How long an approval or wait may take. Without it, it may take for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Span>,
    /// The queue of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,

    // Modifiers.
    /// Runs the step once for each item of a list or entry of a map; the result is the list or map of results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Each>,
    /// An expression; if it is false, the step is skipped and the result is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// How often a failed step is attempted: a number, or when it is attempted again. Without it, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Uses the result of an equal step of another run again: for how long, or also under which key and in which runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memo: Option<Memo>,
    /// Where to go after a failure; the first entry that fits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub catch: Vec<Catch>,
    /// The name of the state under which the result is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The steps that come next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// A task or action that undoes the step if the flow fails later. Runs in reverse order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<Undo>,
}

/// The built-in actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Sends a request: `method`, `url`, `headers`, `query`, `body`, `json`.
    Http,
    /// Reads a file below the root of documents: `path`, and `as` (`text`, `json` or `base64`).
    Read,
    /// Writes a file below the root of documents: `path`, and `text` or `json`.
    Write,
    /// Parses a text as JSON: `text`.
    Json,
    /// Fails: `message`, `code`, `details`.
    Fail,
    /// Shows a message in the live view of the run: `message`.
    Print,
    /// Returns the time at which the step ran, as RFC 3339.
    Now,
    /// Returns a random number between 0 and 1, or an integer with `min` and `max`.
    Random,
    /// Returns a random UUID.
    Uuid,
}

/// How a step runs once for each item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Each {
    /// An expression for a list or a map, or a list.
    #[serde(rename = "in")]
    pub items: Value,
    /// The name of the item in expressions.
    #[serde(rename = "as", default = "item")]
    pub name: String,
    /// The number of items that run at the same time.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub concurrency: u32,
    /// Whether failed items end the step (the default), or their results are `{"error": {..}}`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub collect_errors: bool,
}

fn item() -> String {
    "item".to_owned()
}

fn one() -> u32 {
    1
}

/// How often a failed step is attempted. A number is short for `attempts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Retry {
    Attempts(#[schemars(range(min = 1))] u32),
    Policy(RetryPolicy),
}

/// How often and when a failed step is attempted again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// The number of attempts, the first one included.
    #[schemars(range(min = 1))]
    pub attempts: u32,
    /// The time before the second attempt; it doubles with each attempt. The default is one second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Span>,
    /// The longest time between two attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_max: Option<Span>,
    /// The codes or classes of failures that are attempted again; without it all that may be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
}

/// How the result of a step is used again. A duration is short for `for`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Memo {
    For(Span),
    Rule(MemoRule),
}

/// For how long, under which key and in which runs the result of a step is used again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoRule {
    /// How long the result is used.
    #[serde(rename = "for")]
    pub ttl: Span,
    /// The key, a template: steps with the same key have the same result. Without it, steps with the same input have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The runs that share the result: all of the namespace (the default), or those of the same tree.
    #[serde(default, skip_serializing_if = "MemoScope::is_namespace")]
    pub scope: MemoScope,
}

/// The runs that share a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoScope {
    /// All runs of the namespace.
    #[default]
    Namespace,
    /// The run with its ancestors and descendants.
    Tree,
}

impl MemoScope {
    fn is_namespace(&self) -> bool {
        *self == MemoScope::Namespace
    }
}

/// What comes after a failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Catch {
    /// A code of a failure, a class (`timeout`, `any`), or a list of them. The default is `any`.
    #[serde(default = "any")]
    pub on: OneOrMany,
    /// The name of a step, or `end`.
    pub goto: String,
    /// The name of the state under which the failure is stored: `{code, message, step, details}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
}

fn any() -> OneOrMany {
    OneOrMany::One("any".to_owned())
}

/// A code or a class of failures, or a list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// The steps that come next: the first edge that matches, or all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Next {
    /// Always this step.
    Goto(String),
    /// The first edge whose condition holds; without one, the step that follows in the list.
    First(Vec<Edge>),
    /// All edges whose conditions hold: each starts a branch with a copy of the state.
    All(AllEdges),
}

/// All ways whose conditions hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllEdges {
    /// The ways, each of which starts a branch.
    pub all: Vec<Edge>,
}

/// A way to another step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// A condition; without one, the edge always matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The name of a step, or `end`.
    pub goto: String,
    /// The name of the branch, in `next: {all: ..}`; the default is the name of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// Waits for branches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The branches to wait for; without it, all that the path has started and not joined yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<String>,
    /// `all` (the default), `any`, or a number of branches. The others are canceled.
    #[serde(default)]
    pub wait: JoinCount,
    /// What the flow takes from the branches: names of its state by `branch.name`, or `branch` for all of its state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub take: BTreeMap<String, String>,
}

/// How many branches a join waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum JoinCount {
    Word(JoinWord),
    Count(#[schemars(range(min = 1))] u32),
}

impl Default for JoinCount {
    fn default() -> JoinCount {
        JoinCount::Word(JoinWord::All)
    }
}

/// The branches that a join waits for, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinWord {
    /// All branches.
    All,
    /// The first that ends.
    Any,
}

/// Chooses the next step by a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// An expression.
    pub on: String,
    /// Steps by the text of the value.
    pub cases: BTreeMap<String, String>,
    /// The step for all other values; without it, the step that follows in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// What undoes a step: a task, or an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// A task of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// A built-in action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// The input. Templates; `result` is the result of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Value>,
    /// How often it is attempted; the default is ten times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}
