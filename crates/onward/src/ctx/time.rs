//! Time: durable timers, and a clock that is the same on replay.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use onward_core::{Failure, Index, Timestamp};

use super::call::{PendingCall, durable_call};
use super::{Ctx, Durable};
use crate::Result;
use crate::host::wake::poll_up_to;

impl Ctx {
    /// Returns the time of the event that the code is processing; the same on every replay.
    pub fn now(&self) -> Timestamp {
        self.cell.call("now").engine.now()
    }

    /// Waits durably for `span`. A waiting run needs no thread and no memory.
    pub fn sleep(&self, span: Duration) -> Sleep {
        let due_at = self.now().after(span);
        self.sleep_until(due_at)
    }

    pub fn sleep_until(&self, due_at: Timestamp) -> Sleep {
        let call_id = self.cell.call("sleep").engine.start_timer(due_at);
        Sleep { call: PendingCall::new(self.cell.clone(), "sleep", call_id) }
    }

    /// Limits `future` to `span`. On timeout it is dropped, and the call fails with `timed_out`.
    pub fn timeout<T, F: Future<Output = Result<T>>>(&self, future: F, span: Duration) -> Timeout<F> {
        Timeout { timer: self.sleep(span), future: Box::pin(future), over: false }
    }
}

/// The future of a timer. Dropping it stops the timer.
#[must_use = "a sleep waits when it is awaited"]
pub struct Sleep<T = ()> {
    call: PendingCall<T>,
}

durable_call!(Sleep<T> => T);

/// See [`Ctx::timeout`].
#[must_use = "futures do nothing unless awaited"]
pub struct Timeout<F> {
    timer: Sleep,
    future: Pin<Box<F>>,
    over: bool,
}

impl<T, F: Future<Output = Result<T>>> Future for Timeout<F> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        if self.over {
            return self.timer.call.cell().polled_again("timeout", Some(self.timer.call.call_id()));
        }
        // Both may have completed before this poll: the future sees only events with a lower index than the timer's.
        let fired_at = self.timer.ready_at();
        if let Poll::Ready(result) = poll_up_to(fired_at, self.future.as_mut(), cx) {
            self.over = true;
            return Poll::Ready(result);
        }
        let fired = Pin::new(&mut self.timer).poll(cx);
        self.over = fired.is_ready();
        fired.map(|fired| fired.and_then(|()| Err(Failure::timed_out("it"))))
    }
}

impl<T, F: Durable<Output = Result<T>>> Durable for Timeout<F> {
    fn ready_at(&self) -> Option<Index> {
        [self.future.ready_at(), self.timer.ready_at()].into_iter().flatten().min()
    }
}
