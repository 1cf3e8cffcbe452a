//! Tasks on their queues. [`Task`] itself decides about the outcome of a task.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use onward_core::event::TaskAttemptEnded;
use onward_core::run::Input;
use onward_core::task::{StaleReport, Task, TaskCount, TaskFate, TaskId, TaskReport, TaskState};
use onward_core::{Name, Namespace, RunKey, Timestamp};

use super::Answer;
use super::query::page;
use super::state::State;
use crate::durable::OwnedChange;
use crate::{ClaimTasks, StoreError, TaskQuery};

#[derive(Clone)]
pub struct QueuedTask {
    pub task: Task,
    /// Order of scheduling, for tasks that became visible in the same millisecond.
    pub order: u64,
    /// True if listeners were notified that the task may be claimed.
    pub announced: bool,
}

impl State {
    pub fn add_task(&mut self, task: Task) {
        let now = task.visible_at;
        self.add_task_at(task, now);
    }

    pub fn add_task_at(&mut self, task: Task, now: Timestamp) {
        let order = self.next_number();
        self.put_task(QueuedTask { task, order, announced: false }, now);
    }

    /// Stores an open task and notifies listeners.
    pub fn put_task(&mut self, mut queued: QueuedTask, now: Timestamp) {
        let task = &queued.task;
        queued.announced = task.may_be_claimed(now);
        if queued.announced {
            self.news.push(OwnedChange::TaskQueued { task: Box::new(task.clone()) });
        } else if task.waits_its_turn() {
            self.announce_due(task.visible_at);
        }
        if let Some(due) = task.due_at() {
            self.announce_due(due);
        }
        let id = &queued.task.id;
        self.run_mut(&id.run).tasks.insert(id.call_id.clone(), queued);
    }

    pub fn claim_tasks(&mut self, request: &ClaimTasks, now: Timestamp) -> Vec<Task> {
        let mut found: Vec<&QueuedTask> = self
            .open_runs()
            .flat_map(|run| run.tasks.values())
            .filter(|queued| {
                let task = &queued.task;
                task.may_be_claimed(now)
                    && task.id.run.namespace == request.namespace // S6
                    && request.kinds.contains(&task.kind)
                    && request.queues.contains(&task.options.queue)
            })
            .collect();
        found.sort_by_key(|queued| (Reverse(queued.task.options.priority), queued.task.visible_at, queued.order)); // L21
        let found: Vec<TaskId> = found.into_iter().take(request.limit).map(|queued| queued.task.id.clone()).collect();
        found.into_iter().filter_map(|id| self.claim_task(&id, request, now)).collect()
    }

    fn claim_task(&mut self, id: &TaskId, request: &ClaimTasks, now: Timestamp) -> Option<Task> {
        let mut queued = self.held_task(id).ok()?;
        if !queued.task.may_be_claimed(now) {
            return None; // an earlier claim of this call paused the run
        }
        queued.task.claim(&request.worker, request.lease, now);
        let task = queued.task.clone();
        if let Some(attempted) = task.attempted()
            && !self.begin_attempt(&id.run, attempted, now)
        {
            return None; // K7
        }
        self.put_task(queued, now);
        Some(task)
    }

    /// Records an attempt; if the run's budget refuses it, records the pause instead. Returns whether the attempt may begin.
    fn begin_attempt(&mut self, key: &RunKey, attempted: Input, now: Timestamp) -> bool {
        match self.append_input(key, attempted, now) {
            Ok(_) => true,
            Err(StoreError::Refused(refusal)) => {
                if let Some(pause) = refusal.pause() {
                    self.append_outcome(key, pause, None, now);
                }
                false
            }
            Err(_) => false,
        }
    }

    /// Returns the open task with this id.
    pub fn held_task(&self, id: &TaskId) -> Answer<QueuedTask> {
        let queued = self.runs.get(&id.run).and_then(|run| run.tasks.get(&id.call_id));
        Ok(queued.filter(|queued| queued.task.id.is_same_task(id)).cloned().ok_or(StaleReport)?)
    }

    pub fn report_task(
        &mut self,
        mut queued: QueuedTask,
        claim: u64,
        report: TaskReport,
        lease: Duration,
        now: Timestamp,
    ) -> Answer<()> {
        let id = queued.task.id.clone();
        let ended = report.attempt_ended(&id, claim);
        let fate = queued.task.report(claim, report, lease, now)?;
        self.seal_fate(queued, fate, ended, now);
        Ok(())
    }

    pub fn retry_task(&mut self, id: &TaskId, now: Timestamp) -> Answer<()> {
        let found =
            self.runs.get(&id.run).and_then(|run| run.tasks.get(&id.call_id)).filter(|queued| queued.task.id.is_same_task(id));
        let mut queued = found.cloned().ok_or_else(|| not_quarantined(id))?;
        queued.task.retry(now).map_err(|_| not_quarantined(id))?;
        self.put_task(queued, now);
        Ok(())
    }

    pub fn list_tasks(&self, query: &TaskQuery) -> Vec<Task> {
        let mut found: Vec<&QueuedTask> = self.open_tasks().filter(|queued| query.matches(&queued.task)).collect();
        found.sort_by_key(|queued| queued.order);
        found.into_iter().take(page(query.limit)).map(|queued| queued.task.clone()).collect()
    }

    pub fn count_tasks(&self, namespace: &Namespace) -> Vec<TaskCount> {
        let mut counts: BTreeMap<(Option<Name>, Name), TaskCount> = BTreeMap::new();
        for QueuedTask { task, .. } in self.open_tasks().filter(|queued| queued.task.id.run.namespace == *namespace) {
            let (queue, kind) = (task.options.queue.clone(), task.kind.clone());
            let new = || TaskCount { queue, kind, queued: 0, running: 0, quarantined: 0, oldest_at: None };
            let count = counts.entry((task.options.queue.clone(), task.kind.clone())).or_insert_with(new);
            match task.state {
                TaskState::Queued => {
                    count.queued += 1;
                    count.oldest_at = Some(count.oldest_at.map_or(task.visible_at, |oldest| oldest.min(task.visible_at)));
                }
                TaskState::Leased => count.running += 1,
                TaskState::Quarantined => count.quarantined += 1,
            }
        }
        counts.into_values().collect()
    }

    /// Stores the task if it is still open, or removes it and appends its outcome to its run (L8); records the cost of the
    /// attempt either way.
    pub fn seal_fate(&mut self, queued: QueuedTask, fate: TaskFate, cost: Option<TaskAttemptEnded>, now: Timestamp) {
        let id = queued.task.id.clone();
        match fate {
            TaskFate::Open => {
                if let Some(cost) = cost {
                    self.append_outcome(&id.run, Input::attempt_ended(cost), None, now);
                }
                self.put_task(queued, now);
            }
            TaskFate::Ended(event) => {
                self.run_mut(&id.run).tasks.remove(&id.call_id);
                self.append_outcome(&id.run, Input::outcome(*event, id.generation), cost, now);
            }
        }
    }
}

fn not_quarantined(id: &TaskId) -> StoreError {
    StoreError::TaskNotQuarantined { task: Box::new(id.clone()) }
}
