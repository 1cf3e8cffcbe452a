//! What a log that comes from outside must not bring along.
//!
//! Whoever imports a log can write it. So an open run is taken in as a copy is (Z8): what was approved in it is asked again before anything
//! goes on. And a tool that is open in it is not called: what protects tools is in the code that asks for them, and nobody can tell whether
//! that code has asked.
//!
//! Invariants:
//! - U6: an imported run that is open goes on only when everything that was approved in its open log is approved again.
//! - U7: an import queues no task of a tool, and neither does a retry, a fork or a reset of what was imported, closed or open: the code is
//!   told that the outcome is unknown. What the code asks for afterwards, by its own decisions, is queued.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::ExportedRun;
use crate::kind::TOOL_KIND_PREFIX;
use crate::log::event::TaskFailed;
use crate::log::projection::Projection;
use crate::run::reopen::pause_to_ask;
use crate::task::OUTCOME_UNKNOWN;
use crate::{Event, Failure, Index, Place, Record};

/// Returns the run as it is taken in. The same run comes to the same records, whenever it is imported.
pub fn receive(mut run: ExportedRun) -> ExportedRun {
    for log in &mut run.logs {
        let until = log.last().map(Record::last_index).filter(|_| log.iter().flat_map(|record| &record.events).any(is_tool_call));
        mark(log, until);
    }
    let Some(log) = run.logs.last_mut().filter(|log| !log.is_empty()) else { return run };
    let Some(projection) = Projection::of(run.key.clone(), log) else { return run };
    let head = &projection.head;
    if head.status.is_closed() || head.is_task || head.external.is_some() {
        return run;
    }
    let mut more = imported_calls(log, &projection);
    more.extend(pause_to_ask(log, head).map(Event::from)); // U6
    for event in more {
        let Some(last) = log.last() else { break };
        let (index, at) = (last.next_index(), last.at);
        log.push(Record::input(index, at, event));
    }
    run
}

/// Returns the outcomes of calls of tools that are open and that the imported part of the log has asked for (U7).
pub(crate) fn imported_calls(log: &[Record], projection: &Projection) -> Vec<Event> {
    let Some(until) = log.first().and_then(Record::started).and_then(|started| started.imported_until) else {
        return Vec::new();
    };
    let imported = log.iter().flat_map(Record::indexed).filter(|(index, event)| *index <= until && is_tool_call(event));
    let asked: BTreeSet<&Place> = imported.filter_map(|(_, event)| event.place()).collect();
    let open = projection.tasks.values().filter(|task| asked.contains(&task.id.place));
    let unknown = open.map(|task| {
        let message = format!("`{}` was called where the run came from, and nobody knows what came of it", task.kind);
        let failure = Failure::fatal(message).with_code(OUTCOME_UNKNOWN);
        TaskFailed { place: task.id.place.clone(), failure, attempts: task.attempt }.into()
    });
    unknown.collect()
}

fn is_tool_call(event: &Event) -> bool {
    matches!(event, Event::TaskScheduled(task) if task.kind.as_str().starts_with(TOOL_KIND_PREFIX))
}

/// Notes up to where the log was imported.
fn mark(log: &mut [Record], until: Option<Index>) {
    if let Some(Event::RunStarted(started)) = log.first_mut().and_then(|first| first.events.first_mut()) {
        started.imported_until = until;
    }
}

/// Returns the record without the note that its log was imported, which does not leave the store.
pub(super) fn unmarked(record: &Record) -> Cow<'_, Record> {
    if record.started().is_none_or(|started| started.imported_until.is_none()) {
        return Cow::Borrowed(record);
    }
    let mut record = record.clone();
    mark(std::slice::from_mut(&mut record), None);
    Cow::Owned(record)
}

/// Whether both are the same log, imported or not.
pub fn is_same_log(one: &[Record], other: &[Record]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| unmarked(one) == unmarked(other))
}
