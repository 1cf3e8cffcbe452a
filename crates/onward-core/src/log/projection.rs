//! Everything that a store keeps about a run beside its log, derived from the log.
//!
//! A store writes a [`Projection`] when it receives a whole log (a copy or an import) and when its own rows are damaged. For a
//! log that grew in the store, the projection equals the stored rows. It is fed record by record and derives the effects of each
//! from [`RunHead`], as the store did.
//!
//! Must never decide anything that is not in the log. Data that is not in the log is not made up: attempts of tasks and leases
//! start over.
//!
//! Invariant J1 (L16): the projection of a log equals the rows of the store that wrote it, except for attempts, leases and the
//! outbox.

use std::collections::BTreeMap;

use crate::log::event::{ChildStarted, RetryRequested, RunForked};
use crate::run::ancestry::Ancestry;
use crate::run::deadline::deadline_call;
use crate::run::delayed_start::start_call;
use crate::run::schedule::wake_call;
use crate::run::{Effect, IdempotencyRecord, RunHead, Wait, WaitKind, wait_key};
use crate::spend::ledger::{LedgerKey, LedgerSum};
use crate::task::{Task, TaskState, idempotency_key};
use crate::{CallId, Event, Index, Record, RunId, RunKey, Timestamp};

/// A timer row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectedTimer {
    pub due_at: Timestamp,
    /// The run is paused; the timer keeps its remaining time.
    pub is_frozen: bool,
}

/// An idempotency record: the token of the first request, and the reply that repeats get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectedSlot {
    pub token: String,
    pub index: Index,
    pub at: Timestamp,
}

/// A child that was started and has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectedChild {
    /// The child as the code started it.
    pub started: ChildStarted,
    /// Its current id: a different one if it was restarted.
    pub id: RunId,
}

/// The rows derived from a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    pub head: RunHead,
    pub timers: BTreeMap<CallId, ProjectedTimer>,
    pub tasks: BTreeMap<CallId, Task>,
    pub waits: BTreeMap<CallId, Wait>,
    /// Of this generation only; a copy of an earlier generation's log adds none.
    pub slots: BTreeMap<String, ProjectedSlot>,
    pub children: BTreeMap<CallId, ProjectedChild>,
    /// Decided approvals: a copy asks for them again.
    decided: BTreeMap<CallId, Wait>,
    /// The ledger rows of this log only (LG3).
    pub ledger: BTreeMap<LedgerKey, LedgerSum>,
    ancestry: Ancestry,
}

impl Projection {
    /// Begins with the first record; returns `None` if that is not a `run_started`.
    pub fn begin(key: RunKey, first: &Record) -> Option<Projection> {
        let started = first.started()?;
        let ancestry = Ancestry::new(&key, started);
        let (head, _) = RunHead::start(key, started.clone(), first.at);
        let effects = head.start_effects(first);
        let mut projection = Projection {
            head,
            timers: BTreeMap::new(),
            tasks: BTreeMap::new(),
            waits: BTreeMap::new(),
            slots: BTreeMap::new(),
            children: BTreeMap::new(),
            decided: BTreeMap::new(),
            ledger: BTreeMap::new(),
            ancestry,
        };
        effects.into_iter().for_each(|effect| projection.carry_out(effect, first, u64::MAX));
        for once in started.updates.iter().map(IdempotencyRecord::update) {
            projection.fill(once.key, once.token, first);
        }
        Some(projection)
    }

    /// Builds the projection of a whole log.
    pub fn of(key: RunKey, records: &[Record]) -> Option<Projection> {
        let (first, rest) = records.split_first()?;
        let mut projection = Projection::begin(key, first)?;
        rest.iter().for_each(|record| projection.push(record));
        Some(projection)
    }

    pub fn ancestry(&self) -> &Ancestry {
        &self.ancestry
    }

    pub fn push(&mut self, record: &Record) {
        let effects = self.head.effects_of(record);
        if record.commit.is_none() {
            record.indexed().for_each(|(index, event)| self.take_input(record, index, event));
        }
        let n = record.commit.map_or(u64::MAX, |commit| commit.n);
        self.head.follow(record);
        for event in &record.events {
            self.track_child(event);
        }
        effects.into_iter().for_each(|effect| self.carry_out(effect, record, n));
    }

    /// Repeats what the store did when it appended the input, and adds its idempotency record.
    fn take_input(&mut self, record: &Record, index: Index, event: &Event) {
        let set_aside = self.ancestry.is_set_aside(index);
        match event {
            Event::TimerFired(event) => drop(self.timers.remove(&event.call_id)),
            Event::RunBegun(_) => {
                self.timers.remove(&start_call());
                self.tasks.entry(start_call()).and_modify(|slot| slot.hold(record.at));
            }
            Event::ScheduleDecided(_) => drop(self.timers.remove(&wake_call())),
            Event::CancelRequested(event) if event.is_deadline => drop(self.timers.remove(&deadline_call())),
            Event::TaskCompleted(event) => drop(self.tasks.remove(&event.call_id)),
            Event::TaskFailed(event) if !set_aside => drop(self.tasks.remove(&event.call_id)),
            Event::TaskFailed(event) => {
                self.tasks.entry(event.call_id.clone()).and_modify(|task| {
                    *task = task.rescheduled(record.at);
                    task.skip_attempts(event.attempts); // K9
                });
            }
            Event::TaskAttempted(event) => {
                self.tasks.entry(event.call_id.clone()).and_modify(|task| task.lose_attempt(event.attempt, record.at));
            }
            Event::ChildCompleted(event) => drop(self.children.remove(&event.call_id)),
            Event::ChildFailed(event) if !set_aside => drop(self.children.remove(&event.call_id)),
            Event::RetryRequested(RetryRequested { children, .. }) | Event::RunForked(RunForked { children, .. }) => {
                self.go_on(record.at);
                children.iter().for_each(|again| self.rename_child(&again.call_id, &again.child));
            }
            Event::RunPaused(event) => event.asks.iter().for_each(|call_id| self.ask_again(call_id, record.at)),
            _ => {}
        }
        if let Some(once) = self.once_of(event).filter(|_| !self.stays_behind(event, record)) {
            self.fill(once.key, once.token, record);
        }
    }

    fn once_of(&self, event: &Event) -> Option<IdempotencyRecord> {
        let child = |call_id: &CallId| Some(IdempotencyRecord::new(format!("child:{}:{call_id}", self.head.generation)));
        let answer = |call_id: &CallId, who: &str| {
            Some(IdempotencyRecord::answer(event, self.waits.get(call_id)?.generation, call_id, who))
        };
        match event {
            Event::SignalReceived(event) => IdempotencyRecord::signal(event),
            Event::UpdateReceived(event) => Some(IdempotencyRecord::update(event)),
            Event::BranchRequested(event) => Some(IdempotencyRecord::branch(event, event.request_id.as_deref()?)),
            Event::ApprovalDecided(event) => answer(&event.call_id, &event.decision_id),
            Event::PromiseResolved(event) => answer(&event.call_id, &event.resolution_id),
            Event::ChildCompleted(event) => child(&event.call_id),
            Event::ChildFailed(event) => child(&event.call_id),
            Event::RetryRequested(event) => Some(IdempotencyRecord::new(retry_key(&event.request_id))),
            Event::TaskAttemptEnded(event) => Some(event.once()),
            Event::ChildSettled(event) => Some(event.once()),
            Event::MemoAnswered(event) => Some(event.once(self.head.generation)),
            Event::MemoAsked(event) => Some(event.once()),
            _ => None,
        }
    }

    /// Returns true if a copy drops the idempotency record: attempts have numbers that start over in a fork (LG1).
    fn stays_behind(&self, event: &Event, record: &Record) -> bool {
        matches!(event, Event::TaskAttemptEnded(_)) && self.ancestry.is_copied(record.index)
    }

    fn fill(&mut self, key: String, token: String, record: &Record) {
        if self.ancestry.is_retry() && self.ancestry.is_copied(record.index) {
            return;
        }
        self.slots.entry(key).or_insert(ProjectedSlot { token, index: record.index, at: record.at });
    }

    /// Opens the approval again, under the id of this generation (Z8).
    fn ask_again(&mut self, call_id: &CallId, at: Timestamp) {
        let Some(wait) = self.decided.remove(call_id) else { return };
        let generation = self.head.generation;
        self.slots.remove(&wait_key(generation, call_id));
        // The code continues with the answer in the log, so no other one is requested.
        self.waits.insert(call_id.clone(), Wait { generation, requested_at: at, deadline: None, answer_schema: None, ..wait });
    }

    /// Resumes the log after a gap: timers keep their remaining time and tasks are scheduled again, except for those that have
    /// begun and must not run twice.
    fn go_on(&mut self, at: Timestamp) {
        let gap = at.since(self.head.updated_at);
        for (call_id, timer) in &mut self.timers {
            // The time of a start is no remaining time (DS3).
            if !timer.is_frozen && *call_id != start_call() {
                timer.due_at = timer.due_at.after(gap);
            }
        }
        for wait in self.waits.values_mut() {
            wait.deadline = wait.deadline.map(|deadline| deadline.after(gap));
        }
        if self.tasks.contains_key(&start_call()) {
            self.timers.remove(&deadline_call()); // DS5
        }
        for task in self.tasks.values_mut() {
            if task.is_slot() {
                *task = task.queued_again(at); // RQ4
                continue;
            }
            let is_begun = task.state == TaskState::Leased;
            *task = task.rescheduled(at);
            if is_begun {
                task.lose_attempt(task.attempt, at); // Z7
            }
        }
    }

    fn rename_child(&mut self, call_id: &CallId, child: &RunId) {
        if let Some(open) = self.children.get_mut(call_id) {
            open.id = child.clone();
        }
    }

    fn track_child(&mut self, event: &Event) {
        match event {
            // The run does not wait for spawned children: a copy of its log restarts none.
            Event::ChildStarted(event) if event.is_spawned => {}
            Event::ChildStarted(event) => {
                let child = ProjectedChild { started: event.clone(), id: event.child.clone() };
                self.children.insert(event.call_id.clone(), child);
            }
            Event::ChildCanceled(event) => drop(self.children.remove(&event.call_id)),
            _ => {}
        }
    }

    fn carry_out(&mut self, effect: Effect, record: &Record, n: u64) {
        match effect {
            Effect::StartTimer { call_id, due_at } => {
                self.timers.insert(call_id, ProjectedTimer { due_at, is_frozen: false });
            }
            Effect::StopTimer { call_id } => drop(self.timers.remove(&call_id)),
            Effect::AddTask(task) => {
                let task = self.known_task(*task, n);
                self.tasks.insert(task.id.call_id.clone(), task);
            }
            Effect::CancelTask { call_id } => drop(self.tasks.remove(&call_id)),
            Effect::OpenWait(wait) => {
                let generation = self.known_generation(n);
                self.waits.insert(wait.call_id.clone(), Wait { generation, ..*wait });
            }
            Effect::CloseWait { call_id, token } => {
                if let Some(wait) = self.waits.remove(&call_id) {
                    self.fill(wait_key(wait.generation, &call_id), token, record);
                    if wait.kind == WaitKind::Approval {
                        self.decided.insert(call_id, wait);
                    }
                }
            }
            Effect::Freeze { at } => {
                self.timers.values_mut().for_each(|timer| timer.is_frozen = true);
                self.tasks.values_mut().for_each(|task| task.freeze(at));
            }
            Effect::Thaw { shift } => {
                for timer in self.timers.values_mut() {
                    *timer = ProjectedTimer { due_at: timer.due_at.after(shift), is_frozen: false };
                }
                self.tasks.values_mut().for_each(|task| task.unfreeze(shift));
            }
            Effect::Charge { row, sum } if !self.ancestry.is_copied(record.index) => {
                let known = self.ledger.entry(*row).or_default();
                *known = known.plus(&sum);
            }
            Effect::Charge { .. } => {}
            Effect::EndRun { .. } => {
                self.timers.clear();
                self.tasks.clear();
                self.waits.clear();
            }
            // The outbox messages were sent when the log grew.
            Effect::Send(_) => {}
        }
    }

    /// Returns the generation in whose name a call of commit `n` is known.
    fn known_generation(&self, n: u64) -> u32 {
        self.ancestry.known_as(self.ancestry.at_commit(n), self.ancestry.own()).generation
    }

    /// Keeps the idempotency key that the attempts of a task from an earlier generation had (J3 does not apply: it is the same
    /// call).
    fn known_task(&self, mut task: Task, n: u64) -> Task {
        let generation = self.known_generation(n);
        if generation != task.id.generation {
            let key = || idempotency_key(&task.id.run, generation, &task.id.call_id);
            task.options.idempotency_key = Some(task.options.idempotency_key.clone().unwrap_or_else(key));
        }
        task
    }
}

/// Returns the key of the idempotency record of a retry request.
pub fn retry_key(request_id: &str) -> String {
    format!("retry:{request_id}")
}
