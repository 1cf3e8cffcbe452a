//! One-shot replies from the store's threads to the futures that wait for them.
//!
//! A reply is put while its batch is being written and released once the batch is durable. Must never wake a waiter before that.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::StoreError;
use crate::sync;

type Answer<T> = Result<T, StoreError>;

/// Holder of one reply.
pub struct Slot<T> {
    state: Mutex<ReplyState<T>>,
}

struct ReplyState<T> {
    answer: Option<Answer<T>>,
    released: bool,
    waker: Option<Waker>,
}

/// A [`Slot`] with its type erased.
pub trait Pending: Send + Sync {
    /// Releases the reply to its waiter.
    fn release(&self);
    /// Replaces the reply by an error and releases it.
    fn fail(&self, error: StoreError);
}

impl<T> Slot<T> {
    pub fn new() -> Arc<Slot<T>> {
        Arc::new(Slot { state: Mutex::new(ReplyState { answer: None, released: false, waker: None }) })
    }

    fn lock(&self) -> MutexGuard<'_, ReplyState<T>> {
        sync::lock(&self.state)
    }

    /// Stores the reply without waking the waiter.
    pub fn put(&self, answer: Answer<T>) {
        self.lock().answer = Some(answer);
    }
}

impl<T: Send> Pending for Slot<T> {
    fn release(&self) {
        let waker = {
            let mut state = self.lock();
            state.released = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn fail(&self, error: StoreError) {
        self.put(Err(error));
        self.release();
    }
}

/// The waiter's end. Dropping it does not cancel the operation.
pub struct Waiting<T>(pub Arc<Slot<T>>);

impl<T> Future for Waiting<T> {
    type Output = Answer<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer<T>> {
        let mut state = self.0.lock();
        if state.released {
            let gone = || Err(StoreError::Stopped { why: "the operation was dropped".to_owned() });
            return Poll::Ready(state.answer.take().unwrap_or_else(gone));
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            empty => *empty = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}
