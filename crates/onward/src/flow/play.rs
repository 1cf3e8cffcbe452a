//! One run of a flow: its machine, and its open calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use onward_core::{Failure, Name, Payload};
use onward_flow::machine::{CallId, FlowFailure, Machine, Plan, Progress, RunFacts, Turn};
use serde_json::Value;

use super::failures::{from_failure, to_failure};
use super::open::{OpenCall, open};
use super::progress_key;
use crate::Result;
use crate::shell::{Opened, ShellCode, Stopped};

/// The largest number of calls that may fail in one activation without having been made; a loop of such calls would not end.
const REFUSED_MAX: usize = 1_000;

/// The number of failures that are kept to find that with which a run ends.
const FAILURES_KEPT: usize = 32;

/// The answer of a call, for the machine.
pub(super) type CallAnswer = Result<Value, FlowFailure>;

pub(super) struct FlowRun {
    machine: Machine,
    /// The open calls, by their number in the code.
    calls: BTreeMap<u32, CallId>,
    numbers: BTreeMap<CallId, OpenNumber>,
    /// Answers that came with their calls, in the order of the calls.
    answered: VecDeque<(CallId, CallAnswer)>,
    refused: usize,
    /// The last failures of calls, as the log has them.
    failures: VecDeque<Failure>,
}

#[derive(Clone, Copy)]
struct OpenNumber {
    number: u32,
    /// The call is a task or a child, which goes on unless it is canceled.
    goes_on: bool,
}

impl FlowRun {
    /// Starts the machine and makes its first calls; returns the end of the run, if it ends.
    pub fn start(code: &Arc<ShellCode>, plan: Arc<Plan>, input: Value, facts: RunFacts) -> (FlowRun, Option<Result<Payload>>) {
        let (machine, turn) = Machine::start(plan, input, facts);
        let (calls, numbers) = (BTreeMap::new(), BTreeMap::new());
        let mut run = FlowRun { machine, calls, numbers, answered: VecDeque::new(), refused: 0, failures: VecDeque::new() };
        let end = run.play(code, turn).unwrap_or(None);
        (run, end)
    }

    /// Gives the machine an answer and makes its next calls; returns the end of the run, if it ends.
    pub fn answer(&mut self, code: &Arc<ShellCode>, number: u32, result: Result<Payload>) -> Option<Result<Payload>> {
        let id = self.calls.remove(&number)?;
        self.numbers.remove(&id);
        let answer = self.read(result);
        let turn = self.machine.answer(id, answer);
        self.play(code, turn).unwrap_or(None)
    }

    /// Plays turns until no call is answered (FP1). Stops early if the run cannot continue; the engine has the reason.
    fn play(&mut self, code: &Arc<ShellCode>, turn: Turn) -> Result<Option<Result<Payload>>, Stopped> {
        let mut turn = turn;
        self.refused = 0;
        loop {
            let Turn { cancels, calls, progress, end, undoes } = turn;
            for id in cancels {
                self.cancel(code, id)?;
            }
            if undoes {
                code.with(|ctx| ctx.cell.lock().engine.begin_undo())?;
            }
            for call in calls {
                let id = call.id;
                match open(code, call)? {
                    OpenCall::Opened { opened: Opened::Waits(number), goes_on } => {
                        self.calls.insert(number, id);
                        self.numbers.insert(id, OpenNumber { number, goes_on });
                    }
                    OpenCall::Opened { opened: Opened::Answered(_, result), .. } => {
                        let answer = self.read(result);
                        self.answered.push_back((id, answer));
                    }
                    OpenCall::Refused(failure) => {
                        self.refused += 1;
                        self.answered.push_back((id, Err(failure)));
                    }
                }
            }
            // A failed run that is retried begins again at the failed call: nothing may come after it but the end (Z1).
            for progress in progress.iter().filter(|_| !matches!(end, Some(Err(_)))) {
                report(code, progress)?;
            }
            if let Some(end) = end {
                return Ok(Some(end.map_err(|failure| self.recorded(failure)).and_then(|output| Ok(Payload::json(&output)?))));
            }
            if self.refused > REFUSED_MAX {
                let failure = Failure::fatal("a loop of the flow makes only calls that cannot be made").with_code("flow_stuck");
                return Ok(Some(Err(failure)));
            }
            let Some((id, answer)) = self.answered.pop_front() else { return Ok(None) };
            turn = self.machine.answer(id, answer);
        }
    }

    /// Reads the answer of a call.
    fn read(&mut self, result: Result<Payload>) -> CallAnswer {
        let read = |payload: Payload| payload.read().map_err(|error| Failure::fatal(format!("the answer is not JSON: {error}")));
        result.and_then(read).map_err(|failure| {
            let answer = from_failure(&failure);
            self.failures.push_back(failure);
            if self.failures.len() > FAILURES_KEPT {
                self.failures.pop_front();
            }
            answer
        })
    }

    /// Returns the failure of the run: that of the call, with the step in its details, so that a retry finds the call.
    fn recorded(&self, failure: FlowFailure) -> Failure {
        let of_call = self.failures.iter().find(|of_call| {
            let of_call = from_failure(of_call);
            (&of_call.code, &of_call.message) == (&failure.code, &failure.message)
        });
        let failure = to_failure(failure);
        match of_call {
            Some(of_call) => Failure { details: failure.details, ..of_call.clone() },
            None => failure,
        }
    }

    /// Drops a call that the machine no longer needs.
    fn cancel(&mut self, code: &ShellCode, id: CallId) -> Result<(), Stopped> {
        self.answered.retain(|(answered, _)| *answered != id);
        let Some(OpenNumber { number, goes_on }) = self.numbers.remove(&id) else { return Ok(()) };
        self.calls.remove(&number);
        if goes_on {
            code.cancel_call(number)?;
        }
        code.drop_call(number)
    }
}

/// Stores the progress of a step in the state of the run.
fn report(code: &ShellCode, progress: &Progress) -> Result<(), Stopped> {
    let key = progress_key(&progress.step);
    if Name::new(&key).is_err() {
        return Ok(()); // FP2
    }
    code.with(|ctx| ctx.state().set(&key, progress)).map(drop) // it is small
}
