//! What one run's code, its context and its driver share.
//!
//! Owns the lock around the engine. Must never drop or poll user code while holding it: futures lock when they are dropped.

use std::any::{Any, TypeId};
use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use onward_core::engine::{Engine, Fault, Wake};
use onward_core::{Failure, Name, Payload, Place, RunKey};
use onward_runtime::Emitted;

use crate::agent::library::{Granted, Wish};
use crate::host::wake::{Arms, polling};
use crate::trace::Origin;

/// Shared dependencies by type.
pub(crate) type Deps = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

pub(crate) type Answerer = Box<dyn FnMut(Payload) -> Result<Payload, Failure> + Send>;

pub(crate) type Emitter = Arc<dyn Fn(&RunKey, Emitted) + Send + Sync>;

/// The calls that only read.
const READS: &[&str] = &["state", "now", "is_canceled", "spent", "budget_left"];

pub(crate) struct RunCell {
    state: Mutex<State>,
    pub deps: Arc<Deps>,
    /// The largest payload that can be recorded.
    pub payload_bytes_max: usize,
    pub runtime: Option<tokio::runtime::Handle>,
    /// Scripted step results in tests, asked before a closure runs.
    pub script: Option<Arc<dyn StepScript>>,
    pub emitter: Option<Emitter>,
    /// Where the run stands in its trace.
    pub origin: Option<Origin>,
}

/// Answers steps in place of their closures.
pub(crate) trait StepScript: Send + Sync {
    /// What the attempt comes to; `None` lets the closure run.
    fn answer(&self, asked: &StepAttempt<'_>) -> Option<Result<Payload, Failure>>;
    fn ran(&self, name: &Name);
}

/// An attempt of a step that is about to start.
pub(crate) struct StepAttempt<'a> {
    pub name: &'a Name,
    pub generation: u32,
    pub place: &'a Place,
    pub attempt: u32,
}

pub(crate) struct State {
    pub engine: Engine,
    /// The arm in which the call at a place is awaited, until the call is answered or over.
    watchers: HashMap<Place, (Arc<Arms>, u32)>,
    /// Grows when every arm of every combinator has to look.
    pub poll_all: u64,
    pub driver: Waker,
    pub in_step: bool,
    /// A query is being answered: whatever would change the run is refused.
    pub in_query: bool,
    pub queries: HashMap<Name, Answerer>,
    pub updates: HashMap<Name, Answerer>,
    pub compensations: Vec<crate::ctx::Compensation>,
    /// The code of an agent has come to its turns.
    pub in_turns: bool,
    /// What the code of an agent wants to read of its conversation before it can go on.
    pub wish: Option<Wish>,
    /// What was read for it.
    pub earlier: Vec<Granted>,
}

impl RunCell {
    pub fn new(key: RunKey, shared: &crate::host::code::Shared) -> RunCell {
        let state = State {
            engine: Engine::new(key),
            watchers: HashMap::new(),
            poll_all: 0,
            driver: Waker::noop().clone(),
            in_step: false,
            in_query: false,
            queries: HashMap::new(),
            updates: HashMap::new(),
            compensations: Vec::new(),
            in_turns: false,
            wish: None,
            earlier: Vec::new(),
        };
        RunCell {
            state: Mutex::new(state),
            deps: shared.deps.clone(),
            payload_bytes_max: shared.payload_bytes_max,
            runtime: shared.runtime.clone(),
            script: shared.script.clone(),
            emitter: shared.emitter.clone(),
            origin: shared.origin,
        }
    }

    /// A panic in user code never happens under this lock, so a poisoned one still holds sound state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, for a call that workflow code makes: using the context inside a step is a mistake.
    pub fn call(&self, what: &str) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.in_step {
            state.engine.misuse(format!(
                "{what} was called inside a step: a step must not use the workflow's context, \
                 because what it does there could not be replayed; do it before or after the step"
            ));
        }
        if state.in_query && !READS.contains(&what) {
            // Unwinds into the one who asked, with the lock free; the run does not notice.
            drop(state);
            panic!("`{what}` changes the run, and a query must not: use an update");
        }
        state
    }

    /// Looks into the mailbox. Code that does so without end would never come back by itself, so it is unwound here; the
    /// engine has the fault.
    pub fn look<T>(&self, what: &str, look: impl FnOnce(&mut Engine) -> T) -> T {
        let mut state = self.call(what);
        let seen = look(&mut state.engine);
        let spinning = state.engine.is_spinning();
        drop(state);
        if spinning {
            std::panic::resume_unwind(Box::new("the code looks for signals without end"));
        }
        seen
    }

    /// A future is polled that has given its answer. It would wait for ever, and a `select!` would never see it win again.
    #[cold]
    pub fn polled_again<T>(&self, what: &str, place: Option<&Place>) -> Poll<T> {
        let place = place.map(|place| format!(" at place {place}")).unwrap_or_default();
        self.lock().engine.misuse(format!(
            "`{what}`{place} is polled after it was ready: a future has one answer; keep the value, or make a new call"
        ));
        Poll::Pending
    }

    /// Somebody who is not ours holds on to the waker.
    #[cold]
    pub fn foreign_await(&self) {
        let trace = Backtrace::force_capture().to_string();
        let mut state = self.lock();
        let place = state.engine.whereabouts();
        let (who, instead) = crate::host::foreign::explain(&trace);
        state.engine.set_fault(Fault::Misuse(format!(
            "the workflow awaits something that cannot be replayed ({who}), {place}; {instead}"
        )));
    }
}

impl State {
    pub fn wake(&mut self, wake: &Wake) {
        match wake {
            Wake::All => self.poll_all += 1,
            Wake::Call(place) => {
                if let Some((arms, arm)) = self.watchers.remove(place) {
                    arms.mark(arm);
                }
            }
        }
    }

    /// The code no longer waits for the call at `place`.
    pub fn drop_call(&mut self, place: &Place) {
        self.unwatch(place);
        self.engine.drop_call(place);
    }

    /// The call at `place` is over.
    pub fn unwatch(&mut self, place: &Place) {
        if !self.watchers.is_empty() {
            self.watchers.remove(place);
        }
    }

    /// How many entries are kept about what is not over.
    pub fn entries(&self) -> usize {
        self.engine.entries() + self.watchers.len()
    }

    /// Remembers in which arm the call at `place` is awaited.
    pub fn watch(&mut self, place: &Place, cx: &Context<'_>) {
        if let Some((arms, arm)) = polling(cx.waker()).and_then(|polling| polling.arm) {
            self.watchers.insert(place.clone(), (arms.clone(), arm));
        }
    }
}
