//! Branches of the reference: who joins them, and what becomes of them.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use onward_flow::document::{Join, JoinCount, JoinWord, Next, Step};
use onward_flow::machine::{CallRequest, FlowFailure};
use serde_json::{Map, Value};

use super::{Context, Failed, Over, PathRef, find, set, state_bytes, work};

/// Returns whether a step of the list can join a branch of this name.
pub fn may_join(list: &[Step], branch: &str) -> bool {
    list.iter()
        .filter_map(|step| step.join.as_ref())
        .any(|join| join.branches.is_empty() || join.branches.iter().any(|name| name == branch))
}

/// Finds the join of a fork, breadth first; the depth counts branches that were started on the way.
pub fn join_of_fork(list: &[Step], fork: &Step) -> Option<usize> {
    let Some(Next::All(all)) = &fork.next else { return None };
    let mut queue: VecDeque<(String, usize)> = all.all.iter().map(|edge| (edge.goto.clone(), 0)).collect();
    let mut seen = BTreeSet::new();
    while let Some((name, depth)) = queue.pop_front() {
        let Some(at) = find(list, &name) else { continue };
        if depth > 64 || !seen.insert((at, depth)) {
            continue;
        }
        let step = &list[at];
        let mut depth = depth;
        if step.join.is_some() {
            if depth == 0 {
                return Some(at);
            }
            depth -= 1;
        }
        if step.parallel.is_some() {
            depth += 1;
        }
        let mut goes_on = step.switch.as_ref().is_none_or(|switch| switch.default.is_none());
        match &step.next {
            None => {}
            Some(Next::Goto(goto)) => {
                queue.push_back((goto.clone(), depth));
                goes_on = false;
            }
            Some(Next::First(edges)) => {
                queue.extend(edges.iter().map(|edge| (edge.goto.clone(), depth)));
                goes_on &= edges.iter().all(|edge| edge.when.is_some());
            }
            Some(Next::All(all)) => {
                queue.extend(all.all.iter().map(|edge| (edge.goto.clone(), depth + 1)));
                goes_on &= all.all.iter().all(|edge| edge.when.is_some());
            }
        }
        if let Some(switch) = &step.switch {
            queue.extend(switch.cases.values().chain(&switch.default).map(|goto| (goto.clone(), depth)));
        }
        if (goes_on || step.when.is_some()) && at + 1 < list.len() {
            queue.push_back((list[at + 1].name.clone(), depth));
        }
        queue.extend(step.catch.iter().map(|catch| (catch.goto.clone(), depth)));
    }
    None
}

/// Waits for branches and takes their states.
pub async fn join(flow: &Rc<Context<'_>>, path: &PathRef, step: &Step, join: &Join) -> Failed<Value> {
    let branches = members(path, join);
    let wait = match join.wait {
        JoinCount::Word(JoinWord::All) => branches.len(),
        JoinCount::Word(JoinWord::Any) => 1.min(branches.len()),
        JoinCount::Count(count) => (count as usize).min(branches.len()),
    };
    let wait_for_branches = std::future::poll_fn(|_| match joined(&branches, wait) {
        Some(result) => std::task::Poll::Ready(result),
        None => std::task::Poll::Pending,
    });
    let result = match step.timeout {
        None => wait_for_branches.await,
        Some(timeout) => {
            let sleep = flow.executor.call(format!("{}.timeout", step.name), CallRequest::Sleep { ms: timeout.as_ms() });
            work::in_time(wait_for_branches, sleep, timeout).await
        }
    };
    for group in &mut path.borrow_mut().groups {
        group.retain(|branch| !branches.iter().any(|joined| Rc::ptr_eq(joined, branch)));
    }
    path.borrow_mut().groups.retain(|group| !group.is_empty());
    branches.iter().for_each(|branch| cancel(flow, branch));
    let states = result?;
    let bytes: usize = states.values().filter_map(Value::as_object).map(state_bytes).sum();
    if bytes > flow.limits.state_bytes {
        let message = format!("the states of the branches have {bytes} bytes, more than {}", flow.limits.state_bytes);
        return Err(FlowFailure::permanent("value_too_large", message));
    }
    for (name, source) in &join.take {
        let taken = match source.split_once('.') {
            None => states.get(source),
            Some((branch, name)) => states.get(branch).and_then(|state| state.get(name)),
        };
        if let Some(taken) = taken {
            set(path, name, taken.clone())?;
        }
    }
    Ok(Value::Object(states))
}

fn members(path: &PathRef, join: &Join) -> Vec<PathRef> {
    let groups = &path.borrow().groups;
    if join.branches.is_empty() {
        return groups.last().cloned().unwrap_or_default();
    }
    let mut names = join.branches.clone();
    names.sort();
    names.dedup();
    let latest = |name: &String| groups.iter().rev().flatten().find(|branch| branch.borrow().name == *name).cloned();
    names.iter().filter_map(latest).collect()
}

/// Returns the states of branches if enough of them have ended, and the first failure if too few are left.
fn joined(branches: &[PathRef], wait: usize) -> Option<Failed<Map<String, Value>>> {
    let mut states = Map::new();
    let mut failures = Vec::new();
    let mut ended = 0;
    for branch in branches {
        let branch = branch.borrow();
        match &branch.over {
            Some(Over::Ended) => {
                ended += 1;
                states.insert(branch.name.clone(), Value::Object(branch.state.clone()));
            }
            Some(Over::Failed(failure, at)) => failures.push((*at, failure.clone())),
            None => {}
        }
    }
    if ended >= wait {
        return Some(Ok(states));
    }
    (branches.len() - failures.len() < wait).then(|| Err(first(failures)))
}

fn first(mut failures: Vec<(u64, FlowFailure)>) -> FlowFailure {
    failures.sort_by_key(|(at, _)| *at);
    failures.remove(0).1
}

/// Drops a path that is not over, and its branches that are not joined.
pub fn cancel(flow: &Rc<Context<'_>>, path: &PathRef) {
    path.borrow_mut().is_gone = true;
    if path.borrow().over.is_none() {
        flow.executor.drop_task(path.borrow().task);
        let groups = std::mem::take(&mut path.borrow_mut().groups);
        groups.iter().flatten().for_each(|branch| cancel(flow, branch));
    }
}

/// Ends a path: the branches that it has not joined are on their own now.
pub fn end(flow: &Rc<Context<'_>>, path: &PathRef) {
    path.borrow_mut().over = Some(Over::Ended);
    let branches: Vec<PathRef> = std::mem::take(&mut path.borrow_mut().groups).into_iter().flatten().collect();
    let failures = branches.iter().filter_map(|branch| match &branch.borrow().over {
        Some(Over::Failed(failure, at)) => Some((*at, failure.clone())),
        _ => None,
    });
    let failures: Vec<_> = failures.collect();
    if !failures.is_empty() {
        *flow.failure.borrow_mut() = Some(first(failures));
    }
    branches.iter().for_each(|branch| branch.borrow_mut().may_be_joined = false);
    wake_parent(flow, path);
}

/// Fails a path: the failure is kept for the join, or fails the flow.
pub fn fail(flow: &Rc<Context<'_>>, path: &PathRef, failure: FlowFailure) {
    if !path.borrow().may_be_joined {
        *flow.failure.borrow_mut() = Some(failure);
        return;
    }
    let branches = std::mem::take(&mut path.borrow_mut().groups);
    branches.iter().flatten().for_each(|branch| cancel(flow, branch));
    *flow.failures.borrow_mut() += 1;
    path.borrow_mut().over = Some(Over::Failed(failure, *flow.failures.borrow()));
    wake_parent(flow, path);
}

/// Wakes the path that may wait for a branch which is over.
fn wake_parent(flow: &Rc<Context<'_>>, path: &PathRef) {
    if let Some(parent) = &path.borrow().parent
        && path.borrow().may_be_joined
    {
        flow.executor.wake(parent.borrow().task);
    }
}
