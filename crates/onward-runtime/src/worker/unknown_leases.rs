//! Leases that the store has for a worker and that the worker may not know of.
//!
//! Finds and releases them. Nothing else would: the worker's heartbeats extend them, and no code executes their runs. They
//! arise when the reply to a claim is lost, a release fails, or a start is given up by its caller. Must never take a run from a
//! worker that knows of it.
//!
//! Invariant W1: a run that the store leased to a worker reaches that worker, is released, or is lost with the worker's
//! session; also if the caller of a start or a claim gave up in the middle, and if the store's reply was lost.

use std::sync::{Arc, Mutex};

use onward_core::{Epoch, RunKey, Status, Timestamp};
use onward_store::sync::lock;
use onward_store::{Consequence, StoreError};

use crate::Runtime;
use crate::worker::profile::Worker;

/// An epoch that no worker ever has.
const NO_EPOCH: Epoch = Epoch(0);

#[derive(Default)]
pub(crate) struct UnknownLeases {
    /// Runs that their start may have leased to the worker, after the caller gave up.
    orphans: Mutex<Vec<Orphan>>,
    /// Claims that the worker dropped because it could not reach the store, and that are not released yet.
    lost: Mutex<Vec<(RunKey, Epoch)>>,
    /// When to compare the store's leases of the worker with the known ones.
    compare_at: Mutex<Option<Timestamp>>,
}

/// A run whose start was given up before the store replied.
struct Orphan {
    key: RunKey,
    /// Until when the start may still take effect.
    until: Timestamp,
}

impl UnknownLeases {
    pub fn add_orphan(&self, key: RunKey, until: Timestamp) {
        lock(&self.orphans).push(Orphan { key, until });
    }

    pub fn add_lost(&self, claims: Vec<(RunKey, Epoch)>) {
        lock(&self.lost).extend(claims);
    }

    pub fn has_orphan(&self, key: &RunKey) -> bool {
        lock(&self.orphans).iter().any(|orphan| orphan.key == *key)
    }

    /// Passes on the store's reply to a claim or a release. If the outcome is unknown, plans a comparison of leases.
    pub fn noted<T>(&self, answer: Result<T, StoreError>, now: Timestamp) -> Result<T, StoreError> {
        if answer.as_ref().is_err_and(|error| !matches!(error.consequence(), Consequence::Fail)) {
            *lock(&self.compare_at) = Some(now);
        }
        answer
    }

    /// Returns true if there are orphans to check or leases to compare.
    pub fn is_due(&self, now: Timestamp) -> bool {
        !lock(&self.orphans).is_empty() || !lock(&self.lost).is_empty() || self.may_differ(now)
    }

    fn may_differ(&self, now: Timestamp) -> bool {
        lock(&self.compare_at).is_some_and(|at| at <= now)
    }
}

impl Runtime {
    /// Releases the leases that the worker does not know of. The runs are then claimed like any other.
    pub(crate) async fn settle_leases(&self, worker: &Arc<Worker>) {
        self.adopt_orphans(worker).await;
        self.release_lost(worker).await;
        if worker.leases.may_differ(self.clock().now()) {
            // After an error it is repeated with the next claim.
            let _ = self.compare_leases(worker).await;
        }
    }

    /// Releases the claims that the worker dropped, so that it does not count as lost (CW3). After an error it is repeated with
    /// the next claim.
    pub(crate) async fn release_lost(&self, worker: &Worker) {
        let mut lost = std::mem::take(&mut *lock(&worker.leases.lost)).into_iter();
        while let Some((key, epoch)) = lost.next() {
            if self.store().release_run(key.clone(), epoch).await.is_err() {
                return worker.leases.add_lost([(key, epoch)].into_iter().chain(lost).collect());
            }
        }
    }

    /// Plans a comparison of leases after one lease duration. A shared store can lose replies unnoticed, such as that of one of
    /// several databases, or apply a request after its caller has given up.
    pub(crate) fn plan_comparison(&self, worker: &Worker) {
        let next = self.store().is_shared().then(|| self.clock().now().after(self.options().lease));
        *lock(&worker.leases.compare_at) = next;
    }

    async fn compare_leases(&self, worker: &Arc<Worker>) -> Result<(), StoreError> {
        let before = *lock(&worker.leases.compare_at);
        self.plan_comparison(worker);
        let again = |error| {
            *lock(&worker.leases.compare_at) = before;
            error
        };
        let leases = self.store().list_leases(worker.profile.id.clone()).await.map_err(again)?;
        let inboxes = &self.hub().inboxes;
        // Checked after the reply: a claim that ended before has created its slots, and one that began later is not in the
        // reply.
        if inboxes.is_claiming() {
            *lock(&worker.leases.compare_at) = before;
            return Ok(());
        }
        for (key, epoch) in leases {
            match inboxes.claim_of(&key) {
                None => self.store().release_run(key, epoch).await.map_err(again)?,
                Some(Some(known)) if known != epoch => self.store().release_run(key, epoch).await.map_err(again)?,
                // The worker has the run, or is about to get it.
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Releases runs that their start may have leased to this worker after the caller gave up. The start may still be in
    /// progress for a while.
    async fn adopt_orphans(&self, worker: &Worker) {
        let orphans = std::mem::take(&mut *lock(&worker.leases.orphans));
        for orphan in orphans {
            let settled = self.adopt(&orphan.key).await.unwrap_or(false);
            if !settled && self.clock().now() < orphan.until {
                lock(&worker.leases.orphans).push(orphan);
            }
        }
    }

    /// Returns true if the start has taken effect; then no unknown lease is left.
    async fn adopt(&self, key: &RunKey) -> Result<bool, StoreError> {
        let store = self.store();
        // A write without an effect, so that the read comes after earlier writes.
        store.release_run(key.clone(), NO_EPOCH).await?;
        let Some(head) = store.read_run(key.clone(), None).await? else { return Ok(false) };
        let known = match self.hub().inboxes.claim_of(key) {
            Some(None) => return Ok(false), // another start is in progress and may own the claim
            known => known == Some(Some(head.epoch)),
        };
        let held = matches!(head.status, Status::Running | Status::Paused);
        if held && head.next_commit == 0 && !known {
            // If the lease belongs to another process, that one is fenced and the run starts again: only work is lost.
            store.release_run(key.clone(), head.epoch).await?;
        }
        Ok(true)
    }
}
