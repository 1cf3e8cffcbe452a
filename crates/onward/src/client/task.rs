//! Standalone tasks: tasks without a workflow.

use std::marker::PhantomData;
use std::time::Duration;

use onward_core::api::{Appended, StartTaskRequest, TaskView};
use onward_core::task::{EffectClass, RetryPolicy, TaskOptions};
use onward_core::time::millis;
use onward_core::{Name, Payload};
use onward_runtime::new_run_id;
use onward_store::{Clock, SystemClock};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Onward, RunHandle};
use crate::ctx::task_options;
use crate::names::TaskName;
use crate::{Error, Result};

impl Onward {
    /// Queues a task of `kind`, a name or a typed [`crate::Task`], for any worker that registered it. Awaiting the builder queues
    /// it.
    ///
    /// The engine applies retries and timeouts. The task is kept like a run, by default for 30 days after its end.
    pub fn task<O, I: Serialize + ?Sized>(&self, kind: impl TaskName<O>, input: &I) -> StartTask<O> {
        StartTask {
            onward: self.clone(),
            kind: kind.task_name().to_owned(),
            id: None,
            queue: None,
            key: None,
            input: Payload::json(input),
            options: TaskOptions::default(),
            trace: None,
            output: PhantomData,
        }
    }

    /// Returns a handle to an existing standalone task.
    pub fn task_handle<O>(&self, id: &str) -> Result<TaskHandle<O>, Error> {
        Ok(TaskHandle { run: self.run(id)? })
    }
}

/// A standalone task to be queued; see [`Onward::task`].
#[must_use = "await it to queue the task"]
pub struct StartTask<O> {
    onward: Onward,
    kind: String,
    id: Option<String>,
    queue: Option<String>,
    key: Option<String>,
    input: Result<Payload, serde_json::Error>,
    options: TaskOptions,
    trace: Option<String>,
    output: PhantomData<fn() -> O>,
}

task_options!(StartTask);

impl<O> StartTask<O> {
    /// Sets the task's id. Queueing the same id with the same kind and input again returns the same task.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the queue; default the default queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the key whose limits and share of the queue apply to the task: a tenant, an account. Keys of a queue take turns.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how many slots of its queue, and of its key, an attempt holds; one by default. The start of a task that needs more
    /// than a limit of its queue is refused with `slots_invalid`.
    pub fn slots(self, slots: u32) -> Self {
        self.option(|options| options.slots = Some(slots))
    }

    fn option(mut self, set: impl Fn(&mut TaskOptions)) -> Self {
        set(&mut self.options);
        self
    }

    /// Marks the task as one that costs money: its attempts are recorded in the ledger (see [`crate::TaskCtx::spend`]).
    pub fn costs(mut self) -> Self {
        self.options.costs = true;
        self
    }

    /// Sets the effect class. After an attempt with an unknown outcome, a task that is `at_most_once` fails with
    /// `outcome_unknown` instead of running again.
    pub fn class(mut self, class: EffectClass) -> Self {
        self.options.class = Some(class);
        self
    }

    /// Sets the idempotency key of every attempt; default a key derived from the id.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.options.idempotency_key = Some(key.into());
        self
    }

    /// Sets the trace that the task belongs to, in the format of the header `traceparent`. An invalid value is ignored.
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    async fn send(self) -> Result<TaskHandle<O>, Error> {
        let inner = &self.onward.inner;
        let kind = Name::new(&self.kind)?;
        // A server has workers with kinds that this process has not registered.
        if inner.local.runtime.is_some() && !inner.worker.registry.tasks.contains_key(&kind) {
            return Err(Error::UnknownKind { kind: self.kind, version: None });
        }
        let key = self.onward.key(&self.id.unwrap_or_else(|| new_run_id(SystemClock.now())))?;
        let input = self.input.map_err(|why| Error::Convert { what: "the input", why })?;
        let (queue, queue_key) = (self.queue.map(Name::new).transpose()?, self.key.map(Name::new).transpose()?);
        let options = TaskOptions { queue, key: queue_key, ..self.options };
        let start = StartTaskRequest { task: key.clone(), kind, input, options, trace: self.trace };
        let outcome = inner.client.watch_outcome(&key); // before the start, so that the end cannot be missed
        self.onward.call(inner.client.start_task(start)).await?;
        Ok(TaskHandle { run: RunHandle { onward: self.onward, key, outcome: Some(outcome), output: PhantomData } })
    }
}

awaitable!(StartTask<O> => TaskHandle<O>);

/// A handle to one standalone task.
pub struct TaskHandle<O> {
    /// The run that waits for the task and ends with it.
    run: RunHandle<O>,
}

impl<O> TaskHandle<O> {
    pub fn id(&self) -> &str {
        self.run.id()
    }

    /// Returns the task's current state, its attempts and its outcome.
    pub async fn view(&self) -> Result<TaskView, Error> {
        self.run.onward.call(self.run.client().read_task(self.run.key.clone())).await
    }

    /// Cancels the task: it ends as canceled at once, and a worker that executes it is notified.
    pub async fn cancel(&self, reason: &str) -> Result<Appended, Error> {
        self.run.onward.call(self.run.client().cancel_task(self.run.because(reason))).await
    }
}

impl<O: DeserializeOwned> TaskHandle<O> {
    /// Waits for the task to end and returns its result.
    pub async fn result(&self) -> Result<O, Error> {
        self.run.result().await
    }
}
