//! The calls of a log in the terms of the programs: by generation, content and ordinal among equal calls.
//!
//! It shares no code with the engine, which it checks.

use std::collections::BTreeMap;

use onward_core::{CallId, Event, Hash, Index, Log};
use serde_json::Value;

/// Returns a predicate for commits that were abandoned as of the record at `until`.
pub(super) fn is_left(log: &Log, until: Index) -> impl Fn(Index) -> bool + use<> {
    let mut left: Vec<(Index, Index)> = Vec::new();
    for record in log.records().iter().filter(|record| record.index <= until) {
        if let Some(Event::SegmentAbandoned(marker)) = record.events.first() {
            left.push((marker.from, record.index));
        }
    }
    move |index| left.iter().any(|(from, to)| (*from..*to).contains(&index))
}

/// Returns the calls on the live path as of the record at `until`: the original call id and the identity of each.
pub(super) fn calls(log: &Log, generation: u32, until: Index) -> Vec<(CallId, String)> {
    let is_left = is_left(log, until);
    let mut leaf = log.records().first().and_then(|record| record.started()?.checkpoint.as_ref()?.leaf);
    let (mut counts, mut calls) = (BTreeMap::<String, u32>::new(), Vec::new());
    for record in log.records().iter().filter(|record| record.index <= until) {
        if record.commit.is_none() || is_left(record.index) {
            continue;
        }
        for event in &record.events {
            let original = match event {
                Event::EntryAppended(entry) => {
                    leaf = if entry.is_aside { leaf } else { Some(entry.id) };
                    continue;
                }
                Event::CallAdopted(adopted) => origin(log, &adopted.from),
                event => Some(event),
            };
            let Some((what, call_id)) = original.and_then(|event| Some((content(event, leaf)?, event.call_id()?))) else {
                continue;
            };
            let count = counts.entry(what.clone()).or_default();
            calls.push((call_id.clone(), format!("{generation}: {what} #{count}")));
            *count += 1;
        }
    }
    calls
}

/// Returns the event that made the call at `call_id`.
pub(super) fn origin<'a>(log: &'a Log, call_id: &CallId) -> Option<&'a Event> {
    log.events().map(|(_, event)| event).find(|event| is_call(event) && event.call_id() == Some(call_id))
}

/// Returns the identity of the call at `call_id`, on the path that was live then.
pub(super) fn call_at(log: &Log, generation: u32, call_id: &CallId) -> Option<String> {
    let is_it = |event: &Event| is_call(event) && event.call_id() == Some(call_id);
    let record = log.records().iter().find(|record| record.events.iter().any(is_it))?;
    calls(log, generation, record.index).into_iter().find(|(at, _)| at == call_id).map(|(_, call)| call)
}

fn is_call(event: &Event) -> bool {
    use Event::{ApprovalRequested, ChildStarted, PromiseCreated, SignalSent, StepCompleted, TaskScheduled};
    let is_call = matches!(event, TaskScheduled(_) | ChildStarted(_) | PromiseCreated(_) | ApprovalRequested(_));
    is_call || matches!(event, SignalSent(_) | StepCompleted(_))
}

fn content(event: &Event, leaf: Option<Hash>) -> Option<String> {
    Some(match event {
        Event::TaskScheduled(task) => format!("task {} {}", task.kind, task.input.read::<Value>().expect("JSON")),
        Event::ChildStarted(child) => format!("child {} {}", child.kind, child.input.read::<Value>().expect("JSON")),
        Event::PromiseCreated(promise) => format!("promise {}", promise.name),
        Event::ApprovalRequested(approval) => {
            let leaf = leaf.map(|leaf| leaf.to_string()).unwrap_or_default();
            format!("approval {} {} under {leaf}", approval.name, approval.title)
        }
        Event::SignalSent(sent) => format!("send {} to {}", sent.name, sent.to),
        Event::StepCompleted(step) => format!("step {}", step.name),
        _ => return None,
    })
}
