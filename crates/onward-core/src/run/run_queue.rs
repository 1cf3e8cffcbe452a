//! Queues of runs: a run waits in a queue until it is let in, and holds a slot from then until it ends.
//!
//! The place of the run is a task row of the run itself, under [`start_call`] and of the kind [`SLOT_KIND`], so that limits, keys,
//! rates, turns and priorities of queues apply to it ([`crate::queue`]). Nobody executes it: the store leases it in its own name
//! and appends `run_begun` in the same write. A leased row is a held slot; it has no expiry.
//!
//! Invariants:
//! - RQ1 (QL1, QL3): a run holds a slot exactly from its `run_begun` until the end of its last generation, whatever it does or waits
//!   for in between, and whatever happens to its workers. The slot is free in the write that ends the run.
//! - RQ2: no code of the run begins before the queue lets it in (DS1), and a paused run is not let in.
//! - RQ3: runs and tasks of one queue are counted apart: the limits apply to the tasks of the queue, and again to its runs. So a run
//!   that waits for tasks in its own queue does not wait for itself.
//! - RQ4: a log that continues from a copy waits in the queue again, at its end, because the slot of the original is free or belongs
//!   to the original.
//! - RQ5 (L16): the row follows from the log.
//! - RQ6 (QL7): `depth_max` refuses starts of callers only; children, slots of schedules and next generations are never refused.
//! - RQ7: no worker, caller or commit can claim, report, cancel or replace the row.

use super::delayed_start::start_call;
use super::{Effect, RunHead, Status};
use crate::log::event::{RunBegun, RunStarted};
use crate::queue::settings::DEFAULT_QUEUE;
use crate::run::Input;
use crate::task::{Task, TaskId, TaskOptions};
use crate::{Event, NAME_BYTES_MAX, Name, Payload, Timestamp, message};

/// The kind of the row that is the place of a run in its queue. Workers cannot register it.
pub const SLOT_KIND: &str = "queue:run";

/// The prefix under which the places of runs in a queue are stored, apart from the tasks of the queue (RQ3).
pub const RUN_QUEUE_PREFIX: &str = "runs:";

message! {
    /// The queue that a run begins in.
    #[derive(Eq)]
    pub struct RunQueue {
        1 => name: Name,
        /// The key whose limits and share of the queue apply to the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => key: Option<Name>,
        /// Higher begins first, 0 by default; one level is worth a minute of waiting.
        #[serde(default, skip_serializing_if = "is_zero")]
        3 => priority: i32,
        /// The generation before held the slot: this one continues with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        4 => is_held: bool,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(priority: &i32) -> bool {
    *priority == 0
}

impl RunQueue {
    pub fn new(name: Name) -> RunQueue {
        RunQueue { name, key: None, priority: 0, is_held: false }
    }

    /// Returns the reason if no run can wait in a queue of this name.
    pub fn fault(&self) -> Option<&'static str> {
        queue_fault(&self.name).or_else(|| {
            let is_long = self.name.as_str().len() + RUN_QUEUE_PREFIX.len() > NAME_BYTES_MAX;
            is_long.then_some("the name of the queue is too long for runs")
        })
    }

    /// Returns the queue as tasks name it: `None` is the default queue.
    pub fn plain(&self) -> Option<Name> {
        Some(self.name.clone()).filter(|name| *name != *DEFAULT_QUEUE)
    }

    /// Returns the name under which the row is stored.
    fn stored_name(&self) -> Name {
        Name::new(format!("{RUN_QUEUE_PREFIX}{}", self.name)).unwrap_or_else(|_| self.name.clone())
    }
}

/// Returns the queue whose runs are stored under this name; `None` for the name of a queue of tasks.
pub fn queue_of_runs(stored: &Name) -> Option<&str> {
    stored.as_str().strip_prefix(RUN_QUEUE_PREFIX)
}

/// Returns the reason if callers may not use a queue of this name.
pub fn queue_fault(name: &Name) -> Option<&'static str> {
    queue_of_runs(name).map(|_| "names that begin with `runs:` are reserved for the runs of a queue")
}

/// Returns the name under which the places of runs in this queue are stored; `None` is the default queue.
pub fn stored_queue(queue: Option<&Name>) -> Option<Name> {
    let name = queue.map_or(DEFAULT_QUEUE, Name::as_str);
    Name::new(format!("{RUN_QUEUE_PREFIX}{name}")).ok()
}

impl RunHead {
    /// Returns the row of a run that begins in a queue.
    fn slot(&self, at: Timestamp) -> Option<Task> {
        let queue = self.queue.as_deref()?;
        let (run, generation, incarnation) = (self.key.clone(), self.generation, self.incarnation);
        let id = TaskId { run, generation, call_id: start_call(), incarnation };
        let options = TaskOptions {
            queue: Some(queue.stored_name()),
            key: queue.key.clone(),
            priority: Some(queue.priority).filter(|priority| *priority != 0),
            ..TaskOptions::default()
        };
        let task = Task::new(id, Name::new(SLOT_KIND).expect("a name"), Payload::null(), options, at);
        Some(Task { visible_at: self.starts_at.unwrap_or(at), ..task })
    }

    /// Returns the effect that adds the row: waiting, or held if the generation before held it.
    pub(super) fn slot_effect(&self, at: Timestamp) -> Option<Effect> {
        let mut slot = self.slot(at)?;
        if self.starts_at.is_none() {
            slot.hold(at);
        }
        Some(Effect::AddTask(Box::new(slot)))
    }

    /// Returns true if the run waits in a queue.
    pub fn is_in_queue(&self) -> bool {
        self.queue.is_some() && self.starts_at.is_some()
    }

    /// Lets a log that continues from a copy wait in the queue again (RQ4).
    pub(super) fn queue_again(&mut self, at: Timestamp) {
        if self.queue.is_none() {
            return;
        }
        self.starts_at = Some(self.starts_at.map_or(at, |starts_at| starts_at.max(at)));
        if self.status == Status::Pending {
            self.status = Status::Waiting;
        }
    }

    /// Returns true if code of the run may have done something: it has committed, or there are earlier generations.
    pub(super) fn has_history(&self) -> bool {
        self.next_commit > 0 || self.generation > 0
    }
}

impl RunStarted {
    /// Returns the queue in which the next generation holds the slot of this one.
    pub(super) fn held(queue: Option<&RunQueue>) -> Option<Box<RunQueue>> {
        queue.map(|queue| Box::new(RunQueue { is_held: true, ..queue.clone() }))
    }
}

impl Task {
    /// Returns true for the place of a run in its queue.
    pub fn is_slot(&self) -> bool {
        self.kind == *SLOT_KIND
    }

    /// Lets the run in: its slot is held until the row is removed (RQ1).
    pub fn hold(&mut self, now: Timestamp) {
        self.state = crate::task::TaskState::Leased;
        self.claim += 1;
        self.started_at = Some(now);
        self.first_started_at.get_or_insert(now);
        self.heartbeat_at = now;
    }

    /// Returns the input that lets the run in.
    pub(crate) fn begin_run(&self) -> Option<Input> {
        let begun: Event = RunBegun::default().into();
        self.is_slot().then(|| Input { generation: Some(self.id.generation), ..Input::new(begun) })
    }

    /// Returns the slot at the end of its queue (RQ4).
    pub(crate) fn queued_again(&self, now: Timestamp) -> Task {
        let task = Task::new(self.id.clone(), self.kind.clone(), self.input.clone(), self.options.clone(), now);
        Task { visible_at: self.visible_at.max(now), ..task }
    }
}

#[cfg(test)]
mod tests;
