//! The picture of a flow: its steps, the ways between them, and how far a run of it is.
//!
//! Owns the graph of a flow, its Mermaid text and its SVG. The output depends on the arguments alone. Names come from documents of
//! others: they are shortened, and escaped for the format in which they are written.

mod build;
mod layout;
mod mermaid;
mod svg;
mod taken;
mod text;

use serde::Serialize;

pub use mermaid::mermaid;
pub use svg::svg;
pub use taken::Taken;

/// The steps of a flow as nodes, and the ways between them as edges.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Graph {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The start, the steps in the order of the document, the end, and names that no step has.
    pub nodes: Vec<GraphNode>,
    pub edges: Vec<Edge>,
}

/// A step, the start or the end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GraphNode {
    pub kind: NodeKind,
    /// The name of the step; of the start, that of the flow.
    pub name: String,
    /// What the step calls: the model, the agent, the kind of task, the duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The text that a model or a person gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub badges: Vec<Badge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    Start,
    Prompt,
    Agent,
    Task,
    Action,
    Approval,
    Wait,
    Sleep,
    Child,
    Set,
    Parallel,
    Join,
    Switch,
    /// A step without a kind, or a name that no step has.
    Unknown,
    End,
}

/// A modifier of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Badge {
    pub kind: BadgeKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BadgeKind {
    When,
    Each,
    Retry,
    Timeout,
    Within,
    Catch,
    Undo,
}

/// A way from one node to another, both as positions in [`Graph::nodes`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub kind: EdgeKind,
    /// The condition, the class of failures or the name of the branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    Next,
    /// The way of a step whose `when` is false, if no other edge shows it.
    Skip,
    /// The start of a branch.
    Branch,
    /// The arrival of a branch at its join.
    Join,
    Catch,
}

impl NodeKind {
    /// Returns the word of the format for this kind.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeKind::Start => "start",
            NodeKind::Prompt => "prompt",
            NodeKind::Agent => "agent",
            NodeKind::Task => "task",
            NodeKind::Action => "action",
            NodeKind::Approval => "approval",
            NodeKind::Wait => "wait",
            NodeKind::Sleep => "sleep",
            NodeKind::Child => "child",
            NodeKind::Set => "set",
            NodeKind::Parallel => "parallel",
            NodeKind::Join => "join",
            NodeKind::Switch => "switch",
            NodeKind::Unknown => "unknown",
            NodeKind::End => "end",
        }
    }
}

#[cfg(test)]
mod tests;
