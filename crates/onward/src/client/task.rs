//! Tasks without a workflow around them.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::task::{RetryPolicy, TaskOptions};
use onward_core::time::millis;
use onward_core::{Name, Payload, RunKey};
use onward_runtime::{Outcome, TaskView};
use onward_store::Appended;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Onward, new_run_id};
use crate::names::TaskName;
use crate::{Error, Result};

impl Onward {
    /// Queues a task of `kind`, a name or a typed [`crate::Task`], for any worker that knows it. Awaiting the builder queues it.
    ///
    /// It runs by itself, with retries and timeouts held by the engine, and is kept like a run: for 30 days after its end, by default.
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

    /// A handle on a standalone task that exists already.
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
    /// The task's id. The same id with the same kind and input is the same task, however often it is queued.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Which queue it waits in; the default queue otherwise.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Higher goes first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.options.priority = priority;
        self
    }

    /// How often and when to try again; `.retry(5)` is five attempts in all.
    pub fn retry(mut self, policy: impl Into<RetryPolicy>) -> Self {
        self.options.retry = policy.into();
        self
    }

    /// How long one attempt may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.attempt_timeout_ms = Some(millis(timeout));
        self
    }

    /// How long all attempts and the pauses between them may take.
    pub fn total_timeout(mut self, timeout: Duration) -> Self {
        self.options.total_timeout_ms = Some(millis(timeout));
        self
    }

    /// How long it may wait for its first attempt.
    pub fn queued_timeout(mut self, timeout: Duration) -> Self {
        self.options.queued_timeout_ms = Some(millis(timeout));
        self
    }

    /// How long an attempt may be silent.
    pub fn heartbeat(mut self, timeout: Duration) -> Self {
        self.options.heartbeat_timeout_ms = Some(millis(timeout));
        self
    }

    /// What it does costs money: its attempts stand in the ledger (see [`crate::TaskCtx::spend`]).
    pub fn costs(mut self) -> Self {
        self.options.costs = true;
        self
    }

    /// Handed to every attempt instead of the key derived from the id.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.options.idempotency_key = Some(key.into());
        self
    }

    /// The trace that the task is a part of, as the header `traceparent` says it. What is none is ignored.
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    async fn go(self) -> Result<TaskHandle<O>, Error> {
        let inner = &self.onward.inner;
        let kind = Name::new(&self.kind)?;
        // A server knows of workers that have kinds which this process does not.
        if inner.runtime.is_some() && !inner.worker.registry.tasks.contains_key(&kind) {
            return Err(Error::UnknownKind { kind: self.kind, version: None });
        }
        let key = self.onward.key(&self.id.unwrap_or_else(new_run_id))?;
        let input = self.input.map_err(|why| Error::Convert { what: "the input", why })?;
        let options = TaskOptions { queue: self.queue.map(Name::new).transpose()?, ..self.options };
        let start = onward_runtime::StartTask { key: key.clone(), kind, input, options, trace: self.trace };
        let (_, outcome) = self.onward.ask(inner.door.start_task(start)).await?;
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

/// One standalone task, from outside.
pub struct TaskHandle<O> {
    onward: Onward,
    key: RunKey,
    /// Where the task was queued with this handle.
    outcome: Option<Arc<dyn Outcome>>,
    output: PhantomData<fn() -> O>,
}

impl<O> TaskHandle<O> {
    pub fn id(&self) -> &str {
        self.key.id.as_str()
    }

    /// The task as it stands: where it is, how many attempts there were, what came of it.
    pub async fn view(&self) -> Result<TaskView, Error> {
        self.onward.ask(self.onward.inner.door.read_task(self.key.clone())).await
    }

    /// Takes the task back: it ends as canceled at once, and a worker that is at it is told to stop.
    pub async fn cancel(&self, reason: &str) -> Result<Appended, Error> {
        self.onward.ask(self.onward.inner.door.cancel_task(self.key.clone(), reason.to_owned())).await
    }
}

impl<O: DeserializeOwned> TaskHandle<O> {
    /// Waits for the task to end and returns what it returned.
    pub async fn result(&self) -> Result<O, Error> {
        let outcome = match &self.outcome {
            Some(watch) => self.onward.ask(watch.outcome()).await?,
            None => self.onward.ask(self.onward.inner.door.wait_for_outcome(self.key.clone())).await?,
        };
        match outcome {
            Ok(output) => output.read().map_err(|why| Error::Convert { what: "the output", why }),
            Err(failure) => Err(Error::RunFailed { run: self.id().to_owned(), failure: Box::new(failure) }),
        }
    }
}
