//! Joins: a path waits for branches and takes their states.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::calls::Owner;
use super::path::{Activity, PathId};
use super::plan::{JoinPlan, KindPlan, Place};
use super::turn::{CallId, CallRequest, FlowFailure};
use super::{Machine, state};

/// A join that a path waits at.
#[derive(Debug)]
pub struct Joining {
    pub step: usize,
    branches: Vec<PathId>,
    /// The number of branches that it waits for.
    wait: usize,
    /// The sleep that limits its time.
    pub limit: Option<CallId>,
}

impl Machine {
    /// Begins a join. Returns where the path goes if it need not wait.
    pub(super) fn begin_join(&mut self, id: PathId, step: usize) -> Option<Place> {
        let plan = self.plan.clone();
        let KindPlan::Join(join) = &plan.steps[step].kind else { return None };
        let branches = self.branches_of(id, join);
        let wait = join.wait.map_or(branches.len(), |wait| wait.min(branches.len()));
        self.put(id, Activity::Joining(Joining { step, branches, wait, limit: None }));
        let next = self.check_join(id);
        if self.is_running()
            && let (None, Some(ms)) = (next, plan.steps[step].timeout_ms)
            && matches!(self.paths.get(&id).map(|path| &path.activity), Some(Activity::Joining(_)))
        {
            let label = format!("{}.timeout", plan.steps[step].name);
            let limit = self.calls.open(Owner::Join { path: id }, label, CallRequest::Sleep { ms }, 0);
            if let Activity::Joining(joining) = &mut self.path(id).activity {
                joining.limit = Some(limit);
            }
        }
        next
    }

    /// Returns the branches of a join: those of the last start, or the latest one of each name.
    fn branches_of(&self, id: PathId, join: &JoinPlan) -> Vec<PathId> {
        let groups = &self.paths[&id].groups;
        if join.branches.is_empty() {
            return groups.last().cloned().unwrap_or_default();
        }
        let names: BTreeSet<&String> = join.branches.iter().collect();
        let named = |name: &&String| {
            let mut latest_first = groups.iter().rev().flatten();
            latest_first.find(|branch| self.paths[branch].name == **name).copied()
        };
        names.iter().filter_map(named).collect()
    }

    /// Ends the join of a path if enough branches have ended, or too few are left. Returns where the path goes then.
    pub(super) fn check_join(&mut self, id: PathId) -> Option<Place> {
        let Activity::Joining(Joining { step, branches, wait, .. }) = &self.paths[&id].activity else { return None };
        let (step, wait) = (*step, *wait);
        let count = |is: fn(&Activity) -> bool| branches.iter().filter(|branch| is(&self.paths[branch].activity)).count();
        let ended = count(|activity| matches!(activity, Activity::Ended));
        let failed = count(|activity| matches!(activity, Activity::Failed(..)));
        if ended >= wait {
            match self.take_branches(id, step) {
                Ok(result) => self.complete(id, step, result, None),
                Err(failure) => self.fail_step(id, step, failure),
            }
        } else if branches.len() - failed < wait {
            let failure = self.earliest_failure(branches)?;
            self.leave_join(id);
            self.fail_step(id, step, failure)
        } else {
            None
        }
    }

    /// Fails a join whose time is over, or whose sleep failed.
    pub(super) fn end_join_in_time(&mut self, id: PathId, result: Result<Value, FlowFailure>) {
        let Some(step) = self.paths.get(&id).and_then(|path| path.activity.step()) else { return };
        let ms = self.plan.steps[step].timeout_ms.unwrap_or_default();
        self.leave_join(id);
        self.end_step(id, Err(result.err().unwrap_or_else(|| FlowFailure::timed_out(ms))));
    }

    /// Takes the states of the branches that have ended, by name, and what `take` names into the state of the path.
    fn take_branches(&mut self, id: PathId, step: usize) -> Result<Value, FlowFailure> {
        let Activity::Joining(joining) = &self.paths[&id].activity else { return Ok(Value::Null) };
        let ended = joining.branches.iter().map(|branch| &self.paths[branch]);
        let ended = ended.filter(|branch| matches!(branch.activity, Activity::Ended));
        let (plan, limits) = (self.plan.clone(), self.plan.limits);
        let bytes: usize = ended.clone().map(|branch| branch.state.bytes()).sum();
        if bytes > limits.state_bytes {
            self.leave_join(id);
            return Err(state::too_large(format!(
                "the states of the branches have {bytes} bytes, more than {}",
                limits.state_bytes
            )));
        }
        let states: Map<String, Value> = ended.map(|branch| (branch.name.clone(), branch.state.to_value())).collect();
        self.budget.spend_copy(bytes);
        self.leave_join(id);
        if let KindPlan::Join(join) = &plan.steps[step].kind {
            for (name, source) in &join.take {
                if let Some(value) = taken(&states, source) {
                    self.path(id).state.set(name, value.clone(), &limits)?;
                }
            }
        }
        Ok(Value::Object(states))
    }

    /// Forgets the branches of the join, and cancels those that run.
    fn leave_join(&mut self, id: PathId) {
        let Activity::Joining(joining) = &mut self.path(id).activity else { return };
        let (branches, limit) = (std::mem::take(&mut joining.branches), joining.limit.take());
        limit.into_iter().for_each(|limit| self.calls.cancel(limit));
        let path = self.path(id);
        path.groups.iter_mut().for_each(|group| group.retain(|branch| !branches.contains(branch)));
        path.groups.retain(|group| !group.is_empty());
        self.cancel_paths(branches);
    }
}

/// Returns the state of a branch, or a name of it: `branch`, `branch.name`.
fn taken<'a>(states: &'a Map<String, Value>, source: &str) -> Option<&'a Value> {
    match source.split_once('.') {
        Some((branch, name)) => states.get(branch)?.get(name),
        None => states.get(source),
    }
}
