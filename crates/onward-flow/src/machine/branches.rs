//! Branches: how paths start, end, fail and are canceled.

use std::sync::Arc;

use super::path::{Activity, Path, PathId};
use super::plan::{BranchPlan, EdgePlan, Place};
use super::turn::FlowFailure;
use super::{MAIN, Machine};

/// How a branch starts.
pub struct BranchStart {
    name: String,
    first: Place,
    is_fork: bool,
    may_be_joined: bool,
}

impl BranchStart {
    pub fn of_branch(branch: &BranchPlan) -> BranchStart {
        let BranchPlan { name, first, may_be_joined } = branch;
        BranchStart { name: name.clone(), first: *first, is_fork: false, may_be_joined: *may_be_joined }
    }

    pub fn of_edge(edge: &EdgePlan) -> BranchStart {
        BranchStart { name: edge.branch.clone(), first: edge.goto, is_fork: true, may_be_joined: edge.may_be_joined }
    }
}

impl Machine {
    pub(super) fn add_path(&mut self, path: Path) -> PathId {
        let id = self.paths_made;
        self.paths_made += 1;
        self.paths.insert(id, path);
        self.wake(id);
        id
    }

    /// Returns a path that runs.
    pub(super) fn path(&mut self, id: PathId) -> &mut Path {
        self.paths.get_mut(&id).expect("a step belongs to a path that exists")
    }

    pub(super) fn put(&mut self, id: PathId, activity: Activity) {
        self.path(id).activity = activity;
    }

    /// Puts a path into the queue of ready paths.
    pub(super) fn wake(&mut self, id: PathId) {
        if let Some(path) = self.paths.get_mut(&id)
            && path.is_running()
            && !path.is_queued
        {
            path.is_queued = true;
            self.ready.push_back(id);
        }
    }

    /// Starts branches with copies of the state and of the failure that was caught last.
    pub(super) fn start_branches(&mut self, id: PathId, starts: impl Iterator<Item = BranchStart>) -> Result<(), FlowFailure> {
        let starts: Vec<BranchStart> = starts.collect();
        let paths_max = self.plan.limits.paths;
        if self.paths.len() + starts.len() > paths_max {
            let message = format!("more than {paths_max} branches at the same time");
            return Err(FlowFailure::permanent("too_many_branches", message));
        }
        let (state, error) = (self.paths[&id].state.clone(), self.paths[&id].error.clone());
        let mut group = Vec::new();
        for BranchStart { name, first, is_fork, may_be_joined } in starts {
            let branch = self.add_path(Path {
                name,
                parent: Some(id),
                is_fork,
                may_be_joined,
                state: state.clone(),
                error: error.clone(),
                last: Arc::default(),
                groups: Vec::new(),
                activity: Activity::Ready(first),
                is_queued: false,
            });
            // A branch that no join can take goes on alone.
            group.extend(may_be_joined.then_some(branch));
        }
        if !group.is_empty() {
            self.path(id).groups.push(group);
        }
        Ok(())
    }

    /// Ends a path. Its branches are not joined any more: they go on alone, and a failure that was kept fails the flow.
    pub(super) fn end_path(&mut self, id: PathId) {
        self.put(id, Activity::Ended);
        let branches: Vec<PathId> = std::mem::take(&mut self.path(id).groups).into_iter().flatten().collect();
        if let Some(failure) = self.earliest_failure(&branches) {
            return self.fail(failure);
        }
        for branch in branches {
            if self.paths[&branch].is_running() {
                self.path(branch).may_be_joined = false;
            } else {
                self.paths.remove(&branch);
            }
        }
        self.leave(id);
    }

    /// Fails a path: its failure is kept for the join, or fails the flow. Its own branches are canceled.
    pub(super) fn fail_path(&mut self, id: PathId, failure: FlowFailure) {
        if !self.paths[&id].may_be_joined {
            return self.fail(failure);
        }
        let branches = std::mem::take(&mut self.path(id).groups);
        self.cancel_paths(branches.into_iter().flatten().collect());
        self.failures += 1;
        self.put(id, Activity::Failed(Box::new(failure), self.failures));
        self.leave(id);
    }

    /// Wakes the path that may join a branch which is over, and forgets the branch if none does.
    fn leave(&mut self, id: PathId) {
        let path = &self.paths[&id];
        match path.parent {
            Some(parent) if path.may_be_joined => {
                if matches!(self.paths[&parent].activity, Activity::Joining(_)) {
                    self.wake(parent);
                }
            }
            _ if id != MAIN => drop(self.paths.remove(&id)),
            _ => {}
        }
    }

    /// Cancels paths with their calls and with the branches that they have not joined.
    pub(super) fn cancel_paths(&mut self, mut ids: Vec<PathId>) {
        while let Some(id) = ids.pop() {
            self.cancel_items(id);
            let Some(path) = self.paths.remove(&id) else { continue };
            if let Some(step) = path.activity.step() {
                self.progress.canceled(step);
            }
            if let Activity::Joining(joining) = &path.activity
                && let Some(limit) = joining.limit
            {
                self.calls.cancel(limit);
            }
            if path.is_running() {
                ids.extend(path.groups.into_iter().flatten());
            }
        }
    }

    /// Returns the failure of branches that happened first.
    pub(super) fn earliest_failure(&self, branches: &[PathId]) -> Option<FlowFailure> {
        let failures = branches.iter().filter_map(|branch| match &self.paths[branch].activity {
            Activity::Failed(failure, number) => Some((*number, failure)),
            _ => None,
        });
        failures.min_by_key(|(number, _)| *number).map(|(_, failure)| FlowFailure::clone(failure))
    }
}
