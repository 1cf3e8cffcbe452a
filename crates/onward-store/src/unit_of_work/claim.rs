//! Leases of runs.
//!
//! A lease belongs to a worker's session, not to a run: one heartbeat extends all leases, one expired session loses them all.
//!
//! Invariants:
//! - DB5: a worker that gets a run has a session, in the same write; a session ends only together with all leases of its worker.

use onward_core::{Epoch, RunKey, Status, WorkerId};

use super::append::append_input;
use super::{Rows, RunRef, require, settle};
use crate::durable::ClaimRun;
use crate::{ClaimRuns, ClaimedOne, ClaimedRun, StoreError};

/// Leases pending runs that the worker can execute.
pub async fn claim_runs<R: Rows>(rows: &mut R, request: &ClaimRuns) -> Result<Vec<ClaimedRun>, R::Error> {
    let mut claimed = Vec::new();
    for run in rows.ready_runs(request).await? {
        if let Some(mut granted) = claim(rows, run, &request.worker) {
            granted.records = rows.log_at_hand(run).await?;
            claimed.push(granted);
        }
        settle(rows, run);
    }
    rows.save().await?;
    Ok(claimed)
}

/// Appends an input to an unleased run and leases the run if it is pending then.
pub async fn claim_run<R: Rows>(rows: &mut R, request: ClaimRun) -> Result<ClaimedOne, R::Error> {
    let ClaimRun { run: key, worker, input } = request;
    let run = require(rows, &key).await?;
    if rows.set().runs[run].lease.is_some() {
        return Err(StoreError::RunHeld { key }.into());
    }
    let appended = match input {
        Some((input, encoded)) => Some(append_input(rows, &key, input, encoded).await?),
        None => None,
    };
    let mut claimed = claim(rows, run, &worker);
    if let Some(granted) = &mut claimed {
        granted.records = rows.log_at_hand(run).await?;
    }
    settle(rows, run);
    rows.save().await?;
    Ok(ClaimedOne { appended, head: rows.set().runs[run].shown(), claimed })
}

/// Leases a run if it is pending and unleased; the caller adds the log and settles the run.
pub(super) fn claim<R: Rows>(rows: &mut R, run: RunRef, worker: &WorkerId) -> Option<ClaimedRun> {
    let loaded = &rows.set().runs[run];
    if loaded.head.status != Status::Pending || loaded.lease.is_some() {
        return None;
    }
    let last = loaded.head.epoch;
    let epoch = rows.next_epoch(last);
    let set = rows.set();
    let loaded = set.change(run);
    loaded.head.epoch = epoch; // L7
    loaded.lease = Some(worker.clone());
    let head = loaded.shown();
    set.open_session(worker);
    Some(ClaimedRun { head, records: None })
}

/// Releases the lease of a claim, unless it is lost.
pub async fn release_run<R: Rows>(rows: &mut R, key: &RunKey, epoch: Epoch) -> Result<(), R::Error> {
    let Some(run) = rows.load_run(key).await? else { return Ok(()) };
    if rows.set().runs[run].head.epoch == epoch {
        rows.set().change(run).lease = None;
        settle(rows, run);
        rows.save().await?;
    }
    Ok(())
}
