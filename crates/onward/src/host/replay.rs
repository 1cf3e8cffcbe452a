//! A log held against the code, without running anything: for checking, for asking a run that is not in memory, for tests.

use std::sync::Arc;
use std::task::Waker;

use onward_core::conversation::{Entry, entries_of};
use onward_core::engine::Fault;
use onward_core::{Failure, Name, Payload, Record, RunKey};

use crate::Result;
use crate::agent::library::Wish;
use crate::host::cell::{StepAttempt, StepScript};
use crate::host::code::{Code, Handler, Need, Shared};

/// Steps must not run while a log is only being checked.
struct NoSteps;

impl StepScript for NoSteps {
    fn answer(&self, asked: &StepAttempt<'_>) -> Option<Result<Payload>> {
        let failure = Failure::fatal(format!("step `{}` is not recorded", asked.name));
        Some(Err(failure.with_code("replay_only")))
    }
    fn ran(&self, _: &Name) {}
}

/// What brings code to where its run stands.
#[derive(Clone, Copy)]
pub(crate) struct Logs<'a> {
    /// What an agent did before its turns; empty where [`onward_core::log::prelude_of`] asks for nothing.
    pub prelude: &'a [Record],
    pub records: &'a [Record],
    /// What an agent's code reads of its conversation, if that is at hand.
    pub earlier: &'a dyn Fn(&Wish) -> Option<Arc<[Entry]>>,
}

/// For code that does not read its conversation.
pub(crate) fn no_earlier(_: &Wish) -> Option<Arc<[Entry]>> {
    None
}

/// What an agent's code may read of its conversation: the entries of the logs before, latest log first.
#[derive(Default)]
pub(crate) struct Earlier {
    logs: Vec<Vec<Entry>>,
}

impl Earlier {
    /// The next log backwards.
    pub fn push(&mut self, generation: u32, records: &[Record]) {
        self.logs.push(entries_of(generation, records));
    }

    pub fn read(&self, wish: &Wish) -> Option<Arc<[Entry]>> {
        let mut walk = wish.walk();
        self.logs.iter().for_each(|entries| walk.read(entries));
        walk.wants().is_none().then(|| walk.into_path().into())
    }
}

/// Replays the logs against the code; nothing is run and nothing is asked for beyond them.
pub(crate) fn replay_log(key: &RunKey, handler: &Handler, logs: Logs<'_>, shared: &Shared, strict: bool) -> Result<Code, Fault> {
    let shared = Shared { script: Some(Arc::new(NoSteps)), emitter: None, clock: None, ..shared.clone() };
    let mut code = Code::new(key.clone(), handler.clone(), &shared);
    if strict {
        code.set_strict();
    }
    for record in logs.records {
        code.feed(record.clone());
    }
    if code.wants_prelude().is_some() && !logs.prelude.is_empty() {
        code.give_prelude(logs.prelude.to_vec());
    }
    while let Need::Earlier(wish) = code.advance(Waker::noop())? {
        let Some(entries) = (logs.earlier)(&wish) else {
            return Err(Fault::LogBroken(
                "the code reads its conversation, and earlier logs of the run are not at hand".to_owned(),
            ));
        };
        code.give_earlier(wish, entries);
    }
    Ok(code)
}
