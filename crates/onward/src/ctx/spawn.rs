//! Spawned children: runs that this run starts, talks with, and may wait for much later.
//!
//! A child of [`Ctx::child`] belongs to the generation that has started it. One that is spawned belongs to the run: it goes on when an
//! agent's turn ends or the run continues as new, and is asked to stop when the run ends. What is left of it in the code is a handle that
//! can be written down, so that it can be kept in the state of an agent.

use std::fmt;
use std::marker::PhantomData;

use onward_core::budget::Budget;
use onward_core::conversation::MESSAGE;
use onward_core::{RunId, RunKey};
use serde::{Deserialize, Serialize};

use super::call::{Call, durable_call};
use super::{Ctx, name_or_misuse, payload_or_misuse, small};
use crate::Result;
use crate::names::WorkflowName;

impl Ctx {
    /// Starts a child that may outlive the turn, or the generation, in which it is spawned. It leaves with this activation's commit.
    ///
    /// # Errors
    /// If the input is too large.
    pub fn spawn<T>(&self, kind: impl WorkflowName<T>, input: &(impl Serialize + ?Sized)) -> Result<Spawned<T>> {
        self.spawn_with(kind, input, None)
    }

    /// The same, with what the child may spend of what this run may: no more than there is. What it leaves comes back when its result has
    /// come.
    ///
    /// # Errors
    /// If the input is too large.
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
        let input = small(self.cell.payload_bytes_max, &format!("the input of child `{kind}`"), input)?;
        let run = self.cell.call("spawn").engine.spawn_child(kind, input, budget);
        Ok(Spawned { run, result: PhantomData })
    }

    /// Whether another run waits for the end of this one: it is a child, and was not spawned.
    pub fn is_called(&self) -> bool {
        self.cell.lock().engine.is_called()
    }

    /// How many runs are above this one: its parent, whose child that is, and so on. Nothing for a run that nobody's code has started.
    pub fn nesting(&self) -> u32 {
        self.cell.lock().engine.nesting()
    }

    /// The run that this one is a child of, to talk with it.
    pub fn parent(&self) -> Option<Parent> {
        let parent = self.cell.lock().engine.parent().cloned();
        parent.map(|run| Parent { ctx: self.clone(), run })
    }
}

/// A child that was spawned. It can be kept in the state of a turn; whoever has it can say something to the child, wait for its result, or
/// ask it to stop.
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

    /// Says something to the child, as `RunHandle::message` does from outside. It arrives once and in order; nobody hears it if the child
    /// is over.
    ///
    /// # Errors
    /// If the message is too large.
    pub fn message(&self, ctx: &Ctx, message: &(impl Serialize + ?Sized)) -> Result<()> {
        ctx.send_signal(self.run.as_str(), MESSAGE, message)
    }

    /// Waits for the end of the child. It may have ended already, and may be asked for more than once.
    pub fn result(&self, ctx: &Ctx) -> SpawnedResult<T> {
        let place = ctx.cell.call("result").engine.await_child(self.run.clone());
        SpawnedResult { call: Call::new(ctx.cell.clone(), "result", place) }
    }

    /// Asks the child to stop. How it ends is its result.
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
#[must_use = "the result is there when the future is awaited"]
pub struct SpawnedResult<T> {
    call: Call<T>,
}

durable_call!(SpawnedResult<T>);

/// The run that this one is a child of.
pub struct Parent {
    ctx: Ctx,
    run: RunKey,
}

impl Parent {
    pub fn run_id(&self) -> &RunId {
        &self.run.id
    }

    /// Says something to the parent. It arrives as a message that knows its sender ([`super::SignalSource::drain_heard`]); nobody hears it
    /// if the parent is over, or has left this child behind.
    ///
    /// # Errors
    /// If the message is too large.
    pub fn message(&self, message: &(impl Serialize + ?Sized)) -> Result<()> {
        self.ctx.send_signal(self.run.id.as_str(), MESSAGE, message)
    }
}
