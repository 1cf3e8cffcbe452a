//! Defaults of a kind: the options that its tasks and runs have unless a call sets them itself.
//!
//! The runtime applies them where a task is queued or a run starts, so the log has the options that applied, and a replay never
//! looks at defaults.
//!
//! Invariants:
//! - KD1: an option that the call sets is never replaced by a default.
//! - KD2: a live setting takes precedence over one of the settings file, that over a registered one, and that over the built-in
//!   one; each option by itself.

use std::time::Duration;

use crate::task::{RetryPolicy, TaskOptions};
use crate::time::millis;
use crate::{Name, TOOL_KIND_PREFIX, message};

/// The prefix under which live defaults are stored among the kinds; the kind follows. Workers cannot register it.
pub const DEFAULTS_KIND_PREFIX: &str = "defaults:";

/// The built-in timeout of an attempt of an agent's tool.
const TOOL_TIMEOUT: Duration = Duration::from_secs(600);

message! {
    /// Options of the tasks or runs of a kind. An option that is absent has no default of its own.
    #[derive(Default, Eq)]
    #[serde(default, deny_unknown_fields)]
    pub struct KindDefaults {
        #[serde(skip_serializing_if = "Option::is_none")]
        1 => queue: Option<Name>,
        /// Higher goes first.
        #[serde(skip_serializing_if = "Option::is_none")]
        2 => priority: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        3 => retry: Option<RetryPolicy>,
        /// The maximum wait for the first attempt.
        #[serde(skip_serializing_if = "Option::is_none")]
        4 => queued_timeout_ms: Option<u64>,
        /// The maximum duration of one attempt.
        #[serde(skip_serializing_if = "Option::is_none")]
        5 => attempt_timeout_ms: Option<u64>,
        /// The maximum duration of all attempts and the delays between them.
        #[serde(skip_serializing_if = "Option::is_none")]
        6 => total_timeout_ms: Option<u64>,
        /// The maximum time between two heartbeats of an attempt.
        #[serde(skip_serializing_if = "Option::is_none")]
        7 => heartbeat_timeout_ms: Option<u64>,
        /// The deadline of runs, after their start.
        #[serde(skip_serializing_if = "Option::is_none")]
        8 => deadline_ms: Option<u64>,
        /// The key of runs in their queue: a template over `input`, `kind` and `run` in the language of flows.
        #[serde(skip_serializing_if = "Option::is_none")]
        10 => key: Option<String>,
    }
}

/// Calls a macro with the name of every option of a task that a kind may have a default for.
macro_rules! for_task_defaults {
    ($each:ident) => {
        $each!(queue, priority, retry, queued_timeout_ms, attempt_timeout_ms, total_timeout_ms, heartbeat_timeout_ms)
    };
}

impl KindDefaults {
    /// Returns true if no option has a default.
    pub fn is_empty(&self) -> bool {
        *self == KindDefaults::default()
    }

    /// Adds the options of `other` that are absent here (KD2).
    pub fn or(mut self, other: &KindDefaults) -> KindDefaults {
        macro_rules! fill {
            ($($option:ident),*) => { $(self.$option = self.$option.or_else(|| other.$option.clone());)* };
        }
        for_task_defaults!(fill);
        self.deadline_ms = self.deadline_ms.or(other.deadline_ms);
        self.key = self.key.or_else(|| other.key.clone());
        self
    }

    /// Returns which options have no meaning for a kind of tasks, or of workflows.
    pub fn wrong_for(&self, is_task: bool) -> Option<String> {
        let KindDefaults { deadline_ms, queue, priority, key, .. } = self.clone();
        let of_runs = KindDefaults { deadline_ms, queue, priority, key, ..KindDefaults::default() };
        match is_task {
            true if self.deadline_ms.is_some() => {
                Some("`deadline_ms` is an option of runs; a task has `total_timeout_ms`".to_owned())
            }
            true if self.key.is_some() => Some("`key` is an option of runs".to_owned()),
            false if *self != of_runs => Some(
                "a workflow has the options `deadline_ms`, `queue`, `priority` and `key`; the others are those of tasks"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// Returns the first value that is invalid for any kind.
    pub fn problem(&self) -> Option<String> {
        let times = [
            ("queued_timeout_ms", self.queued_timeout_ms),
            ("attempt_timeout_ms", self.attempt_timeout_ms),
            ("total_timeout_ms", self.total_timeout_ms),
            ("heartbeat_timeout_ms", self.heartbeat_timeout_ms),
            ("deadline_ms", self.deadline_ms),
        ];
        let zero = times.into_iter().find(|(_, time)| *time == Some(0));
        zero.map(|(option, _)| format!("`{option}` is 0; leave it out for no limit"))
    }
}

impl TaskOptions {
    /// Sets the options that the call did not set, and notes which ones came from the kind (KD1, KD2).
    pub fn fill(&mut self, kind: &Name, defaults: &KindDefaults) {
        macro_rules! fill {
            ($($option:ident),*) => { $(
                if self.$option.is_none() && defaults.$option.is_some() {
                    self.$option = defaults.$option.clone();
                    self.from_kind.push(stringify!($option).to_owned());
                }
            )* };
        }
        for_task_defaults!(fill);
        if kind.as_str().starts_with(TOOL_KIND_PREFIX) {
            self.attempt_timeout_ms.get_or_insert(millis(TOOL_TIMEOUT));
        }
    }

    /// Returns the options with those that the call did not set taken from the recorded ones, for a comparison.
    pub(crate) fn filled_as(&self, recorded: &TaskOptions) -> TaskOptions {
        let mut options = TaskOptions { from_kind: recorded.from_kind.clone(), ..self.clone() };
        macro_rules! fill {
            ($($option:ident),*) => { $(
                if options.$option.is_none() {
                    options.$option = recorded.$option.clone();
                }
            )* };
        }
        for_task_defaults!(fill);
        options
    }
}

#[cfg(test)]
mod tests;
