//! Who works on which run, in memory only.
//!
//! Owns leases and worker sessions. The directory lock makes this process the only one, so a lease need not survive it: after a
//! restart nobody holds anything, and the boot counter in every epoch fences whoever still believes so (L7).
//! Must never give one run to two workers.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use onward_core::{Epoch, RunHead, Status, Timestamp, WorkerId};

#[derive(Default)]
pub(crate) struct Leases {
    held: RwLock<Held>,
    /// Until when each worker is believed to live, by the steady clock: a clock that is set ends no session, and lengthens none.
    sessions: Mutex<HashMap<WorkerId, Timestamp>>,
}

/// Run numbers are our own and count up: spreading them is enough.
#[derive(Default, Clone, Copy)]
struct ByNumber(u64);

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn write_i64(&mut self, value: i64) {
        self.write_u64(value as u64);
    }
}

#[derive(Default)]
struct Held {
    by_run: HashMap<i64, Lease, BuildHasherDefault<ByNumber>>,
    by_worker: HashMap<WorkerId, HashSet<i64>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub epoch: Epoch,
    pub worker: WorkerId,
}

impl Leases {
    fn read(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<WorkerId, Timestamp>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_held(&self, rk: i64) -> bool {
        self.read().by_run.contains_key(&rk)
    }

    pub fn epoch(&self, rk: i64) -> Option<Epoch> {
        self.read().by_run.get(&rk).map(|lease| lease.epoch)
    }

    pub fn count(&self) -> usize {
        self.read().by_run.len()
    }

    /// The runs that a worker holds, with the epochs of their claims.
    pub fn of_worker(&self, worker: &WorkerId) -> Vec<(i64, Epoch)> {
        let held = self.read();
        let own = held.by_worker.get(worker).into_iter().flatten();
        own.filter_map(|rk| Some((*rk, held.by_run.get(rk)?.epoch))).collect()
    }

    /// Every run that somebody holds.
    pub fn held_runs(&self) -> Vec<i64> {
        self.read().by_run.keys().copied().collect()
    }

    /// The head as it is told to others: with its epoch, and `running` where it is pending and held.
    pub fn show(&self, rk: i64, head: &mut RunHead) {
        if let Some(lease) = self.read().by_run.get(&rk) {
            head.epoch = lease.epoch;
            if head.status == Status::Pending {
                head.status = Status::Running;
            }
        }
    }

    pub fn grant(&self, rk: i64, epoch: Epoch, worker: &WorkerId) {
        let mut held = self.write();
        let before = held.by_run.insert(rk, Lease { epoch, worker: worker.clone() });
        assert!(before.is_none(), "run {rk} is given to one worker at a time");
        held.by_worker.entry(worker.clone()).or_default().insert(rk);
    }

    /// Takes the lease away, if there is one (of that epoch).
    pub fn drop(&self, rk: i64, epoch: Option<Epoch>) -> Option<Lease> {
        let mut held = self.write();
        held.by_run.get(&rk).filter(|lease| epoch.is_none_or(|epoch| lease.epoch == epoch))?;
        let lease = held.by_run.remove(&rk)?;
        if let Some(runs) = held.by_worker.get_mut(&lease.worker) {
            runs.remove(&rk);
            if runs.is_empty() {
                held.by_worker.remove(&lease.worker);
            }
        }
        Some(lease)
    }

    /// Gives a lease back that was dropped by a batch which failed; not to a worker that has fallen silent since.
    pub fn restore(&self, rk: i64, lease: &Lease) -> bool {
        let known = self.sessions().contains_key(&lease.worker) && !self.is_held(rk);
        if known {
            self.grant(rk, lease.epoch, &lease.worker);
        }
        known
    }

    /// Extends a worker's session; says whether there was one.
    pub fn extend(&self, worker: WorkerId, until: Timestamp) -> bool {
        self.sessions().insert(worker, until).is_some()
    }

    /// Makes a worker known that claims without having said hello. Returns whether it is new.
    pub fn greet(&self, worker: &WorkerId, until: Timestamp) -> bool {
        let mut sessions = self.sessions();
        let is_new = !sessions.contains_key(worker);
        if is_new {
            sessions.insert(worker.clone(), until);
        }
        is_new
    }

    /// Ends up to `limit` sessions that are over, the longest silent first. Returns the runs that are free now, how many sessions
    /// ended, and whether there are more.
    pub fn end_sessions(&self, now: Timestamp, limit: usize) -> (Vec<i64>, usize, bool) {
        let mut sessions = self.sessions();
        let mut over: Vec<(Timestamp, WorkerId)> =
            sessions.iter().filter(|(_, until)| **until <= now).map(|(worker, until)| (*until, worker.clone())).collect();
        over.sort();
        let more = over.len() > limit;
        over.truncate(limit);
        let mut held = self.write();
        let mut free = Vec::new();
        for (_, worker) in &over {
            sessions.remove(worker);
            free.extend(held.by_worker.remove(worker).unwrap_or_default());
        }
        free.sort_unstable();
        free.iter().for_each(|rk| drop(held.by_run.remove(rk)));
        (free, over.len(), more)
    }

    pub fn next_session_end(&self) -> Option<Timestamp> {
        self.sessions().values().min().copied()
    }
}
