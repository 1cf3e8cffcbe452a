//! Runs restored from their logs.

use std::collections::BTreeMap;

use onward_core::projection::{Projection, retry_key};
use onward_core::run::wait_key;
use onward_core::transfer::is_same_log;
use onward_core::{Record, RunKey, Timestamp};

use super::Answer;
use super::due::Timer;
use super::state::{Generation, Run, State};
use crate::admission::TakenSlot;
use crate::durable::OwnedChange;
use crate::{Restore, RestoreRun, Restored, StoreError};

impl State {
    pub fn restore_run(&mut self, restore: RestoreRun, projections: Vec<Projection>, now: Timestamp) -> Answer<Restored> {
        let RestoreRun { key, what, news } = restore;
        let logs = match what {
            Restore::Run { logs } => {
                if let Some(run) = self.runs.get(&key) {
                    return run.is_told_by(&logs).then(|| found(run)).ok_or(StoreError::RunExists { key });
                }
                self.runs.insert(key.clone(), Run::default());
                logs
            }
            Restore::Retry { after, log, request_id } => {
                let run = self.runs.get(&key).ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?;
                if run.slots.contains_key(&retry_key(&request_id)) {
                    return Ok(found(run));
                }
                run.head().admit_retry(after)?;
                vec![log]
            }
        };
        for (log, projection) in logs.into_iter().zip(projections) {
            self.put_generation(&key, log, projection, now);
        }
        let Generation { head, records } = self.run(&key).generations.last().expect("a run has one");
        let record = records.last().expect("a log has records").clone();
        self.news.push(OwnedChange::Appended { head: head.clone(), record });
        news.into_iter().for_each(|delivery| self.send(key.clone(), delivery));
        self.settle(&key);
        Ok(Restored { created: true, head: self.run(&key).shown_head() })
    }

    fn put_generation(&mut self, key: &RunKey, records: Vec<Record>, projection: Projection, now: Timestamp) {
        let Projection { mut head, timers, tasks, waits, slots, ledger, .. } = projection;
        let run = self.run_mut(key);
        // A restored run brings its own epoch; a retried run keeps the one it has.
        head.epoch = run.generations.last().map_or(head.epoch, |before| before.head.epoch);
        run.generations.push(Generation { head, records });
        run.timers = BTreeMap::new();
        run.tasks = BTreeMap::new();
        for (key, slot) in slots {
            run.slots.entry(key).or_insert(TakenSlot { token: slot.token, index: slot.index, at: slot.at });
        }
        // A wait that the end of an earlier generation withdrew is open again.
        waits.values().for_each(|wait| drop(run.slots.remove(&wait_key(wait.generation, &wait.call_id))));
        run.waits = waits;
        for (call_id, timer) in timers {
            self.start_timer(key, call_id.clone(), timer.due_at);
            self.run_mut(key).timers.insert(call_id, Timer { due_at: timer.due_at, frozen: timer.is_frozen });
        }
        for mut task in tasks.into_values() {
            task.claim_after(now); // K8
            self.add_task_at(task, now);
        }
        // Replaces rows of the same log, which may have been here before (LG4).
        self.ledger.extend(ledger);
    }
}

fn found(run: &Run) -> Restored {
    Restored { created: false, head: run.shown_head() }
}

impl Run {
    fn is_told_by(&self, logs: &[Vec<Record>]) -> bool {
        let own = self.generations.iter().map(|generation| &generation.records);
        self.generations.len() == logs.len() && own.zip(logs).all(|(own, log)| is_same_log(own, log))
    }
}
