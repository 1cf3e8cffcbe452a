//! Tasks: work for any worker that registered their kind.

use std::time::Duration;

use onward_core::Event;
use onward_core::engine::CancelOutcome;
use onward_core::task::{EffectClass, RetryPolicy, TaskOptions};
use onward_core::time::millis;
use serde::Serialize;

use super::call::{PendingCall, durable_call};
use super::memo::Memo;
use super::{Ctx, name_or_misuse, payload_or_misuse, small};
use crate::names::TaskName;

impl Ctx {
    /// Schedules a task. It runs whether or not the future is awaited, so several tasks run in parallel.
    ///
    /// `kind` is a name or a typed [`crate::Task`].
    pub fn task<T>(&self, kind: impl TaskName<T>, input: &(impl Serialize + ?Sized)) -> TaskCall<T> {
        let kind = name_or_misuse(&self.cell, "task", kind.task_name());
        let input = payload_or_misuse(&self.cell, "task input", input);
        let input = small(self.cell.shared.payload_bytes_max, format_args!("the input of task `{kind}`"), input);
        let mut state = self.cell.call("task");
        let call_id = match input {
            Ok(input) => state.engine.schedule_task(kind, input),
            Err(failure) => state.engine.refuse_task(kind, failure),
        };
        drop(state);
        TaskCall { call: PendingCall::new(self.cell.clone(), "task", call_id) }
    }
}

/// Implements the options of tasks for a builder that has a method `option`.
macro_rules! task_options {
    ($builder:ident) => {
        impl<T> $builder<T> {
            /// Sets the priority; tasks with a higher one start first. One level is worth a minute of waiting.
            pub fn priority(self, priority: i32) -> Self {
                self.option(|options| options.priority = Some(priority))
            }

            /// Sets the retry policy: `.retry(5)` is five attempts in all, [`RetryPolicy::forever`] has no limit.
            pub fn retry(self, policy: impl Into<RetryPolicy>) -> Self {
                let policy = policy.into();
                self.option(|options| options.retry = Some(policy.clone()))
            }

            /// Sets the timeout of one attempt.
            pub fn timeout(self, timeout: Duration) -> Self {
                self.option(|options| options.attempt_timeout_ms = Some(millis(timeout)))
            }

            /// Sets the timeout of all attempts together, including the waits between them.
            pub fn total_timeout(self, timeout: Duration) -> Self {
                self.option(|options| options.total_timeout_ms = Some(millis(timeout)))
            }

            /// Sets how long the task may wait for its first attempt.
            pub fn queued_timeout(self, timeout: Duration) -> Self {
                self.option(|options| options.queued_timeout_ms = Some(millis(timeout)))
            }

            /// Sets how long an attempt may run without a heartbeat.
            pub fn heartbeat(self, timeout: Duration) -> Self {
                self.option(|options| options.heartbeat_timeout_ms = Some(millis(timeout)))
            }
        }
    };
}
pub(crate) use task_options;

task_options!(TaskCall);

/// A scheduled task, and the future of its result.
#[must_use = "await it, or keep it to cancel it"]
pub struct TaskCall<T> {
    pub(crate) call: PendingCall<T>,
}

durable_call!(TaskCall<T> => T);

impl<T> TaskCall<T> {
    fn option(self, set: impl Fn(&mut TaskOptions)) -> Self {
        self.call.configure(|event| {
            if let Event::TaskScheduled(event) = event {
                set(&mut event.options);
            }
        });
        self
    }

    /// Sets the queue; default the default queue.
    pub fn queue(self, queue: &str) -> Self {
        let queue = name_or_misuse(self.call.cell(), "queue", queue);
        self.option(|options| options.queue = Some(queue.clone()))
    }

    /// Sets the key whose limits and share of the queue apply to the task: a tenant, an account. Keys of a queue take turns.
    pub fn key(self, key: &str) -> Self {
        let key = name_or_misuse(self.call.cell(), "key", key);
        self.option(|options| options.key = Some(key.clone()))
    }

    /// Sets how many slots of its queue, and of its key, an attempt holds; one by default. A task that needs more than a limit of
    /// its queue fails with `slots_invalid`.
    pub fn slots(self, slots: u32) -> Self {
        if slots == 0 {
            self.call.cell().lock().engine.misuse("slots: a task needs at least one".to_owned());
        }
        self.option(|options| options.slots = Some(slots))
    }

    /// Sets the idempotency key that the task receives; default a key derived from this call.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.option(|options| options.idempotency_key = Some(key.to_owned()))
    }

    /// Marks the task as one that costs money: its attempts are recorded in the ledger, and the run's budget is checked before
    /// each. Tasks whose kind begins with `llm.` are marked automatically. See [`crate::TaskCtx::spend`].
    pub fn costs(self) -> Self {
        self.option(|options| options.costs = true)
    }

    /// Uses the result of an equal task of another run, recorded within this time; a hit is an event that names that run. A task
    /// that equals one in progress waits for it. Not for a task that runs at most once. See [`Memo`].
    pub fn memo(self, memo: impl Into<Memo>) -> Self {
        memo.into().set(self.call.cell(), self.call.call_id());
        self
    }

    /// Sets a memo whose derived key has this hash instead of that of the task's input.
    #[cfg(feature = "agents")]
    pub(crate) fn memo_of(self, memo: Memo, key: String) -> Self {
        memo.derived(self.call.cell(), self.call.call_id(), || Some(key));
        self
    }

    pub(crate) fn class(self, class: EffectClass) -> Self {
        self.option(|options| options.class = Some(class))
    }

    /// Declares an agent's task as `pure`: it has no side effects, so it may run twice or be abandoned silently.
    pub fn pure(self) -> Self {
        self.class(EffectClass::Pure)
    }

    /// Declares an agent's task as `keyed`: its receiver discards repeats by [`crate::TaskCtx::idempotency_key`].
    pub fn keyed(self) -> Self {
        self.class(EffectClass::Keyed)
    }

    /// Declares an agent's task as `at_most_once`: after an attempt with an unknown outcome it fails with `outcome_unknown`
    /// instead of running again.
    pub fn at_most_once(self) -> Self {
        self.class(EffectClass::AtMostOnce)
    }

    /// Cancels the task. Awaiting it then fails with `canceled` at once.
    pub fn cancel(&self) -> CancelOutcome {
        self.call.cancel()
    }
}
