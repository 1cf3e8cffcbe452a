//! The payloads of a write, and the check of their size.
//!
//! Every store checks each incoming write here before it changes anything, so that all stores refuse alike.

use onward_core::codec::Field;
use onward_core::run::{Commit, Input, NewRun};
use onward_core::task::TaskReport;
use onward_core::{Event, KindSchemas, Payload, Record};

use crate::{READ_BYTES_MAX, StoreError};

/// Returns the total size of the payloads of these events.
pub fn payload_bytes<'a>(events: impl IntoIterator<Item = &'a Event>) -> usize {
    let mut bytes = 0;
    events.into_iter().for_each(|event| event.visit_payloads(&mut |payload| bytes += payload.data().len()));
    bytes
}

/// Returns whether a read may have ended after these records because they are large, so that there may be more.
pub fn is_long(records: &[Record]) -> bool {
    payload_bytes(records.iter().flat_map(|record| &record.events)) >= READ_BYTES_MAX
}

/// Truncates a read behind the record that reaches [`READ_BYTES_MAX`].
pub fn shorten(records: &mut Vec<Record>) {
    let mut bytes = 0;
    let last = records.iter().position(|record| {
        bytes += payload_bytes(&record.events);
        bytes >= READ_BYTES_MAX
    });
    records.truncate(last.map_or(records.len(), |last| last + 1));
}

/// Keeps the first records whose payloads fit into `bytes`, at least one; returns whether any were dropped.
pub fn fit(records: &mut Vec<Record>, bytes: usize) -> bool {
    let mut sum = 0;
    let first_over = records.iter().position(|record| {
        sum += payload_bytes(&record.events);
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
        run.started.visit_payloads(visit);
        run.signal.iter().for_each(|signal| signal.event.visit_payloads(visit));
    })
}

pub fn check_input(input: &Input, max: usize) -> Result<(), StoreError> {
    check(max, |visit| input.event.visit_payloads(visit))
}

pub fn check_commit(commit: &Commit, max: usize) -> Result<(), StoreError> {
    check(max, |visit| {
        commit.events.iter().for_each(|event| event.visit_payloads(visit));
        commit.carries.signals.visit_payloads(visit);
        commit.carries.updates.visit_payloads(visit);
    })
}

pub fn check_events<'a>(events: impl IntoIterator<Item = &'a Event>, max: usize) -> Result<(), StoreError> {
    check(max, |visit| events.into_iter().for_each(|event| event.visit_payloads(visit)))
}

pub fn check_report(report: &TaskReport, max: usize) -> Result<(), StoreError> {
    check(max, |visit| walk_report(report, visit))
}

/// Returns the total size of the payloads of a report.
pub fn report_payload_bytes(report: &TaskReport) -> usize {
    let mut bytes = 0;
    walk_report(report, &mut |payload| bytes += payload.data().len());
    bytes
}

fn walk_report<'a>(report: &'a TaskReport, visit: &mut dyn FnMut(&'a Payload)) {
    match report {
        TaskReport::Completed(output) => visit(output),
        TaskReport::Failed(failure) => failure.visit_payloads(visit),
        TaskReport::Heartbeat { progress } => progress.iter().for_each(visit),
        TaskReport::Interrupted | TaskReport::NotStarted | TaskReport::WorkerLost | TaskReport::Adopted { .. } => {}
        TaskReport::Spent { report, .. } | TaskReport::BySession { report, .. } => walk_report(report, visit),
    }
}

pub fn check_kinds(kinds: &[KindSchemas], max: usize) -> Result<(), StoreError> {
    check(max, |visit| kinds.iter().for_each(|kind| kind.visit_payloads(visit)))
}

fn check<'a>(max: usize, walk: impl FnOnce(&mut dyn FnMut(&'a Payload))) -> Result<(), StoreError> {
    let mut largest = 0;
    walk(&mut |payload| largest = largest.max(payload.data().len()));
    if largest > max { Err(StoreError::PayloadTooLarge { bytes: largest, max }) } else { Ok(()) }
}
