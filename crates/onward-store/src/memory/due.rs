//! Time-driven changes: timers, task timeouts, expired worker sessions.

use std::time::Duration;

use onward_core::event::TimerFired;
use onward_core::run::Input;
use onward_core::{CallId, RunKey, Timestamp, WorkerId};

use super::state::{Run, State};
use super::task::QueuedTask;
use crate::Expired;
use crate::durable::OwnedChange;

#[derive(Clone, Copy)]
pub struct Timer {
    pub due_at: Timestamp,
    /// Its run is paused; the timer keeps its remaining time.
    pub frozen: bool,
}

impl State {
    pub fn start_timer(&mut self, key: &RunKey, call_id: CallId, due_at: Timestamp) {
        self.run_mut(key).timers.insert(call_id, Timer { due_at, frozen: false });
        self.announce_due(due_at);
    }

    pub fn freeze(&mut self, key: &RunKey, at: Timestamp) {
        let run = self.run_mut(key);
        run.timers.values_mut().for_each(|timer| timer.frozen = true);
        run.tasks.values_mut().for_each(|queued| queued.task.freeze(at));
    }

    pub fn thaw(&mut self, key: &RunKey, shift: Duration, now: Timestamp) {
        let timers = &mut self.run_mut(key).timers;
        timers.values_mut().for_each(|timer| *timer = Timer { due_at: timer.due_at.after(shift), frozen: false });
        if let Some(due) = timers.values().map(|timer| timer.due_at).min() {
            self.announce_due(due);
        }
        let tasks: Vec<QueuedTask> = self.run(key).tasks.values().cloned().collect();
        for mut queued in tasks {
            queued.task.thaw(shift);
            self.put_task(queued, now);
        }
    }

    /// Notifies listeners if `at` is earlier than the announced due time.
    pub fn announce_due(&mut self, at: Timestamp) {
        if self.announced_due.is_none_or(|known| at < known) {
            self.announced_due = Some(at);
            self.news.push(OwnedChange::DueAt(at));
        }
    }

    pub fn expire(&mut self, limit: usize, now: Timestamp) -> Expired {
        let (timers, more_timers) = first(limit, self.due_timers(now));
        for (_, key, call_id) in &timers {
            let run = self.run_mut(key);
            // The timer row is removed in the write that adds the event: a timer fires once (L10).
            run.timers.remove(call_id);
            let generation = run.head().generation;
            self.append_outcome(key, Input::outcome(TimerFired { call_id: call_id.clone() }.into(), generation), None, now);
        }
        let (tasks, more_tasks) = first(limit, self.due_tasks(now));
        for (_, _, key, call_id) in &tasks {
            let mut queued = self.run(key).tasks[call_id].clone();
            let fate = queued.task.expire(now);
            self.seal_fate(queued, fate, None, now);
        }
        let (workers, more_workers) = first(limit, self.due_workers(now));
        workers.iter().for_each(|(_, worker)| self.lose_worker(worker));
        self.announce_visible_tasks(now);

        self.announced_due = self.next_due(now);
        Expired {
            timers_fired: timers.len() as u64,
            tasks_expired: tasks.len() as u64,
            workers_lost: workers.len() as u64,
            more: more_timers || more_tasks || more_workers,
            next_due: self.announced_due,
        }
    }

    fn due_timers(&self, now: Timestamp) -> Vec<(Timestamp, RunKey, CallId)> {
        let due = |run: &Run| {
            let key = run.head().key.clone();
            let armed = run.timers.iter().filter(|(_, timer)| !timer.frozen && timer.due_at <= now);
            armed.map(|(call_id, timer)| (timer.due_at, key.clone(), call_id.clone())).collect::<Vec<_>>()
        };
        self.open_runs().flat_map(due).collect()
    }

    fn due_tasks(&self, now: Timestamp) -> Vec<(Timestamp, u64, RunKey, CallId)> {
        self.open_tasks()
            .filter_map(|queued| {
                let (task, due) = (&queued.task, queued.task.due_at()?);
                (due <= now).then(|| (due, queued.order, task.id.run.clone(), task.id.call_id.clone()))
            })
            .collect()
    }

    fn due_workers(&self, now: Timestamp) -> Vec<(Timestamp, WorkerId)> {
        self.sessions.iter().filter(|(_, until)| **until <= now).map(|(worker, until)| (*until, worker.clone())).collect()
    }

    /// Announces tasks that became visible since the last call.
    fn announce_visible_tasks(&mut self, now: Timestamp) {
        let visible: Vec<QueuedTask> =
            self.open_tasks().filter(|queued| !queued.announced && queued.task.may_be_claimed(now)).cloned().collect();
        visible.into_iter().for_each(|queued| self.put_task(queued, now));
    }

    fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let timers = self.open_runs().flat_map(|run| run.timers.values()).filter(|timer| !timer.frozen).map(|timer| timer.due_at);
        let tasks = self.open_tasks().filter_map(|queued| queued.task.due_at());
        let visible = self
            .open_tasks()
            .filter(|queued| queued.task.waits_its_turn() && queued.task.visible_at > now)
            .map(|queued| queued.task.visible_at);
        timers.chain(tasks).chain(visible).chain(self.sessions.values().copied()).min()
    }

    pub fn open_tasks(&self) -> impl Iterator<Item = &QueuedTask> {
        self.open_runs().flat_map(|run| run.tasks.values())
    }
}

/// Returns the first `limit` items in order, and whether there were more.
fn first<T: Ord>(limit: usize, mut due: Vec<T>) -> (Vec<T>, bool) {
    due.sort();
    let more = due.len() > limit;
    due.truncate(limit);
    (due, more)
}
