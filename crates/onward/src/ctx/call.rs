//! The future behind every call that waits.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use onward_core::engine::CancelOutcome;
use onward_core::{CallId, Event, Index};
use serde::de::DeserializeOwned;

use crate::Result;
use crate::host::cell::RunCell;
use crate::host::wake::held_back;

/// A future that an event of the log completes. The index of that event decides which of several futures completed first.
pub trait Durable: Future {
    /// Returns the index of the event that completed it.
    fn ready_at(&self) -> Option<Index>;
}

/// A call that the log answers with a `T`.
pub(crate) struct PendingCall<T> {
    cell: Arc<RunCell>,
    what: &'static str,
    call_id: CallId,
    over: bool,
    result: PhantomData<fn() -> T>,
}

impl<T> PendingCall<T> {
    pub fn new(cell: Arc<RunCell>, what: &'static str, call_id: CallId) -> PendingCall<T> {
        PendingCall { cell, what, call_id, over: false, result: PhantomData }
    }

    pub fn call_id(&self) -> &CallId {
        &self.call_id
    }

    pub fn cell(&self) -> &Arc<RunCell> {
        &self.cell
    }

    /// Changes options of the event that records this call.
    pub fn configure(&self, mut options: impl FnMut(&mut Event)) {
        self.cell.lock().engine.configure(&self.call_id, &mut options);
    }

    /// Returns the id under which it is answered from outside.
    pub fn id(&self) -> String {
        self.cell.lock().engine.call_id(&self.call_id)
    }

    pub fn cancel(&self) -> CancelOutcome {
        self.cell.call("cancel").engine.cancel_call(&self.call_id)
    }

    pub fn ready_at(&self) -> Option<Index> {
        self.cell.lock().engine.ready_at(&self.call_id)
    }
}

impl<T: DeserializeOwned> Future for PendingCall<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        if self.over {
            return self.cell.polled_again(self.what, Some(&self.call_id));
        }
        if held_back(cx, || self.ready_at()) {
            return Poll::Pending;
        }
        let mut state = self.cell.call("await");
        match state.engine.poll_call(&self.call_id) {
            None => {
                state.watch(&self.call_id, cx);
                Poll::Pending
            }
            Some(result) => {
                state.unwatch(&self.call_id);
                drop(state);
                self.over = true;
                Poll::Ready(result.and_then(|payload| Ok(payload.read()?)))
            }
        }
    }
}

impl<T> Drop for PendingCall<T> {
    fn drop(&mut self) {
        if !self.over {
            self.cell.lock().drop_call(&self.call_id);
        }
    }
}

/// Implements `Future` and `Durable` for a wrapper around [`PendingCall`].
macro_rules! durable_call {
    ($name:ident $(<$t:ident>)? => $output:ty) => {
        impl $(<$t: serde::de::DeserializeOwned>)? std::future::Future for $name $(<$t>)? {
            type Output = $crate::Result<$output>;

            fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
                std::pin::Pin::new(&mut self.call).poll(cx)
            }
        }

        impl $(<$t: serde::de::DeserializeOwned>)? $crate::ctx::Durable for $name $(<$t>)? {
            fn ready_at(&self) -> Option<onward_core::Index> {
                self.call.ready_at()
            }
        }
    };
}
pub(crate) use durable_call;
