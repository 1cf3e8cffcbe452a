//! How a path moves: a step begins, ends or fails, and the path goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::Machine;
use super::branches::BranchStart;
use super::each::StepWork;
use super::path::{Activity, PathId};
use super::plan::{KindPlan, MachineLimits, Place, StepPlan, Ways};
use super::turn::FlowFailure;
use crate::expression::{Scope, Template};

/// How many steps have begun, with the items of `each` that made no call.
#[derive(Debug, Default)]
pub struct Begins {
    in_turn: u32,
    all: u32,
}

impl Begins {
    pub fn end_turn(&mut self) {
        self.in_turn = 0;
    }

    fn count_step(&mut self) {
        (self.in_turn, self.all) = (self.in_turn + 1, self.all + 1);
    }

    /// Counts an item of `each` that is over without a call.
    pub fn count_item(&mut self) {
        self.in_turn += 1;
    }

    /// Returns why the flow is stuck.
    fn stuck(&self, limits: &MachineLimits) -> Option<String> {
        if self.in_turn > limits.begins_in_turn {
            let most = limits.begins_in_turn;
            return Some(format!("{most} steps and items have begun without waiting for a call; {ADVICE}"));
        }
        (self.all > limits.begins).then(|| format!("more than {} steps have begun", limits.begins))
    }
}

/// What helps a flow that does too much at once.
const ADVICE: &str = "put a step with a call or a wait between";

impl Machine {
    /// Returns the failure of a flow that does too much without waiting for a call. No `catch` takes it.
    pub(super) fn stuck(&self) -> Option<FlowFailure> {
        let limits = &self.plan.limits;
        let too_much = || {
            let most = limits.operations_in_turn;
            format!("the expressions take more than {most} operations without waiting for a call; {ADVICE}")
        };
        let message = self.begins.stuck(limits).or_else(|| self.budget.is_exceeded().then(too_much));
        message.map(|message| FlowFailure::permanent("flow_stuck", message))
    }

    /// Runs a path whose turn has come, until it waits or is over.
    pub(super) fn advance(&mut self, id: PathId) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        path.is_queued = false;
        let mut next = match path.activity {
            Activity::Ready(place) => Some(place),
            Activity::Joining(_) => self.check_join(id),
            Activity::Working(_) | Activity::Ended | Activity::Failed(..) => None,
        };
        while let Some(place) = next {
            self.put(id, Activity::Ready(place));
            next = match place {
                Place::Step(step) => self.begin(id, step),
                Place::End => {
                    self.end_path(id);
                    None
                }
            };
        }
    }

    /// Begins a step. Returns where the path goes if the step is over already.
    fn begin(&mut self, id: PathId, step: usize) -> Option<Place> {
        let plan = self.plan.clone();
        let plan = &plan.steps[step];
        if matches!(plan.kind, KindPlan::Join(_)) && self.paths[&id].arrives_at_joins() {
            self.end_path(id);
            return None;
        }
        self.begins.count_step();
        if let Some(failure) = self.stuck() {
            self.fail(failure.in_step(&plan.name));
            return None;
        }
        let scope = self.scope(id);
        match plan.when.as_ref().map(|when| when.is_true(&scope)) {
            Some(Ok(false)) => {
                self.progress.skipped(step, self.plan.place_name(plan.follow));
                self.path(id).last = Arc::default();
                return Some(plan.follow);
            }
            Some(Err(error)) => return self.fail_step(id, step, FlowFailure::of_expression(error)),
            Some(Ok(true)) | None => {}
        }
        self.progress.begun(step);
        match &plan.kind {
            KindPlan::Switch { on, .. } => match on.eval(&scope.share("result", self.paths[&id].last.clone())) {
                Ok(on) => {
                    let goto = plan.goto_of(&on);
                    self.complete(id, step, on, Some(goto))
                }
                Err(error) => self.fail_step(id, step, FlowFailure::of_expression(error)),
            },
            KindPlan::Parallel(branches) => match self.start_branches(id, branches.iter().map(BranchStart::of_branch)) {
                Ok(()) => self.complete(id, step, Value::Null, None),
                Err(failure) => self.fail_step(id, step, failure),
            },
            KindPlan::Join(_) => self.begin_join(id, step),
            _ => self.begin_work(id, step, scope),
        }
    }

    fn begin_work(&mut self, id: PathId, step: usize, scope: Scope) -> Option<Place> {
        let work = match &self.plan.steps[step].each {
            Some(each) => StepWork::each(step, each, scope, self.plan.limits.items),
            None => Ok(StepWork::one(step, scope)),
        };
        match work {
            Ok(work) => {
                if work.is_each() {
                    self.progress.counted(step, 0, work.counts().1);
                }
                self.put(id, Activity::Working(Box::new(work)));
            }
            Err(failure) => return self.fail_step(id, step, failure),
        }
        match self.fill(id)? {
            Ok(result) => self.complete(id, step, result, None),
            Err(failure) => self.fail_step(id, step, failure),
        }
    }

    /// Ends the step of a path after an answer. The path goes on before the branches that it has started.
    pub(super) fn end_step(&mut self, id: PathId, outcome: Result<Value, FlowFailure>) {
        let Some(step) = self.paths.get(&id).and_then(|path| path.activity.step()) else { return };
        let next = match outcome {
            Ok(result) => self.complete(id, step, result, None),
            Err(failure) => self.fail_step(id, step, failure),
        };
        if let Some(place) = next {
            self.put(id, Activity::Ready(place));
            self.path(id).is_queued = true;
            self.ready.push_front(id);
        }
    }

    /// Sets names of the state, all of them rendered with the state of before.
    pub(super) fn set(&mut self, id: PathId, set: &BTreeMap<String, Template>, scope: &Scope) -> Result<Value, FlowFailure> {
        let mut values = Vec::new();
        for (name, template) in set {
            values.push((name, template.render(scope).map_err(FlowFailure::of_expression)?));
        }
        let limits = self.plan.limits;
        let path = self.path(id);
        for (name, value) in values {
            path.state.set(name, value, &limits)?;
        }
        let (state, bytes) = (path.state.share(), path.state.bytes());
        self.budget.spend_copy(bytes);
        if let Some(work) = self.work(id) {
            work.see_state(state);
        }
        Ok(Value::Null)
    }

    /// Ends a step with a result: stores it, registers compensation and returns where the path goes.
    pub(super) fn complete(&mut self, id: PathId, step: usize, result: Value, goto: Option<Place>) -> Option<Place> {
        let plan = self.plan.clone();
        let plan = &plan.steps[step];
        // Gives up the work, and with it its share of the state.
        self.put(id, Activity::Ready(Place::Step(step)));
        let limits = self.plan.limits;
        let path = self.path(id);
        let stored = plan.store.as_ref().map_or(Ok(()), |store| path.state.set(store, result.clone(), &limits));
        path.last = Arc::new(result);
        if plan.store.is_some() {
            let bytes = path.state.bytes();
            self.budget.spend_copy(bytes);
        }
        let scope = self.scope(id).share("result", self.paths[&id].last.clone());
        if plan.each.is_none() {
            self.register_undo(step, &plan.name, &scope);
        }
        let ways = match goto {
            _ if stored.is_err() => stored.map(|()| (plan.follow, Vec::new())),
            Some(goto) => Ok((goto, vec![self.plan.place_name(goto)])),
            None => self.choose(id, step, &scope),
        };
        match ways {
            Ok((place, names)) => {
                self.progress.done(step, names);
                Some(place)
            }
            Err(failure) => self.fail_step(id, step, failure),
        }
    }

    /// Chooses where a path goes after a step, with the names of the steps that come next. Starts the branches of a fork.
    fn choose(&mut self, id: PathId, step: usize, scope: &Scope) -> Result<(Place, Vec<String>), FlowFailure> {
        let plan = self.plan.clone();
        let follow = plan.steps[step].follow;
        let (edges, is_fork) = match &plan.steps[step].ways {
            Ways::Follow => return Ok((follow, vec![plan.place_name(follow)])),
            Ways::First(edges) => (edges, false),
            Ways::All { edges, .. } => (edges, true),
        };
        let mut matching = Vec::new();
        for edge in edges {
            if edge.when.as_ref().map_or(Ok(true), |when| when.is_true(scope)).map_err(FlowFailure::of_expression)? {
                matching.push(edge);
                if !is_fork {
                    break;
                }
            }
        }
        let names = matching.iter().map(|edge| plan.place_name(edge.goto)).collect();
        match (&plan.steps[step].ways, matching.first()) {
            (_, None) => Ok((follow, vec![plan.place_name(follow)])),
            (Ways::All { join, .. }, Some(_)) => {
                self.start_branches(id, matching.into_iter().map(BranchStart::of_edge))?;
                Ok((*join, names))
            }
            (_, Some(edge)) => Ok((edge.goto, names)),
        }
    }

    /// Fails a step: the path goes where a `catch` leads, or fails.
    pub(super) fn fail_step(&mut self, id: PathId, step: usize, failure: FlowFailure) -> Option<Place> {
        let plan = self.plan.clone();
        let plan = &plan.steps[step];
        let failure = failure.in_step(&plan.name);
        self.put(id, Activity::Ready(Place::Step(step)));
        if let Some(stuck) = self.stuck() {
            self.progress.failed(step, Vec::new());
            self.fail(stuck.in_step(&plan.name));
            return None;
        }
        let Some(catch) = plan.catch.iter().find(|catch| failure.is_one_of(&catch.on)) else {
            self.progress.failed(step, Vec::new());
            self.fail_path(id, failure);
            return None;
        };
        self.progress.failed(step, vec![self.plan.place_name(catch.goto)]);
        let (error, limits) = (failure.to_value(), self.plan.limits);
        let path = self.path(id);
        let stored = catch.store.as_ref().map_or(Ok(()), |store| path.state.set(store, error.clone(), &limits));
        if let Err(failure) = stored {
            self.fail_path(id, failure.in_step(&plan.name));
            return None;
        }
        path.error = Some(Arc::new(error));
        path.last = Arc::default();
        Some(catch.goto)
    }

    /// Returns the names that expressions of the path's step can read.
    fn scope(&self, id: PathId) -> Scope {
        let path = &self.paths[&id];
        let names = self.names(&path.state);
        match &path.error {
            Some(error) => names.share("error", error.clone()),
            None => names,
        }
    }
}

impl StepPlan {
    /// Returns where a switch goes for a value.
    fn goto_of(&self, value: &Value) -> Place {
        let KindPlan::Switch { cases, default, .. } = &self.kind else { return self.follow };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        cases.get(&text).copied().or(*default).unwrap_or(self.follow)
    }
}
