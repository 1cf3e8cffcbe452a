//! Replay of a log without side effects: for checks, for queries of runs that are not in memory, and for tests.

use std::sync::Arc;
use std::task::Waker;

use onward_core::conversation::{Entry, entries_of};
use onward_core::engine::Fault;
use onward_core::{Failure, Name, Payload, Record, RunKey};

use crate::Result;
use crate::agent::conversation_cache::ConversationRead;
use crate::host::cell::{StepAttempt, StepScript};
use crate::host::code::{Code, Handler, Need, UserFunction, WorkerShared};
use crate::shell::unparks;

/// Fails every step, because no step may run during a replay.
struct NoSteps;

impl StepScript for NoSteps {
    fn answer(&self, step: &StepAttempt<'_>) -> Option<Result<Payload>> {
        let failure = Failure::fatal(format!("step `{}` is not recorded", step.name));
        Some(Err(failure.with_code("replay_only")))
    }
    fn ran(&self, _: &Name) {}
}

/// The logs from which code is replayed.
#[derive(Clone, Copy)]
pub(crate) struct Logs<'a> {
    /// The log of an agent's prelude; empty if [`onward_core::log::prelude_of`] needs none.
    pub prelude: &'a [Record],
    pub records: &'a [Record],
    /// Reads of the conversation by an agent's code; `None` if the logs are not available.
    pub earlier: &'a dyn Fn(&ConversationRead) -> Option<Arc<[Entry]>>,
}

/// Provides no entries, for code that does not read its conversation.
pub(crate) fn no_earlier(_: &ConversationRead) -> Option<Arc<[Entry]>> {
    None
}

/// The entries of earlier logs, latest log first, for reads of an agent's code.
#[derive(Default)]
pub(crate) struct Earlier {
    logs: Vec<Vec<Entry>>,
}

impl Earlier {
    /// Adds the next log backwards.
    pub fn push(&mut self, generation: u32, records: &[Record]) {
        self.logs.push(entries_of(generation, records));
    }

    pub fn read(&self, wish: &ConversationRead) -> Option<Arc<[Entry]>> {
        let mut walk = wish.walk();
        self.logs.iter().for_each(|entries| walk.read(entries));
        walk.wants().is_none().then(|| walk.into_path().into())
    }
}

/// Replays the logs with the code. No step runs, and calls beyond the logs are not executed. Blocks the thread while a shell plays
/// foreign code.
pub(crate) fn replay_log(
    key: &RunKey,
    handler: &Handler,
    logs: Logs<'_>,
    shared: &WorkerShared,
    strict: bool,
) -> Result<Code, Fault> {
    let shared = WorkerShared { script: Some(Arc::new(NoSteps)), outlet: None, clock: None, ..shared.clone() };
    let mut code = Code::new(key.clone(), handler.clone(), &shared);
    if strict {
        code.lock().engine.set_strict();
    }
    for record in logs.records {
        code.feed(record.clone());
    }
    if code.wants_prelude().is_some() && !logs.prelude.is_empty() {
        code.give_prelude(logs.prelude.to_vec());
    }
    let waker = match handler.function {
        UserFunction::Future(_) => Waker::noop().clone(),
        UserFunction::Shell(_) => unparks(),
    };
    loop {
        let wish = match code.advance(&waker)? {
            Need::Earlier(wish) => wish,
            Need::Shell => {
                std::thread::park();
                continue;
            }
            Need::Commit(_) | Need::Nothing => return Ok(code),
        };
        let Some(entries) = (logs.earlier)(&wish) else {
            return Err(Fault::LogBroken(
                "the code reads its conversation, but earlier logs of the run are not available".to_owned(),
            ));
        };
        code.give_earlier(wish, entries);
    }
}
