//! Repair of damaged rows from the log.
//!
//! Owns everything that derives from the log of a run: head, timers, tasks, open questions, attributes, idempotency records and
//! spend. Must never change a log, and never invent what no log contains: a run whose log is damaged, too, is left as it is and
//! reported.
//!
//! Invariants:
//! - DB10 (L16): repaired rows contain what the log contains, up to the end that the run's row records. The holder of a run with
//!   a damaged head is fenced; the holder of a run with an intact head keeps it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use onward_core::task::Task;
use onward_core::{CallId, Hash, Index, Record, RunKey, Timestamp};
use onward_store::sync;
use onward_store::unit_of_work::{self, Rows, RunRef, Table};
use onward_store::{Restore, RestoreRun, StoreError, check_restore};

use crate::connection::pool::Urgency;
use crate::connection::sql::Sql;
use crate::error::Outcome;
use crate::read::reader::read_records;
use crate::shared::ServerShared;
use crate::write::ledger;
use crate::write::unit::{Stored, UnitOfWork, columns_of, stored_run};

/// Tables that are rebuilt; events, blobs and the outbox are not.
const DERIVED: [&str; 6] = ["past", "idempotency", "timers", "tasks", "waits", "attributes"];

/// Time until a run may be repaired again, whether or not the last repair succeeded.
const PAUSE: Duration = Duration::from_secs(60);

/// Runs whose repair was attempted lately.
pub(crate) struct RepairAttempts {
    is_wanted: bool,
    tried: Mutex<HashMap<RunKey, Instant>>,
}

impl RepairAttempts {
    pub fn new(is_wanted: bool) -> RepairAttempts {
        RepairAttempts { is_wanted, tried: Mutex::default() }
    }

    fn may_try(&self, key: &RunKey) -> bool {
        let mut tried = sync::lock(&self.tried);
        tried.retain(|_, at| at.elapsed() < PAUSE);
        self.is_wanted && tried.insert(key.clone(), Instant::now()).is_none()
    }
}

impl ServerShared {
    /// Queues the repair of a run of which a damaged row was reported, unless one was tried lately.
    pub fn repair_soon(&self, key: &RunKey) {
        if self.repair_attempts.may_try(key) {
            let (keys, key) = (vec![key.clone()], key.clone());
            drop(self.jobs.write(Urgency::Slow, keys, async move |unit| unit.repair(&key).await));
        }
    }

    /// Queues the repair if the error reports a damaged run.
    pub fn repair_after(&self, error: &StoreError) {
        if let StoreError::LogCorrupt { key, .. } = error {
            self.repair_soon(key);
        }
    }
}

impl UnitOfWork<'_> {
    /// Rebuilds the derived rows of a run, which is locked if it exists.
    pub async fn repair(&mut self, key: &RunKey) -> Outcome<()> {
        let sound = self.set.runs.remove(key);
        let Some(rk) = self.damaged.remove(key).or(sound.as_ref().map(|run| run.own.rk)) else { return Ok(()) };
        let logs = self.read_logs(key, rk).await?;
        let input_hash = Hash::of(&logs[0][0].started().ok_or_else(|| corrupt(key, "the log has no start event"))?.input);
        let what = Restore::Run { logs };
        let projections = check_restore(&RestoreRun { key: key.clone(), what, outbox: Vec::new() }, usize::MAX)?;
        let mut head = projections.last().ok_or_else(|| corrupt(key, "the log is empty"))?.head.clone();
        let (worker, ready) = match sound {
            Some(sound) => {
                head.epoch = sound.head.epoch;
                (sound.lease, sound.ready)
            }
            None => {
                head.epoch = self.next_epoch(head.epoch); // the old epoch is lost; now is later, so its holder is fenced (L7)
                (None, None)
            }
        };
        let mut locked = stored_run(rk, head, input_hash, worker, ready);
        locked.past = projections.iter().rev().skip(1).rev().map(|projection| projection.head.clone()).collect();
        (locked.slots, locked.waits, locked.timers) = (Table::empty(), Table::empty(), Table::empty());
        // A creation time that differs from the stored one, so that all columns are written.
        let mut columns = columns_of(&locked);
        columns.3 = Timestamp(u64::MAX);
        locked.own.stored = Some(Stored { columns, attributes: Vec::new() });
        let run = self.add(locked);
        // The log does not record how often a task was tried: readable tasks stay as they are.
        let keeps_tasks = self.has_tasks(run, projections.last().map(|projection| &projection.tasks)).await;
        let tasks = std::mem::replace(&mut self.set.runs[run].tasks, Table::empty());
        let derived = DERIVED.iter().filter(|table| !keeps_tasks || **table != "tasks");
        let remove = |table: &&str| Sql::new(format!("DELETE FROM onward.{table} WHERE rk = $1")).number(rk);
        let incarnations =
            projections.iter().map(|projection| (projection.head.generation, projection.head.incarnation.unwrap_or_default()));
        let ledger = ledger::remove(key, incarnations);
        self.db.pipeline(None, &derived.map(remove).chain([ledger]).collect::<Vec<_>>(), None).await?;
        for mut projection in projections {
            if keeps_tasks {
                projection.tasks.clear();
            }
            unit_of_work::put_rows(self, run, projection);
        }
        if keeps_tasks {
            self.set.runs[run].tasks = tasks;
        }
        unit_of_work::settle(self, run);
        Ok(())
    }

    /// Returns whether all tasks of the run are readable and match those of its log.
    async fn has_tasks(&mut self, run: RunRef, wanted: Option<&BTreeMap<CallId, Task>>) -> bool {
        let is_read = self.need_all(run).await.is_ok();
        is_read && wanted.is_some_and(|wanted| self.set.runs[run].tasks.all().map(|(call_id, _)| call_id).eq(wanted.keys()))
    }

    /// Reads all logs of the run completely.
    async fn read_logs(&self, key: &RunKey, rk: i64) -> Outcome<Vec<Vec<Record>>> {
        let sql = Sql::new("SELECT generation, next FROM onward.runs WHERE rk = $1").number(rk);
        let rows = self.db.query(&sql).await?;
        let row = rows.first().ok_or_else(|| corrupt(key, "the run has no row"))?;
        let (last, next): (i32, i64) = (row.get(0), row.get(1));
        let mut logs = Vec::new();
        for generation in 0..=last.max(0) {
            logs.push(read_records(self.db, key, rk, generation as u32, Index(0), usize::MAX).await?);
        }
        let end = logs.last().and_then(|log| log.last()).map_or(0, |record| record.next_index().0);
        match logs.iter().all(|log| !log.is_empty()) && end == next as u64 {
            true => Ok(logs),
            false => Err(corrupt(key, &format!("it ends at event {end}, its row says {next}")).into()),
        }
    }
}

fn corrupt(key: &RunKey, why: &str) -> StoreError {
    StoreError::LogCorrupt { key: key.clone(), index: Index(0), why: why.to_owned() }
}
