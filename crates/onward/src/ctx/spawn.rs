//! Spawned children: runs that this run starts, exchanges messages with, and may await much later.
//!
//! A child of [`Ctx::child`] belongs to the generation that started it. A spawned child belongs to the run: it continues when an
//! agent's turn ends or the run continues as new, and is canceled when the run ends. Its handle can be serialized, to keep it in
//! the state of an agent.

use std::fmt;
use std::marker::PhantomData;

use onward_core::budget::Budget;
use onward_core::conversation::MESSAGE;
use onward_core::{RunId, RunKey};
use serde::{Deserialize, Serialize};

use super::call::{PendingCall, durable_call};
use super::{Ctx, name_or_misuse, payload_or_misuse, small};
use crate::Result;
use crate::names::WorkflowName;

impl Ctx {
    /// Starts a child that may outlive the turn or generation that spawned it. It starts with this activation's commit.
    ///
    /// # Errors
    /// Fails if the input is too large.
    pub fn spawn<T>(&self, kind: impl WorkflowName<T>, input: &(impl Serialize + ?Sized)) -> Result<Spawned<T>> {
        self.spawn_with(kind, input, None)
    }

    /// Starts a child like [`Ctx::spawn`], with a part of this run's budget: at most what is left. What the child does not spend
    /// returns with its result.
    ///
    /// # Errors
    /// Fails if the input is too large.
    pub fn spawn_within<T>(
        &self,
        kind: impl WorkflowName<T>,
        input: &(impl Serialize + ?Sized),
        budget: Budget,
    ) -> Result<Spawned<T>> {
        self.spawn_with(kind, input, Some(budget))
    }

    fn spawn_with<T>(
        &self,
        kind: impl WorkflowName<T>,
        input: &(impl Serialize + ?Sized),
        budget: Option<Budget>,
    ) -> Result<Spawned<T>> {
        let kind = name_or_misuse(&self.cell, "spawn", kind.workflow_name());
        let input = payload_or_misuse(&self.cell, "spawn", input);
        let input = small(self.cell.shared.payload_bytes_max, format_args!("the input of child `{kind}`"), input)?;
        let run = self.cell.call("spawn").engine.spawn_child(kind, input, budget);
        Ok(Spawned { run, result: PhantomData })
    }

    /// Returns whether another run awaits this one: it is a child that was not spawned.
    pub fn is_called(&self) -> bool {
        self.cell.lock().engine.is_called()
    }

    /// Returns the number of ancestors of this run: 0 for a run that no other run started.
    pub fn nesting(&self) -> u32 {
        self.cell.lock().engine.nesting()
    }

    /// Returns the parent of this run, to send messages to it.
    pub fn parent(&self) -> Option<Parent> {
        let parent = self.cell.lock().engine.parent().cloned();
        parent.map(|run| Parent { ctx: self.clone(), run })
    }
}

/// A spawned child. The handle can be kept in the state of a turn; it sends messages to the child, awaits its result, or cancels
/// it.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spawned<T> {
    run: RunId,
    #[serde(skip)]
    result: PhantomData<fn() -> T>,
}

impl<T> Spawned<T> {
    pub fn run_id(&self) -> &RunId {
        &self.run
    }

    /// Sends a message to the child, as `RunHandle::message` does from outside. It arrives once and in order, or is dropped if
    /// the child has ended.
    ///
    /// # Errors
    /// Fails if the message is too large.
    pub fn message(&self, ctx: &Ctx, message: &(impl Serialize + ?Sized)) -> Result<()> {
        ctx.send_signal(self.run.as_str(), MESSAGE, message)
    }

    /// Waits for the result of the child. The child may have ended already, and the result may be read more than once.
    pub fn result(&self, ctx: &Ctx) -> SpawnedResult<T> {
        let call_id = ctx.cell.call("result").engine.await_child(self.run.clone());
        SpawnedResult { call: PendingCall::new(ctx.cell.clone(), "result", call_id) }
    }

    /// Requests cancellation of the child. Its result shows how it ended.
    pub fn cancel(&self, ctx: &Ctx) {
        ctx.cell.call("cancel").engine.cancel_child(self.run.clone());
    }
}

impl<T> Clone for Spawned<T> {
    fn clone(&self) -> Self {
        Spawned { run: self.run.clone(), result: PhantomData }
    }
}

impl<T> fmt::Debug for Spawned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spawned({})", self.run)
    }
}

/// The future of [`Spawned::result`].
#[must_use = "the result is received when the future is awaited"]
pub struct SpawnedResult<T> {
    call: PendingCall<T>,
}

durable_call!(SpawnedResult<T> => T);

/// The run that this one is a child of.
pub struct Parent {
    ctx: Ctx,
    run: RunKey,
}

impl Parent {
    pub fn run_id(&self) -> &RunId {
        &self.run.id
    }

    /// Sends a message to the parent. It arrives with its sender ([`super::SignalSource::drain_with_sender`]), or is dropped if the
    /// parent has ended or abandoned this child.
    ///
    /// # Errors
    /// Fails if the message is too large.
    pub fn message(&self, message: &(impl Serialize + ?Sized)) -> Result<()> {
        self.ctx.send_signal(self.run.id.as_str(), MESSAGE, message)
    }
}
