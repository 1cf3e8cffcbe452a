//! The items of a step: one, or those of `each`, at most `concurrency` of them open at once (FW3).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Machine;
use super::attempt::ItemAttempt;
use super::path::{Activity, PathId};
use super::plan::{EachPlan, ItemsPlan, StepPlan};
use super::turn::FlowFailure;
use crate::expression::Scope;

/// The name of the index or key of an item in expressions.
const KEY: &str = "key";

/// A step with calls that is under way.
#[derive(Debug)]
pub struct StepWork {
    pub step: usize,
    /// The names of the step, without those of the item.
    scope: Scope,
    keys: Keys,
    items: Vec<Arc<Value>>,
    next: usize,
    /// The items that are under way.
    pub open: BTreeMap<u32, ItemAttempt>,
    results: Vec<Value>,
    done: usize,
}

#[derive(Debug)]
enum Keys {
    /// The step runs once.
    One,
    List,
    Map(Vec<String>),
}

impl StepWork {
    pub fn one(step: usize, scope: Scope) -> StepWork {
        StepWork::new(step, scope, Keys::One, vec![Arc::default()])
    }

    /// Evaluates the items of a step with `each`.
    pub fn each(step: usize, each: &EachPlan, scope: Scope, items_max: usize) -> Result<StepWork, FlowFailure> {
        let items = match &each.items {
            ItemsPlan::Expression(items) => items.eval(&scope),
            ItemsPlan::Template(items) => items.render(&scope),
        };
        let (keys, items) = match items.map_err(FlowFailure::of_expression)? {
            Value::Array(items) => (Keys::List, items),
            Value::Object(items) => {
                let (keys, items) = items.into_iter().unzip();
                (Keys::Map(keys), items)
            }
            _ => return Err(FlowFailure::permanent("expression_failed", "`each.in` is neither a list nor a map")),
        };
        if items.len() > items_max {
            let message = format!("`each.in` has {} items, more than {items_max}", items.len());
            return Err(FlowFailure::permanent("too_many_items", message));
        }
        Ok(StepWork::new(step, scope, keys, items.into_iter().map(Arc::new).collect()))
    }

    fn new(step: usize, scope: Scope, keys: Keys, items: Vec<Arc<Value>>) -> StepWork {
        let results = vec![Value::Null; items.len()];
        StepWork { step, scope, keys, items, next: 0, open: BTreeMap::new(), results, done: 0 }
    }

    /// Returns the label of the calls of an item.
    pub fn label(&self, plan: &StepPlan, item: u32) -> String {
        match &self.keys {
            Keys::One => plan.name.clone(),
            Keys::List => format!("{}[{item}]", plan.name),
            Keys::Map(keys) => format!("{}[{}]", plan.name, keys[item as usize]),
        }
    }

    /// Returns the names of an item.
    pub fn scope(&self, plan: &StepPlan, item: u32) -> Scope {
        let key = match &self.keys {
            Keys::One => return self.scope.clone(),
            Keys::List => json!(item),
            Keys::Map(keys) => json!(keys[item as usize]),
        };
        let name = plan.each.as_ref().map_or("item", |each| &each.name);
        self.scope.clone().with(KEY, &key).share(name, self.items[item as usize].clone())
    }

    /// Replaces the state that the next items see, after `set`.
    pub fn see_state(&mut self, state: Arc<Value>) {
        self.scope = self.scope.clone().share("state", state);
    }

    pub fn is_each(&self) -> bool {
        !matches!(self.keys, Keys::One)
    }

    pub fn counts(&self) -> (u32, u32) {
        (self.done as u32, self.items.len() as u32)
    }

    fn finish(&mut self, item: u32, result: Value) {
        self.open.remove(&item);
        self.results[item as usize] = result;
        self.done += 1;
    }

    /// Takes the next item, if there is room for it.
    fn take_next(&mut self, concurrency: usize) -> Option<u32> {
        let has_next = self.next < self.items.len() && self.open.len() < concurrency;
        has_next.then(|| {
            self.next += 1;
            (self.next - 1) as u32
        })
    }

    fn result(&mut self) -> Value {
        let mut results = std::mem::take(&mut self.results);
        match &mut self.keys {
            Keys::One => results.pop().unwrap_or_default(),
            Keys::List => Value::Array(results),
            Keys::Map(keys) => Value::Object(std::mem::take(keys).into_iter().zip(results).collect::<Map<_, _>>()),
        }
    }
}

/// What became of an item or a step: nothing yet, or its end.
pub type Outcome = Option<Result<Value, FlowFailure>>;

impl Machine {
    /// Begins the items for which there is room.
    pub(super) fn fill(&mut self, path: PathId) -> Outcome {
        loop {
            let step = self.work(path)?.step;
            let concurrency = self.plan.steps[step].each.as_ref().map_or(1, |each| each.concurrency);
            let work = self.work(path)?;
            if work.done == work.items.len() {
                return Some(Ok(work.result()));
            }
            // Further items wait for an answer of an open one.
            let has_room = self.calls.bytes() <= self.plan.limits.open_bytes && !self.budget.is_half_spent();
            let item = self.work(path)?.take_next(if has_room { concurrency } else { 1 })?;
            let outcome = self.attempt(path, item, 1);
            if outcome.is_some() && self.work(path)?.is_each() {
                self.begins.count_item();
            }
            if let Some(outcome) = outcome
                && let Some(failure) = self.settle(path, item, outcome)
            {
                return Some(Err(failure));
            }
            if let Some(stuck) = self.stuck() {
                self.cancel_items(path);
                return Some(Err(stuck));
            }
        }
    }

    /// Notes the end of an item. Returns the failure if it ends the step.
    pub(super) fn settle(&mut self, path: PathId, item: u32, outcome: Result<Value, FlowFailure>) -> Option<FlowFailure> {
        let plan = self.plan.clone();
        let step = self.work(path)?.step;
        let (is_each, label) = (self.work(path)?.is_each(), self.work(path)?.label(&plan.steps[step], item));
        let result = match outcome {
            Ok(result) => {
                if is_each {
                    let scope = self.work(path)?.scope(&plan.steps[step], item).with("result", &result);
                    self.register_undo(step, &label, &scope);
                }
                result
            }
            Err(failure) => {
                let failure = failure.in_step(&plan.steps[step].name);
                let is_collected = plan.steps[step].each.as_ref().is_some_and(|each| each.collect_errors);
                if !is_collected || failure.is_canceled() || self.stuck().is_some() {
                    self.cancel_items(path);
                    return Some(failure);
                }
                json!({ "error": failure.to_value() })
            }
        };
        let work = self.work(path)?;
        work.finish(item, result);
        if is_each {
            let (done, of) = work.counts();
            self.progress.counted(step, done, of);
        }
        None
    }

    /// Cancels the calls of the items that are under way.
    pub(super) fn cancel_items(&mut self, path: PathId) {
        let Some(work) = self.work(path) else { return };
        let open = std::mem::take(&mut work.open);
        open.into_values().flat_map(ItemAttempt::into_calls).for_each(|call| self.calls.cancel(call));
    }

    /// Returns the step with calls that a path is at.
    pub(super) fn work(&mut self, path: PathId) -> Option<&mut StepWork> {
        match &mut self.paths.get_mut(&path)?.activity {
            Activity::Working(work) => Some(work),
            _ => None,
        }
    }
}
