//! A flow prepared for runs: steps with numbers, ways that are resolved, expressions and schemas that are compiled.

mod compile;
mod kinds;
mod ways;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

pub use kinds::{BranchPlan, JoinPlan, KindPlan, SleepPlan, UndoAct, UndoPlan};
pub use ways::{CatchPlan, EdgePlan, Ways};

use super::schema::Schema;
use crate::document::{Flow, MemoScope};
use crate::expression::{Expression, Template};

/// A flow prepared for runs. One plan serves any number of runs.
#[derive(Debug)]
pub struct Plan {
    pub(super) inputs: BTreeMap<String, InputPlan>,
    pub(super) steps: Vec<StepPlan>,
    pub(super) first: Place,
    pub(super) output: Option<Template>,
    pub(super) limits: MachineLimits,
}

/// What a run may use. The defaults are those of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineLimits {
    /// The items of a step with `each`.
    pub items: usize,
    /// The steps, and the items of `each` without a call, that may begin within one turn, which is without waiting for a call.
    pub begins_in_turn: u32,
    /// The operations of all expressions within one turn.
    pub operations_in_turn: usize,
    /// The steps that may begin in a run.
    pub begins: u32,
    /// The paths that exist at the same time.
    pub paths: usize,
    /// The bytes of the state of a path, and of the result of a join, as JSON.
    pub state_bytes: usize,
    /// The bytes of the inputs of all open calls as JSON, above which `each` begins no further items.
    pub open_bytes: usize,
    /// The lists and maps inside of each other in a value of the state.
    pub depth: usize,
}

impl Default for MachineLimits {
    fn default() -> MachineLimits {
        MachineLimits {
            items: 10_000,
            begins_in_turn: 20_000,
            operations_in_turn: 2_000_000,
            begins: 1_000_000,
            paths: 10_000,
            state_bytes: 16 * 1024 * 1024,
            open_bytes: 16 * 1024 * 1024,
            depth: 100,
        }
    }
}

/// Why a flow cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanProblem {
    /// The place in the document: `steps[2].next[0].goto`.
    pub path: String,
    pub message: String,
}

impl fmt::Display for PlanProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for PlanProblem {}

impl Plan {
    /// Prepares a flow, or returns all problems that prevent it from running.
    pub fn new(flow: &Flow) -> Result<Plan, Vec<PlanProblem>> {
        compile::plan(flow)
    }

    /// Returns the plan with other limits, for tests.
    #[must_use]
    pub fn limited(self, limits: MachineLimits) -> Plan {
        Plan { limits, ..self }
    }

    /// Returns the name of the step that a way leads to, or `end`.
    pub(super) fn place_name(&self, place: Place) -> String {
        match place {
            Place::Step(step) => self.steps[step].name.clone(),
            Place::End => crate::document::END.to_owned(),
        }
    }
}

/// Where a path goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Step(usize),
    End,
}

#[derive(Debug)]
pub struct InputPlan {
    pub default: Option<Value>,
    pub schema: Schema,
}

#[derive(Debug)]
pub struct StepPlan {
    pub name: String,
    pub kind: KindPlan,
    /// The step that follows in its list.
    pub follow: Place,
    pub when: Option<Expression>,
    pub each: Option<EachPlan>,
    pub retry: RetryPlan,
    pub timeout_ms: Option<u64>,
    pub memo: Option<MemoPlan>,
    pub catch: Vec<CatchPlan>,
    /// The schema of the result.
    pub output: Option<Schema>,
    pub store: Option<String>,
    pub ways: Ways,
    pub undo: Option<UndoPlan>,
}

#[derive(Debug)]
pub struct MemoPlan {
    pub ttl_ms: u64,
    pub key: Option<Template>,
    pub scope: MemoScope,
}

#[derive(Debug)]
pub struct EachPlan {
    pub items: ItemsPlan,
    pub name: String,
    pub concurrency: usize,
    pub collect_errors: bool,
}

#[derive(Debug)]
pub enum ItemsPlan {
    Expression(Expression),
    Template(Template),
}

/// How often a step is attempted, by the engine or by the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryPlan {
    /// 0 without `retry`.
    pub attempts: u32,
    pub backoff_ms: u64,
    pub backoff_max_ms: Option<u64>,
    pub on: Vec<String>,
}
