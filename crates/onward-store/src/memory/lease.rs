//! Worker sessions, claims and releases of runs.
//!
//! A lease belongs to a worker's session, not to a run: one heartbeat extends all leases, one expired session loses them all.

use std::time::Duration;

use onward_core::run::Input;
use onward_core::{Epoch, RunKey, Status, Timestamp, WorkerId};

use super::Answer;
use super::state::State;
use crate::{ClaimRuns, ClaimedOne, ClaimedRun, SESSION_DEFAULT, StoreError};

impl State {
    pub fn claim_runs(&mut self, request: &ClaimRuns, now: Timestamp) -> Vec<ClaimedRun> {
        let mut found: Vec<(u64, RunKey)> = self
            .open_runs()
            .filter(|run| {
                let head = run.head();
                head.key.namespace == request.namespace // S6
                    && request.knows.get(&head.kind).is_some_and(|versions| versions.contains(&head.version)) // L14
            })
            .filter_map(|run| Some((run.claimable_since?, run.head().key.clone())))
            .collect();
        found.sort();
        let keys: Vec<RunKey> = found.into_iter().take(request.limit).map(|(_, key)| key).collect();
        let mut claimed = Vec::new();
        for key in keys {
            claimed.extend(self.claim_run(&key, &request.worker, now));
            self.settle(&key);
        }
        claimed
    }

    /// Appends an input to an unleased run and leases the run if it is pending.
    pub fn claim_one(&mut self, key: &RunKey, worker: &WorkerId, input: Option<Input>, now: Timestamp) -> Answer<ClaimedOne> {
        let run = self.runs.get(key).ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?;
        if run.lease.is_some() {
            return Err(StoreError::RunHeld { key: key.clone() });
        }
        let appended = input.map(|input| self.append_input(key, input, now)).transpose()?;
        let claimed = self.claim_run(key, worker, now);
        self.settle(key);
        Ok(ClaimedOne { appended, head: self.run(key).shown_head(), claimed })
    }

    /// Leases a run that is pending and unleased; the caller settles it.
    pub fn claim_run(&mut self, key: &RunKey, worker: &WorkerId, now: Timestamp) -> Option<ClaimedRun> {
        let run = self.run(key);
        if run.head().status != Status::Pending || run.lease.is_some() {
            return None;
        }
        // The number is new, even for a run whose id a deleted run had before (L7).
        let number = self.next_number();
        let run = self.run_mut(key);
        let epoch = Epoch(number.max(run.head().epoch.0 + 1));
        run.lease = Some(worker.clone());
        let current = run.current_mut();
        current.head.epoch = epoch;
        let records = current.records.clone();
        let head = run.shown_head();
        if !self.sessions.contains_key(worker) {
            self.heartbeat(worker.clone(), SESSION_DEFAULT, now);
        }
        Some(ClaimedRun { head, records: Some(records) })
    }

    pub fn release_run(&mut self, key: &RunKey, epoch: Epoch) {
        if let Some(run) = self.runs.get_mut(key).filter(|run| run.head().epoch == epoch) {
            run.lease = None;
            self.settle(key);
        }
    }

    pub fn heartbeat(&mut self, worker: WorkerId, lease: Duration, now: Timestamp) -> bool {
        let until = now.after(lease);
        let known = self.sessions.insert(worker, until).is_some();
        self.announce_due(until);
        known
    }

    pub fn list_leases(&self, worker: &WorkerId) -> Vec<(RunKey, Epoch)> {
        let held = self.open_runs().filter(|run| run.lease.as_ref() == Some(worker));
        held.map(|run| (run.head().key.clone(), run.head().epoch)).collect()
    }

    /// Ends the session of a worker and releases its runs.
    pub fn lose_worker(&mut self, worker: &WorkerId) {
        self.sessions.remove(worker);
        let held: Vec<RunKey> =
            self.open_runs().filter(|run| run.lease.as_ref() == Some(worker)).map(|run| run.head().key.clone()).collect();
        for key in held {
            self.run_mut(&key).lease = None;
            self.settle(&key);
        }
    }
}
