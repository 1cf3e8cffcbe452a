//! Time-driven changes and claims.

use onward_core::event::TimerFired;
use onward_core::{Epoch, Timestamp};
use std::rc::Rc;

use crate::decide::{Decided, Tx, timer_call_id, worker_id};
use crate::guards::{Guard, Rules};
use crate::rows::{Answer, Database, LEASE};

impl Tx {
    /// Fires the timer if it exists and is due under the lock.
    pub fn fire_timer(&mut self, rules: Rules, db: &Database, now: Timestamp) -> Decided<()> {
        let is_due = db.timer.is_some_and(|due| due <= now);
        if !is_due && rules.has(Guard::TimerUnderLock) {
            return Ok(());
        }
        if db.timer.is_some_and(|due| due > self.clock) {
            return Err("a timer fired before its time".to_owned());
        }
        self.timer = Some(None);
        self.outcome(rules, TimerFired { call_id: timer_call_id() }.into())?;
        Ok(())
    }

    pub fn expire_task(&mut self, rules: Rules, db: &Database) -> Decided<()> {
        let Some(mut task) = self.known_task(db) else { return Ok(()) };
        if task.due_at().is_none_or(|due| due > self.now) {
            return Ok(());
        }
        if task.lease_until > self.clock {
            return Err("a task was taken from its worker before its time".to_owned());
        }
        let transition = task.expire(self.now);
        self.seal(rules, task, transition)?;
        Ok(())
    }

    pub fn claim_task(&mut self, rules: Rules, db: &Database) -> Decided<()> {
        let Some(mut task) = db.task.clone() else { return Ok(()) };
        if task.worker.is_some() && !rules.has(Guard::TaskLease) {
            return Err("a task that one worker has was given to another one".to_owned());
        }
        if task.may_be_claimed(self.now) {
            task.claim(&worker_id(self.worker), LEASE, self.now);
            self.holder = Some(self.worker);
            self.leased = Some(Answer::Leased { epoch: Epoch(0), claim: task.claim });
            self.attempt = task.attempt;
            self.task = Some(Some(task));
        }
        Ok(())
    }

    /// Frees the runs of workers whose session expired; `is_busy` if another transaction has locked the run.
    pub fn end_sessions(&mut self, rules: Rules, db: &Database, is_busy: bool) -> Decided<()> {
        let holder = db.run.as_ref().and_then(|run| run.worker).filter(|worker| self.sessions.contains(worker));
        self.ends = self.sessions.clone();
        let Some(holder) = holder else { return Ok(()) };
        if is_busy && !self.holds_run {
            if rules.has(Guard::BusySession) {
                self.ends.retain(|worker| *worker != holder);
            }
            return Ok(());
        }
        if !self.holds_run {
            self.lock_run(db);
        }
        let run = Rc::make_mut(self.run.as_mut().expect("it is leased"));
        if run.worker == Some(holder) {
            if db.sessions.get(&holder).is_some_and(|until| *until > self.clock) {
                return Err(format!("the lease of worker {holder} ended before its time by the database's clock"));
            }
            run.worker = None;
            run.settle();
        }
        Ok(())
    }
}
