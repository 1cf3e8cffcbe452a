//! Steps in tests: scripted results, and an async runtime for steps that are not scripted.
//!
//! A result belongs to the attempt that requested it first: after a crash the same attempt gets the same result, as from a
//! service that knows the idempotency key. The runtime has its own thread, so that a script works in a plain test and in an async
//! one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use onward_core::{CallId, Name, Payload};
use onward_store::sync::lock;
use tokio::sync::oneshot;

use crate::Result;
use crate::host::cell::{StepAttempt, StepScript};

/// Longest wait between two polls, for steps that do not wake their waker.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Provides and records the steps of one run.
pub(super) struct Steps {
    answers: BTreeMap<Name, Vec<Result<Payload>>>,
    seen: Mutex<StepRequests>,
}

/// The requests so far.
#[derive(Default)]
pub(super) struct StepRequests {
    /// The position of the result that an attempt got: by generation, call id and number.
    given: BTreeMap<(u32, CallId, u32), usize>,
    next: BTreeMap<Name, usize>,
    /// The steps whose closures ran, as often as they ran.
    pub ran: Vec<String>,
    /// The scripted steps, as often as they were requested.
    pub scripted: Vec<String>,
}

impl Steps {
    pub fn new(answers: BTreeMap<Name, Vec<Result<Payload>>>) -> Steps {
        Steps { answers, seen: Mutex::default() }
    }

    pub fn seen(&self) -> MutexGuard<'_, StepRequests> {
        lock(&self.seen)
    }
}

impl StepScript for Steps {
    fn answer(&self, step: &StepAttempt<'_>) -> Option<Result<Payload>> {
        let answers = self.answers.get(step.name)?;
        let StepRequests { given, next, scripted, .. } = &mut *self.seen();
        let attempt = (step.generation, step.call_id.clone(), step.attempt);
        let position = *given.entry(attempt).or_insert_with(|| {
            let next = next.entry(step.name.clone()).or_default();
            *next += 1;
            *next - 1
        });
        scripted.push(step.name.to_string());
        // The last result repeats.
        answers.get(position).or(answers.last()).cloned()
    }

    fn ran(&self, name: &Name) {
        self.seen().ran.push(name.to_string());
    }
}

/// The thread of steps that are not scripted.
pub(super) struct Background {
    handle: tokio::runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub fn start() -> Background {
        let (stop, stopped) = oneshot::channel();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let build = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = build.expect("a test can have an async runtime");
            drop(sender.send(runtime.handle().clone()));
            drop(runtime.block_on(stopped));
        });
        let handle = receiver.recv().expect("the thread sends the handle of its runtime");
        Background { handle, stop: Some(stop), thread: Some(thread) }
    }

    pub fn handle(&self) -> tokio::runtime::Handle {
        self.handle.clone()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Waits for a step, or for a shell, to make progress.
pub(super) fn wait() {
    std::thread::park_timeout(POLL_INTERVAL);
}
