//! The state that a run's code, its context and its driver share.
//!
//! Owns the lock around the engine. Must never drop or poll user code while holding it: futures take the lock when they are
//! dropped.

use std::any::{Any, TypeId, type_name};
use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use onward_core::engine::{Engine, Fault, Wake};
use onward_core::{CallId, Failure, Name, Payload, RunKey};
use onward_store::sync::lock;

use crate::agent::conversation_cache::{CompletedRead, ConversationRead};
use crate::ctx::small;
use crate::host::code::WorkerShared;
use crate::host::handlers::{AwaitingHandler, Handlers};
use crate::host::wake::{Arms, polling};
use crate::middleware::ShellRun;
use crate::registry::{Checks, check_output};

/// Shared dependencies by type.
pub(crate) type Deps = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// Returns the dependency of this type.
pub(crate) fn find_dep<T: Any + Send + Sync>(deps: &Deps) -> Option<Arc<T>> {
    deps.get(&TypeId::of::<T>()).cloned().and_then(|dep| dep.downcast::<T>().ok())
}

/// Returns the dependency of this type; panics if there is none.
pub(crate) fn dep<T: Any + Send + Sync>(deps: &Deps) -> Arc<T> {
    find_dep(deps)
        .unwrap_or_else(|| panic!("no dependency of type `{}`: give it to the builder with `.dep(..)`", type_name::<T>()))
}

pub(crate) type Answerer = Box<dyn FnMut(Payload) -> Result<Payload, Failure> + Send>;

/// The handler of an update.
pub(crate) enum UpdateHandler {
    /// Answers at once.
    AtOnce(Answerer),
    /// Begins a future that answers.
    Awaiting(AwaitingHandler),
}

/// The calls that only read.
const READS: &[&str] = &["state", "now", "is_canceled", "spent", "budget_left"];

pub(crate) struct RunCell {
    state: Mutex<RunCellState>,
    pub shared: WorkerShared,
}

/// Source of step results in place of closures.
pub(crate) trait StepScript: Send + Sync {
    /// Returns the result of the attempt; `None` lets the closure run.
    fn answer(&self, step: &StepAttempt<'_>) -> Option<Result<Payload, Failure>>;
    fn ran(&self, name: &Name);
}

/// An attempt of a step that is about to start.
pub(crate) struct StepAttempt<'a> {
    pub name: &'a Name,
    pub generation: u32,
    pub call_id: &'a CallId,
    pub attempt: u32,
}

pub(crate) struct RunCellState {
    pub engine: Engine,
    /// The arm that awaits the call of a call id, until the call is answered or dropped.
    watchers: HashMap<CallId, (Arc<Arms>, u32)>,
    /// Counter that grows when every arm of every combinator must be polled.
    pub poll_all: u64,
    pub driver: Waker,
    pub in_step: bool,
    /// Steps record their inputs.
    pub record_inputs: bool,
    /// The schemas that the output and answers of updates must fit.
    pub checks: Checks,
    /// Readers of the run exist: steps that start are reported.
    pub is_watched: bool,
    /// A query handler is running: calls that would change the run are refused.
    pub in_query: bool,
    pub queries: HashMap<Name, Answerer>,
    pub updates: HashMap<Name, UpdateHandler>,
    pub handlers: Handlers,
    pub compensations: Vec<crate::ctx::Compensation>,
    /// The stage of the code, if it is that of a shell.
    pub shell_run: ShellRun,
    /// The code of an agent has reached its turns.
    pub in_turns: bool,
    /// A read of the conversation that an agent's code needs before it can continue.
    pub wish: Option<ConversationRead>,
    /// Results of such reads.
    pub earlier: Vec<CompletedRead>,
}

impl RunCell {
    pub fn new(key: RunKey, shared: &WorkerShared) -> RunCell {
        let state = RunCellState {
            engine: Engine::new(key),
            watchers: HashMap::new(),
            poll_all: 0,
            driver: Waker::noop().clone(),
            in_step: false,
            record_inputs: false,
            checks: Checks::default(),
            is_watched: false,
            in_query: false,
            queries: HashMap::new(),
            updates: HashMap::new(),
            handlers: Handlers::default(),
            compensations: Vec::new(),
            shell_run: ShellRun::default(),
            in_turns: false,
            wish: None,
            earlier: Vec::new(),
        };
        RunCell { state: Mutex::new(state), shared: shared.clone() }
    }

    /// Fails if the output of the code is too large or does not fit its schema.
    pub fn checked_output(&self, output: Payload) -> Result<Payload, Failure> {
        let output = small(self.shared.payload_bytes_max, "the output", output)?;
        let schema = self.lock().checks.output.clone();
        check_output(schema.as_deref(), "the output", output)
    }

    /// Fails if a new answer of an update does not fit its schema; a recorded one stays (KI6).
    pub fn checked_answer(&self, update: &Name, answer: Payload) -> Result<Payload, Failure> {
        let schema = {
            let state = self.lock();
            state.checks.answers.get(update).filter(|_| state.engine.is_live()).cloned()
        };
        check_output(schema.as_deref(), &format!("the answer of update `{update}`"), answer)
    }

    /// Locks the state. User code never panics under this lock, so a poisoned lock still has consistent state.
    pub fn lock(&self) -> MutexGuard<'_, RunCellState> {
        lock(&self.state)
    }

    /// Locks the state for a call of workflow code. Using the context inside a step is a misuse.
    pub fn call(&self, what: &str) -> MutexGuard<'_, RunCellState> {
        let mut state = self.lock();
        if state.in_step {
            state.engine.misuse(format!(
                "{what} was called inside a step: a step must not use the workflow's context, \
                 because its calls cannot be replayed; make them before or after the step"
            ));
        }
        if state.in_query && !READS.contains(&what) {
            // Unwinds into the query's caller, with the lock released; the run is not affected.
            drop(state);
            panic!("`{what}` changes the run, which a query must not do; use an update");
        }
        state
    }

    /// Polls the mailbox. Code that polls in an endless loop is unwound here, since it would never yield; the engine has the
    /// fault.
    pub fn poll_mailbox<T>(&self, what: &str, poll_mailbox: impl FnOnce(&mut Engine) -> T) -> T {
        let mut state = self.call(what);
        let seen = poll_mailbox(&mut state.engine);
        let spinning = state.engine.is_spinning();
        drop(state);
        if spinning {
            std::panic::resume_unwind(Box::new("the code polls for signals in an endless loop"));
        }
        seen
    }

    /// Reports that a future was polled after it completed. It would wait forever, and a `select!` would never see it win again.
    #[cold]
    pub fn polled_again<T>(&self, what: &str, call_id: Option<&CallId>) -> Poll<T> {
        let call_id = call_id.map(|call_id| format!(" at call id {call_id}")).unwrap_or_default();
        self.lock().engine.misuse(format!("`{what}`{call_id} is polled after it was ready: keep its value, or make a new call"));
        Poll::Pending
    }

    /// Reports that a foreign future keeps or wakes the waker.
    #[cold]
    pub fn foreign_await(&self) {
        let trace = Backtrace::force_capture().to_string();
        let mut state = self.lock();
        let call_id = state.engine.code_position();
        let (who, instead) = crate::host::foreign::explain(&trace);
        state.engine.set_fault(Fault::Misuse(format!(
            "the workflow awaits something that cannot be replayed ({who}), {call_id}; {instead}"
        )));
    }
}

impl RunCellState {
    pub fn wake(&mut self, wake: &Wake) {
        match wake {
            Wake::All => self.poll_all += 1,
            Wake::Call(call_id) => {
                if let Some((arms, arm)) = self.watchers.remove(call_id) {
                    arms.mark(arm);
                }
            }
        }
    }

    /// Drops the call: the code no longer awaits it.
    pub fn drop_call(&mut self, call_id: &CallId) {
        self.unwatch(call_id);
        self.engine.drop_call(call_id);
    }

    /// Forgets which arm awaits the call.
    pub fn unwatch(&mut self, call_id: &CallId) {
        if !self.watchers.is_empty() {
            self.watchers.remove(call_id);
        }
    }

    /// Returns the number of entries for calls that are not over.
    pub fn entries(&self) -> usize {
        self.engine.entries() + self.watchers.len()
    }

    /// Stores the arm that awaits the call.
    pub fn watch(&mut self, call_id: &CallId, cx: &Context<'_>) {
        if let Some((arms, arm)) = polling(cx.waker()).and_then(|polling| polling.arm) {
            self.watchers.insert(call_id.clone(), (arms.clone(), arm));
        }
    }
}
