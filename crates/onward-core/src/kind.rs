//! JSON schemas of kinds, as registered by workers, and the kinds that only runs may use.
//!
//! Invariant IK1: a task of an internal kind is queued only by a run whose code scheduled it, never as a standalone task.

use crate::log::event::RunStarted;
use crate::task::MODEL_CALL;
use crate::{Name, Namespace, Payload, Timestamp, message};

message! {
    /// The JSON schemas of one kind in one version.
    #[derive(Eq)]
    pub struct KindSchemas {
        1 => namespace: Namespace,
        /// True for a task kind, false for a workflow kind; the two have separate names.
        2 => is_task: bool,
        3 => kind: Name,
        /// `None` for runs without a version.
        4 => version: Option<Name>,
        5 => input: Option<Payload>,
        6 => output: Option<Payload>,
        /// Set by the store.
        7 => registered_at: Timestamp,
        /// Only runs may start it, callers may not.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        8 => is_internal: bool,
    }
}

/// The kind prefix of runs that hold a standalone task; the kind of the task follows. Workflows may not use it.
pub const TASK_KIND_PREFIX: &str = "task:";

/// The kind prefix of tools; the names of the agent and of the tool follow.
pub const TOOL_KIND_PREFIX: &str = "tool.";

/// Returns true if tasks of this kind are internal to agents: model calls and tool calls, regardless of what workers register.
/// Their safeguards (approvals, budgets, the conversation) are in the run that schedules them.
pub fn is_internal_task(kind: &Name) -> bool {
    [MODEL_CALL, TOOL_KIND_PREFIX].iter().any(|prefix| kind.as_str().starts_with(prefix))
}

impl KindSchemas {
    /// Returns false for an empty entry, which removes the entry before it.
    pub fn has_schemas(&self) -> bool {
        self.input.is_some() || self.output.is_some() || self.is_internal
    }

    /// Returns the key of the entry, in list order.
    pub fn key(&self) -> (&Namespace, bool, &Name, Option<&Name>) {
        (&self.namespace, self.is_task, &self.kind, self.version.as_ref())
    }

    /// Returns true if both entries have the same key and content; `registered_at` is not compared.
    pub fn agrees(&self, other: &KindSchemas) -> bool {
        let schemas = |kind: &KindSchemas| (kind.input.clone(), kind.output.clone(), kind.is_internal);
        self.key() == other.key() && schemas(self) == schemas(other)
    }
}

impl RunStarted {
    /// Returns the kind of the standalone task to start if that kind is internal and must not run standalone (IK1).
    pub fn internal_task(&self) -> Option<&Name> {
        self.task.as_ref().map(|task| &task.kind).filter(|kind| is_internal_task(kind))
    }
}

#[cfg(test)]
mod tests;
