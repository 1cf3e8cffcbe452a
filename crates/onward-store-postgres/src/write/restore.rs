//! Runs that are restored with their logs: every record unchanged, and the rows that derive from them.

use onward_core::projection::{Projection, retry_key};
use onward_core::run::wait_key;
use onward_core::transfer::is_same_log;
use onward_core::{Hash, Index, Record, RunKey};
use onward_store::admission::TakenSlot;
use onward_store::durable::RestoreWork;
use onward_store::durable::{Body, OwnedChange};
use onward_store::{Restore, Restored, StoreError};

use crate::error::Outcome;
use crate::read::reader::read_records;
use crate::write::unit::{LockedRun, Queued, Timer, UnitOfWork};

impl UnitOfWork<'_> {
    pub async fn restore_run(&mut self, work: &RestoreWork) -> Outcome<Restored> {
        let key = &work.restore.key;
        self.check(key)?;
        match &work.restore.what {
            Restore::Run { logs } => {
                if self.find(key).is_some() {
                    return self.find_restored(key, logs).await;
                }
                for (log, projection) in logs.iter().zip(&work.projections) {
                    self.put_generation(key, log, projection.clone()).await?;
                }
            }
            Restore::Retry { after, log, request_id } => {
                self.require(key)?;
                let slot = retry_key(request_id);
                self.need_slots(vec![(key.clone(), slot.clone())]).await?;
                let locked = self.locked(key);
                if locked.slots.get(&slot).is_some() {
                    return Ok(Restored { created: false, head: locked.shown() });
                }
                locked.head.admit_retry(*after)?;
                for projection in &work.projections {
                    self.put_generation(key, log, projection.clone()).await?;
                }
            }
        }
        let log = match &work.restore.what {
            Restore::Run { logs } => logs.last().expect("checked before it came here"),
            Restore::Retry { log, .. } => log,
        };
        let (head, record) = (self.locked(key).head.clone(), log.last().expect("a log has records").clone());
        self.news.push(OwnedChange::Appended { head, record });
        for delivery in work.restore.news.clone() {
            self.send(key, delivery);
        }
        self.settle(key);
        Ok(Restored { created: true, head: self.locked(key).shown() })
    }

    /// Returns the existing run if its logs are equal; fails otherwise.
    async fn find_restored(&mut self, key: &RunKey, logs: &[Vec<Record>]) -> Outcome<Restored> {
        let locked = self.locked(key);
        let (rk, head) = (locked.rk, locked.shown());
        let mut same = head.generation as usize + 1 == logs.len();
        for (log, generation) in logs.iter().zip(0..) {
            same = same && is_same_log(&read_records(self.db, key, rk, generation, Index(0), usize::MAX).await?, log);
        }
        if same { Ok(Restored { created: false, head }) } else { Err(StoreError::RunExists { key: key.clone() }.into()) }
    }

    async fn put_generation(&mut self, key: &RunKey, log: &[Record], projection: Projection) -> Outcome<()> {
        let mut head = projection.head.clone();
        if self.find(key).is_none() {
            let started = log[0].started().expect("checked before it came here");
            let rk = self.fresh.pop_front().expect("a number was drawn for each run that may be made");
            head.epoch = self.epoch_after(head.epoch); // L7
            self.add(LockedRun::new(rk, head.clone(), Hash::of(&started.input)));
        } else {
            let locked = self.locked(key);
            head.epoch = locked.head.epoch;
            let ended = std::mem::replace(&mut locked.head, head.clone());
            locked.past.push(ended);
        }
        let waits = projection.waits.values().map(|wait| wait_key(wait.generation, &wait.call_id));
        let wanted = projection.slots.keys().cloned().chain(waits);
        self.need_slots(wanted.map(|slot| (key.clone(), slot)).collect()).await?;
        let locked = self.locked(key);
        locked.head = head;
        locked.is_changed = true;
        log.iter().for_each(|record| self.put_event(key, record.index, record.at, &Body::of_record(record)));
        self.put_rows(key, projection);
        Ok(())
    }

    /// Replaces the rows of the previous generation by those that derive from one log. Idempotency records are kept across
    /// generations.
    pub fn put_rows(&mut self, key: &RunKey, projection: Projection) {
        let Projection { timers, tasks, waits, slots, ledger, .. } = projection;
        let locked = self.locked(key);
        locked.timers.clear();
        locked.tasks.clear();
        locked.waits.clear();
        // Overwrites rows of the same log, which may have been here before (LG4).
        ledger.into_iter().for_each(|(row, sum)| locked.ledger.put(row, sum));
        for (slot, taken) in slots {
            if locked.slots.get(&slot).is_none() {
                locked.slots.put(slot, TakenSlot { token: taken.token, index: taken.index, at: taken.at });
            }
        }
        for (call_id, wait) in waits {
            // A question that the end of an earlier generation withdrew is open again.
            locked.slots.remove(&wait_key(wait.generation, &wait.call_id));
            locked.waits.put(call_id, wait);
        }
        for (call_id, timer) in timers {
            self.start_timer(key, call_id.clone(), timer.due_at);
            self.locked(key).timers.put(call_id, Timer { due_at: timer.due_at, is_frozen: timer.is_frozen });
        }
        for mut task in tasks.into_values() {
            task.claim_after(self.now); // K8
            let order = self.next_order();
            self.put_task(key, Queued { task, order });
        }
    }
}
