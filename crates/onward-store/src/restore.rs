//! Validation of imported logs, done before a store changes anything, so that all stores refuse alike.

use std::collections::BTreeMap;

use onward_core::event::RunStarted;
use onward_core::external::wrong_append;
use onward_core::ledger::add_rows;
use onward_core::projection::Projection;
use onward_core::transfer::foreign_run;
use onward_core::{CallId, Epoch, Event, Log, Record};

use crate::{Restore, RestoreRun, StoreError, payloads};

/// Distance of the epochs of an imported run above those of its log: it may have been claimed repeatedly elsewhere since its last
/// commit, and an embedded store counts in steps of 2^32.
const CLAIMED_SINCE: u64 = 1 << 40;

/// Validates the logs and returns their projections, one per generation; only the last generation may be open. The epoch of their
/// heads is a floor for claims, so that a lease from where the run came from is fenced here (L7).
pub fn check_restore(restore: &RestoreRun, payload_bytes_max: usize) -> Result<Vec<Projection>, StoreError> {
    let logs: Vec<&[Record]> = match &restore.what {
        Restore::Run { logs } => logs.iter().map(Vec::as_slice).collect(),
        Restore::Retry { log, .. } => vec![log],
    };
    let first = match &restore.what {
        Restore::Run { .. } => 0,
        Restore::Retry { after, .. } => after + 1,
    };
    let invalid = |why: String| StoreError::LogInvalid { key: restore.key.clone(), why };
    let mut projections: Vec<Projection> = Vec::new();
    for (log, generation) in logs.iter().zip(first..) {
        Log::load(log.to_vec()).map_err(|error| invalid(error.to_string()))?;
        if let Some(why) = wrong_append(log) {
            return Err(invalid(why));
        }
        if let Some((index, run)) = foreign_run(&restore.key.namespace, log) {
            return Err(invalid(format!("event {index} names run {run} of another namespace"))); // U3
        }
        if let Some(kind) = log.first().and_then(Record::started).and_then(RunStarted::internal_task) {
            return Err(invalid(format!("it is a standalone task of the internal kind `{kind}`"))); // IK1
        }
        let projection = Projection::of(restore.key.clone(), log).ok_or_else(|| invalid("it has no start".to_owned()))?;
        if projection.head.generation != generation {
            return Err(invalid(format!("generation {generation} begins as {}", projection.head.generation)));
        }
        if projections.last().is_some_and(|before| !before.head.status.is_closed()) {
            return Err(invalid(format!("generation {generation} follows one that is open")));
        }
        if log.iter().flat_map(|record| &record.events).filter_map(Event::call_id).any(CallId::is_too_deep) {
            return Err(invalid("a call in it lies too deep: joins and selects may be nested 127 times".to_owned()));
        }
        payloads::check_events(log.iter().flat_map(|record| &record.events), payload_bytes_max)?;
        projections.push(projection);
    }
    // The generations of a run share ledger rows, which are written as a whole.
    let mut ledger = BTreeMap::new();
    projections.iter_mut().for_each(|projection| add_rows(&mut ledger, std::mem::take(&mut projection.ledger)));
    if let Some(last) = projections.last_mut() {
        last.ledger = ledger;
    }
    let floor = epoch_floor(&logs);
    projections.iter_mut().for_each(|projection| projection.head.epoch = floor);
    if projections.is_empty() { Err(invalid("there is none".to_owned())) } else { Ok(projections) }
}

fn epoch_floor(logs: &[&[Record]]) -> Epoch {
    let commits = logs.iter().flat_map(|log| log.iter()).filter_map(|record| record.commit.as_ref());
    // The number comes from a file: whatever it is, there must be room above it.
    let last = commits.map(|commit| commit.epoch.0).max().unwrap_or_default().min(i64::MAX as u64 / 2);
    Epoch((last & !u64::from(u32::MAX)) + CLAIMED_SINCE)
}
