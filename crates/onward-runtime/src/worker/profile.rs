//! The workers of this process: their code, their load, and the work on its way to them.
//!
//! Must never call the store, because notifications arrive on the store's own thread. The worker's side is
//! [`crate::worker::local`].
//!
//! Invariant W2: a worker holds at most `runs_max` runs at a time; a permit is taken before the store is called.
//! Invariant W3 (S6): a worker receives runs, tasks, queries and notifications only of its own namespace.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use onward_core::run::NewRun;
use onward_core::task::Task;
use onward_core::{Name, Namespace, Record, RunHead, Timestamp, WorkerId};
use onward_store::ClaimedRun;
use onward_store::sync::{lock, read, write};
use tokio::sync::Notify;

use crate::worker::connection::Question;
use crate::worker::running_tasks::HeldTasks;
use crate::worker::session::Session;
use crate::worker::supply::Supply;
use crate::worker::unknown_leases::UnknownLeases;

/// The identity and the capabilities of a worker.
#[derive(Debug, Clone)]
pub struct WorkerProfile {
    /// Id of one session of a worker process; never reused.
    pub id: WorkerId,
    /// The namespace of its runs and tasks; it never receives others (S6).
    pub namespace: Namespace,
    /// The kinds and versions that it has code for; the version `None` stands for runs without one.
    pub knows: Arc<BTreeMap<Name, Vec<Option<Name>>>>,
    /// For each kind, the version that new runs are pinned to.
    pub current: Arc<BTreeMap<Name, Name>>,
    pub task_kinds: Arc<Vec<Name>>,
    /// The rate-limited key that each kind uses, shared with other kinds and workers (see [`crate::worker::rate_limits`]).
    pub task_limits: Arc<BTreeMap<Name, Name>>,
    /// `None` is the default queue.
    pub queues: Vec<Option<Name>>,
    /// Maximum number of runs that it holds, executing or cached. A worker that caches runs must evict some before it reaches
    /// the maximum: it is not notified that other runs wait.
    pub runs_max: usize,
    /// The worker is in another process: the store keeps its session only while [`crate::LocalConnection::mark_seen`] is called.
    pub is_remote: bool,
}

/// The runtime's state of a worker.
pub(crate) struct Worker {
    pub profile: WorkerProfile,
    pub runs: Arc<Supply<ClaimedRun>>,
    pub tasks: Arc<Supply<Task>>,
    /// Queries for runs that no worker holds.
    pub questions: Supply<Question>,
    pub held: HeldTasks,
    pub session: Mutex<Session>,
    pub leases: UnknownLeases,
    permits: AtomicUsize,
    /// Time of the last sign of life of a remote worker; `None` for a local one.
    pub last_seen_at: Option<Mutex<Timestamp>>,
    /// Notified when a remote worker was silent for its whole lease.
    pub lease_expired: Notify,
    /// Takes no more work: it has left, or cannot reach the store.
    pub away: AtomicBool,
    /// Takes no work now: it is remote and not connected.
    pub absent: AtomicBool,
    pub has_left: AtomicBool,
}

impl Worker {
    pub fn new(profile: WorkerProfile, now: Timestamp) -> Worker {
        let last_seen_at = profile.is_remote.then(|| Mutex::new(now));
        Worker {
            last_seen_at,
            lease_expired: Notify::new(),
            profile,
            runs: Arc::default(),
            tasks: Arc::default(),
            questions: Supply::default(),
            held: HeldTasks::default(),
            session: Mutex::new(Session::new(now)),
            leases: UnknownLeases::default(),
            permits: AtomicUsize::new(0),
            away: AtomicBool::new(false),
            absent: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        }
    }

    fn knows(&self, head: &RunHead) -> bool {
        self.knows_kind(&head.key.namespace, &head.kind, &head.version)
    }

    fn knows_kind(&self, namespace: &Namespace, kind: &Name, version: &Option<Name>) -> bool {
        let WorkerProfile { namespace: own, knows, .. } = &self.profile;
        own == namespace && knows.get(kind).is_some_and(|versions| versions.contains(version))
    }

    /// Returns how long a remote worker has been silent.
    pub fn silence(&self, now: Timestamp) -> Duration {
        self.last_seen_at.as_ref().map_or(Duration::ZERO, |last_seen_at| now.since(*lock(last_seen_at)))
    }

    pub fn is_silent(&self, now: Timestamp, lease: Duration) -> bool {
        self.silence(now) >= lease
    }

    /// Returns true if the worker takes work now.
    pub fn takes_work(&self) -> bool {
        !self.away.load(Ordering::SeqCst) && !self.absent.load(Ordering::SeqCst)
    }

    pub fn permits_taken(&self) -> usize {
        self.permits.load(Ordering::SeqCst)
    }

    pub fn has_capacity(&self) -> bool {
        self.permits.load(Ordering::SeqCst) < self.profile.runs_max
    }

    /// Takes up to `count` permits (W2).
    pub fn take_permits(self: &Arc<Worker>, count: usize) -> Vec<Permit> {
        let mut taken = 0;
        let take = |used: usize| {
            taken = self.profile.runs_max.saturating_sub(used).min(count);
            Some(used + taken)
        };
        // The closure always returns `Some`, so the update cannot fail.
        let _ = self.permits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        (0..taken).map(|_| Permit { worker: self.clone() }).collect()
    }
}

/// A permit for one run at a worker.
pub(crate) struct Permit {
    worker: Arc<Worker>,
}

impl Permit {
    pub fn is_of(&self, worker: &Arc<Worker>) -> bool {
        Arc::ptr_eq(&self.worker, worker)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.worker.permits.fetch_sub(1, Ordering::SeqCst);
        self.worker.runs.wake_if_wanted();
    }
}

/// The workers of this process.
#[derive(Default)]
pub(crate) struct Workers {
    all: RwLock<Vec<Arc<Worker>>>,
}

impl Workers {
    pub fn list(&self) -> Vec<Arc<Worker>> {
        read(&self.all).clone()
    }

    pub fn add(&self, worker: Arc<Worker>) {
        write(&self.all).push(worker);
    }

    pub fn remove(&self, worker: &Arc<Worker>) {
        write(&self.all).retain(|other| !Arc::ptr_eq(other, worker));
    }

    /// Takes a permit of the least busy worker that can take the run.
    pub fn reserve_worker(&self, run: &NewRun) -> Option<(Arc<Worker>, Permit)> {
        let (namespace, kind, version) = (&run.key.namespace, &run.started.kind, &run.started.version);
        let all = read(&self.all);
        let able = all.iter().filter(|worker| worker.knows_kind(namespace, kind, version) && worker.takes_work());
        let worker = able.min_by_key(|worker| worker.permits.load(Ordering::SeqCst))?;
        Some((worker.clone(), worker.take_permits(1).pop()?))
    }

    /// Returns a worker that takes work and has code for the run, however busy it is.
    pub fn knowing(&self, head: &RunHead) -> Option<Arc<Worker>> {
        let all = read(&self.all);
        all.iter().find(|worker| worker.knows(head) && worker.takes_work()).cloned()
    }

    /// Returns the version that new runs of a kind are pinned to: that of the worker that joined last.
    pub fn current_version(&self, namespace: &Namespace, kind: &Name) -> Option<Name> {
        let all = read(&self.all);
        let able = |worker: &&Arc<Worker>| worker.profile.namespace == *namespace && worker.takes_work();
        // A worker that has code only for earlier runs of the kind counts for no new one.
        let current = |worker: &Arc<Worker>| {
            let current = worker.profile.current.get(kind).cloned();
            worker.profile.knows.get(kind)?.contains(&current).then_some(current)
        };
        all.iter().rev().filter(able).find_map(current)?
    }

    pub fn run_pending(&self, head: &RunHead) {
        self.each(|worker| {
            if worker.knows(head) {
                worker.runs.want();
            }
        });
    }

    pub fn task_queued(&self, task: &Task) {
        self.each(|worker| {
            let profile = &worker.profile;
            if profile.namespace == task.id.run.namespace
                && profile.task_kinds.contains(&task.kind)
                && profile.queues.contains(&task.options.queue)
            {
                worker.tasks.want();
            }
        });
    }

    /// Wakes the workers of one namespace, or of all, because there may be work.
    pub fn wake(&self, namespace: Option<&Namespace>) {
        self.each(|worker| {
            if namespace.is_none_or(|namespace| worker.profile.namespace == *namespace) {
                worker.runs.want();
                worker.tasks.want();
            }
        });
    }

    /// Wakes the workers of one namespace, because there may be tasks.
    pub fn wake_for_tasks(&self, namespace: &Namespace) {
        self.each(|worker| {
            if worker.profile.namespace == *namespace {
                worker.tasks.want();
            }
        });
    }

    pub fn appended(&self, head: &RunHead, record: &Record) {
        self.each(|worker| worker.held.appended(head, record));
    }

    fn each(&self, visit: impl FnMut(&Arc<Worker>)) {
        read(&self.all).iter().for_each(visit);
    }
}
