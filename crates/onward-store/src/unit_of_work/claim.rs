//! Leases of runs.
//!
//! A lease belongs to a worker's session, not to a run: one heartbeat extends all leases, one expired session loses them all.
//!
//! Invariants:
//! - DB5: a worker that gets a run has a session, in the same write; a session ends only together with all leases of its worker.

use onward_core::{Epoch, RunKey, Status, WorkerId};

use super::append::{append_input, append_outcome};
use super::{RowError, RowRequest, Rows, RunRef, require, settle};
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

/// Releases the lease of a claim. If it is lost, its worker does not count as lost any more (CW3).
pub async fn release_run<R: Rows>(rows: &mut R, key: &RunKey, epoch: Epoch) -> Result<(), R::Error> {
    let Some(run) = rows.load_run(key).await? else { return Ok(()) };
    let loaded = &mut rows.set().runs[run];
    let (is_found, is_current) = (loaded.head.find_worker(epoch), loaded.head.epoch == epoch);
    loaded.is_head_changed |= is_found;
    if is_found || is_current {
        let loaded = rows.set().change(run);
        loaded.lease.take_if(|_| is_current);
        settle(rows, run);
        rows.save().await?;
    }
    Ok(())
}

/// Ends the lease of a claim whose worker is gone.
pub async fn lose_run<R: Rows>(rows: &mut R, key: &RunKey, epoch: Epoch) -> Result<(), R::Error> {
    let Some(run) = rows.load_run(key).await? else { return Ok(()) };
    let loaded = &rows.set().runs[run];
    if loaded.head.epoch == epoch && loaded.lease.is_some() {
        lose_worker(rows, run).await?;
        rows.save().await?;
    }
    Ok(())
}

/// Ends the lease of a run whose worker is gone; the caller saves.
pub(super) async fn lose_worker<R: Rows>(rows: &mut R, run: RunRef) -> Result<(), R::Error> {
    let loaded = rows.set().change(run);
    if let Some(worker) = loaded.lease.take() {
        let epoch = loaded.head.epoch;
        count_lost_worker(rows, run, &worker, epoch).await?;
    }
    settle(rows, run);
    Ok(())
}

/// Counts a lost worker, and pauses the run if it was the last one that the run may lose (CW1). The caller settles the run.
pub async fn count_lost_worker<R: Rows>(rows: &mut R, run: RunRef, worker: &WorkerId, epoch: Epoch) -> Result<(), R::Error> {
    let now = rows.input_time(run);
    let pause_after = rows.set().pause_after_lost_workers;
    let loaded = &mut rows.set().runs[run];
    let before = loaded.head.lost_workers.clone();
    let pause = loaded.head.lose_worker(worker, epoch, now, pause_after);
    if loaded.head.lost_workers != before {
        rows.set().change(run).is_head_changed = true;
    }
    let Some(pause) = pause else { return Ok(()) };
    // A pause changes all of them. If they are damaged, the run is paused when it loses its next worker.
    match rows.load(run, RowRequest::TimersAndTasks).await {
        Ok(()) => append_outcome(rows, run, pause, None).await.map(drop),
        Err(error) => error.refusal().map(drop),
    }
}
