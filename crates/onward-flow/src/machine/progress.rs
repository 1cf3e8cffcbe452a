//! Progress of steps, at most one report for each step in a turn.

use std::collections::BTreeMap;

use super::plan::Plan;
use super::turn::{Progress, ProgressState};

/// The number of updates of a step with `each` while its items run.
const UPDATES_MAX: u64 = 20;

#[derive(Debug)]
pub struct ProgressLog {
    /// How often each step has begun.
    times: Vec<u32>,
    /// The items of steps with `each`, of the last time that they began.
    items: BTreeMap<usize, (u32, u32)>,
    /// The changes of this turn by step.
    changes: BTreeMap<usize, ProgressChange>,
}

#[derive(Debug)]
struct ProgressChange {
    state: ProgressState,
    items: Option<(u32, u32)>,
    next: Vec<String>,
}

impl ProgressLog {
    pub fn new(steps: usize) -> ProgressLog {
        ProgressLog { times: vec![0; steps], items: BTreeMap::new(), changes: BTreeMap::new() }
    }

    /// Notes that a step has begun.
    pub fn begun(&mut self, step: usize) {
        self.times[step] += 1;
        self.items.remove(&step);
        self.change(step, ProgressState::Running, Vec::new());
    }

    /// Notes how many items of a step are done. Reports every twentieth part.
    pub fn counted(&mut self, step: usize, done: u32, of: u32) {
        let part = |done: u32| u64::from(done) * UPDATES_MAX / u64::from(of.max(1));
        let before = self.items.insert(step, (done, of));
        if before.is_none_or(|(before, _)| part(before) != part(done)) && (done < of || of == 0) {
            self.change(step, ProgressState::Running, Vec::new());
        }
    }

    pub fn skipped(&mut self, step: usize, next: String) {
        self.times[step] += 1;
        self.items.remove(&step);
        self.change(step, ProgressState::Skipped, vec![next]);
    }

    pub fn done(&mut self, step: usize, next: Vec<String>) {
        self.change(step, ProgressState::Done, next);
    }

    pub fn failed(&mut self, step: usize, next: Vec<String>) {
        self.change(step, ProgressState::Failed, next);
    }

    pub fn canceled(&mut self, step: usize) {
        self.change(step, ProgressState::Canceled, Vec::new());
    }

    fn change(&mut self, step: usize, state: ProgressState, next: Vec<String>) {
        let items = self.items.get(&step).copied();
        self.changes.insert(step, ProgressChange { state, items, next });
    }

    /// Returns the changes of the turn, in the order of the document.
    pub fn take(&mut self, plan: &Plan) -> Vec<Progress> {
        let changes = std::mem::take(&mut self.changes);
        let report = |(step, ProgressChange { state, items, next }): (usize, ProgressChange)| Progress {
            step: plan.steps[step].name.clone(),
            state,
            times: self.times[step],
            done: items.map(|(done, _)| done),
            of: items.map(|(_, of)| of),
            next,
        };
        changes.into_iter().map(report).collect()
    }
}
