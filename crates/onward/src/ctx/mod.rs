//! The context of a workflow: all recorded operations.
//!
//! One file per primitive. Each call gets its call id when it is made, in the order of the code, and is answered from the log.
//! Calls do no I/O; side effects belong in steps and tasks.

mod approval;
mod attributes;
mod budget;
mod call;
mod child;
mod compensation;
mod emit;
mod memo;
mod promise;
mod run;
mod signal;
mod spawn;
mod state;
mod step;
mod task;
mod time;
mod update;

use std::any::Any;
use std::fmt::Display;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use onward_core::engine::Engine;
use onward_core::trace::{TraceContext, run_span};
use onward_core::{ErrorCode, Failure, Name, Payload, RunId, RunKey};
use serde::Serialize;

use crate::Result;
use crate::host::cell::{RunCell, dep};
use crate::host::wake::held_back;

pub use approval::{Answered, Approval, ApprovalDecision};
pub use attributes::RunAttributes;
pub use call::Durable;
pub use child::Child;
pub(crate) use compensation::{Compensation, compensate};
pub use emit::Emission;
pub use memo::Memo;
pub use promise::Promise;
pub use run::Canceled;
pub use signal::{PatternMailbox, ReceivedSignal, Recv, RecvNamed, RecvTimeout, SignalSource};
pub use spawn::{Parent, Spawned, SpawnedResult};
pub use state::RunState;
pub use step::{Attempt, Step};
pub use task::TaskCall;
pub(crate) use task::task_options;
pub use time::{Sleep, Timeout};

/// The context that a workflow function receives. Cheap to clone.
#[derive(Clone)]
pub struct Ctx {
    pub(crate) cell: Arc<RunCell>,
}

impl Ctx {
    pub(crate) fn new(cell: Arc<RunCell>) -> Ctx {
        Ctx { cell }
    }

    /// Returns the id of this run.
    pub fn run_id(&self) -> RunId {
        self.run_key().id
    }

    pub(crate) fn run_key(&self) -> RunKey {
        self.cell.lock().engine.key().clone()
    }

    /// Returns how often this run has continued as new.
    pub fn generation(&self) -> u32 {
        self.cell.lock().engine.generation()
    }

    /// Returns a dependency that was given to the builder with `.dep(..)`. It is not recorded: use it inside steps.
    ///
    /// # Panics
    /// Panics if there is none of this type; the run pauses with that message.
    pub fn dep<T: Any + Send + Sync>(&self) -> Arc<T> {
        dep(&self.cell.shared.deps)
    }

    /// Returns the run's position in its trace, to pass to services that it calls; `to_string()` is the header `traceparent`. Do
    /// not record it: it is `None` in processes without tracing. A step has its own: [`Attempt::trace`].
    pub fn trace(&self) -> Option<TraceContext> {
        let key = self.cell.lock().engine.key().clone();
        self.cell.shared.origin.map(|origin| origin.context(run_span(&key)))
    }
}

/// Ends the log with `payload` by `end`, at the first poll. Never completes unless the payload is too large.
pub(crate) fn end_log<T>(
    cell: Arc<RunCell>,
    call: &'static str,
    payload: Result<Payload>,
    end: impl Fn(&mut Engine, Payload) + Send,
) -> impl Future<Output = Result<T>> + Send {
    poll_fn(move |cx| {
        if held_back(cx, || None) {
            return Poll::Pending;
        }
        match &payload {
            Ok(payload) => end(&mut cell.call(call).engine, payload.clone()),
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        }
        Poll::Pending
    })
}

/// Validates a name from user code. An invalid name pauses the run.
pub(crate) fn name_or_misuse(cell: &RunCell, what: &str, name: &str) -> Name {
    Name::new(name).unwrap_or_else(|error| {
        cell.lock().engine.misuse(format!("{what}: {error}"));
        Name::new("invalid").expect("a constant name")
    })
}

/// Rejects a payload over the limit of stores, so that the code sees a failure instead of the store refusing the commit. The
/// result depends only on the value and the limit, so replay repeats it.
pub(crate) fn small(max: usize, what: impl Display, payload: Payload) -> Result<Payload> {
    let bytes = payload.data().len();
    if bytes <= max {
        return Ok(payload);
    }
    let message = format!("{what} has {bytes} bytes, over the limit of {max}; write it elsewhere and pass a reference");
    Err(Failure::fatal(message).with_code(ErrorCode::PayloadTooLarge))
}

/// Encodes a value that user code returned. An encoding error is not retryable: the same code would return the same value.
pub(crate) fn payload_or_failure<T: Serialize + ?Sized>(what: &str, value: &T) -> Result<Payload> {
    Payload::json(value).map_err(|error| Failure::fatal(format!("{what} cannot be recorded: {error}")))
}

/// Encodes a value that user code passes in. An encoding error pauses the run.
pub(crate) fn payload_or_misuse<T: Serialize + ?Sized>(cell: &RunCell, what: &str, value: &T) -> Payload {
    Payload::json(value).unwrap_or_else(|error| {
        cell.lock().engine.misuse(format!("{what}: the value cannot be written as JSON: {error}"));
        Payload::null()
    })
}
