//! Tasks: work for any worker that knows the kind.

use std::time::Duration;

use onward_core::Event;
use onward_core::engine::CancelOutcome;
use onward_core::task::{EffectClass, RetryPolicy, TaskOptions};
use onward_core::time::millis;
use serde::Serialize;

use super::call::{Call, durable_call};
use super::{Ctx, name_or_misuse, payload_or_misuse, small};
use crate::names::TaskName;

impl Ctx {
    /// Schedules a task; it runs whether or not the future is awaited, so several run in parallel.
    ///
    /// `kind` is a name or a typed [`crate::Task`].
    pub fn task<T>(&self, kind: impl TaskName<T>, input: &(impl Serialize + ?Sized)) -> TaskCall<T> {
        let kind = name_or_misuse(&self.cell, "task", kind.task_name());
        let input = payload_or_misuse(&self.cell, "task input", input);
        let input = small(self.cell.payload_bytes_max, &format!("the input of task `{kind}`"), input);
        let mut state = self.cell.call("task");
        let place = match input {
            Ok(input) => state.engine.schedule_task(kind, input),
            Err(failure) => state.engine.refuse_task(kind, failure),
        };
        drop(state);
        TaskCall { call: Call::new(self.cell.clone(), "task", place) }
    }
}

/// A task that was scheduled, and the future of its result.
#[must_use = "await it, or keep it to cancel it"]
pub struct TaskCall<T> {
    pub(crate) call: Call<T>,
}

durable_call!(TaskCall<T>);

impl<T> TaskCall<T> {
    fn option(self, set: impl Fn(&mut TaskOptions)) -> Self {
        self.call.configure(|event| {
            if let Event::TaskScheduled(event) = event {
                set(&mut event.options);
            }
        });
        self
    }

    /// Which queue it waits in; the default queue otherwise.
    pub fn queue(self, queue: &str) -> Self {
        let queue = name_or_misuse(self.call.cell(), "queue", queue);
        self.option(|options| options.queue = Some(queue.clone()))
    }

    /// Higher goes first.
    pub fn priority(self, priority: i32) -> Self {
        self.option(|options| options.priority = priority)
    }

    /// How often and when to try again; `.retry(5)` is five attempts in all, and [`RetryPolicy::forever`] has no end.
    pub fn retry(self, policy: impl Into<RetryPolicy>) -> Self {
        let policy = policy.into();
        self.option(|options| options.retry = policy.clone())
    }

    /// How long one attempt may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.option(|options| options.attempt_timeout_ms = Some(millis(timeout)))
    }

    /// How long all attempts and the pauses between them may take.
    pub fn total_timeout(self, timeout: Duration) -> Self {
        self.option(|options| options.total_timeout_ms = Some(millis(timeout)))
    }

    /// How long it may wait for its first attempt.
    pub fn queued_timeout(self, timeout: Duration) -> Self {
        self.option(|options| options.queued_timeout_ms = Some(millis(timeout)))
    }

    /// How long an attempt may be silent.
    pub fn heartbeat(self, timeout: Duration) -> Self {
        self.option(|options| options.heartbeat_timeout_ms = Some(millis(timeout)))
    }

    /// Handed to the task instead of the key derived from this call.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.option(|options| options.idempotency_key = Some(key.to_owned()))
    }

    /// What it does costs money: its attempts stand in the ledger, and the run's budget is looked at before each of them. Tasks whose
    /// kind begins with `llm.` are so by themselves. See [`crate::TaskCtx::spend`].
    pub fn costs(self) -> Self {
        self.option(|options| options.costs = true)
    }

    pub(crate) fn class(self, class: EffectClass) -> Self {
        self.option(|options| options.class = Some(class))
    }

    /// Of an agent: doing it twice does nothing, because it only looks or computes. It may be left behind without a word.
    pub fn pure(self) -> Self {
        self.class(EffectClass::Pure)
    }

    /// Of an agent: doing it twice does nothing, because whoever does it knows [`crate::TaskCtx::idempotency_key`].
    pub fn keyed(self) -> Self {
        self.class(EffectClass::Keyed)
    }

    /// Of an agent: an attempt whose outcome nobody knows is not followed by another; the task then fails as `outcome_unknown`.
    pub fn at_most_once(self) -> Self {
        self.class(EffectClass::AtMostOnce)
    }

    /// Takes the task back; awaiting it then fails as `canceled` at once.
    pub fn cancel(&self) -> CancelOutcome {
        self.call.cancel()
    }
}
