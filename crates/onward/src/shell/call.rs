//! Calls of foreign code that wait: futures of `ctx` without their types.

use std::pin::Pin;
use std::task::{Context, Poll};

use onward_core::engine::CancelOutcome;
use onward_core::{Index, Payload};
use pin_project_lite::pin_project;

use crate::Result;
use crate::ctx::Durable;

/// A call that waits, as foreign code holds it: by its number.
pub trait Call: Send {
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Payload>>;

    /// Returns the index of the event that answered it; `None` for a future that is more than one call.
    fn ready_at(&self) -> Option<Index>;

    /// Cancels it; `None` if it is not a call that can be canceled.
    fn cancel(&self) -> Option<CancelOutcome>;
}

pin_project! {
    /// A future of `ctx` as a [`Call`].
    pub struct CallFuture<F, R> {
        #[pin]
        future: F,
        read: R,
        ready_at: fn(&F) -> Option<Index>,
        cancel: Option<fn(&F) -> CancelOutcome>,
    }
}

impl<F: Future, R: Fn(F::Output) -> Result<Payload>> CallFuture<F, R> {
    /// Wraps a future of one call; `read` encodes its output.
    pub fn durable(future: F, read: R) -> CallFuture<F, R>
    where
        F: Durable,
    {
        CallFuture { future, read, ready_at: F::ready_at, cancel: None }
    }

    /// Wraps any other future of `ctx`.
    pub fn any(future: F, read: R) -> CallFuture<F, R> {
        CallFuture { future, read, ready_at: |_| None, cancel: None }
    }

    pub fn with_cancel(self, cancel: fn(&F) -> CancelOutcome) -> CallFuture<F, R> {
        CallFuture { cancel: Some(cancel), ..self }
    }
}

impl<F: Future + Send, R: Fn(F::Output) -> Result<Payload> + Send> Call for CallFuture<F, R> {
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Payload>> {
        let this = self.project();
        this.future.poll(cx).map(this.read)
    }

    fn ready_at(&self) -> Option<Index> {
        (self.ready_at)(&self.future)
    }

    fn cancel(&self) -> Option<CancelOutcome> {
        self.cancel.map(|cancel| cancel(&self.future))
    }
}
