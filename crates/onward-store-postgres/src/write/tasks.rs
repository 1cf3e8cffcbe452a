//! Tasks on their queues. [`Task`] itself decides about its outcome.

use onward_core::event::TaskAttemptEnded;
use onward_core::run::Input;
use onward_core::task::{StaleReport, Task, TaskFate, TaskId, TaskState};
use onward_core::{RunKey, Timestamp};
use onward_store::StoreError;
use onward_store::durable::OwnedChange;

use crate::error::Outcome;
use crate::write::op::Report;
use crate::write::unit::{Queued, UnitOfWork};

/// The `state` of a queued task that is not visible yet; the other states are the numbers of [`TaskState`].
pub(crate) const DELAYED: i16 = 3;
/// The `state` of a queued task whose run is paused.
const PAUSED: i16 = 4;

/// Returns the value of the `state` column.
pub(crate) fn state_column(task: &Task, now: Timestamp) -> i16 {
    match task.state {
        TaskState::Queued if !task.waits_its_turn() => PAUSED,
        TaskState::Queued if !task.may_be_claimed(now) => DELAYED,
        state => i16::from(state.number()),
    }
}

impl UnitOfWork<'_> {
    /// Stores an open task, and announces that it is claimable or when it becomes due.
    pub fn put_task(&mut self, key: &RunKey, queued: Queued) {
        let task = &queued.task;
        if task.may_be_claimed(self.now) {
            self.news.push(OwnedChange::TaskQueued { task: Box::new(task.clone()) });
        } else if task.waits_its_turn() {
            self.announce_due(task.visible_at);
        }
        if let Some(due) = task.due_at() {
            self.announce_due(due);
        }
        self.locked(key).tasks.put(queued.task.id.call_id.clone(), queued);
    }

    pub async fn report_task(&mut self, work: &Report) -> Outcome<()> {
        let mut queued = self.open_task(&work.task).await?.ok_or(StaleReport)?;
        let fate = queued.task.report(work.claim, work.report.clone(), work.lease, self.now)?;
        self.seal_fate(queued, fate, work.report.attempt_ended(&work.task, work.claim)).await
    }

    pub async fn retry_task(&mut self, id: &TaskId) -> Outcome<()> {
        let not_quarantined = || StoreError::TaskNotQuarantined { task: Box::new(id.clone()) };
        let mut queued = self.open_task(id).await?.ok_or_else(not_quarantined)?;
        queued.task.retry(self.now).map_err(|_| not_quarantined())?;
        self.put_task(&id.run, queued);
        Ok(())
    }

    /// Returns the task with this id, if it is open.
    async fn open_task(&mut self, id: &TaskId) -> Outcome<Option<Queued>> {
        self.check(&id.run)?;
        if self.find(&id.run).is_none() {
            return Ok(None);
        }
        self.need_tasks(vec![(id.run.clone(), id.call_id.clone())]).await?;
        let found = self.locked(&id.run).tasks.get(&id.call_id).filter(|queued| queued.task.id.is_same_task(id));
        Ok(found.cloned())
    }

    /// Stores the task, or removes it and appends its outcome to the log (L8), with the cost of the attempt.
    pub async fn seal_fate(&mut self, queued: Queued, fate: TaskFate, cost: Option<TaskAttemptEnded>) -> Outcome<()> {
        let id = queued.task.id.clone();
        match fate {
            TaskFate::Open => {
                if let Some(cost) = cost {
                    self.append_outcome(&id.run, Input::attempt_ended(cost), None).await?;
                }
                self.put_task(&id.run, queued);
            }
            TaskFate::Ended(event) => {
                self.locked(&id.run).tasks.remove(&id.call_id);
                self.append_outcome(&id.run, Input::outcome(*event, id.generation), cost).await?;
            }
        }
        Ok(())
    }
}
