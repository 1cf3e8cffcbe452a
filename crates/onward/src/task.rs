//! What a task function gets, and how an attempt is run.

use std::any::{Any, TypeId, type_name};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use onward_core::Payload;
use onward_core::trace::TraceContext;
use serde::Serialize;

use crate::cell::Deps;

/// One attempt of a task, as its function sees it. Cheap to clone.
#[derive(Clone)]
pub struct TaskCtx {
    inner: Arc<Inner>,
}

struct Inner {
    attempt: u32,
    idempotency_key: String,
    trace: Option<TraceContext>,
    deps: Arc<Deps>,
    canceled: AtomicBool,
    progress: Mutex<Option<Payload>>,
    beat: tokio::sync::Notify,
}

impl TaskCtx {
    pub(crate) fn new(attempt: u32, idempotency_key: String, trace: Option<TraceContext>, deps: Arc<Deps>) -> TaskCtx {
        let inner = Inner {
            attempt,
            idempotency_key,
            trace,
            deps,
            canceled: AtomicBool::new(false),
            progress: Mutex::default(),
            beat: tokio::sync::Notify::new(),
        };
        TaskCtx { inner: Arc::new(inner) }
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
        let dep = self.inner.deps.get(&TypeId::of::<T>()).cloned();
        let dep = dep.and_then(|dep| dep.downcast::<T>().ok());
        dep.unwrap_or_else(|| panic!("no dependency of type `{}`: give it to the builder with `.dep(..)`", type_name::<T>()))
    }

    /// Says that the attempt is alive, and how far it is.
    pub fn heartbeat(&self, progress: &impl Serialize) {
        *self.inner.progress.lock().unwrap_or_else(PoisonError::into_inner) = Payload::json(progress).ok();
        self.inner.beat.notify_one();
    }

    /// Whether nobody wants the result any more: the task was canceled, timed out or given to another worker.
    pub fn is_canceled(&self) -> bool {
        self.inner.canceled.load(Ordering::Relaxed)
    }

    pub(crate) fn set_canceled(&self) {
        self.inner.canceled.store(true, Ordering::Relaxed);
    }

    /// Waits for the next heartbeat of the function and returns its progress.
    pub(crate) async fn beat(&self) -> Option<Payload> {
        self.inner.beat.notified().await;
        self.inner.progress.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
