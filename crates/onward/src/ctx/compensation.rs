//! Compensations: steps that undo work, in reverse order, when the run fails.

use std::pin::Pin;

use onward_core::task::RetryPolicy;
use onward_core::{BoxError, Failure, Name};

use super::{Attempt, Ctx, name_or_misuse};
use crate::Result;

type UndoFuture = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// A registered compensation.
pub(crate) struct Compensation {
    name: Name,
    undo: Box<dyn Fn(Attempt) -> UndoFuture + Send + Sync>,
}

/// Attempts of a compensation. If all fail, the run ends and its failure lists the compensation.
const ATTEMPTS: u32 = 10;

impl Ctx {
    /// Registers a compensation for the work so far. If the run fails or is canceled, every compensation runs before the run
    /// ends, as a step with its name, latest first. If the run succeeds, none runs. A cancel request does not interrupt
    /// compensations.
    pub fn on_failure<F, Fut, E>(&self, name: &str, undo: F)
    where
        F: FnOnce() -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        self.on_failure_with(name, move |_| undo());
    }

    /// Registers a compensation like [`Ctx::on_failure`], with the attempt passed to `undo`.
    pub fn on_failure_with<F, Fut, E>(&self, name: &str, undo: F)
    where
        F: FnOnce(Attempt) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let undo = Box::new(move |attempt| -> UndoFuture {
            let future = undo.clone()(attempt);
            Box::pin(async move { future.await.map_err(Into::into) })
        });
        let name = name_or_misuse(&self.cell, "on_failure", name);
        self.cell.call("on_failure").compensations.push(Compensation { name, undo });
    }
}

/// Runs the registered compensations, latest first, and adds those that fail to the failure.
pub(crate) async fn compensate(ctx: &Ctx, mut failure: Failure) -> Failure {
    ctx.cell.lock().engine.begin_undo();
    loop {
        let next = ctx.cell.lock().compensations.pop();
        let Some(Compensation { name, undo }) = next else { return failure };
        if let Err(error) = ctx.step_with(name.as_str(), &undo).retry(RetryPolicy::attempts(ATTEMPTS)).await {
            failure.causes.push(format!("`{name}` could not be undone: {error}"));
        }
    }
}
