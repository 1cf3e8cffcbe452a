//! The kinds of steps, compiled.

use std::collections::BTreeMap;

use serde_json::Value;

use super::compile::{Problems, compiled_retry};
use super::ways::Places;
use super::{Place, RetryPlan};
use crate::document::{Action, Join, JoinCount, JoinWord, Span, Step, Undo};
use crate::expression::{Expression, Template};
use crate::machine::compensation;

#[derive(Debug)]
pub enum KindPlan {
    Prompt { prompt: Template, model: Option<String>, system: Option<Template> },
    Agent { agent: String, prompt: Template },
    Task { kind: String, input: Template, queue: Option<String> },
    Action { action: Action, arguments: Template },
    Approval { title: Template, show: Option<Template>, deciders: Vec<Template>, answer: Option<Value>, within_ms: Option<u64> },
    Wait { signal: Template, within_ms: Option<u64> },
    Sleep(SleepPlan),
    Child { kind: String, input: Template },
    Set(BTreeMap<String, Template>),
    Parallel(Vec<BranchPlan>),
    Join(JoinPlan),
    Switch { on: Expression, cases: BTreeMap<String, Place>, default: Option<Place> },
}

#[derive(Debug)]
pub enum SleepPlan {
    Ms(u64),
    /// Seconds as a number, or a duration as text.
    Template(Template),
}

#[derive(Debug)]
pub struct BranchPlan {
    pub name: String,
    pub first: Place,
    pub may_be_joined: bool,
}

#[derive(Debug)]
pub struct JoinPlan {
    pub branches: Vec<String>,
    /// The number of branches; all without one.
    pub wait: Option<usize>,
    pub take: BTreeMap<String, String>,
}

/// The compensation of a step.
#[derive(Debug)]
pub struct UndoPlan {
    pub act: UndoAct,
    pub with: Template,
    pub retry: RetryPlan,
}

#[derive(Debug)]
pub enum UndoAct {
    Task(String),
    Action(Action),
}

/// The number of the first step of each list, by that step.
pub type Firsts = BTreeMap<*const Step, usize>;

/// A step of a document with what surrounds it.
pub struct Form<'a> {
    pub step: &'a Step,
    pub places: &'a Places<'a>,
    pub firsts: &'a Firsts,
    pub path: &'a str,
}

impl KindPlan {
    pub fn may_have_each(&self) -> bool {
        !matches!(self, KindPlan::Parallel(_) | KindPlan::Join(_) | KindPlan::Switch { .. })
    }
}

/// Compiles the kind of a step. Of several kinds, which the check of documents refuses, the first one in this order.
pub fn compiled(form: &Form<'_>, problems: &mut Problems) -> Option<KindPlan> {
    let (step, path) = (form.step, |field: &str| format!("{}.{field}", form.path));
    if let Some(prompt) = &step.prompt {
        return compiled_prompt(form, prompt, problems);
    }
    let within_ms = step.within.map(Span::as_ms);
    if let Some(kind) = &step.task {
        let input = compiled_with(step.with.as_ref(), form.path, problems)?;
        Some(KindPlan::Task { kind: kind.clone(), input, queue: step.queue.clone() })
    } else if let Some(action) = step.action {
        let arguments = compiled_with(step.with.as_ref(), form.path, problems)?;
        Some(KindPlan::Action { action, arguments })
    } else if let Some(title) = &step.approval {
        compiled_approval(form, title, within_ms, problems)
    } else if let Some(signal) = &step.wait {
        Some(KindPlan::Wait { signal: problems.text(&path("wait"), signal)?, within_ms })
    } else if let Some(sleep) = &step.sleep {
        compiled_sleep(sleep, &path("sleep"), problems)
    } else if let Some(kind) = &step.child {
        let input = compiled_with(step.with.as_ref(), form.path, problems)?;
        Some(KindPlan::Child { kind: kind.clone(), input })
    } else if let Some(set) = &step.set {
        let compiled =
            set.iter().map(|(name, value)| Some((name.clone(), problems.template(&path(&format!("set.{name}")), value)?)));
        Some(KindPlan::Set(compiled.collect::<Option<_>>()?))
    } else if step.parallel.is_some() {
        Some(KindPlan::Parallel(compiled_branches(form)))
    } else if let Some(join) = &step.join {
        Some(KindPlan::Join(compiled_join(join)))
    } else if step.switch.is_some() {
        compiled_switch(form, problems)
    } else {
        problems.add(form.path, "the step has no kind");
        None
    }
}

fn compiled_prompt(form: &Form<'_>, prompt: &str, problems: &mut Problems) -> Option<KindPlan> {
    let step = form.step;
    let prompt = problems.text(&format!("{}.prompt", form.path), prompt)?;
    if let Some(agent) = &step.agent {
        return Some(KindPlan::Agent { agent: agent.clone(), prompt });
    }
    let system = match &step.system {
        Some(system) => Some(problems.text(&format!("{}.system", form.path), system)?),
        None => None,
    };
    Some(KindPlan::Prompt { prompt, model: step.model.clone(), system })
}

/// Compiles an input; without one it is an empty object.
fn compiled_with(with: Option<&Value>, path: &str, problems: &mut Problems) -> Option<Template> {
    let empty = Value::Object(serde_json::Map::new());
    problems.template(&format!("{path}.with"), with.unwrap_or(&empty))
}

fn compiled_approval(form: &Form<'_>, title: &str, within_ms: Option<u64>, problems: &mut Problems) -> Option<KindPlan> {
    let title = problems.text(&format!("{}.approval", form.path), title)?;
    let show = match &form.step.show {
        Some(show) => Some(problems.template(&format!("{}.show", form.path), show)?),
        None => None,
    };
    let deciders = form.step.deciders.iter().enumerate();
    let deciders = deciders.map(|(at, decider)| problems.text(&format!("{}.deciders[{at}]", form.path), decider));
    let (deciders, answer) = (deciders.collect::<Option<_>>()?, form.step.answer.clone());
    Some(KindPlan::Approval { title, show, deciders, answer, within_ms })
}

fn compiled_sleep(sleep: &str, path: &str, problems: &mut Problems) -> Option<KindPlan> {
    if sleep.contains("{{") {
        return Some(KindPlan::Sleep(SleepPlan::Template(problems.text(path, sleep)?)));
    }
    match sleep.parse::<Span>() {
        Ok(span) => Some(KindPlan::Sleep(SleepPlan::Ms(span.as_ms()))),
        Err(error) => {
            problems.add(path, error.to_string());
            None
        }
    }
}

fn compiled_branches(form: &Form<'_>) -> Vec<BranchPlan> {
    let branches = form.step.parallel.iter().flatten().map(|(name, steps)| {
        let first = steps.first().and_then(|first| form.firsts.get(&std::ptr::from_ref(first)));
        let first = first.map_or(Place::End, |first| Place::Step(*first));
        BranchPlan { name: name.clone(), first, may_be_joined: form.places.may_join(name) }
    });
    branches.collect()
}

fn compiled_join(join: &Join) -> JoinPlan {
    let wait = match join.wait {
        JoinCount::Word(JoinWord::All) => None,
        JoinCount::Word(JoinWord::Any) => Some(1),
        JoinCount::Count(count) => Some(count as usize),
    };
    JoinPlan { branches: join.branches.clone(), wait, take: join.take.clone() }
}

fn compiled_switch(form: &Form<'_>, problems: &mut Problems) -> Option<KindPlan> {
    let switch = form.step.switch.as_ref()?;
    let path = format!("{}.switch", form.path);
    let on = problems.expression(&format!("{path}.on"), &switch.on)?;
    let mut cases = BTreeMap::new();
    for (value, goto) in &switch.cases {
        cases.insert(value.clone(), form.places.find(goto, &format!("{path}.cases.{value}"), problems));
    }
    let default = switch.default.as_ref().map(|goto| form.places.find(goto, &format!("{path}.default"), problems));
    Some(KindPlan::Switch { on, cases, default })
}

pub fn compiled_undo(undo: &Undo, path: &str, problems: &mut Problems) -> Option<UndoPlan> {
    let path = format!("{path}.on_failure");
    let act = match (&undo.task, undo.action) {
        (Some(task), _) => UndoAct::Task(task.clone()),
        (None, Some(action)) => UndoAct::Action(action),
        (None, None) => {
            problems.add(&path, "neither a task nor an action");
            return None;
        }
    };
    let with = compiled_with(undo.with.as_ref(), &path, problems)?;
    let mut retry = compiled_retry(undo.retry.as_ref());
    if undo.retry.is_none() {
        retry = RetryPlan { attempts: compensation::ATTEMPTS, backoff_ms: 1_000, ..RetryPlan::default() };
    }
    Some(UndoPlan { act, with, retry })
}
