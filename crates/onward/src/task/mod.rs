//! The context of a task function.

mod outbox;

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use onward_core::spend::Spend;
use onward_core::task::{Task, TaskId};
use onward_core::trace::TraceContext;
use onward_core::{Failure, Payload, RunId};
use onward_store::sync::lock;
use serde::Serialize;

use crate::agent::conversation_cache::ConversationCache;
use crate::host::cell::{Deps, dep, find_dep};
use crate::host::code::WorkerShared;
use crate::middleware::Middlewares;
pub(crate) use outbox::Outbox;

/// The context of one attempt of a task. Cheap to clone.
#[derive(Clone)]
pub struct TaskCtx {
    inner: Arc<AttemptState>,
}

struct AttemptState {
    task: TaskId,
    library: Arc<ConversationCache>,
    attempt: u32,
    last_failure: Option<Failure>,
    idempotency_key: String,
    trace: Option<TraceContext>,
    deps: Arc<Deps>,
    middlewares: Middlewares,
    is_muted: AtomicBool,
    canceled: AtomicBool,
    progress: Mutex<Option<Payload>>,
    spend: Mutex<Vec<Spend>>,
    beat: tokio::sync::Notify,
    outbox: Outbox,
}

impl TaskCtx {
    pub(crate) fn new(
        task: &Task,
        library: Arc<ConversationCache>,
        trace: Option<TraceContext>,
        shared: &WorkerShared,
    ) -> TaskCtx {
        let inner = AttemptState {
            task: task.id.clone(),
            library,
            attempt: task.attempt,
            last_failure: task.last_failure.clone(),
            idempotency_key: task.idempotency_key(),
            trace,
            deps: shared.deps.clone(),
            middlewares: shared.middlewares.clone(),
            is_muted: AtomicBool::new(false),
            canceled: AtomicBool::new(false),
            progress: Mutex::default(),
            spend: Mutex::default(),
            beat: tokio::sync::Notify::new(),
            outbox: Outbox::default(),
        };
        TaskCtx { inner: Arc::new(inner) }
    }

    /// Returns the id of the task: the call of the run that scheduled it.
    pub(crate) fn task(&self) -> &TaskId {
        &self.inner.task
    }

    /// Returns the cache of agents' conversations.
    #[cfg_attr(not(feature = "agents"), allow(dead_code, reason = "only model calls use it"))]
    pub(crate) fn library(&self) -> &ConversationCache {
        &self.inner.library
    }

    /// Returns the failure of the previous attempt.
    #[cfg_attr(not(feature = "agents"), allow(dead_code, reason = "only model calls use it"))]
    pub(crate) fn last_failure(&self) -> Option<&Failure> {
        self.inner.last_failure.as_ref()
    }

    pub(crate) fn deps(&self) -> &Arc<Deps> {
        &self.inner.deps
    }

    #[cfg_attr(not(feature = "agents"), allow(dead_code, reason = "only model calls use it"))]
    pub(crate) fn middlewares(&self) -> &Middlewares {
        &self.inner.middlewares
    }

    /// Drops the frames that the attempt sends from now on.
    pub(crate) fn mute(&self) {
        self.inner.is_muted.store(true, Ordering::Relaxed);
    }

    /// Returns a dependency, if there is one of this type.
    #[cfg_attr(not(feature = "agents"), allow(dead_code, reason = "only model calls use it"))]
    pub(crate) fn find_dep<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        find_dep(&self.inner.deps)
    }

    /// Returns the id of the run that scheduled the task.
    pub fn run_id(&self) -> &RunId {
        &self.inner.task.run.id
    }

    /// Returns the number of this attempt: 1, 2, …
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// Returns the idempotency key: the same for every attempt of this task. Pass it to the called system, which discards repeats
    /// by it.
    pub fn idempotency_key(&self) -> &str {
        &self.inner.idempotency_key
    }

    /// Returns the attempt's position in the trace of its run, to pass to services that it calls; `to_string()` is the header
    /// `traceparent`. `None` in processes without tracing.
    pub fn trace(&self) -> Option<TraceContext> {
        self.inner.trace
    }

    /// Returns a dependency that was given to the builder with `.dep(..)`.
    ///
    /// # Panics
    /// Panics if there is none of this type; the attempt fails with that message.
    pub fn dep<T: Any + Send + Sync>(&self) -> Arc<T> {
        dep(&self.inner.deps)
    }

    /// Sends a heartbeat with the attempt's progress.
    pub fn heartbeat(&self, progress: &impl Serialize) {
        *lock(&self.inner.progress) = Payload::json(progress).ok();
        self.inner.beat.notify_one();
    }

    /// Reports the cost of this attempt so far. It replaces an earlier report for the same model.
    ///
    /// The cost is recorded in one write with the outcome of the attempt, whatever that is: also if the attempt fails and is
    /// retried, is given back because the worker stops, or its result is no longer needed. Report costs as soon as they are
    /// known, and again when they grow.
    pub fn spend(&self, spend: Spend) {
        let mut lines = lock(&self.inner.spend);
        match lines.iter_mut().find(|line| line.model == spend.model) {
            Some(line) => *line = spend,
            None => lines.push(spend),
        }
    }

    pub(crate) fn spent(&self) -> Vec<Spend> {
        lock(&self.inner.spend).clone()
    }

    /// Sends a frame to the readers of the stream of the task's run, for example a part of an answer. It is not recorded, and the
    /// call never waits: frames are dropped if the buffer is full. Frames of a later attempt replace those of this one.
    ///
    /// A frame is an object with a `type`. Consecutive pieces of text (`text`, `reasoning`, `refusal`, `tool_call_arguments`) may
    /// be merged. The names `task`, `attempt`, `generation`, `seq` and `at` are reserved.
    pub fn stream(&self, frame: &(impl Serialize + ?Sized)) {
        if self.inner.is_muted.load(Ordering::Relaxed) {
            return;
        }
        match serde_json::to_value(frame) {
            Ok(frame) => self.inner.outbox.put(frame),
            Err(error) => tracing::debug!("a frame of a stream is not JSON: {error}"),
        }
    }

    /// Returns whether the result is no longer needed: the task was canceled, timed out or given to another worker.
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
        lock(&self.inner.progress).take()
    }
}
