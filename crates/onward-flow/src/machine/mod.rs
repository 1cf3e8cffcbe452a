//! Interprets a run of a flow: a state machine that gets the answers of calls, one at a time, and returns the calls to make next.
//!
//! A [`Plan`] is a flow prepared for runs. A [`Machine`] has paths: the path of the run itself, and one for each branch. A path has
//! a state and stands at a step, whose calls are open, or at a join. An answer moves one path; it runs until it waits for a call or
//! a join, then the paths that became ready because of it run, in the order in which they became ready. A call belongs to a path,
//! so a path that is canceled cancels its calls.
//!
//! Owns paths, branches, state, retries of calls that the engine does not retry, time limits, and compensation. Must never do I/O
//! or depend on anything but the flow, the input and the answers in their order.
//!
//! Invariants:
//! - FW1: the turns of a machine are a function of the flow, the input and the answers in their order.
//! - FW2: an open call gets one answer or is canceled, never both; an answer for another call changes nothing.
//! - FW3: a step with `each` has at most `concurrency` items open, and begins none beside another one while the inputs of all open
//!   calls have more bytes than the limit.
//! - FW4: a machine that has ended makes no calls and has none open.
//! - FW5: a machine without an open call has ended.
//! - FW6: if the flow fails, the compensation of every completed step runs once, one after the other, latest first; if it does not
//!   fail, none runs.

mod attempt;
mod branches;
mod calls;
mod compensation;
mod each;
mod failure;
mod inputs;
mod join;
mod outcome;
mod path;
mod plan;
mod progress;
mod request;
mod schema;
mod state;
mod step;
mod turn;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::expression::{Budget, Scope};
use calls::{Calls, Owner};
use compensation::Undone;
use path::{Activity, Path, PathId};
use progress::ProgressLog;
use state::PathState;

pub use plan::{MachineLimits, Plan, PlanProblem};
pub use turn::{Call, CallId, CallMemo, CallRequest, FlowFailure, PROGRESS_PREFIX, Progress, ProgressState, RetryRule, Turn};

/// The path of the run itself.
const MAIN: PathId = 0;

/// Facts about a run that expressions can read, as `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    pub id: String,
}

/// A run of a flow.
#[derive(Debug)]
pub struct Machine {
    plan: Arc<Plan>,
    inputs: Arc<Value>,
    run: Arc<Value>,
    phase: Phase,
    /// All paths that run, and those that are over and not joined yet. The main path stays.
    paths: BTreeMap<PathId, Path>,
    paths_made: PathId,
    /// Paths that can go on, in the order in which they became ready.
    ready: VecDeque<PathId>,
    calls: Calls,
    /// Compensation of completed steps, in the order of completion.
    undoes: Vec<compensation::PendingUndo>,
    failures: u64,
    begins: step::Begins,
    /// What the expressions of a turn may spend.
    budget: Arc<Budget>,
    progress: ProgressLog,
}

#[derive(Debug)]
enum Phase {
    Running,
    /// The flow has failed, and compensation runs.
    Undoing(Undone),
    Ended(Option<Result<Value, FlowFailure>>),
}

impl Machine {
    /// Starts a run with an input: an object of inputs, or null.
    pub fn start(plan: Arc<Plan>, input: Value, facts: RunFacts) -> (Machine, Turn) {
        let steps = plan.steps.len();
        let mut machine = Machine {
            inputs: Arc::default(),
            run: Arc::new(json!({ "id": facts.id })),
            phase: Phase::Running,
            paths: BTreeMap::new(),
            paths_made: 0,
            ready: VecDeque::new(),
            calls: Calls::default(),
            undoes: Vec::new(),
            failures: 0,
            begins: step::Begins::default(),
            budget: Arc::new(Budget::new(plan.limits.operations_in_turn)),
            progress: ProgressLog::new(steps),
            plan,
        };
        match inputs::checked(&machine.plan.inputs, input) {
            Ok(inputs) => {
                machine.inputs = Arc::new(inputs);
                let first = machine.plan.first;
                machine.add_path(Path::main(first));
                machine.go_on();
            }
            Err(failure) => machine.phase = Phase::Ended(Some(Err(failure))),
        }
        let turn = machine.take_turn();
        (machine, turn)
    }

    /// Takes the answer of an open call. Returns an empty turn for a call that is not open (FW2).
    pub fn answer(&mut self, call: CallId, result: Result<Value, FlowFailure>) -> Turn {
        let Some(owner) = self.calls.close(call) else { return Turn::default() };
        match owner {
            Owner::Item { path, item, role } => self.answer_item(path, item, role, result),
            Owner::Join { path } => self.end_join_in_time(path, result),
            Owner::Undo => self.answer_undo(result),
        }
        self.go_on();
        self.take_turn()
    }

    /// Returns whether the call waits for an answer.
    pub fn is_open(&self, call: CallId) -> bool {
        self.calls.is_open(call)
    }

    /// Returns whether the run is over.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Returns the state of the main path.
    pub fn state(&self) -> Value {
        self.paths.get(&MAIN).map_or_else(|| json!({}), |main| main.state.to_value())
    }

    /// Runs all paths that are ready, and ends the flow if no path runs any more.
    fn go_on(&mut self) {
        while self.is_running() {
            let Some(path) = self.ready.pop_front() else { break };
            self.advance(path);
        }
        if self.is_running() && !self.paths.values().any(Path::is_running) {
            self.finish();
        }
        debug_assert!(self.has_ended() != self.calls.any_open(), "FW4, FW5: a machine has open calls until it has ended");
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Ends the flow with its output.
    fn finish(&mut self) {
        let state = self.paths.get(&MAIN).map(|main| main.state.clone()).unwrap_or_default();
        let output = match &self.plan.output {
            Some(output) => output.render(&self.names(&state)).map_err(FlowFailure::of_expression),
            None => Ok(state.to_value()),
        };
        match output {
            Ok(output) => self.phase = Phase::Ended(Some(Ok(output))),
            Err(failure) => {
                let failure = self.stuck().unwrap_or(failure);
                self.fail(failure);
            }
        }
    }

    /// Returns the names that every expression can read.
    fn names(&self, state: &PathState) -> Scope {
        let names = Scope::new().share("inputs", self.inputs.clone()).share("run", self.run.clone());
        names.share("state", state.share()).within(self.budget.clone())
    }

    /// Returns what has happened since the turn before.
    fn take_turn(&mut self) -> Turn {
        self.begins.end_turn();
        self.budget.renew();
        let (cancels, calls) = self.calls.take();
        let (undoes, end) = match &mut self.phase {
            Phase::Running => (false, None),
            Phase::Undoing(undone) => (std::mem::take(&mut undone.is_new), None),
            Phase::Ended(end) => (false, end.take()),
        };
        Turn { cancels, calls, progress: self.progress.take(&self.plan), undoes, end }
    }

    /// Fails the flow: cancels everything, then runs the compensation.
    fn fail(&mut self, failure: FlowFailure) {
        for path in self.paths.values_mut() {
            if let Some(step) = path.activity.step() {
                self.progress.canceled(step);
            }
            path.activity = Activity::Ended;
        }
        self.paths.retain(|id, _| *id == MAIN);
        self.ready.clear();
        self.calls.cancel_all();
        self.begin_undo(failure);
    }
}
