//! The payloads of a write, and the check of their size.
//!
//! Every store checks each incoming write here before it changes anything, so that all stores refuse alike.

use onward_core::event::{CarriedSignal, RunStarted, UpdateReceived};
use onward_core::run::{Commit, Input, NewRun};
use onward_core::task::TaskReport;
use onward_core::{Event, Failure, KindSchemas, Payload, Record};

use crate::{READ_BYTES_MAX, StoreError};

/// Calls `visit` with each payload of `event`, in the order of its fields.
pub fn walk<'a>(event: &'a Event, visit: &mut dyn FnMut(&'a Payload)) {
    match event {
        Event::RunStarted(event) => walk_started(event, visit),
        Event::SignalReceived(event) => visit(&event.payload),
        Event::PromiseResolved(event) => walk_result(&event.result, visit),
        Event::UpdateReceived(event) => visit(&event.payload),
        Event::TaskCompleted(event) => visit(&event.output),
        Event::TaskFailed(event) => walk_failure(&event.failure, visit),
        Event::ChildCompleted(event) => visit(&event.output),
        Event::ChildFailed(event) => walk_failure(&event.failure, visit),
        Event::StepCompleted(event) => visit(&event.output),
        Event::StepFailed(event) => walk_failure(&event.failure, visit),
        Event::TaskScheduled(event) => visit(&event.input),
        Event::ApprovalRequested(event) => event.show.iter().for_each(visit),
        Event::StateSet(event) => visit(&event.value),
        Event::ChildStarted(event) => visit(&event.input),
        Event::SignalSent(event) => visit(&event.payload),
        Event::UpdateAnswered(event) => walk_result(&event.result, visit),
        Event::RunCompleted(event) => visit(&event.output),
        Event::RunFailed(event) => walk_failure(&event.failure, visit),
        Event::RunCanceled(event) => walk_failure(&event.failure, visit),
        Event::RunContinued(event) => {
            visit(&event.input);
            event.checkpoint.iter().for_each(|checkpoint| visit(&checkpoint.state));
        }
        Event::EntryAppended(event) => visit(&event.content),
        Event::BranchRequested(event) => {
            event.entry.iter().for_each(|entry| visit(&entry.content));
            visit(&event.checkpoint.state);
            visit(&event.input);
        }
        Event::ExternalAppended(event) => {
            event.events.iter().chain(event.state.iter().map(|state| &state.data)).for_each(visit);
        }
        // Listed in full, so that an event with a new payload is not missed.
        Event::ApprovalDecided(_)
        | Event::TimerFired(_)
        | Event::CancelRequested(_)
        | Event::TerminateRequested(_)
        | Event::RunPaused(_)
        | Event::RunResumed(_)
        | Event::RetryRequested(_)
        | Event::RunForked(_)
        | Event::ResultRequested(_)
        | Event::AttributeSet(_)
        | Event::BudgetSet(_)
        | Event::TaskCanceled(_)
        | Event::TimerStarted(_)
        | Event::SignalAwaited(_)
        | Event::SignalConsumed(_)
        | Event::PromiseCreated(_)
        | Event::WaitCanceled(_)
        | Event::StateCleared(_)
        | Event::ChildCanceled(_)
        | Event::ChildAwaited(_)
        | Event::VersionChosen(_)
        | Event::TaskAttempted(_)
        | Event::TaskAttemptEnded(_)
        | Event::ChildSettled(_)
        | Event::SegmentAbandoned(_)
        | Event::CallAdopted(_)
        | Event::RunSuspended(_) => {}
    }
}

fn walk_started<'a>(started: &'a RunStarted, visit: &mut dyn FnMut(&'a Payload)) {
    visit(&started.input);
    walk_carried(&started.mailbox, &started.updates, visit);
    started.checkpoint.iter().for_each(|checkpoint| visit(&checkpoint.state));
}

fn walk_carried<'a>(signals: &'a [CarriedSignal], updates: &'a [UpdateReceived], visit: &mut dyn FnMut(&'a Payload)) {
    signals.iter().for_each(|signal| visit(&signal.payload));
    updates.iter().for_each(|update| visit(&update.payload));
}

fn walk_failure<'a>(failure: &'a Failure, visit: &mut dyn FnMut(&'a Payload)) {
    failure.details.as_deref().into_iter().for_each(visit);
}

fn walk_result<'a>(result: &'a Result<Payload, Failure>, visit: &mut dyn FnMut(&'a Payload)) {
    match result {
        Ok(payload) => visit(payload),
        Err(failure) => walk_failure(failure, visit),
    }
}

/// Returns the total size of the payloads of these events.
pub fn weigh<'a>(events: impl IntoIterator<Item = &'a Event>) -> usize {
    let mut bytes = 0;
    events.into_iter().for_each(|event| walk(event, &mut |payload| bytes += payload.data().len()));
    bytes
}

/// Returns whether a read may have ended after these records because they are large, so that there may be more.
pub fn is_long(records: &[Record]) -> bool {
    weigh(records.iter().flat_map(|record| &record.events)) >= READ_BYTES_MAX
}

/// Truncates a read behind the record that reaches [`READ_BYTES_MAX`].
pub fn shorten(records: &mut Vec<Record>) {
    let mut bytes = 0;
    let last = records.iter().position(|record| {
        bytes += weigh(&record.events);
        bytes >= READ_BYTES_MAX
    });
    records.truncate(last.map_or(records.len(), |last| last + 1));
}

/// Keeps the first records whose payloads fit into `bytes`, at least one; returns whether any were dropped.
pub fn fit(records: &mut Vec<Record>, bytes: usize) -> bool {
    let mut sum = 0;
    let first_over = records.iter().position(|record| {
        sum += weigh(&record.events);
        sum > bytes
    });
    let kept = first_over.map_or(records.len(), |over| over.max(1));
    let cut = kept < records.len();
    records.truncate(kept);
    cut
}

/// Fails if a new run has a payload over `max` bytes.
pub fn check_new_run(run: &NewRun, max: usize) -> Result<(), StoreError> {
    check(max, |visit| {
        walk_started(&run.started, visit);
        run.signal.iter().for_each(|signal| walk(&signal.event, visit));
    })
}

pub fn check_input(input: &Input, max: usize) -> Result<(), StoreError> {
    check(max, |visit| walk(&input.event, visit))
}

pub fn check_commit(commit: &Commit, max: usize) -> Result<(), StoreError> {
    check(max, |visit| {
        commit.events.iter().for_each(|event| walk(event, visit));
        walk_carried(&commit.carries.signals, &commit.carries.updates, visit);
    })
}

pub fn check_events<'a>(events: impl IntoIterator<Item = &'a Event>, max: usize) -> Result<(), StoreError> {
    check(max, |visit| events.into_iter().for_each(|event| walk(event, visit)))
}

pub fn check_report(report: &TaskReport, max: usize) -> Result<(), StoreError> {
    check(max, |visit| walk_report(report, visit))
}

/// Returns the total size of the payloads of a report.
pub fn weigh_report(report: &TaskReport) -> usize {
    let mut bytes = 0;
    walk_report(report, &mut |payload| bytes += payload.data().len());
    bytes
}

fn walk_report<'a>(report: &'a TaskReport, visit: &mut dyn FnMut(&'a Payload)) {
    match report {
        TaskReport::Completed(output) => visit(output),
        TaskReport::Failed(failure) => walk_failure(failure, visit),
        TaskReport::Heartbeat { progress } => progress.iter().for_each(visit),
        TaskReport::Interrupted | TaskReport::NotStarted | TaskReport::WorkerLost | TaskReport::Adopted { .. } => {}
        TaskReport::Spent { report, .. } | TaskReport::BySession { report, .. } => walk_report(report, visit),
    }
}

pub fn check_kinds(kinds: &[KindSchemas], max: usize) -> Result<(), StoreError> {
    check(max, |visit| kinds.iter().flat_map(|kind| [&kind.input, &kind.output]).flatten().for_each(visit))
}

fn check<'a>(max: usize, walk: impl FnOnce(&mut dyn FnMut(&'a Payload))) -> Result<(), StoreError> {
    let mut largest = 0;
    walk(&mut |payload| largest = largest.max(payload.data().len()));
    if largest > max { Err(StoreError::PayloadTooLarge { bytes: largest, max }) } else { Ok(()) }
}
