use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::Failure;

struct AskedTwice;

impl Middleware for AskedTwice {
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        let mut asked = next.run(call);
        Box::pin(async move {
            let early = std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await;
            assert!(early.is_pending());
            drop(asked);
            Err(Failure::fatal("given up"))
        })
    }
}

struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn call() -> AttemptCall {
    AttemptCall {
        kind: AttemptKind::Step,
        name: "s".to_owned(),
        run: RunId::new("r").unwrap(),
        attempt: 1,
        idempotency_key: "k".to_owned(),
        input: Payload::null(),
        deps: Arc::default(),
        task: None,
    }
}

/// MW4, also for futures that middlewares cannot own.
#[test]
fn a_function_that_no_middleware_waits_for_is_dropped_and_never_begun() {
    let dropped = Arc::new(AtomicU32::new(0));
    let guard = Dropped(dropped.clone());
    let begun = AtomicU32::new(0);
    let make = || async {
        let _guard = guard;
        begun.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    };
    let around = Around::new(Middlewares::default().with(AskedTwice), call(), make);
    let mut around = std::pin::pin!(around);
    let polled = around.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(failure)) if failure.message == "given up"));
    assert_eq!((begun.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (0, 0));
}

struct GivesUpLater(Arc<AtomicU32>);

impl Middleware for GivesUpLater {
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        let mut next = Some(next.run(call));
        Box::pin(std::future::poll_fn(move |cx| {
            if self.0.load(Ordering::SeqCst) > 0 {
                next = None;
            }
            match &mut next {
                Some(next) => next.as_mut().poll(cx),
                None if self.0.load(Ordering::SeqCst) == 1 => Poll::Pending,
                None => Poll::Ready(Err(Failure::fatal("given up"))),
            }
        }))
    }
}

#[test]
fn a_function_that_runs_is_dropped_as_soon_as_no_middleware_waits_for_it() {
    let (dropped, stage) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let guard = Dropped(dropped.clone());
    let make = || async {
        let _guard = guard;
        std::future::pending().await
    };
    let around = Around::new(Middlewares::default().with(GivesUpLater(stage.clone())), call(), make);
    let mut around = std::pin::pin!(around);
    let mut poll = || around.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    stage.store(1, Ordering::SeqCst);
    assert!(poll().is_pending() && poll().is_pending());
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "while the middleware does something else");
    stage.store(2, Ordering::SeqCst);
    assert!(matches!(poll(), Poll::Ready(Err(_))));
}
