//! Defaults of a kind, as a program writes them.

use std::time::Duration;

use onward_core::task::RetryPolicy;
use onward_core::time::millis;
use onward_core::{KindDefaults, Name, NameError};

/// Options of the tasks or runs of a kind that a call does not set itself; see [`crate::Builder::defaults`].
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Defaults {
    of: KindDefaults,
    queue: Option<String>,
}

impl Defaults {
    /// Returns the defaults as they are stored; fails if the queue has no valid name.
    pub(crate) fn stored(self) -> Result<KindDefaults, NameError> {
        Ok(KindDefaults { queue: self.queue.map(Name::new).transpose()?, ..self.of })
    }

    /// Sets the queue of tasks, or the one that lets runs begin.
    pub fn queue(self, queue: &str) -> Defaults {
        Defaults { queue: Some(queue.to_owned()), ..self }
    }

    /// Sets the priority of tasks or runs in their queue; those with a higher one start first.
    pub fn priority(mut self, priority: i32) -> Defaults {
        self.of.priority = Some(priority);
        self
    }

    /// Sets the retry policy of tasks: `.retry(5)` is five attempts in all.
    pub fn retry(mut self, policy: impl Into<RetryPolicy>) -> Defaults {
        self.of.retry = Some(policy.into());
        self
    }

    /// Sets the timeout of one attempt of a task.
    pub fn timeout(mut self, timeout: Duration) -> Defaults {
        self.of.attempt_timeout_ms = Some(millis(timeout));
        self
    }

    /// Sets the timeout of all attempts of a task together, including the waits between them.
    pub fn total_timeout(mut self, timeout: Duration) -> Defaults {
        self.of.total_timeout_ms = Some(millis(timeout));
        self
    }

    /// Sets how long a task may wait for its first attempt.
    pub fn queued_timeout(mut self, timeout: Duration) -> Defaults {
        self.of.queued_timeout_ms = Some(millis(timeout));
        self
    }

    /// Sets how long an attempt of a task may run without a heartbeat.
    pub fn heartbeat(mut self, timeout: Duration) -> Defaults {
        self.of.heartbeat_timeout_ms = Some(millis(timeout));
        self
    }

    /// Sets the key of runs in their queue: a template over `input`, `kind` and `run`, as `{{ input.tenant }}`.
    pub fn key(mut self, template: &str) -> Defaults {
        self.of.key = Some(template.to_owned());
        self
    }

    /// Sets the deadline of runs, after their start.
    pub fn deadline(mut self, limit: Duration) -> Defaults {
        self.of.deadline_ms = Some(millis(limit));
        self
    }
}
