//! Middleware: code of a worker around runs, and around attempts of steps, tasks, model calls and tools.
//!
//! A middleware has two parts. [`Middleware::run`] surrounds the code of a run: it is workflow code, deterministic, executed again
//! on every replay. [`Middleware::attempt`] surrounds one real attempt: it may do I/O, wait and read clocks, and no replay executes
//! it (ADR 0037).
//!
//! Must never decide what is recorded besides the value that it returns: retries, timeouts and the order of events are the
//! engine's.
//!
//! Invariants:
//! - MW1: middlewares surround runs and attempts in the order of their registration, the first one outermost.
//! - MW2: `attempt` is executed only around a real attempt: neither a recorded nor a scripted result passes it.
//! - MW3: the code sees the value that is recorded, which is the one that the outermost middleware returns.
//! - MW4: the code that a middleware surrounds runs at most once for each of its calls, and is dropped with it.

mod around;
mod rate_limit;
mod redaction;
mod run;
mod timing;

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use onward_core::task::{Task, TaskId};
use onward_core::{Name, Payload, RunId, TOOL_KIND_PREFIX};

use crate::Result;
use crate::ctx::{Attempt, Ctx};
use crate::host::cell::{Deps, dep};
use crate::host::code::StartFuture;
use crate::registry::TaskFuture;
use crate::task::TaskCtx;

pub(crate) use around::Around;
pub use rate_limit::RateLimit;
pub use redaction::Redaction;
pub(crate) use run::{ShellRun, shell_future};
pub use timing::{Timed, Timing};

/// The future of a middleware.
pub type MiddlewareFuture<'a> = Pin<Box<dyn Future<Output = Result<Payload>> + Send + 'a>>;

/// Code around runs and attempts, registered with [`crate::Builder::middleware`]. Every function has a default that changes nothing.
pub trait Middleware: Send + Sync + 'static {
    /// Surrounds the code of a run: the function of a workflow or agent, or a flow.
    ///
    /// It is part of the workflow's code. It must be deterministic, must not do I/O, may call functions of `call.ctx`, and changing
    /// it can make open runs diverge. A generation that continues as new, and the turn of an agent, end inside of `next`, which then
    /// never returns.
    fn run<'a>(&'a self, call: RunCall, next: NextRun<'a>) -> MiddlewareFuture<'a> {
        next.run(call)
    }

    /// Surrounds one attempt of a step, task, model call or tool. Its result is the one that is recorded; a failure is retried by the
    /// policy of the call. The time limits of an attempt include its middlewares.
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        next.run(call)
    }

    /// Returns the input of a step as it is recorded for readers of the run ([`crate::ctx::Step::record`]). Must be deterministic.
    fn recorded_input(&self, step: &str, input: Payload) -> Payload {
        let _ = step;
        input
    }
}

/// A run whose code is about to begin.
#[non_exhaustive]
pub struct RunCall {
    /// The context of the code. Calls of a middleware are recorded like those of the code.
    pub ctx: Ctx,
    /// The kind of the run.
    pub kind: String,
    pub input: Payload,
}

/// The call of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptKind {
    /// A step of a run; actions of flows and compensations are steps.
    Step,
    Task,
    ModelCall,
    Tool,
}

impl AttemptKind {
    /// Returns the name for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptKind::Step => "step",
            AttemptKind::Task => "task",
            AttemptKind::ModelCall => "model_call",
            AttemptKind::Tool => "tool",
        }
    }
}

/// An attempt that is about to begin.
#[non_exhaustive]
pub struct AttemptCall {
    pub kind: AttemptKind,
    /// The name of the step or model, or the kind of the task.
    pub name: String,
    /// The run that made the call.
    pub run: RunId,
    /// 1, 2, …
    pub attempt: u32,
    pub idempotency_key: String,
    /// The input of the task, or the request as it goes to the provider of the model. For a step, the value of
    /// [`crate::ctx::Step::input`]: what its closure captures is not visible here.
    pub input: Payload,
    deps: Arc<Deps>,
    task: Option<TaskCtx>,
}

impl AttemptCall {
    pub(crate) fn of_step(name: &Name, attempt: &Attempt, run: RunId, input: Option<Payload>, deps: Arc<Deps>) -> AttemptCall {
        AttemptCall {
            kind: AttemptKind::Step,
            name: name.to_string(),
            run,
            attempt: attempt.number,
            idempotency_key: attempt.idempotency_key(),
            input: input.unwrap_or_else(Payload::null),
            deps,
            task: None,
        }
    }

    pub(crate) fn of_task(kind: AttemptKind, name: &str, ctx: &TaskCtx, input: Payload) -> AttemptCall {
        let TaskId { run, .. } = ctx.task();
        AttemptCall {
            kind,
            name: name.to_owned(),
            run: run.id.clone(),
            attempt: ctx.attempt(),
            idempotency_key: ctx.idempotency_key().to_owned(),
            input,
            deps: ctx.deps().clone(),
            task: Some(ctx.clone()),
        }
    }

    /// Returns a dependency that was given to the builder with `.dep(..)`.
    ///
    /// # Panics
    /// Panics if there is none of this type; the attempt fails with that message.
    pub fn dep<T: Any + Send + Sync>(&self) -> Arc<T> {
        dep(&self.deps)
    }

    /// Drops the frames that this attempt sends to readers of the run's stream, such as the text of a model while it arrives.
    pub fn mute(&self) {
        self.task.iter().for_each(TaskCtx::mute);
    }
}

/// The rest of a run: the middlewares further inside, then the code.
pub struct NextRun<'a> {
    rest: &'a [Arc<dyn Middleware>],
    code: StartFuture,
}

impl<'a> NextRun<'a> {
    /// Runs the code with the input of `call`, and returns its output or failure.
    pub fn run(self, call: RunCall) -> MiddlewareFuture<'a> {
        let NextRun { rest, code } = self;
        match rest.split_first() {
            Some((first, rest)) => first.run(call, NextRun { rest, code }), // MW1
            None => match code(call.ctx, call.input) {
                Ok(future) => future,
                Err(failure) => Box::pin(std::future::ready(Err(failure))),
            },
        }
    }
}

/// The function of an attempt, from its input.
type Function<'a> = Box<dyn FnOnce(Payload) -> MiddlewareFuture<'a> + Send + 'a>;

/// The rest of an attempt: the middlewares further inside, then the function.
pub struct NextAttempt<'a> {
    rest: &'a [Arc<dyn Middleware>],
    function: Function<'a>,
}

impl<'a> NextAttempt<'a> {
    /// Runs the attempt with the input of `call`, and returns its output or failure.
    pub fn run(self, call: AttemptCall) -> MiddlewareFuture<'a> {
        let NextAttempt { rest, function } = self;
        match rest.split_first() {
            Some((first, rest)) => first.attempt(call, NextAttempt { rest, function }), // MW1
            None => function(call.input),
        }
    }
}

/// The middlewares of a worker, outermost first.
#[derive(Clone, Default)]
pub(crate) struct Middlewares(Arc<[Arc<dyn Middleware>]>);

impl Middlewares {
    /// Returns these middlewares and one further inside.
    pub fn with(&self, middleware: impl Middleware) -> Middlewares {
        let last: Arc<dyn Middleware> = Arc::new(middleware);
        Middlewares(self.0.iter().cloned().chain([last]).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs code inside the middlewares.
    pub fn run(&self, call: RunCall, code: StartFuture) -> MiddlewareFuture<'_> {
        NextRun { rest: &self.0, code }.run(call)
    }

    /// Runs a function inside the middlewares.
    pub fn attempt<F>(self, call: AttemptCall, function: F) -> MiddlewareFuture<'static>
    where
        F: FnOnce(Payload) -> TaskFuture + Send + 'static,
    {
        Box::pin(async move {
            let function: Function<'_> = Box::new(move |input| function(input));
            NextAttempt { rest: &self.0, function }.run(call).await
        })
    }

    /// Runs an attempt of a task, unless it is a model call, which passes the middlewares with its whole request.
    pub fn task<F>(&self, task: &Task, is_model: bool, ctx: &TaskCtx, function: F) -> TaskFuture
    where
        F: FnOnce(Payload) -> TaskFuture + Send + 'static,
    {
        if is_model || self.is_empty() {
            return function(task.input.clone());
        }
        let kind = if task.kind.as_str().starts_with(TOOL_KIND_PREFIX) { AttemptKind::Tool } else { AttemptKind::Task };
        self.clone().attempt(AttemptCall::of_task(kind, task.kind.as_str(), ctx, task.input.clone()), function)
    }

    /// Returns the input of a step as it is recorded: the innermost middleware sees it first, like a result.
    pub fn recorded_input(&self, step: &Name, input: Payload) -> Payload {
        self.0.iter().rev().fold(input, |input, middleware| middleware.recorded_input(step.as_str(), input))
    }
}

#[cfg(test)]
mod tests;
