//! A log held against the code, without running anything: for checking, for asking a run that is not in memory, for tests.

use std::sync::Arc;
use std::task::Waker;

use onward_core::engine::Fault;
use onward_core::{Failure, Name, Payload, Record, RunKey};

use crate::Result;
use crate::cell::{StepAttempt, StepScript};
use crate::code::{Code, Handler, Shared};

/// Steps must not run while a log is only being checked.
struct NoSteps;

impl StepScript for NoSteps {
    fn answer(&self, asked: &StepAttempt<'_>) -> Option<Result<Payload>> {
        let failure = Failure::fatal(format!("step `{}` is not recorded", asked.name));
        Some(Err(failure.with_code("replay_only")))
    }
    fn ran(&self, _: &Name) {}
}

/// Replays `records` against the code; nothing is run and nothing is asked for beyond them.
pub(crate) fn replay_log(
    key: &RunKey,
    handler: &Handler,
    records: &[Record],
    shared: &Shared,
    strict: bool,
) -> Result<Code, Fault> {
    let shared = Shared { script: Some(Arc::new(NoSteps)), emitter: None, clock: None, ..shared.clone() };
    let mut code = Code::new(key.clone(), handler.clone(), &shared);
    if strict {
        code.set_strict();
    }
    for record in records {
        code.feed(record.clone());
    }
    code.advance(Waker::noop())?;
    Ok(code)
}
