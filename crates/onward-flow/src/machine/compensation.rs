//! Compensation: what undoes completed steps if the flow fails (FW6).

use std::sync::Arc;

use serde_json::{Value, json};

use super::calls::Owner;
use super::turn::{CallRequest, FlowFailure};
use super::{Machine, Phase};
use crate::expression::{Budget, Scope};

/// The attempts of a compensation without `retry`.
pub const ATTEMPTS: u32 = 10;

/// Compensation of a completed step or item, rendered when it completed.
#[derive(Debug)]
pub struct PendingUndo {
    step: usize,
    label: String,
    request: Result<CallRequest, FlowFailure>,
}

/// A failed flow whose compensation runs.
#[derive(Debug)]
pub struct Undone {
    /// The failure of the flow.
    failure: FlowFailure,
    /// The step whose compensation runs.
    step: usize,
    /// What could not be undone.
    failed: Vec<Value>,
    /// Whether compensation begins in this turn.
    pub is_new: bool,
}

impl Machine {
    /// Registers the compensation of a step or item that has completed.
    pub(super) fn register_undo(&mut self, step: usize, label: &str, scope: &Scope) {
        if let Some(undo) = &self.plan.steps[step].undo {
            // It is rendered even if it exceeds the budget of the turn: the step is complete, so it must be undone.
            let budget = Arc::new(Budget::new(usize::MAX));
            let request = undo.request(&scope.clone().within(budget.clone()));
            self.budget.spend(budget.spent());
            self.undoes.push(PendingUndo { step, label: format!("{label}.undo"), request });
        }
    }

    pub(super) fn begin_undo(&mut self, failure: FlowFailure) {
        self.phase = Phase::Undoing(Undone { failure, step: 0, failed: Vec::new(), is_new: !self.undoes.is_empty() });
        self.undo_next();
    }

    pub(super) fn answer_undo(&mut self, result: Result<Value, FlowFailure>) {
        if let (Phase::Undoing(undone), Err(failure)) = (&mut self.phase, result) {
            let step = self.plan.steps[undone.step].name.clone();
            undone.failed.push(failed_undo(step, &failure));
        }
        self.undo_next();
    }

    /// Makes the call that undoes the latest step that is not undone yet, or ends the flow.
    fn undo_next(&mut self) {
        let Phase::Undoing(undone) = &mut self.phase else { return };
        while let Some(PendingUndo { step, label, request }) = self.undoes.pop() {
            match request {
                Ok(request) => {
                    undone.step = step;
                    let bytes = request.bytes();
                    self.calls.open(Owner::Undo, label, request, bytes);
                    return;
                }
                Err(failure) => undone.failed.push(failed_undo(self.plan.steps[step].name.clone(), &failure)),
            }
        }
        let mut failure = undone.failure.clone();
        if !undone.failed.is_empty() {
            failure.details = Some(with_failed(failure.details, std::mem::take(&mut undone.failed)));
        }
        self.phase = Phase::Ended(Some(Err(failure)));
    }
}

fn failed_undo(step: String, failure: &FlowFailure) -> Value {
    json!({ "step": step, "code": failure.code, "message": failure.message })
}

/// Adds the failed compensation to the details of a failure.
fn with_failed(details: Option<Value>, failed: Vec<Value>) -> Value {
    match details {
        Some(Value::Object(mut details)) => {
            details.insert("compensation".to_owned(), Value::Array(failed));
            Value::Object(details)
        }
        None | Some(Value::Null) => json!({ "compensation": failed }),
        Some(details) => json!({ "compensation": failed, "details": details }),
    }
}
