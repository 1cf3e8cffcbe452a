//! Run leases and worker sessions, in memory only.
//!
//! The directory lock makes this process the only one, so a lease need not survive it: after a restart no run is leased, and the
//! boot counter in every epoch fences old holders (L7). Those of workers inside of the process are also in a file, which shows
//! after its death what it was executing ([`lease_file`](crate::file::lease_file)).
//! Must never lease one run to two workers.

use onward_store::sync;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use onward_core::{Epoch, RunHead, RunKey, Status, Timestamp, WorkerId};

use crate::file::lease_file::LeaseFile;

#[derive(Default)]
pub(crate) struct Leases {
    held: RwLock<LeaseTable>,
    /// End of each session by the steady clock: setting the system clock neither ends nor extends a session.
    sessions: Mutex<HashMap<WorkerId, Timestamp>>,
}

/// Run numbers are generated here and count up: spreading them is enough.
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
struct LeaseTable {
    by_run: HashMap<i64, Lease, BuildHasherDefault<ByNumber>>,
    by_worker: HashMap<WorkerId, HashSet<i64>>,
    file: Option<LeaseFile>,
}

#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub epoch: Epoch,
    pub worker: WorkerId,
}

impl Leases {
    /// Creates leases that are also recorded in the file, if there is one.
    pub fn recorded(file: Option<LeaseFile>) -> Leases {
        let held = RwLock::new(LeaseTable { file, ..LeaseTable::default() });
        Leases { held, ..Leases::default() }
    }

    /// Removes the leases of the process before from the file.
    pub fn forget_before(&self) {
        self.write().file.iter_mut().for_each(LeaseFile::forget_before);
    }

    /// Empties the file, because this process ends orderly.
    pub fn close(&self) {
        self.write().file.iter_mut().for_each(LeaseFile::close);
    }

    fn read(&self) -> RwLockReadGuard<'_, LeaseTable> {
        sync::read(&self.held)
    }

    fn write(&self) -> RwLockWriteGuard<'_, LeaseTable> {
        sync::write(&self.held)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<WorkerId, Timestamp>> {
        sync::lock(&self.sessions)
    }

    pub fn is_held(&self, rk: i64) -> bool {
        self.read().by_run.contains_key(&rk)
    }

    pub fn get(&self, rk: i64) -> Option<Lease> {
        self.read().by_run.get(&rk).cloned()
    }

    pub fn count(&self) -> usize {
        self.read().by_run.len()
    }

    /// Returns the runs that a worker holds, with the epochs of their claims.
    pub fn of_worker(&self, worker: &WorkerId) -> Vec<(i64, Epoch)> {
        let held = self.read();
        let own = held.by_worker.get(worker).into_iter().flatten();
        own.filter_map(|rk| Some((*rk, held.by_run.get(rk)?.epoch))).collect()
    }

    /// Returns every leased run.
    pub fn held_runs(&self) -> Vec<i64> {
        self.read().by_run.keys().copied().collect()
    }

    /// Completes a head as callers see it: with its epoch, and `running` if it is pending and leased.
    pub fn show(&self, rk: i64, head: &mut RunHead) {
        if let Some(lease) = self.read().by_run.get(&rk) {
            head.epoch = lease.epoch;
            head.status = if head.status == Status::Pending { Status::Running } else { head.status };
        }
    }

    pub fn grant(&self, rk: i64, key: &RunKey, epoch: Epoch, worker: &WorkerId) {
        let mut held = self.write();
        held.file.iter_mut().for_each(|file| file.grant(rk, key, epoch, worker)); // LF1
        let before = held.by_run.insert(rk, Lease { epoch, worker: worker.clone() });
        assert!(before.is_none(), "run {rk} is leased to one worker at a time");
        held.by_worker.entry(worker.clone()).or_default().insert(rk);
    }

    /// Removes the lease, if there is one (of that epoch).
    pub fn drop(&self, rk: i64, epoch: Option<Epoch>) -> Option<Lease> {
        let mut held = self.write();
        held.by_run.get(&rk).filter(|lease| epoch.is_none_or(|epoch| lease.epoch == epoch))?;
        let lease = held.by_run.remove(&rk)?;
        held.file.iter_mut().for_each(|file| file.drop(rk));
        if let Some(runs) = held.by_worker.get_mut(&lease.worker) {
            runs.remove(&rk);
            if runs.is_empty() {
                held.by_worker.remove(&lease.worker);
            }
        }
        Some(lease)
    }

    /// Restores a lease that a failed batch dropped, unless the worker's session has ended since.
    pub fn restore(&self, rk: i64, key: &RunKey, lease: &Lease) -> bool {
        let known = self.sessions().contains_key(&lease.worker) && !self.is_held(rk);
        if known {
            self.grant(rk, key, lease.epoch, &lease.worker);
        }
        known
    }

    /// Extends a worker's session; returns whether there was one.
    pub fn extend(&self, worker: WorkerId, until: Timestamp) -> bool {
        self.sessions().insert(worker, until).is_some()
    }

    /// Opens a session for a worker that claims without a heartbeat. Returns whether it is new.
    pub fn begin_session(&self, worker: &WorkerId, until: Timestamp) -> bool {
        let mut sessions = self.sessions();
        let is_new = !sessions.contains_key(worker);
        if is_new {
            sessions.insert(worker.clone(), until);
        }
        is_new
    }

    /// Ends up to `limit` expired sessions, oldest first. Returns the leases that ended, the number of ended sessions, and
    /// whether there are more.
    pub fn end_sessions(&self, now: Timestamp, limit: usize) -> (Vec<(i64, Lease)>, usize, bool) {
        let mut sessions = self.sessions();
        let mut over: Vec<(Timestamp, WorkerId)> =
            sessions.iter().filter(|(_, until)| **until <= now).map(|(worker, until)| (*until, worker.clone())).collect();
        over.sort();
        let more = over.len() > limit;
        over.truncate(limit);
        let mut held = self.write();
        let mut free: Vec<i64> = Vec::new();
        for (_, worker) in &over {
            sessions.remove(worker);
            free.extend(held.by_worker.remove(worker).unwrap_or_default());
        }
        free.sort_unstable();
        held.file.iter_mut().for_each(|file| free.iter().for_each(|rk| file.drop(*rk)));
        let ended = free.into_iter().filter_map(|rk| Some((rk, held.by_run.remove(&rk)?)));
        (ended.collect(), over.len(), more)
    }

    pub fn next_session_end(&self) -> Option<Timestamp> {
        self.sessions().values().min().copied()
    }
}
