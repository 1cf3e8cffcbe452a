//! JSON schemas of kinds, as registered by workers, the documents of flows, defaults, settings of queues, quotas, and the kinds that only
//! runs may use.
//!
//! Invariant IK1: a task of an internal kind is queued only by a run whose code scheduled it, never as a standalone task.

pub mod defaults;

pub use defaults::{DEFAULTS_KIND_PREFIX, KindDefaults};

use crate::log::event::RunStarted;
use crate::queue::QueueSettings;
use crate::quota::QuotaSettings;
use crate::task::MODEL_CALL;
use crate::{Name, Namespace, Payload, Timestamp, message};

message! {
    /// The JSON schemas of one kind in one version, and its document if it is a flow.
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
        /// The document of a flow, stored under [`FLOW_KIND_PREFIX`] and its version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        9 => flow: Option<String>,
        /// Defaults of its calls; those set live are stored under [`DEFAULTS_KIND_PREFIX`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        20 => defaults: Option<Box<KindDefaults>>,
        /// The schemas of the signals and updates that callers send to its runs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        21 => signals: Vec<NamedSchema>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        22 => updates: Vec<NamedSchema>,
        /// The settings of a queue, stored under [`crate::queue::QUEUE_KIND_PREFIX`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        23 => queue: Option<Box<QueueSettings>>,
        /// The quota of the namespace, stored under [`crate::quota::QUOTA_KIND`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        24 => quota: Option<Box<QuotaSettings>>,
    }

    /// The JSON schema of a signal or update.
    #[derive(Eq)]
    pub struct NamedSchema { 1 => name: Name, 2 => schema: Payload }
}

/// The kind prefix of runs that hold a standalone task; the kind of the task follows. Workflows may not use it.
pub const TASK_KIND_PREFIX: &str = "task:";

/// The prefix under which the definitions of flows are stored among the kinds; the name of the flow follows. Workers cannot
/// register it, so that they cannot replace a definition.
pub const FLOW_KIND_PREFIX: &str = "flow:";

/// The kind prefix of tools; the names of the agent and of the tool follow.
pub const TOOL_KIND_PREFIX: &str = "tool.";

/// Returns true if tasks of this kind are internal to agents: model calls and tool calls, regardless of what workers register.
/// Their safeguards (approvals, budgets, the conversation) are in the run that schedules them.
pub fn is_internal_task(kind: &Name) -> bool {
    [MODEL_CALL, TOOL_KIND_PREFIX].iter().any(|prefix| kind.as_str().starts_with(prefix))
}

impl KindSchemas {
    /// Returns an entry of a workflow kind that has nothing yet. Stored like this, it removes the entry of its key.
    pub fn empty(namespace: Namespace, kind: Name, version: Option<Name>) -> KindSchemas {
        let (is_task, is_internal, registered_at) = (false, false, Timestamp(0));
        KindSchemas {
            namespace,
            is_task,
            kind,
            version,
            input: None,
            output: None,
            registered_at,
            is_internal,
            flow: None,
            defaults: None,
            signals: Vec::new(),
            updates: Vec::new(),
            queue: None,
            quota: None,
        }
    }

    /// Returns false for an empty entry, which removes the entry before it.
    pub fn has_schemas(&self) -> bool {
        self.input.is_some()
            || self.output.is_some()
            || self.is_internal
            || self.flow.is_some()
            || self.defaults.is_some()
            || self.queue.is_some()
            || self.quota.is_some()
            || self.has_messages()
    }

    /// Returns true if it has schemas of signals or updates.
    pub fn has_messages(&self) -> bool {
        !self.signals.is_empty() || !self.updates.is_empty()
    }

    /// Returns the key of the entry, in list order.
    pub fn key(&self) -> (&Namespace, bool, &Name, Option<&Name>) {
        (&self.namespace, self.is_task, &self.kind, self.version.as_ref())
    }

    /// Returns true if both entries have the same key and content; `registered_at` is not compared.
    pub fn agrees(&self, other: &KindSchemas) -> bool {
        let registered_at = self.registered_at;
        *self == KindSchemas { registered_at, ..other.clone() }
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
