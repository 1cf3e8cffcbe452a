//! The tasks that a worker of this process executes.
//!
//! Extends the lease of an attempt while it runs, and notifies the worker when the attempt has ended elsewhere.
//!
//! Invariants:
//! - W4: the lease of a released task is not extended, so it expires even if the task could not be given back.
//! - W5: a task whose end arrives before the store's reply to its claim is not delivered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::spend::AttemptSpend;
use onward_core::task::{RetryPolicy, Task, TaskId};
use onward_core::{CallId, Event, Name, Record, RunHead, RunKey};
use tokio::sync::Notify;

use onward_store::sync::lock;

/// Number of ends that a claim remembers. Beyond it, the worker learns of an end with its next heartbeat.
const ENDS_MAX: usize = 4_096;

#[derive(Default)]
pub(crate) struct HeldTasks {
    /// Number of tasks and of claims in progress.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<TaskId, RunningTask>,
    /// Number of claims in progress.
    claims: usize,
    /// What ended while a claim was in progress.
    ended: Vec<Ended>,
}

/// The end of a call, or of all calls of a generation.
struct Ended {
    run: RunKey,
    generation: u32,
    incarnation: Option<u64>,
    call_id: Option<CallId>,
}

impl Ended {
    fn is_of(&self, task: &TaskId) -> bool {
        let Ended { run, generation, incarnation, call_id } = self;
        let call_id = call_id.as_ref().unwrap_or(&task.call_id).clone();
        task.is_same_task(&TaskId { run: run.clone(), generation: *generation, call_id, incarnation: *incarnation })
    }
}

/// A claim in progress. Created before the store is called; without one, an end in between would be missed (W5).
pub(crate) struct TaskClaim<'a> {
    held: &'a HeldTasks,
}

impl TaskClaim<'_> {
    /// Adds a claimed task. Returns false if it has ended since the claim began.
    pub fn add(&self, task: &Task) -> bool {
        let mut state = lock(&self.held.state);
        let has_ended = state.ended.iter().any(|ended| ended.is_of(&task.id));
        if !has_ended {
            state.add(task);
        }
        self.held.recount(&state);
        !has_ended
    }
}

impl Drop for TaskClaim<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.held.state);
        state.claims -= 1;
        if state.claims == 0 {
            state.ended = Vec::new();
        }
        self.held.recount(&state);
    }
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

impl State {
    fn add(&mut self, task: &Task) {
        let heartbeat_timeout = task.options.heartbeat_timeout_ms.map(Duration::from_millis);
        let about = task.attempt_spend(Vec::new());
        let held = RunningTask {
            claim: task.claim,
            kind: task.kind.clone(),
            attempt: task.attempt,
            retry: task.options.retry(),
            uncounted_attempts: task.uncounted_attempts,
            heartbeat_timeout,
            about,
            over: Arc::default(),
            is_being_adopted: false,
        };
        if self.tasks.get(&task.id).is_some_and(|held| held.claim == task.claim) {
            return; // the worker has it already
        }
        // The attempt before timed out, and this worker claimed the next one.
        if let Some(before) = self.tasks.insert(task.id.clone(), held) {
            before.notify_ended();
        }
    }
}

impl HeldTasks {
    pub fn begin_claim(&self) -> TaskClaim<'_> {
        let mut state = lock(&self.state);
        state.claims += 1;
        self.recount(&state);
        TaskClaim { held: self }
    }

    /// Marks a task that the store has under another session of the worker: its lease is extended only after the takeover.
    pub fn set_being_adopted(&self, id: &TaskId, claim: u64, is_being_adopted: bool) {
        if let Some(held) = lock(&self.state).tasks.get_mut(id).filter(|held| held.claim == claim) {
            held.is_being_adopted = is_being_adopted;
        }
    }

    /// Ends the attempt and notifies the waiters.
    pub fn end(&self, id: &TaskId, claim: u64) {
        self.end_where(&mut lock(&self.state), |other, held| other == id && held.claim == claim);
    }

    /// Returns the lease of a task: at least its own heartbeat timeout.
    pub fn lease(&self, id: &TaskId, lease: Duration) -> Duration {
        let timeout = lock(&self.state).tasks.get(id).and_then(|held| held.heartbeat_timeout);
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
        lock(&self.state).tasks.get(id).filter(|held| held.claim == claim).map(read)
    }

    /// Returns the attempts whose lease the runtime extends: those without a heartbeat timeout.
    pub fn kept_alive(&self) -> Vec<(TaskId, u64)> {
        let state = lock(&self.state);
        let is_kept = |held: &RunningTask| held.heartbeat_timeout.is_none() && !held.is_being_adopted;
        state.tasks.iter().filter(|(_, held)| is_kept(held)).map(|(id, held)| (id.clone(), held.claim)).collect()
    }

    /// Waits until the attempt has ended: reported, canceled, timed out, or claimed by another worker.
    pub async fn over(&self, id: &TaskId, claim: u64) {
        if let Some(over) = self.of(id, claim, |held| held.over.clone()) {
            over.notified().await;
        }
    }

    /// Ends the tasks that a record takes away: those of a closed run, canceled ones, and those that timed out.
    pub fn appended(&self, head: &RunHead, record: &Record) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if record.ends_log() {
            self.end_in(head, None);
        }
        for event in &record.events {
            match event {
                Event::TaskCanceled(event) => self.end_in(head, Some(&event.call_id)),
                Event::TaskFailed(event) if event.failure.is_timed_out() => self.end_in(head, Some(&event.call_id)),
                _ => {}
            }
        }
    }

    /// Ends one call of the run's generation, or all.
    fn end_in(&self, head: &RunHead, call_id: Option<&CallId>) {
        let (run, generation) = (&head.key, head.generation);
        let mut state = lock(&self.state);
        self.end_where(&mut state, |id, _| {
            id.run == *run && id.generation == generation && call_id.is_none_or(|call_id| id.call_id == *call_id)
        });
        if state.claims > 0 && state.ended.len() < ENDS_MAX {
            let (run, incarnation, call_id) = (run.clone(), head.incarnation, call_id.cloned());
            state.ended.push(Ended { run, generation, incarnation, call_id });
        }
    }

    fn end_where(&self, state: &mut State, chosen: impl Fn(&TaskId, &RunningTask) -> bool) {
        state.tasks.retain(|id, held| {
            let over = chosen(id, held);
            if over {
                held.notify_ended();
            }
            !over
        });
        self.recount(state);
    }

    fn recount(&self, state: &State) {
        self.count.store(state.tasks.len() + state.claims, Ordering::SeqCst);
    }
}
