//! Middlewares around a future that may borrow and need not be `Send`, as that of a step's closure.
//!
//! Middlewares cannot own such a future. Their innermost future only requests it and waits; [`Around`] polls both.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use onward_core::Payload;
use onward_store::sync::lock;

use super::{AttemptCall, Middlewares};
use crate::Result;

/// The request of the middlewares for the function, and its result.
#[derive(Default)]
enum FunctionRequest {
    #[default]
    NotYet,
    /// The function is to run; the waker is that of the middleware that waits.
    Wanted(Option<Waker>),
    Done(Result<Payload>),
    /// The middlewares no longer wait.
    Over,
}

/// The future that middlewares see in place of the function.
struct RequestedFunction {
    request: Arc<Mutex<FunctionRequest>>,
}

impl Future for RequestedFunction {
    type Output = Result<Payload>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Payload>> {
        let mut request = lock(&self.request);
        match std::mem::replace(&mut *request, FunctionRequest::Over) {
            FunctionRequest::Done(result) => Poll::Ready(result),
            _ => {
                *request = FunctionRequest::Wanted(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for RequestedFunction {
    fn drop(&mut self) {
        *lock(&self.request) = FunctionRequest::Over;
    }
}

/// A function inside of middlewares.
pub(crate) struct Around<M, F> {
    middlewares: Pin<Box<dyn Future<Output = Result<Payload>> + Send>>,
    request: Arc<Mutex<FunctionRequest>>,
    /// The function until it runs, and its future while it runs.
    make: Option<M>,
    function: Option<Pin<Box<F>>>,
}

impl<M, F> Unpin for Around<M, F> {}

impl<M, F> Around<M, F>
where
    M: FnOnce() -> F,
    F: Future<Output = Result<Payload>>,
{
    pub fn new(middlewares: Middlewares, call: AttemptCall, make: M) -> Around<M, F> {
        let request: Arc<Mutex<FunctionRequest>> = Arc::default();
        let requested = RequestedFunction { request: request.clone() };
        let middlewares = middlewares.attempt(call, move |_| Box::pin(requested));
        Around { middlewares, request, make: Some(make), function: None }
    }

    /// Polls the function, if it runs. Drops it if no middleware waits for it (MW4).
    fn poll_function(&mut self, cx: &mut Context<'_>) {
        if matches!(*lock(&self.request), FunctionRequest::Over) {
            self.function = None;
        }
        let Some(function) = &mut self.function else { return };
        let Poll::Ready(result) = function.as_mut().poll(cx) else { return };
        self.function = None;
        let mut request = lock(&self.request);
        if let FunctionRequest::Wanted(waker) = &mut *request {
            let waker = waker.take();
            *request = FunctionRequest::Done(result);
            drop(request);
            waker.iter().for_each(Waker::wake_by_ref);
        }
    }
}

impl<M, F> Future for Around<M, F>
where
    M: FnOnce() -> F,
    F: Future<Output = Result<Payload>>,
{
    type Output = Result<Payload>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Payload>> {
        loop {
            self.poll_function(cx);
            if let Poll::Ready(result) = self.middlewares.as_mut().poll(cx) {
                self.function = None;
                return Poll::Ready(result);
            }
            let is_wanted = matches!(*lock(&self.request), FunctionRequest::Wanted(_));
            match self.make.take_if(|_| is_wanted) {
                Some(make) => self.function = Some(Box::pin(make())),
                None => return Poll::Pending,
            }
        }
    }
}
