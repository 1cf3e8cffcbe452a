//! The tasks that a worker of this process executes.
//!
//! Extends the lease of an attempt while it runs, and notifies the worker when the attempt has ended elsewhere.
//!
//! Invariant W4: the lease of a released task is not extended, so it expires even if the task could not be given back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::spend::AttemptSpend;
use onward_core::task::{RetryPolicy, Task, TaskId};
use onward_core::{Event, Name, Record, RunHead};
use tokio::sync::Notify;

use onward_store::sync::lock;

#[derive(Default)]
pub(crate) struct HeldTasks {
    count: AtomicUsize,
    tasks: Mutex<BTreeMap<TaskId, RunningTask>>,
}

struct RunningTask {
    claim: u64,
    kind: Name,
    attempt: u32,
    retry: RetryPolicy,
    uncounted_attempts: u32,
    heartbeat_timeout: Option<Duration>,
    /// The ledger entry of the attempt.
    about: AttemptSpend,
    over: Arc<Notify>,
    /// The store still has the task under another session of the worker, and the takeover is in progress: heartbeats of this
    /// session would be refused (K10).
    is_being_adopted: bool,
}

impl RunningTask {
    fn notify_ended(&self) {
        self.over.notify_waiters();
        self.over.notify_one(); // for a waiter that is not registered yet
    }
}

impl HeldTasks {
    pub fn add(&self, task: &Task) {
        let heartbeat_timeout = task.options.heartbeat_timeout_ms.map(Duration::from_millis);
        let about = task.attempt_spend(Vec::new());
        let held = RunningTask {
            claim: task.claim,
            kind: task.kind.clone(),
            attempt: task.attempt,
            retry: task.options.retry.clone(),
            uncounted_attempts: task.uncounted_attempts,
            heartbeat_timeout,
            about,
            over: Arc::default(),
            is_being_adopted: false,
        };
        let mut tasks = lock(&self.tasks);
        if tasks.get(&task.id).is_some_and(|held| held.claim == task.claim) {
            return; // the worker has it already
        }
        // The attempt before timed out, and this worker claimed the next one.
        if let Some(before) = tasks.insert(task.id.clone(), held) {
            before.notify_ended();
        }
        self.count.store(tasks.len(), Ordering::SeqCst);
    }

    /// Marks a task that the store has under another session of the worker: its lease is extended only after the takeover.
    pub fn set_being_adopted(&self, id: &TaskId, claim: u64, is_being_adopted: bool) {
        if let Some(held) = lock(&self.tasks).get_mut(id).filter(|held| held.claim == claim) {
            held.is_being_adopted = is_being_adopted;
        }
    }

    /// Ends the attempt and notifies the waiters.
    pub fn end(&self, id: &TaskId, claim: u64) {
        self.end_where(|other, held| other == id && held.claim == claim);
    }

    /// Returns the lease of a task: at least its own heartbeat timeout.
    pub fn lease(&self, id: &TaskId, lease: Duration) -> Duration {
        let timeout = lock(&self.tasks).get(id).and_then(|held| held.heartbeat_timeout);
        timeout.map_or(lease, |timeout| timeout.max(lease))
    }

    /// Returns the kind of the task.
    pub fn kind(&self, id: &TaskId, claim: u64) -> Option<Name> {
        self.of(id, claim, |held| held.kind.clone())
    }

    /// Returns the ledger entry of an attempt.
    pub fn about(&self, id: &TaskId, claim: u64) -> Option<AttemptSpend> {
        self.of(id, claim, |held| held.about.clone())
    }

    /// Returns the number of the attempt, how many before it do not count against the retry limit, and the retry policy.
    pub fn attempt(&self, id: &TaskId, claim: u64) -> Option<(u32, u32, RetryPolicy)> {
        self.of(id, claim, |held| (held.attempt, held.uncounted_attempts, held.retry.clone()))
    }

    fn of<T>(&self, id: &TaskId, claim: u64, read: impl FnOnce(&RunningTask) -> T) -> Option<T> {
        lock(&self.tasks).get(id).filter(|held| held.claim == claim).map(read)
    }

    /// Returns the attempts whose lease the runtime extends: those without a heartbeat timeout.
    pub fn kept_alive(&self) -> Vec<(TaskId, u64)> {
        let tasks = lock(&self.tasks);
        let is_kept = |held: &RunningTask| held.heartbeat_timeout.is_none() && !held.is_being_adopted;
        tasks.iter().filter(|(_, held)| is_kept(held)).map(|(id, held)| (id.clone(), held.claim)).collect()
    }

    /// Waits until the attempt has ended: reported, canceled, timed out, or claimed by another worker.
    pub async fn over(&self, id: &TaskId, claim: u64) {
        if let Some(over) = self.of(id, claim, |held| held.over.clone()) {
            over.notified().await;
        }
    }

    /// Ends the tasks that a record takes away: those of a closed run and canceled ones.
    pub fn appended(&self, head: &RunHead, record: &Record) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if record.ends_log() {
            self.end_where(|id, _| id.run == head.key && id.generation == head.generation);
        }
        for event in &record.events {
            if let Event::TaskCanceled(event) = event {
                self.end_where(|id, _| id.run == head.key && id.generation == head.generation && id.call_id == event.call_id);
            }
        }
    }

    fn end_where(&self, chosen: impl Fn(&TaskId, &RunningTask) -> bool) {
        let mut tasks = lock(&self.tasks);
        tasks.retain(|id, held| {
            let over = chosen(id, held);
            if over {
                held.notify_ended();
            }
            !over
        });
        self.count.store(tasks.len(), Ordering::SeqCst);
    }
}
