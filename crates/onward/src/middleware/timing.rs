//! Measures how long attempts take, and records how long a run has taken.

use std::time::{Duration, Instant};

use onward_core::RunId;

use super::{AttemptCall, AttemptKind, Middleware, MiddlewareFuture, NextAttempt, NextRun, RunCall};

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timed {
    pub kind: AttemptKind,
    pub name: String,
    pub run: RunId,
    pub attempt: u32,
    pub took: Duration,
    /// The code of its failure.
    pub failed: Option<String>,
}

/// Measures attempts with the clock of this process; on request also runs, with the time of their logs.
///
/// An attempt that is dropped, because it timed out for example, is not reported.
pub struct Timing<F> {
    report: F,
    run_state: Option<String>,
}

impl<F: Fn(Timed) + Send + Sync + 'static> Timing<F> {
    /// Passes every ended attempt to `report`, for a log or metrics.
    pub fn new(report: F) -> Timing<F> {
        Timing { report, run_state: None }
    }

    /// Sets state `key` of every run, at the end of its code, to the milliseconds since the start of its generation. They are those
    /// of the log: the same on every replay, and without the time that the last commit takes.
    pub fn run_state(self, key: &str) -> Timing<F> {
        Timing { run_state: Some(key.to_owned()), ..self }
    }
}

impl<F: Fn(Timed) + Send + Sync + 'static> Middleware for Timing<F> {
    fn run<'a>(&'a self, call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        let Some(key) = &self.run_state else { return next.run(call) };
        Box::pin(async move {
            let ctx = call.ctx.clone();
            let began = ctx.now();
            let result = next.run(call).await;
            let took = u64::try_from(ctx.now().since(began).as_millis()).unwrap_or(u64::MAX);
            ctx.state().set(key, &took)?;
            result
        })
    }

    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            let (kind, name, run, attempt) = (call.kind, call.name.clone(), call.run.clone(), call.attempt);
            let began = Instant::now();
            let result = next.run(call).await;
            let failed = result.as_ref().err().map(|failure| failure.code.clone());
            (self.report)(Timed { kind, name, run, attempt, took: began.elapsed(), failed });
            result
        })
    }
}
