//! Code of other languages: a coroutine or promise that a *shell* plays, where Rust code would be polled.
//!
//! Foreign code cannot be polled by the threads of the executor. The driver gives it an [`Activation`] instead: one event for the
//! code of one run. The shell lets the code run until it waits, on whatever thread the language wants, and hands the activation
//! back. Then the engine continues as after a poll. Between the two the code calls the functions of [`Ctx`](crate::Ctx) through
//! [`ShellCode`], so calls, matching, retries and cancellation are those of Rust code.
//!
//! Must never decide: what an activation contains follows from the log, and what the code does with it is recorded by the engine.
//!
//! Invariants:
//! - OT1: an activation has one event: the start, the answer to one call, or one update. The next comes after the code has run
//!   to quiescence and handed it back. Answers come in the order of the log; those with the same index in the order of the calls.
//! - OT2: calls are numbered in the order in which the code makes them. While an activation is out, nothing that the code can
//!   observe changes except through it; while none is out, the code can make no call.
//! - OT3: code that its driver has dropped, because the run was evicted, stopped, diverged or ended, is closed: what it does from
//!   then on, also while it is closing, is refused and not recorded, and a late hand-back has no effect.

mod call;
mod code;

use std::sync::Arc;

use onward_core::event::UpdateReceived;
use onward_core::{Failure, Name, Payload};

pub use call::{Call, CallFuture};
pub use code::{Opened, ShellCode, Stopped};
pub(crate) use code::{Played, unparks};

use crate::Result;

/// Plays the code of one kind in another language. Its functions are called on threads of the worker and must not block.
pub trait Shell: Send + Sync + 'static {
    /// Plays an activation, at once or later and elsewhere; [`ShellCode::hand_back`] ends it.
    fn activate(&self, code: &Arc<ShellCode>, activation: Activation);

    /// Answers a query from the memory of the code, between two activations.
    fn query(&self, code: &Arc<ShellCode>, query: Query);

    /// Drops the code (OT3). Called once for all code that was activated.
    fn close(&self, code: &Arc<ShellCode>);
}

/// One event for the code (OT1).
#[derive(Debug)]
pub enum Activation {
    /// The code starts from its beginning, with the input of the run.
    Start(Payload),
    /// The call of this number is answered.
    Answer { call: u32, result: Result<Payload> },
    /// An update, for a handler that the code has registered; [`ShellCode::answer_update`] has its result.
    Update(UpdateReceived),
}

/// A query for the code.
#[derive(Debug)]
pub struct Query {
    pub name: Name,
    pub input: Payload,
    pub answer: QueryAnswer,
}

/// Receives the answer of a query; `None` if the code has no such query. If it is dropped, the query is retried elsewhere.
pub type QueryAnswer = tokio::sync::oneshot::Sender<Option<Result<Payload, Failure>>>;
