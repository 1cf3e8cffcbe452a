//! References of a log to other runs, and the check that a parent started its child.
//!
//! An imported log may contain anything. The run that it names as its parent receives its result, so the reference must be
//! checked.
//!
//! Invariants:
//! - U3: a log references only runs of its own namespace: as parent, listener, origin and sender.
//! - U4: an imported run delivers its result to a parent only if that parent waits for a child with this id at this call id.

use std::collections::BTreeSet;

use crate::log::event::{ChildAgain, ParentLink};
use crate::log::projection::Projection;
use crate::{CallId, Event, Index, Namespace, Record, RunId, RunKey};

/// Returns the first reference to a run of another namespace, with its index (U3).
pub fn foreign_run<'a>(namespace: &Namespace, records: &'a [Record]) -> Option<(Index, &'a RunKey)> {
    let named = records.iter().flat_map(Record::indexed).flat_map(|(index, event)| runs_of(event).map(move |run| (index, run)));
    named.into_iter().find(|(_, run)| run.namespace != *namespace)
}

fn runs_of(event: &Event) -> impl Iterator<Item = &RunKey> {
    let (mut runs, mut more) = (Vec::new(), None);
    match event {
        Event::RunStarted(event) => {
            runs.extend(event.origins.iter().map(|origin| &origin.run));
            runs.extend(event.mailbox.iter().filter_map(|signal| signal.sender.as_ref()));
            more = event.parent.as_ref().map(|link| &link.run);
        }
        Event::SignalReceived(event) => more = event.sender.as_ref(),
        Event::RunForked(event) => more = Some(&event.from),
        Event::ResultRequested(event) => more = Some(&event.by.run),
        _ => {}
    }
    runs.into_iter().chain(more)
}

/// Returns every child that a log has started, with its call id.
pub fn child_calls(records: &[Record]) -> BTreeSet<(CallId, RunId)> {
    let again = |all: &[ChildAgain]| all.iter().map(|again| (again.call_id.clone(), again.child.clone())).collect::<Vec<_>>();
    let events = records.iter().flat_map(|record| &record.events);
    let calls = events.flat_map(|event| match event {
        Event::ChildStarted(event) => vec![(event.call_id.clone(), event.child.clone())],
        Event::RetryRequested(event) => again(&event.children),
        Event::RunForked(event) => again(&event.children),
        _ => Vec::new(),
    });
    calls.collect()
}

impl Projection {
    /// Returns true if the run waits for `child` at the call id of the link (U4).
    pub fn awaits(&self, link: &ParentLink, child: &RunId) -> bool {
        let is_open = |id: &RunId| id == child && !self.head.status.is_closed();
        self.head.key == link.run
            && self.head.generation == link.generation
            && self.children.get(&link.call_id).is_some_and(|open| is_open(&open.id))
    }
}

#[cfg(test)]
mod tests;
