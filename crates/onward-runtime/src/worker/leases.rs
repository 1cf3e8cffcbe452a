//! Leases that a worker has, or may have, without knowing of them.
//!
//! Owns finding them and giving them back. Nothing else would: the worker's heartbeats keep them, and nobody works on their runs. The
//! answer to a claim can be lost, a release can fail, a start can be given up by its caller. Must never take a run from a worker that
//! knows of it.
//!
//! Invariant W1: a run that the store leased to a worker gets to that worker, is released, or is lost with the worker's session; also
//! when whoever started it or waited for it gave up in the middle, and when the store's answer was lost.

use std::sync::{Arc, Mutex};

use onward_core::{Epoch, RunKey, Status, Timestamp};
use onward_store::{Consequence, StoreError};

use crate::Runtime;
use crate::by_run::lock;
use crate::worker::profile::Worker;

/// An epoch that no worker ever has.
const NO_EPOCH: Epoch = Epoch(0);

#[derive(Default)]
pub(crate) struct Leases {
    /// Runs that were leased to the worker at their start, perhaps, for a caller who did not stay to hear of it.
    orphans: Mutex<Vec<Orphan>>,
    /// When to ask the store which runs it has leased to the worker.
    compare_at: Mutex<Option<Timestamp>>,
}

/// A run whose start was given up before the store answered.
struct Orphan {
    key: RunKey,
    /// Until when the start may still come through.
    until: Timestamp,
}

impl Leases {
    pub fn add_orphan(&self, key: RunKey, until: Timestamp) {
        lock(&self.orphans).push(Orphan { key, until });
    }

    pub fn has_orphan(&self, key: &RunKey) -> bool {
        lock(&self.orphans).iter().any(|orphan| orphan.key == *key)
    }

    /// Passes on what the store said to a claim or a release. If it said nothing, the worker may have more than it knows.
    pub fn noted<T>(&self, answer: Result<T, StoreError>, now: Timestamp) -> Result<T, StoreError> {
        if answer.as_ref().is_err_and(|error| !matches!(error.consequence(), Consequence::TellCaller)) {
            *lock(&self.compare_at) = Some(now);
        }
        answer
    }

    /// Whether there is something to find out.
    pub fn is_due(&self, now: Timestamp) -> bool {
        !lock(&self.orphans).is_empty() || self.may_differ(now)
    }

    fn may_differ(&self, now: Timestamp) -> bool {
        lock(&self.compare_at).is_some_and(|at| at <= now)
    }
}

impl Runtime {
    /// Gives back what the worker has without knowing of it. Released, such runs are claimed like any other.
    pub(crate) async fn settle_leases(&self, worker: &Arc<Worker>) {
        self.adopt_orphans(worker).await;
        if worker.leases.may_differ(self.clock().now()) {
            // Asked again with the next look if the store does not answer.
            let _ = self.compare_leases(worker).await;
        }
    }

    /// Compares the worker's leases after another lease without a reason. A store that others share can lose answers that nobody misses,
    /// for instance what one of several databases said, or do what it was asked after everybody has stopped waiting.
    pub(crate) fn plan_comparison(&self, worker: &Worker) {
        let next = self.store().is_shared().then(|| self.clock().now().after(self.options().lease));
        *lock(&worker.leases.compare_at) = next;
    }

    async fn compare_leases(&self, worker: &Arc<Worker>) -> Result<(), StoreError> {
        let asked = *lock(&worker.leases.compare_at);
        self.plan_comparison(worker);
        let again = |error| {
            *lock(&worker.leases.compare_at) = asked;
            error
        };
        let leases = self.store().list_leases(worker.profile.id.clone()).await.map_err(again)?;
        let inboxes = &self.hub().inboxes;
        // Asked behind the answer: a claim that ended before has made its slots, and one that began later is not in the answer.
        if inboxes.is_claiming() {
            *lock(&worker.leases.compare_at) = asked;
            return Ok(());
        }
        for (key, epoch) in leases {
            match inboxes.claim_of(&key) {
                None => self.store().release_run(key, epoch).await.map_err(again)?,
                Some(Some(known)) if known != epoch => self.store().release_run(key, epoch).await.map_err(again)?,
                // The worker knows it, or is about to.
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Releases runs whose start leased them to this worker, perhaps, while nobody was left to hear of it. A start that was given up may
    /// still be on its way for a while.
    async fn adopt_orphans(&self, worker: &Worker) {
        let orphans = std::mem::take(&mut *lock(&worker.leases.orphans));
        for orphan in orphans {
            let settled = self.adopt(&orphan.key).await.unwrap_or(false);
            if !settled && self.clock().now() < orphan.until {
                lock(&worker.leases.orphans).push(orphan);
            }
        }
    }

    /// Returns whether the run's start has come through; then nobody holds it who does not know it.
    async fn adopt(&self, key: &RunKey) -> Result<bool, StoreError> {
        let store = self.store();
        // A write that changes nothing, so that the read comes after the writes before it.
        store.release_run(key.clone(), NO_EPOCH).await?;
        let Some(head) = store.read_run(key.clone(), None).await? else { return Ok(false) };
        let known = match self.hub().inboxes.claim_of(key) {
            Some(None) => return Ok(false), // somebody starts it once more: perhaps the claim is theirs
            known => known == Some(Some(head.epoch)),
        };
        let held = matches!(head.status, Status::Running | Status::Paused);
        if held && head.next_commit == 0 && !known {
            // If it is another process's after all, that one is fenced and the run begins once more: nothing is lost but work.
            store.release_run(key.clone(), head.epoch).await?;
        }
        Ok(true)
    }
}
