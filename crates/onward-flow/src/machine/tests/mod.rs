//! The semantics of flows, rule by rule. Random flows are in `tests/machine`.

mod branches;
mod each;
mod failing;
mod limits;
mod steps;
mod time;
mod undo;
mod ways;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Call, CallId, CallRequest, FlowFailure, Machine, MachineLimits, Plan, Progress, RunFacts, Turn};
use crate::document::{self, Known, Severity};

/// A run that is played by hand.
struct Play {
    machine: Machine,
    open: BTreeMap<CallId, Call>,
    progress: Vec<Progress>,
    last: Turn,
}

/// Reads the steps of a flow.
#[track_caller]
fn plan(steps: &str) -> Plan {
    let text = format!("flow: f\n{steps}");
    let parsed = document::parse(&text, "f.yaml");
    let problems = document::check(&parsed, &Known::default());
    let errors: Vec<String> =
        problems.iter().filter(|problem| problem.severity == Severity::Error).map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    Plan::new(&parsed.flow.expect("a document without errors has a flow")).expect("a checked flow has a plan")
}

#[track_caller]
fn play(steps: &str) -> Play {
    Play::start(plan(steps), json!({}))
}

impl Play {
    fn start(plan: Plan, input: Value) -> Play {
        let (machine, turn) = Machine::start(Arc::new(plan), input, RunFacts { id: "run-1".to_owned() });
        let mut play = Play { machine, open: BTreeMap::new(), progress: Vec::new(), last: Turn::default() };
        play.take(turn);
        play
    }

    #[track_caller]
    fn take(&mut self, turn: Turn) {
        for call in &turn.cancels {
            assert!(self.open.remove(call).is_some(), "FW2: {call} is canceled but not open");
        }
        self.open.extend(turn.calls.iter().map(|call| (call.id, call.clone())));
        self.progress.extend(turn.progress.clone());
        assert_eq!(self.machine.has_ended(), self.open.is_empty(), "FW4, FW5");
        self.last = turn;
    }

    /// Returns the labels of the open calls.
    fn open(&self) -> Vec<&str> {
        self.open.values().map(|call| call.label.as_str()).collect()
    }

    #[track_caller]
    fn call(&self, label: &str) -> &Call {
        let call = self.open.values().find(|call| call.label == label);
        call.unwrap_or_else(|| panic!("`{label}` is not open, but {:?}", self.open()))
    }

    #[track_caller]
    fn request(&self, label: &str) -> &CallRequest {
        &self.call(label).request
    }

    #[track_caller]
    fn answer(&mut self, label: &str, answer: Result<Value, FlowFailure>) {
        let id = self.call(label).id;
        self.open.remove(&id);
        let turn = self.machine.answer(id, answer);
        self.take(turn);
    }

    #[track_caller]
    fn ok(&mut self, label: &str, value: Value) {
        self.answer(label, Ok(value));
    }

    #[track_caller]
    fn fail(&mut self, label: &str, code: &str) {
        self.answer(label, Err(retryable(code)));
    }

    #[track_caller]
    fn output(&self) -> &Value {
        match &self.last.end {
            Some(Ok(output)) => output,
            other => panic!("the flow has not completed, but {other:?}; open: {:?}", self.open()),
        }
    }

    #[track_caller]
    fn failure(&self) -> &FlowFailure {
        match &self.last.end {
            Some(Err(failure)) => failure,
            other => panic!("the flow has not failed, but {other:?}; open: {:?}", self.open()),
        }
    }

    /// Returns the last progress of a step, as text.
    fn progress(&self, step: &str) -> String {
        let last = self.progress.iter().rev().find(|progress| progress.step == step);
        last.map(|progress| format!("{:?} {} {:?}", progress.state, progress.times, progress.next)).unwrap_or_default()
    }
}

fn retryable(code: &str) -> FlowFailure {
    FlowFailure { retryable: true, ..FlowFailure::permanent(code, "it failed") }
}
