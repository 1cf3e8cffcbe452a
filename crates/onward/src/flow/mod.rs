//! Flows: workflows as documents, played by the state machine of `onward-flow`.
//!
//! A flow is a kind like any other. Its [`Shell`] gives the machine the input of the run and the answers of its calls, and makes the
//! calls that the machine returns, all within one activation and on the thread of the worker (ADR 0033). The built-in actions are
//! steps of the run.
//!
//! Must never decide: which calls are made follows from the document, the input and the answers in the order of the log.
//!
//! Invariants:
//! - FP1: a run makes the calls of the machine in the order in which it returns them, and gives it one answer for each call that
//!   it has not canceled, in the order of the log.
//! - FP2: no text of a document, an input or an answer can pause a run: a name that the engine does not accept is a failure of its
//!   step.
//! - FP3: actions reach only hosts that the operator allows, and only files below the folder that the operator names (S24).

mod actions;
mod failures;
mod open;
mod play;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use onward_core::{Failure, Payload};
pub use onward_flow::document::{self, Flow};
use onward_flow::machine::{PROGRESS_PREFIX, Plan, PlanProblem, RunFacts};
use onward_store::sync::lock;
use serde_json::{Map, Value};

use crate::shell::{Activation, Query, Shell, ShellCode};
use play::FlowRun;

pub(crate) use actions::{Documents, HttpHosts};
pub use actions::{DocumentsError, HostError};
pub(crate) use open::DefaultModel;

/// Plays the runs of one version of a flow.
pub struct FlowShell {
    plan: Arc<Plan>,
    /// The runs in memory, by the number of their code. A run is taken out while it is played.
    runs: Mutex<HashMap<u64, FlowRun>>,
}

impl FlowShell {
    /// Prepares the flow.
    ///
    /// # Errors
    /// Fails if the flow cannot run, with the problems; `onward_flow::document::check` lists those of a document with lines.
    pub fn new(flow: &Flow) -> Result<FlowShell, Vec<PlanProblem>> {
        Plan::new(flow).map(FlowShell::of)
    }

    /// Plays the runs of a prepared flow, whose limits may be smaller than those of the format.
    pub fn of(plan: Plan) -> FlowShell {
        FlowShell { plan: Arc::new(plan), runs: Mutex::default() }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<u64, FlowRun>> {
        lock(&self.runs)
    }

    /// Plays the start of a run.
    fn start(&self, code: &Arc<ShellCode>, input: &Payload) -> Option<crate::Result<Payload>> {
        let input = match input.read() {
            Ok(Value::Null) => Value::Object(Map::new()),
            Ok(input) => input,
            Err(error) => {
                let failure = Failure::fatal(format!("the input of a flow must be JSON: {error}"));
                return Some(Err(failure.with_code("invalid_input")));
            }
        };
        let id = code.read(|ctx| ctx.run_id().to_string()).ok()?;
        let (run, end) = FlowRun::start(code, self.plan.clone(), input, RunFacts { id });
        self.keep(code, run, end)
    }

    /// Keeps a run that has not ended.
    fn keep(&self, code: &ShellCode, run: FlowRun, end: Option<crate::Result<Payload>>) -> Option<crate::Result<Payload>> {
        if end.is_none() {
            self.runs().insert(code.number(), run);
        }
        end
    }

    fn answer(&self, code: &Arc<ShellCode>, call: u32, result: crate::Result<Payload>) -> Option<crate::Result<Payload>> {
        let mut run = self.runs().remove(&code.number())?;
        let end = run.answer(code, call, result);
        self.keep(code, run, end)
    }
}

impl Shell for FlowShell {
    fn activate(&self, code: &Arc<ShellCode>, activation: Activation) {
        let end = match activation {
            Activation::Start(input) => self.start(code, &input),
            Activation::Answer { call, result } => self.answer(code, call, result),
            Activation::Update(_) => None, // flows register no updates
        };
        code.hand_back(end);
    }

    /// Answers that flows have no queries: their progress is in the state of the run.
    fn query(&self, _: &Arc<ShellCode>, query: Query) {
        drop(query.answer.send(None)); // the caller may have gone
    }

    fn close(&self, code: &Arc<ShellCode>) {
        self.runs().remove(&code.number());
    }
}

/// Returns the name of the state that has the progress of a step.
pub fn progress_key(step: &str) -> String {
    format!("{PROGRESS_PREFIX}{step}")
}

#[cfg(test)]
mod tests;
