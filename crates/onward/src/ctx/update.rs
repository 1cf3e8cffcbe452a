//! Queries, which read the code's memory without recording, and updates, which change it with a recorded result.

use std::future::poll_fn;
use std::task::Poll;

use onward_core::{Failure, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Ctx, name_or_misuse, payload_or_failure, small};
use crate::Result;
use crate::host::cell::{Answerer, UpdateHandler};
use crate::host::handlers::{AwaitingHandler, HandlerFuture, handle_update};
use crate::host::wake::held_back;

impl Ctx {
    /// Registers the handler of query `name`. Its result is not recorded, and `f` must not change anything.
    pub fn query<I, O, F>(&self, name: &str, f: F)
    where
        I: DeserializeOwned,
        O: Serialize,
        F: FnMut(I) -> Result<O> + Send + 'static,
    {
        let name = name_or_misuse(&self.cell, "query", name);
        let answerer = answerer(self.cell.shared.payload_bytes_max, f);
        let before = self.cell.call("query").queries.insert(name, answerer);
        drop(before); // a closure may hold the context: never drop it under the lock
    }

    /// Registers the handler of update `name`: `f` changes values that it shares with the code, and its result is recorded.
    ///
    /// Updates that arrive before the handler exists wait for it, across generations, too. `f` runs again on replay and must be
    /// deterministic.
    ///
    /// If `f` panics, the update fails with `panicked` and the run continues with the changes that `f` had made: validate first,
    /// change afterwards.
    pub fn update<I, O, F>(&self, name: &str, f: F)
    where
        I: DeserializeOwned,
        O: Serialize,
        F: FnMut(I) -> Result<O> + Send + 'static,
    {
        let answerer = answerer(self.cell.shared.payload_bytes_max, f);
        self.set_update(name, UpdateHandler::AtOnce(answerer));
    }

    /// Registers the handler of update `name` like [`Ctx::update`], as an async function: it may await steps, tasks, timers and
    /// everything else of the context. The update is answered when its future completes.
    ///
    /// Several handlers may be in flight, beside the code of the run; each event of the log continues the one that waits for it. So
    /// what they share changes only between two awaits.
    ///
    /// If the code ends or continues as new while a handler is in flight, the handler is dropped and its update fails with
    /// `update_abandoned`; wait for handlers with [`Ctx::updates_finished`]. A cancel request interrupts the waits of handlers, too.
    pub fn update_async<I, O, F, Fut>(&self, name: &str, mut f: F)
    where
        I: DeserializeOwned,
        O: Serialize,
        F: FnMut(I) -> Fut + Send + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        let max = self.cell.shared.payload_bytes_max;
        let start = Box::new(move |payload: Payload| -> Result<HandlerFuture> {
            let future = f(input(&payload)?);
            Ok(Box::pin(async move { answer(max, &future.await?) }))
        });
        let call_id = self.cell.call("update_async").engine.next_call_id();
        self.set_update(name, UpdateHandler::Awaiting(AwaitingHandler::new(call_id, start)));
    }

    /// Waits until no handler of an update is in flight. Await it in the code of the run, not in a handler.
    pub fn updates_finished(&self) -> impl Future<Output = ()> + Send + use<> {
        let cell = self.cell.clone();
        poll_fn(move |cx| {
            if held_back(cx, || None) {
                return Poll::Pending;
            }
            let mut state = cell.call("updates_finished");
            if state.handlers.is_polled() {
                state.engine.misuse("`updates_finished` was awaited in the handler of an update, which waits for itself then");
            }
            if state.engine.has_begun_updates() { Poll::Pending } else { Poll::Ready(()) }
        })
    }

    fn set_update(&self, name: &str, handler: UpdateHandler) {
        let name = name_or_misuse(&self.cell, "update", name);
        let (before, kept) = {
            let mut state = self.cell.call("update");
            (state.updates.insert(name.clone(), handler), state.engine.kept_updates(&name))
        };
        drop(before); // a closure may hold the context: never drop it under the lock
        for update in kept {
            handle_update(&self.cell, update);
        }
    }
}

fn input<I: DeserializeOwned>(payload: &Payload) -> Result<I> {
    payload.read().map_err(|error| Failure::fatal(format!("the input does not fit: {error}")))
}

fn answer(payload_bytes_max: usize, output: &impl Serialize) -> Result<Payload> {
    small(payload_bytes_max, "the answer", payload_or_failure("the answer", output)?)
}

fn answerer<I, O, F>(payload_bytes_max: usize, mut f: F) -> Answerer
where
    I: DeserializeOwned,
    O: Serialize,
    F: FnMut(I) -> Result<O> + Send + 'static,
{
    Box::new(move |payload: Payload| answer(payload_bytes_max, &f(input(&payload)?)?))
}
