//! Effects of an append: timers, tasks, waits, outbox messages.

use std::time::Duration;

use onward_core::run::{Effect, wait_key};
use onward_core::{CallId, Record, RunKey, Timestamp};
use onward_store::admission::TakenSlot;

use crate::error::Outcome;
use crate::write::unit::{Queued, Timer, UnitOfWork};

impl UnitOfWork<'_> {
    pub async fn carry_out(&mut self, key: &RunKey, effect: Effect, record: &Record) -> Outcome<()> {
        match effect {
            Effect::StartTimer { call_id, due_at } => self.start_timer(key, call_id, due_at),
            Effect::StopTimer { call_id } => self.locked(key).timers.remove(&call_id),
            Effect::AddTask(task) => {
                let order = self.next_order();
                self.put_task(key, Queued { task: *task, order });
            }
            Effect::CancelTask { call_id } => self.locked(key).tasks.remove(&call_id),
            Effect::OpenWait(wait) => self.locked(key).waits.put(wait.call_id.clone(), *wait),
            Effect::CloseWait { call_id, token } => self.close_wait(key, call_id, token, record).await?,
            Effect::Send(delivery) => self.send(key, *delivery),
            Effect::Freeze { at } => self.freeze(key, at).await?,
            Effect::Thaw { shift } => self.thaw(key, shift).await?,
            Effect::Charge { row, sum } => self.charge(key, *row, &sum).await?,
            Effect::EndRun { goes_on } => self.end_run(key, goes_on).await?,
        }
        Ok(())
    }

    pub fn start_timer(&mut self, key: &RunKey, call_id: CallId, due_at: Timestamp) {
        self.locked(key).timers.put(call_id, Timer { due_at, is_frozen: false });
        self.announce_due(due_at);
    }

    /// Closes an open wait and writes its idempotency record. A plain timer has no wait, and an earlier answer keeps its record.
    async fn close_wait(&mut self, key: &RunKey, call_id: CallId, token: String, record: &Record) -> Outcome<()> {
        self.need_waits(vec![(key.clone(), call_id.clone())]).await?;
        let Some(wait) = self.locked(key).waits.get(&call_id) else { return Ok(()) };
        let slot = wait_key(wait.generation, &call_id);
        self.need_slots(vec![(key.clone(), slot.clone())]).await?;
        let locked = self.locked(key);
        locked.waits.remove(&call_id);
        if locked.slots.get(&slot).is_none() {
            locked.slots.put(slot, TakenSlot { token, index: record.index, at: record.at });
        }
        Ok(())
    }

    async fn freeze(&mut self, key: &RunKey, at: Timestamp) -> Outcome<()> {
        self.need_all(key).await?;
        let locked = self.locked(key);
        let timers: Vec<(CallId, Timer)> = locked.timers.all().map(|(call_id, timer)| (call_id.clone(), *timer)).collect();
        timers.into_iter().for_each(|(call_id, timer)| locked.timers.put(call_id, Timer { is_frozen: true, ..timer }));
        let tasks: Vec<Queued> = locked.tasks.all().map(|(_, queued)| queued.clone()).collect();
        for mut queued in tasks {
            queued.task.freeze(at);
            locked.tasks.put(queued.task.id.call_id.clone(), queued);
        }
        Ok(())
    }

    async fn thaw(&mut self, key: &RunKey, shift: Duration) -> Outcome<()> {
        self.need_all(key).await?;
        let locked = self.locked(key);
        let timers: Vec<(CallId, Timer)> = locked.timers.all().map(|(call_id, timer)| (call_id.clone(), *timer)).collect();
        let tasks: Vec<Queued> = locked.tasks.all().map(|(_, queued)| queued.clone()).collect();
        for (call_id, timer) in timers {
            self.start_timer(key, call_id, timer.due_at.after(shift));
        }
        for mut queued in tasks {
            queued.task.thaw(shift);
            self.put_task(key, queued);
        }
        Ok(())
    }

    async fn end_run(&mut self, key: &RunKey, goes_on: bool) -> Outcome<()> {
        let generation = self.locked(key).head.generation;
        let children = self.open_children(key).await?;
        let news: Vec<_> = children.iter().filter_map(|child| child.parent_closed(generation, goes_on)).collect();
        news.into_iter().for_each(|delivery| self.send(key, delivery));
        let locked = self.locked(key);
        locked.timers.clear();
        locked.tasks.clear();
        locked.waits.clear();
        Ok(())
    }
}
