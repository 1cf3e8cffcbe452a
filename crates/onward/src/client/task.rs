//! Standalone tasks: tasks without a workflow.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::api::{Appended, ReasonRequest, StartTaskRequest, TaskView};
use onward_core::task::{RetryPolicy, TaskOptions};
use onward_core::time::millis;
use onward_core::{Name, Payload, RunKey};
use onward_runtime::Outcome;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Onward, new_run_id};
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
            input: Payload::json(input),
            options: TaskOptions::default(),
            trace: None,
            output: PhantomData,
        }
    }

    /// Returns a handle to an existing standalone task.
    pub fn task_handle<O>(&self, id: &str) -> Result<TaskHandle<O>, Error> {
        Ok(TaskHandle { onward: self.clone(), key: self.key(id)?, outcome: None, output: PhantomData })
    }
}

/// A standalone task to be queued; see [`Onward::task`].
#[must_use = "await it to queue the task"]
pub struct StartTask<O> {
    onward: Onward,
    kind: String,
    id: Option<String>,
    queue: Option<String>,
    input: Result<Payload, serde_json::Error>,
    options: TaskOptions,
    trace: Option<String>,
    output: PhantomData<fn() -> O>,
}

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

    /// Sets the priority; tasks with a higher one start first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.options.priority = priority;
        self
    }

    /// Sets the retry policy: `.retry(5)` is five attempts in all.
    pub fn retry(mut self, policy: impl Into<RetryPolicy>) -> Self {
        self.options.retry = policy.into();
        self
    }

    /// Sets the timeout of one attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.attempt_timeout_ms = Some(millis(timeout));
        self
    }

    /// Sets the timeout of all attempts together, including the waits between them.
    pub fn total_timeout(mut self, timeout: Duration) -> Self {
        self.options.total_timeout_ms = Some(millis(timeout));
        self
    }

    /// Sets how long the task may wait for its first attempt.
    pub fn queued_timeout(mut self, timeout: Duration) -> Self {
        self.options.queued_timeout_ms = Some(millis(timeout));
        self
    }

    /// Sets how long an attempt may run without a heartbeat.
    pub fn heartbeat(mut self, timeout: Duration) -> Self {
        self.options.heartbeat_timeout_ms = Some(millis(timeout));
        self
    }

    /// Marks the task as one that costs money: its attempts are recorded in the ledger (see [`crate::TaskCtx::spend`]).
    pub fn costs(mut self) -> Self {
        self.options.costs = true;
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

    async fn go(self) -> Result<TaskHandle<O>, Error> {
        let inner = &self.onward.inner;
        let kind = Name::new(&self.kind)?;
        // A server has workers with kinds that this process has not registered.
        if inner.runtime.is_some() && !inner.worker.registry.tasks.contains_key(&kind) {
            return Err(Error::UnknownKind { kind: self.kind, version: None });
        }
        let key = self.onward.key(&self.id.unwrap_or_else(new_run_id))?;
        let input = self.input.map_err(|why| Error::Convert { what: "the input", why })?;
        let options = TaskOptions { queue: self.queue.map(Name::new).transpose()?, ..self.options };
        let start = StartTaskRequest { task: key.clone(), kind, input, options, trace: self.trace };
        let outcome = inner.client.watch_outcome(&key); // before the start, so that the end cannot be missed
        self.onward.ask(inner.client.start_task(start)).await?;
        Ok(TaskHandle { onward: self.onward, key, outcome: Some(outcome), output: PhantomData })
    }
}

impl<O: 'static> IntoFuture for StartTask<O> {
    type Output = Result<TaskHandle<O>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.go())
    }
}

/// A handle to one standalone task.
pub struct TaskHandle<O> {
    onward: Onward,
    key: RunKey,
    /// The pending outcome, if this handle queued the task.
    outcome: Option<Arc<dyn Outcome>>,
    output: PhantomData<fn() -> O>,
}

impl<O> TaskHandle<O> {
    pub fn id(&self) -> &str {
        self.key.id.as_str()
    }

    /// Returns the task's current state, its attempts and its outcome.
    pub async fn view(&self) -> Result<TaskView, Error> {
        self.onward.ask(self.onward.inner.client.read_task(self.key.clone())).await
    }

    /// Cancels the task: it ends as canceled at once, and a worker that executes it is notified.
    pub async fn cancel(&self, reason: &str) -> Result<Appended, Error> {
        let request = ReasonRequest { run: self.key.clone(), reason: reason.to_owned() };
        self.onward.ask(self.onward.inner.client.cancel_task(request)).await
    }
}

impl<O: DeserializeOwned> TaskHandle<O> {
    /// Waits for the task to end and returns its result.
    pub async fn result(&self) -> Result<O, Error> {
        let outcome = match &self.outcome {
            Some(watch) => self.onward.ask(watch.outcome()).await?,
            None => self.onward.ask(self.onward.inner.client.wait_for_outcome(self.key.clone())).await?,
        };
        match outcome {
            Ok(output) => output.read().map_err(|why| Error::Convert { what: "the output", why }),
            Err(failure) => Err(Error::RunFailed { run: self.id().to_owned(), failure: Box::new(failure) }),
        }
    }
}
