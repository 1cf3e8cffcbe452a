//! Restrictions on imported logs.
//!
//! The content of an imported log is under the importer's control. So an open run is treated like a copy (Z8): its approvals must
//! be given again before it continues. Its open tool calls are not executed: the safeguards of tools are in the code that calls
//! them, and an imported log does not prove that this code ran.
//!
//! Invariants:
//! - U6: an imported open run continues only when every approval in its open log has been given again.
//! - U7: an import queues no tool call, and neither does a retry, a fork or a reset of an imported run, closed or open: the code
//!   receives an unknown outcome. Tool calls that the code makes afterwards are queued.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::ExportedRun;
use crate::kind::TOOL_KIND_PREFIX;
use crate::log::event::TaskFailed;
use crate::log::projection::Projection;
use crate::run::reopen::pause_to_ask;
use crate::task::OUTCOME_UNKNOWN;
use crate::{CallId, Event, Failure, Index, Record};

/// Returns the run as it is stored. Deterministic: importing the same run again gives the same records.
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

/// Returns failures for the open tool calls of the imported part of the log (U7).
pub(crate) fn imported_calls(log: &[Record], projection: &Projection) -> Vec<Event> {
    let Some(until) = log.first().and_then(Record::started).and_then(|started| started.imported_until) else {
        return Vec::new();
    };
    let imported = log.iter().flat_map(Record::indexed).filter(|(index, event)| *index <= until && is_tool_call(event));
    let call_ids: BTreeSet<&CallId> = imported.filter_map(|(_, event)| event.call_id()).collect();
    let open = projection.tasks.values().filter(|task| call_ids.contains(&task.id.call_id));
    let unknown = open.map(|task| {
        let message = format!("`{}` was called before the run was imported, and its outcome is unknown", task.kind);
        let failure = Failure::fatal(message).with_code(OUTCOME_UNKNOWN);
        TaskFailed { call_id: task.id.call_id.clone(), failure, attempts: task.attempt, ran: None }.into()
    });
    unknown.collect()
}

fn is_tool_call(event: &Event) -> bool {
    matches!(event, Event::TaskScheduled(task) if task.kind.as_str().starts_with(TOOL_KIND_PREFIX))
}

/// Records the end of the imported part of the log.
fn mark(log: &mut [Record], until: Option<Index>) {
    if let Some(Event::RunStarted(started)) = log.first_mut().and_then(|first| first.events.first_mut()) {
        started.imported_until = until;
    }
}

/// Returns the record without the import mark, which is not exported.
pub(super) fn unmarked(record: &Record) -> Cow<'_, Record> {
    if record.started().is_none_or(|started| started.imported_until.is_none()) {
        return Cow::Borrowed(record);
    }
    let mut record = record.clone();
    mark(std::slice::from_mut(&mut record), None);
    Cow::Owned(record)
}

/// Returns true if both are the same log, ignoring the import mark.
pub fn is_same_log(one: &[Record], other: &[Record]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| unmarked(one) == unmarked(other))
}
