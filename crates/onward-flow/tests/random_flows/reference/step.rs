//! A path of the reference goes from step to step.

use std::rc::Rc;

use onward_flow::document::{Edge, Next, OneOrMany, Step};
use onward_flow::expression::Scope;
use onward_flow::machine::FlowFailure;
use serde_json::Value;

use super::joins::{self, join_of_fork};
use super::{Context, Failed, PathRef, check_room, error_value, eval, find, is_true, set, start_path, work};

/// Where a path goes: a step of its list, or nowhere.
type Place = Option<usize>;

pub async fn run<'f>(flow: Rc<Context<'f>>, path: PathRef, list: &'f [Step], mut place: Place) {
    while let Some(at) = place {
        let step = &list[at];
        if step.join.is_some() && path.borrow().is_fork && path.borrow().groups.is_empty() {
            break;
        }
        *flow.begins_in_turn.borrow_mut() += 1;
        *flow.begins.borrow_mut() += 1;
        if is_stuck(&flow, step) {
            return;
        }
        match one(&flow, &path, list, at).await {
            Ok(next) => place = next,
            Err(mut failure) => {
                failure.step.get_or_insert_with(|| step.name.clone());
                match caught(&path, list, step, &failure) {
                    Ok(Some(next)) => place = next,
                    Err(mut failure) => {
                        failure.step = Some(step.name.clone());
                        return joins::fail(&flow, &path, failure);
                    }
                    Ok(None) => return joins::fail(&flow, &path, failure),
                }
            }
        }
    }
    joins::end(&flow, &path);
}

/// Fails the flow if too many steps have begun.
pub fn is_stuck(flow: &Context<'_>, step: &Step) -> bool {
    let message = if *flow.begins_in_turn.borrow() > flow.limits.begins_in_turn {
        let advice = "put a step with a call or a wait between";
        format!("{} steps and items have begun without waiting for a call; {advice}", flow.limits.begins_in_turn)
    } else if *flow.begins.borrow() > flow.limits.begins {
        format!("more than {} steps have begun", flow.limits.begins)
    } else {
        return false;
    };
    let mut failure = FlowFailure::permanent("flow_stuck", message);
    failure.step = Some(step.name.clone());
    *flow.failure.borrow_mut() = Some(failure);
    true
}

pub fn scope(flow: &Context<'_>, path: &PathRef) -> Scope {
    let path = path.borrow();
    let state = Value::Object(path.state.clone());
    let scope = Scope::new().with("inputs", &flow.inputs).with("run", &flow.run).with("state", &state);
    match &path.error {
        Some(error) => scope.with("error", error),
        None => scope,
    }
}

async fn one<'f>(flow: &Rc<Context<'f>>, path: &PathRef, list: &'f [Step], at: usize) -> Failed<Place> {
    let step = &list[at];
    let follow = (at + 1 < list.len()).then_some(at + 1);
    if let Some(when) = &step.when
        && !is_true(when, &scope(flow, path))?
    {
        path.borrow_mut().last = Value::Null;
        return Ok(follow);
    }
    let mut goto = None;
    let result = if let Some(switch) = &step.switch {
        let last = path.borrow().last.clone();
        let on = eval(&switch.on, &scope(flow, path).with("result", &last))?;
        let text = on.as_str().map_or_else(|| on.to_string(), str::to_owned);
        let name = switch.cases.get(&text).or(switch.default.as_ref());
        goto = Some(name.map_or(follow, |name| find(list, name)));
        on
    } else if let Some(branches) = &step.parallel {
        check_room(flow, branches.len())?;
        let start = |(name, steps): (&String, &'f Vec<Step>)| {
            let branch = start_path(flow, steps, (!steps.is_empty()).then_some(0), name.clone(), false, Some(path));
            branch.borrow_mut().may_be_joined = joins::may_join(list, name);
            branch
        };
        add_group(path, branches.iter().map(start).collect());
        Value::Null
    } else if let Some(join) = &step.join {
        joins::join(flow, path, step, join).await?
    } else {
        work::all_items(flow, path, step).await?
    };
    let stored = step.store.as_ref().map_or(Ok(()), |store| set(path, store, result.clone()));
    let scope = scope(flow, path).with("result", &result);
    path.borrow_mut().last = result;
    if step.each.is_none() {
        work::register_undo(flow, step, &step.name, &scope);
    }
    stored?;
    match (goto, &step.next) {
        (Some(goto), _) => Ok(goto),
        (None, None) => Ok(follow),
        (None, Some(Next::Goto(goto))) => Ok(find(list, goto)),
        (None, Some(Next::First(edges))) => {
            for edge in edges {
                if holds(edge, &scope)? {
                    return Ok(find(list, &edge.goto));
                }
            }
            Ok(follow)
        }
        (None, Some(Next::All(all))) => {
            let mut matching = Vec::new();
            for edge in &all.all {
                if holds(edge, &scope)? {
                    matching.push(edge);
                }
            }
            if matching.is_empty() {
                return Ok(follow);
            }
            check_room(flow, matching.len())?;
            let start = |edge: &Edge| {
                let name = edge.branch.clone().unwrap_or_else(|| edge.goto.clone());
                let branch = start_path(flow, list, find(list, &edge.goto), name.clone(), true, Some(path));
                branch.borrow_mut().may_be_joined = joins::may_join(list, &name);
                branch
            };
            add_group(path, matching.into_iter().map(start).collect());
            Ok(join_of_fork(list, step))
        }
    }
}

/// Keeps the branches that a join can take.
fn add_group(path: &PathRef, mut branches: Vec<PathRef>) {
    branches.retain(|branch| branch.borrow().may_be_joined);
    if !branches.is_empty() {
        path.borrow_mut().groups.push(branches);
    }
}

fn holds(edge: &Edge, scope: &Scope) -> Failed<bool> {
    edge.when.as_ref().map_or(Ok(true), |when| is_true(when, scope))
}

/// Returns where a failure leads by the first `catch` that fits.
fn caught(path: &PathRef, list: &[Step], step: &Step, failure: &FlowFailure) -> Failed<Option<Place>> {
    let fits = |word: &String| match word.as_str() {
        "any" => failure.code != "canceled",
        "timeout" => failure.code == "timed_out" || failure.code == "timeout",
        code => code == failure.code,
    };
    let catch = step.catch.iter().find(|catch| match &catch.on {
        OneOrMany::One(word) => fits(word),
        OneOrMany::Many(words) => words.iter().any(fits),
    });
    let Some(catch) = catch else { return Ok(None) };
    if let Some(store) = &catch.store {
        set(path, store, error_value(failure))?;
    }
    let mut path = path.borrow_mut();
    path.error = Some(error_value(failure));
    path.last = Value::Null;
    Ok(Some(find(list, &catch.goto)))
}
