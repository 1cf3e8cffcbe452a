//! Turns: a loop whose state is the checkpoint.

use std::future::poll_fn;
use std::task::Poll;

use onward_core::engine::Pattern;
use onward_core::{Name, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::AgentCtx;
use crate::Result;
use crate::ctx::{Recv, end_log, name_or_misuse, payload_or_misuse, small};
use crate::host::wake::held_back;

/// The end of a turn.
pub enum Turn<S, O> {
    /// The next turn begins at once.
    Next(S),
    /// The next turn begins when a signal of this name is available, perhaps weeks later, and finds it in the mailbox.
    Await(S, &'static str),
    /// The agent ends.
    Done(O),
}

impl<S, O> Turn<S, O> {
    /// Returns a [`Turn::Await`] for a typed signal.
    pub fn wait_for<T>(state: S, signal: &crate::Signal<T>) -> Turn<S, O> {
        Turn::Await(state, signal.name())
    }
}

impl AgentCtx {
    /// Runs turns until one is done. Each turn ends in a checkpoint: its calls are final, and the next turn begins with the state
    /// that it returned.
    ///
    /// Every turn starts the function from its beginning, as after a crash. The code before the loop is replayed, and the loop
    /// continues with the last state. So nothing depends on the process staying alive.
    ///
    /// Entries that were appended from outside before the turn began, or before the signal that it waited for, are taken over
    /// first.
    ///
    /// An agent has one loop: a second one, inside of it or after it, pauses the run.
    ///
    /// # Errors
    /// Fails with the failure of a turn, or if the state cannot be read or is too large.
    pub async fn turns<S, O, F, Fut>(&self, first: S, turn: F) -> Result<O>
    where
        S: Serialize + DeserializeOwned,
        F: FnOnce(S) -> Fut,
        Fut: Future<Output = Result<Turn<S, O>>>,
    {
        self.updates_finished().await;
        let state = self.begin_turn(&first).await?;
        drop(first);
        match turn(state.read()?).await? {
            Turn::Done(output) => Ok(output),
            Turn::Next(next) => self.end_turn(&next, None).await,
            Turn::Await(next, signal) => self.end_turn(&next, Some(signal)).await,
        }
    }

    /// Waits for the beginning of a turn and returns its state, for code that cannot pass a function to [`AgentCtx::turns`].
    ///
    /// # Errors
    /// Fails if the state is too large.
    pub async fn begin_turn(&self, first: &impl Serialize) -> Result<Payload> {
        if self.is_second_loop() {
            std::future::pending::<()>().await; // the run pauses
        }
        let (state, awaits) = self.enter_turns(first).await?;
        let awaited = awaits.map(Pattern::Exactly);
        if let Some(pattern) = &awaited {
            self.wait_until_there(pattern.clone()).await?;
        }
        self.cell.call("turns").engine.take_in_entries(awaited.as_ref());
        Ok(state)
    }

    /// Closes the segment with `state`, once no handler of an update is in flight. Never returns: the function starts again from its beginning, where
    /// [`AgentCtx::checkpointed`] returns the state. Code that does not read it would repeat everything.
    ///
    /// # Errors
    /// Fails if the state is too large.
    pub async fn checkpoint<T>(&self, state: &(impl Serialize + ?Sized)) -> Result<T> {
        self.updates_finished().await;
        self.end_segment(state, None, None).await
    }

    /// Ends the turn that [`AgentCtx::begin_turn`] has begun: the next one begins at once, or when a signal of the name `awaits` is
    /// available. Never returns.
    ///
    /// # Errors
    /// Fails if the state is too large.
    pub async fn end_turn<T>(&self, state: &impl Serialize, awaits: Option<&str>) -> Result<T> {
        self.updates_finished().await;
        let prelude = self.cell.lock().engine.checkpoint().and_then(|checkpoint| checkpoint.prelude);
        self.end_segment(state, prelude, awaits).await
    }

    /// Reports a second loop as a misuse. It would get the state of the first one, whether it is inside of it or after it.
    fn is_second_loop(&self) -> bool {
        let mut state = self.cell.call("turns");
        let is_second = std::mem::replace(&mut state.in_turns, true);
        if is_second {
            state.engine.misuse("`turns` was called twice: an agent has one loop; keep the phase in its state, or start a child");
        }
        is_second
    }

    /// Returns the state of this turn and the signal it waits for. The code before the loop is closed first, as a segment of its
    /// own.
    async fn enter_turns(&self, first: &impl Serialize) -> Result<(Payload, Option<Name>)> {
        let first = payload_or_misuse(&self.cell, "turns", first);
        let first = small(self.cell.shared.payload_bytes_max, "the first state", first)?;
        let cell = self.cell.clone();
        let entered = poll_fn(move |cx| {
            if held_back(cx, || None) {
                return Poll::Pending;
            }
            let mut state = cell.call("turns");
            match state.engine.checkpoint() {
                Some(checkpoint) => Poll::Ready((checkpoint.state.clone(), checkpoint.awaits.clone())),
                None => {
                    let generation = state.engine.generation();
                    state.engine.take_checkpoint(first.clone(), Some(generation), None);
                    Poll::Pending
                }
            }
        });
        Ok(entered.await)
    }

    fn end_segment<T, S: Serialize + ?Sized>(
        &self,
        state: &S,
        prelude: Option<u32>,
        awaits: Option<&str>,
    ) -> impl Future<Output = Result<T>> + Send + use<T, S> {
        let state = payload_or_misuse(&self.cell, "checkpoint", state);
        let state = small(self.cell.shared.payload_bytes_max, "the state of a checkpoint", state);
        let awaits = awaits.map(|name| name_or_misuse(&self.cell, "signal", name));
        end_log(self.cell.clone(), "checkpoint", state, move |engine, state| {
            engine.take_checkpoint(state, prelude, awaits.clone());
        })
    }

    /// Waits until a matching signal is in the mailbox, and leaves it there.
    async fn wait_until_there(&self, pattern: Pattern) -> Result<()> {
        let mut waiting = Recv::<Payload>::new(self.cell.clone(), pattern);
        poll_fn(|cx| waiting.poll_there(cx)).await
    }
}
