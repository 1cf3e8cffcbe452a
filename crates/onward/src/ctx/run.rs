//! Randomness, versions, cancellation and continuing as new.

use std::pin::Pin;
use std::task::{Context, Poll};

use onward_core::engine::Engine;
use onward_core::random::{self, RandomGenerator};
use onward_core::{Failure, Index};
use serde::Serialize;

use super::call::PendingCall;
use super::{Ctx, Durable, end_log, name_or_misuse, payload_or_misuse, small};
use crate::Result;

impl Ctx {
    /// Returns a random version 4 UUID; the same on every replay.
    pub fn uuid(&self) -> String {
        let mut state = self.cell.call("uuid");
        let call_id = state.engine.next_call_id();
        let hex: String = random::uuid(state.engine.seed(), &call_id).iter().map(|byte| format!("{byte:02x}")).collect();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// Returns 64 random bits; the same on every replay.
    pub fn random(&self) -> u64 {
        let mut state = self.cell.call("random");
        let call_id = state.engine.next_call_id();
        random::derive(state.engine.seed(), &call_id, 0)
    }

    /// Returns a generator of random numbers, with ranges, floats, choices and shuffles; its numbers are the same on every replay.
    /// Its seed is what [`Ctx::random`] would return here, so later calls of the context do not change its numbers.
    pub fn random_generator(&self) -> RandomGenerator {
        RandomGenerator::new(self.random())
    }

    /// Returns the version of `change` that this run keeps: `max` for a run that reaches this call now, the recorded version for
    /// one that reached it before, `min` for one that had passed this point before the change existed.
    pub fn version(&self, change: &str, min: u32, max: u32) -> u32 {
        let change = name_or_misuse(&self.cell, "version", change);
        self.cell.call("version").engine.version(change, min, max)
    }

    pub fn is_canceled(&self) -> bool {
        self.cell.call("is_canceled").engine.is_canceled()
    }

    /// Waits for a cancel request and returns its failure. From this call on, until its future is dropped, a cancel request does
    /// not interrupt other waits; the code handles it.
    pub fn canceled(&self) -> Canceled {
        let call_id = self.cell.call("canceled").engine.await_canceled();
        Canceled { call: PendingCall::new(self.cell.clone(), "canceled", call_id) }
    }

    /// Ends this log and continues the run with a new log and `input`. Unconsumed signals and unanswered updates carry over.
    ///
    /// Never returns unless `input` is too large: `return ctx.continue_as_new(&next).await`.
    pub fn continue_as_new<T, I>(&self, input: &I) -> impl Future<Output = Result<T>> + Send + use<T, I>
    where
        I: Serialize + ?Sized,
    {
        let input = payload_or_misuse(&self.cell, "continue_as_new", input);
        let input = small(self.cell.shared.payload_bytes_max, "the input of the next generation", input);
        end_log(self.cell.clone(), "continue_as_new", input, Engine::continue_as_new)
    }
}

/// See [`Ctx::canceled`].
#[must_use = "a request is seen when the future is awaited"]
pub struct Canceled {
    call: PendingCall<()>,
}

impl Future for Canceled {
    type Output = Failure;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Failure> {
        Pin::new(&mut self.call).poll(cx).map(|request| request.err().unwrap_or_else(|| Failure::canceled("")))
    }
}

impl Durable for Canceled {
    fn ready_at(&self) -> Option<Index> {
        self.call.ready_at()
    }
}
