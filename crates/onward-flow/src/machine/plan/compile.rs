//! Compiles a flow: first the places of all steps, then the steps.

use std::collections::BTreeMap;

use serde_json::Value;

use super::kinds::{self, Firsts, Form};
use super::ways::{self, Places};
use super::{EachPlan, InputPlan, ItemsPlan, MachineLimits, MemoPlan, Place, Plan, PlanProblem, RetryPlan, StepPlan};
use crate::document::{Each, Flow, Memo, MemoRule, MemoScope, Retry, Step};
use crate::expression::{Expression, ExpressionError, Template};
use crate::machine::schema::Schema;

/// The time before the second attempt, without `backoff`.
const BACKOFF_MS: u64 = 1_000;

/// Collects problems with their paths.
#[derive(Default)]
pub struct Problems(Vec<PlanProblem>);

impl Problems {
    pub fn add(&mut self, path: &str, message: impl Into<String>) {
        self.0.push(PlanProblem { path: path.to_owned(), message: message.into() });
    }

    pub fn expression(&mut self, path: &str, source: &str) -> Option<Expression> {
        self.compiled(path, Expression::compile(source))
    }

    pub fn template(&mut self, path: &str, value: &Value) -> Option<Template> {
        self.compiled(path, Template::compile(value))
    }

    pub fn text(&mut self, path: &str, source: &str) -> Option<Template> {
        self.compiled(path, Template::of_text(source))
    }

    pub fn schema(&mut self, path: &str, schema: &Value) -> Option<Schema> {
        match Schema::compile(schema) {
            Ok(schema) => Some(schema),
            Err(message) => {
                self.add(path, format!("the schema is invalid: {message}"));
                None
            }
        }
    }

    fn compiled<T>(&mut self, path: &str, compiled: Result<T, ExpressionError>) -> Option<T> {
        match compiled {
            Ok(compiled) => Some(compiled),
            Err(error) => {
                self.add(path, error.message);
                None
            }
        }
    }
}

/// A list of steps with the numbers of the steps and the path of the list.
pub struct PlannedList<'a> {
    pub steps: &'a [Step],
    pub first: usize,
    pub path: String,
}

pub fn plan(flow: &Flow) -> Result<Plan, Vec<PlanProblem>> {
    let mut problems = Problems::default();
    let lists = lists(flow);
    let firsts: Firsts = lists.iter().filter_map(|list| Some((list.steps.first()? as *const Step, list.first))).collect();
    let mut steps = Vec::new();
    for list in &lists {
        let places = Places::new(list, &mut problems);
        for (at, step) in list.steps.iter().enumerate() {
            let path = format!("{}[{at}]", list.path);
            steps.extend(compiled(&Form { step, places: &places, firsts: &firsts, path: &path }, at, &mut problems));
        }
    }
    let inputs = inputs(flow, &mut problems);
    let output = flow.output.as_ref().and_then(|output| problems.template("output", output));
    if problems.0.is_empty() {
        ways::find_joins(&mut steps, &mut problems);
    }
    if !problems.0.is_empty() {
        return Err(problems.0);
    }
    let first = if flow.steps.is_empty() { Place::End } else { Place::Step(0) };
    Ok(Plan { inputs, steps, first, output, limits: MachineLimits::default() })
}

/// Returns all lists, that of the flow first. The steps of a list have consecutive numbers, in the order of the lists.
fn lists(flow: &Flow) -> Vec<PlannedList<'_>> {
    let mut lists = vec![PlannedList { steps: &flow.steps, first: 0, path: "steps".to_owned() }];
    let (mut at, mut numbered) = (0, flow.steps.len());
    while at < lists.len() {
        let (steps, path) = (lists[at].steps, lists[at].path.clone());
        for (number, step) in steps.iter().enumerate() {
            for (branch, steps) in step.parallel.iter().flatten() {
                lists.push(PlannedList { steps, first: numbered, path: format!("{path}[{number}].parallel.{branch}") });
                numbered += steps.len();
            }
        }
        at += 1;
    }
    lists
}

fn inputs(flow: &Flow, problems: &mut Problems) -> BTreeMap<String, InputPlan> {
    let mut inputs = BTreeMap::new();
    for (name, input) in &flow.inputs {
        let schema = Value::Object(input.schema.clone().into_iter().collect());
        if let Some(schema) = problems.schema(&format!("inputs.{name}"), &schema) {
            inputs.insert(name.clone(), InputPlan { default: input.default.clone(), schema });
        }
    }
    inputs
}

fn compiled(form: &Form<'_>, at: usize, problems: &mut Problems) -> Option<StepPlan> {
    let (step, path) = (form.step, form.path);
    let at_field = |field: &str| format!("{path}.{field}");
    let kind = kinds::compiled(form, problems);
    let each = step.each.as_ref().and_then(|each| compiled_each(each, &at_field("each.in"), problems));
    if each.is_some() && kind.as_ref().is_some_and(|kind| !kind.may_have_each()) {
        problems.add(&at_field("each"), "a step of this kind cannot run for several items");
    }
    let undo = step.on_failure.as_ref().and_then(|undo| kinds::compiled_undo(undo, path, problems));
    Some(StepPlan {
        name: step.name.clone(),
        follow: form.places.follow(at),
        when: step.when.as_ref().and_then(|when| problems.expression(&at_field("when"), when)),
        each,
        retry: compiled_retry(step.retry.as_ref()),
        timeout_ms: step.timeout.map(|timeout| timeout.as_ms()),
        memo: step.memo.as_ref().map(|memo| compiled_memo(memo, &at_field("memo.key"), problems)),
        catch: ways::compiled_catch(form, problems),
        output: step.output.as_ref().and_then(|output| problems.schema(&at_field("output"), output)),
        store: step.store.clone(),
        ways: ways::compiled(form, problems),
        undo,
        kind: kind?,
    })
}

fn compiled_memo(memo: &Memo, path: &str, problems: &mut Problems) -> MemoPlan {
    match memo {
        Memo::For(ttl) => MemoPlan { ttl_ms: ttl.as_ms(), key: None, scope: MemoScope::default() },
        Memo::Rule(MemoRule { ttl, key, scope }) => {
            let key = key.as_ref().and_then(|key| problems.text(path, key));
            MemoPlan { ttl_ms: ttl.as_ms(), key, scope: *scope }
        }
    }
}

fn compiled_each(each: &Each, path: &str, problems: &mut Problems) -> Option<EachPlan> {
    let items = match &each.items {
        Value::String(source) => ItemsPlan::Expression(problems.expression(path, source)?),
        items => ItemsPlan::Template(problems.template(path, items)?),
    };
    let concurrency = each.concurrency.max(1) as usize;
    Some(EachPlan { items, name: each.name.clone(), concurrency, collect_errors: each.collect_errors })
}

pub fn compiled_retry(retry: Option<&Retry>) -> RetryPlan {
    match retry {
        None => RetryPlan::default(),
        Some(Retry::Attempts(attempts)) => {
            RetryPlan { attempts: (*attempts).max(1), backoff_ms: BACKOFF_MS, ..RetryPlan::default() }
        }
        Some(Retry::Policy(policy)) => RetryPlan {
            attempts: policy.attempts.max(1),
            backoff_ms: policy.backoff.map_or(BACKOFF_MS, |backoff| backoff.as_ms()),
            backoff_max_ms: policy.backoff_max.map(|max| max.as_ms()),
            on: policy.on.clone(),
        },
    }
}
