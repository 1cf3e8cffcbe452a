//! What a log that comes from outside must not bring along.
//!
//! Whoever imports a log can write it. So an open run is taken in as a copy is (Z8): what was approved in it is asked again before anything
//! goes on. And a tool that is open in it is not called: what protects tools is in the code that asks for them, and nobody can tell whether
//! that code has asked.
//!
//! Invariants:
//! - U6: an imported run that is open goes on only when everything that was approved in its open log is approved again.
//! - U7: an import queues no task of a tool; the code is told that its outcome is unknown.

use super::ExportedRun;
use crate::event::TaskFailed;
use crate::kind::TOOL_KIND_PREFIX;
use crate::projection::Projection;
use crate::reopen::pause_to_ask;
use crate::{Event, Failure, Record};

/// Returns the run as it is taken in. The same run comes to the same records, whenever it is imported.
pub fn receive(mut run: ExportedRun) -> ExportedRun {
    let Some(log) = run.logs.last_mut().filter(|log| !log.is_empty()) else { return run };
    let Some(projection) = Projection::of(run.key.clone(), log) else { return run };
    let head = &projection.head;
    if head.status.is_closed() || head.is_task || head.external.is_some() {
        return run;
    }
    let mut more: Vec<Event> = Vec::new();
    for task in projection.tasks.values().filter(|task| task.kind.as_str().starts_with(TOOL_KIND_PREFIX)) {
        let message = format!("`{}` was called where the run came from, and nobody knows what came of it", task.kind);
        let failure = Failure::fatal(message).with_code("outcome_unknown");
        more.push(TaskFailed { place: task.id.place.clone(), failure, attempts: task.attempt }.into()); // U7
    }
    more.extend(pause_to_ask(log, head).map(Event::from)); // U6
    for event in more {
        let Some(last) = log.last() else { break };
        let (index, at) = (last.next_index(), last.at);
        log.push(Record::input(index, at, event));
    }
    run
}
