//! What a task function gets, and how an attempt is run.

mod outbox;

use std::any::{Any, TypeId, type_name};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use onward_core::spend::Spend;
use onward_core::task::{Task, TaskId};
use onward_core::trace::TraceContext;
use onward_core::{Failure, Payload};
use serde::Serialize;

use crate::agent::library::Library;
use crate::host::cell::Deps;
pub(crate) use outbox::Outbox;

/// One attempt of a task, as its function sees it. Cheap to clone.
#[derive(Clone)]
pub struct TaskCtx {
    inner: Arc<Inner>,
}

struct Inner {
    task: TaskId,
    library: Arc<Library>,
    attempt: u32,
    last_failure: Option<Failure>,
    idempotency_key: String,
    trace: Option<TraceContext>,
    deps: Arc<Deps>,
    canceled: AtomicBool,
    progress: Mutex<Option<Payload>>,
    spend: Mutex<Vec<Spend>>,
    beat: tokio::sync::Notify,
    outbox: Outbox,
}

impl TaskCtx {
    pub(crate) fn new(task: &Task, library: Arc<Library>, trace: Option<TraceContext>, deps: Arc<Deps>) -> TaskCtx {
        let inner = Inner {
            task: task.id.clone(),
            library,
            attempt: task.attempt,
            last_failure: task.last_failure.clone(),
            idempotency_key: task.idempotency_key(),
            trace,
            deps,
            canceled: AtomicBool::new(false),
            progress: Mutex::default(),
            spend: Mutex::default(),
            beat: tokio::sync::Notify::new(),
            outbox: Outbox::default(),
        };
        TaskCtx { inner: Arc::new(inner) }
    }

    /// The call of the run that scheduled it.
    #[cfg_attr(not(feature = "agents"), allow(dead_code, reason = "only model calls look at it"))]
    pub(crate) fn task(&self) -> &TaskId {
        &self.inner.task
    }

    /// The conversations of agents.
    #[cfg_attr(not(feature = "agents"), allow(dead_code, reason = "only model calls look at it"))]
    pub(crate) fn library(&self) -> &Library {
        &self.inner.library
    }

    /// What the attempt before this one failed with.
    #[cfg_attr(not(feature = "agents"), allow(dead_code, reason = "only model calls look at it"))]
    pub(crate) fn last_failure(&self) -> Option<&Failure> {
        self.inner.last_failure.as_ref()
    }

    /// A dependency that need not be there.
    #[cfg_attr(not(feature = "agents"), allow(dead_code, reason = "only model calls look for one"))]
    pub(crate) fn find_dep<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.inner.deps.get(&TypeId::of::<T>()).cloned().and_then(|dep| dep.downcast::<T>().ok())
    }

    /// 1, 2, …
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// The same for every attempt of this task; hand it to whoever must not act twice.
    pub fn idempotency_key(&self) -> &str {
        &self.inner.idempotency_key
    }

    /// The attempt's place in the trace of its run, for whoever is called from here: `to_string()` is the header `traceparent`. `None`
    /// in processes that trace nothing.
    pub fn trace(&self) -> Option<TraceContext> {
        self.inner.trace
    }

    /// A dependency that was given to the builder with `.dep(..)`.
    ///
    /// # Panics
    /// If there is none of this type; the attempt fails with that message.
    pub fn dep<T: Any + Send + Sync>(&self) -> Arc<T> {
        self.find_dep()
            .unwrap_or_else(|| panic!("no dependency of type `{}`: give it to the builder with `.dep(..)`", type_name::<T>()))
    }

    /// Says that the attempt is alive, and how far it is.
    pub fn heartbeat(&self, progress: &impl Serialize) {
        *self.inner.progress.lock().unwrap_or_else(PoisonError::into_inner) = Payload::json(progress).ok();
        self.inner.beat.notify_one();
    }

    /// Says what this attempt has cost so far. What was said before of the same model is replaced.
    ///
    /// It is recorded in one write with the outcome of the attempt, whatever that is: also if the attempt fails and is made again, is given
    /// back because the worker stops, or nobody wants its result any more. Say it as soon as it is known, and again when it is more.
    pub fn spend(&self, spend: Spend) {
        let mut lines = self.inner.spend.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.iter_mut().find(|line| line.model == spend.model) {
            Some(line) => *line = spend,
            None => lines.push(spend),
        }
    }

    pub(crate) fn spent(&self) -> Vec<Spend> {
        self.inner.spend.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says something to whoever reads the stream of the task's run: a part of an answer as it arrives, for example. Not recorded, and
    /// never waits: what there is no room for is not said. What another attempt says takes back what this one has said.
    ///
    /// A frame is an object with a `type`. Pieces of text that follow each other (`text`, `reasoning`, `refusal`,
    /// `tool_call_arguments`) may arrive as one. The names `task`, `attempt`, `generation`, `seq` and `at` are taken.
    pub fn stream(&self, frame: &(impl Serialize + ?Sized)) {
        match serde_json::to_value(frame) {
            Ok(frame) => self.inner.outbox.put(frame),
            Err(error) => tracing::debug!("a frame of a stream is not JSON: {error}"),
        }
    }

    /// Whether nobody wants the result any more: the task was canceled, timed out or given to another worker.
    pub fn is_canceled(&self) -> bool {
        self.inner.canceled.load(Ordering::Relaxed)
    }

    pub(crate) fn set_canceled(&self) {
        self.inner.canceled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.inner.outbox
    }

    /// Waits for the next heartbeat of the function and returns its progress.
    pub(crate) async fn beat(&self) -> Option<Payload> {
        self.inner.beat.notified().await;
        self.inner.progress.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
