//! What kinds take and give, as their workers said, and which of them only runs may ask for.
//!
//! Invariant IK1: a task of an internal kind is queued by a run that asked for it, and by nothing else: it never stands alone.

use crate::log::event::RunStarted;
use crate::task::MODEL_CALL;
use crate::{Name, Namespace, Payload, Timestamp, message};

message! {
    /// The JSON schemas of one kind in one version.
    #[derive(Eq)]
    pub struct KindSchemas {
        1 => namespace: Namespace,
        /// A task's kind; a workflow's otherwise. The two do not know of each other.
        2 => is_task: bool,
        3 => kind: Name,
        /// `None` stands for runs without a version.
        4 => version: Option<Name>,
        5 => input: Option<Payload>,
        6 => output: Option<Payload>,
        /// Set by the store.
        7 => registered_at: Timestamp,
        /// Callers may not start it: it is for runs alone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        8 => is_internal: bool,
    }
}

/// How the kinds of runs begin that hold a standalone task; the kind of the task follows. No workflow is started under such a name.
pub const TASK_KIND_PREFIX: &str = "task:";

/// How the kinds of tools begin; the name of the agent and that of the tool follow.
pub const TOOL_KIND_PREFIX: &str = "tool.";

/// Returns whether tasks of this kind are the internal work of agents, whatever their workers say: calls of models and of tools. What
/// protects them (approvals, budgets, the conversation) is in the run that asks for them.
pub fn is_internal_task(kind: &Name) -> bool {
    [MODEL_CALL, TOOL_KIND_PREFIX].iter().any(|prefix| kind.as_str().starts_with(prefix))
}

impl KindSchemas {
    /// Whether it says anything: an entry that does not removes the one before it.
    pub fn says_something(&self) -> bool {
        self.input.is_some() || self.output.is_some() || self.is_internal
    }

    /// What it is about, in the order of lists.
    pub fn place(&self) -> (&Namespace, bool, &Name, Option<&Name>) {
        (&self.namespace, self.is_task, &self.kind, self.version.as_ref())
    }

    /// Whether both say the same about the same, whenever they said it.
    pub fn agrees(&self, other: &KindSchemas) -> bool {
        let said = |kind: &KindSchemas| (kind.input.clone(), kind.output.clone(), kind.is_internal);
        self.place() == other.place() && said(self) == said(other)
    }
}

impl RunStarted {
    /// Returns the kind of the standalone task that this would begin and that never stands alone (IK1).
    pub fn internal_task(&self) -> Option<&Name> {
        self.task.as_ref().map(|task| &task.kind).filter(|kind| is_internal_task(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_and_model_calls_are_internal_whatever_they_are_called() {
        let is_internal = |kind: &str| is_internal_task(&Name::new(kind).unwrap());
        for kind in ["llm.gpt-4o", "tool.pay", "tool.support.pay", "tool.", "llm."] {
            assert!(is_internal(kind), "{kind}");
        }
        for kind in ["pay", "llm", "tool", "tools.pay", "my.tool.pay", "task:tool.pay"] {
            assert!(!is_internal(kind), "{kind}");
        }
    }
}
