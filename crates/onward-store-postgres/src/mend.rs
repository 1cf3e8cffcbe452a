//! Rows that were damaged are made again from the log.
//!
//! Owns what follows from a run's log: its head, timers, tasks, questions, attributes, what was taken once and what it has cost. Must never touch a log, and
//! never make up what no log says: a run whose log is damaged too stays as it is, and is named.
//!
//! Invariants:
//! - DB10 (L16): what is made again is what the log says, up to where the run's row says that it ends. Whoever held a run whose head was
//!   damaged is fenced; who held one with a sound head keeps it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use onward_core::task::Task;
use onward_core::{Hash, Index, Place, Record, RunKey, Timestamp};
use onward_store::kept::reply::Slot;
use onward_store::{Restore, RestoreRun, StoreError, check_restore};

use crate::connection::pool::Job;
use crate::connection::sql::Sql;
use crate::error::Outcome;
use crate::read::reader::read_records;
use crate::shared::Shared;
use crate::write::ledger;
use crate::write::table::Table;
use crate::write::unit::{Scene, Seat, Stored};

/// What is made again; records, payloads and news are not.
const DERIVED: [&str; 6] = ["past", "slots", "timers", "tasks", "waits", "attributes"];

/// How long a run that was mended, or could not be, is left alone.
const PAUSE: Duration = Duration::from_secs(60);

/// The runs that were tried of late.
pub(crate) struct Mends {
    is_wanted: bool,
    tried: Mutex<HashMap<RunKey, Instant>>,
}

impl Mends {
    pub fn new(is_wanted: bool) -> Mends {
        Mends { is_wanted, tried: Mutex::default() }
    }

    fn may_try(&self, key: &RunKey) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.retain(|_, at| at.elapsed() < PAUSE);
        self.is_wanted && tried.insert(key.clone(), Instant::now()).is_none()
    }
}

impl Shared {
    /// Somebody was told that rows of this run are damaged: they are made again while nobody waits for it.
    pub fn mend_soon(&self, key: &RunKey) {
        if self.mends.may_try(key) {
            self.jobs.submit(Job::Mend(key.clone(), Slot::new()));
        }
    }

    /// The same, if that is what an error says.
    pub fn mend_by(&self, error: &StoreError) {
        if let StoreError::LogCorrupt { key, .. } = error {
            self.mend_soon(key);
        }
    }
}

impl Scene<'_> {
    /// Makes the rows of a run again that follow from its log. The run is locked, if it is there.
    pub async fn mend(&mut self, key: &RunKey) -> Outcome<()> {
        let sound = self.seats.get_mut(key).and_then(Option::take);
        let Some(rk) = self.damaged.remove(key).or(sound.as_ref().map(|seat| seat.rk)) else { return Ok(()) };
        let logs = self.read_logs(key, rk).await?;
        let input_hash = Hash::of(&logs[0][0].started().ok_or_else(|| corrupt(key, "it has no start"))?.input);
        let what = Restore::Run { logs };
        let projections = check_restore(&RestoreRun { key: key.clone(), what, news: Vec::new() }, usize::MAX)?;
        let mut head = projections.last().ok_or_else(|| corrupt(key, "it is empty"))?.head.clone();
        let (worker, ready) = match sound {
            Some(sound) => {
                head.epoch = sound.head.epoch;
                (sound.worker, sound.ready)
            }
            None => {
                head.epoch = self.epoch_after(head.epoch); // its own is lost, and whoever held it must be too: it is a time before now (L7)
                (None, None)
            }
        };
        let mut seat = Seat::found(rk, head, input_hash, worker, ready);
        seat.past = projections.iter().rev().skip(1).rev().map(|projection| projection.head.clone()).collect();
        (seat.slots, seat.waits, seat.timers) = (Table::empty(), Table::empty(), Table::empty());
        // Unlike whatever is stored: all columns are written.
        let mut columns = seat.columns();
        columns.3 = Timestamp(u64::MAX);
        seat.stored = Some(Stored { columns, attributes: Vec::new() });
        self.add(seat);
        // The log does not say how often a task was tried: those that can be read stay as they are.
        let keeps_tasks = self.has_tasks(key, projections.last().map(|projection| &projection.tasks)).await;
        let tasks = std::mem::replace(&mut self.seat(key).tasks, Table::empty());
        let derived = DERIVED.iter().filter(|table| !keeps_tasks || **table != "tasks");
        let remove = |table: &&str| Sql::new(format!("DELETE FROM onward.{table} WHERE rk = $1")).number(rk);
        let lives = projections.iter().map(|projection| (projection.head.generation, projection.head.life.unwrap_or_default()));
        let ledger = ledger::remove(key, lives);
        self.db.pipeline(None, &derived.map(remove).chain([ledger]).collect::<Vec<_>>(), None).await?;
        for mut projection in projections {
            if keeps_tasks {
                projection.tasks.clear();
            }
            self.put_rows(key, projection);
        }
        if keeps_tasks {
            self.seat(key).tasks = tasks;
        }
        self.changes += 1;
        self.settle(key);
        Ok(())
    }

    /// Whether the tasks of the run are the ones that its log has, and can be read.
    async fn has_tasks(&mut self, key: &RunKey, wanted: Option<&BTreeMap<Place, Task>>) -> bool {
        let is_read = self.need_all(key).await.is_ok();
        is_read && wanted.is_some_and(|wanted| self.seat(key).tasks.all().map(|(place, _)| place).eq(wanted.keys()))
    }

    /// All logs of the run, whole.
    async fn read_logs(&self, key: &RunKey, rk: i64) -> Outcome<Vec<Vec<Record>>> {
        let sql = Sql::new("SELECT generation, next FROM onward.runs WHERE rk = $1").number(rk);
        let rows = self.db.query(&sql).await?;
        let row = rows.first().ok_or_else(|| corrupt(key, "its row is gone"))?;
        let (last, next): (i32, i64) = (row.get(0), row.get(1));
        let mut logs = Vec::new();
        for generation in 0..=last.max(0) {
            logs.push(read_records(self.db, key, rk, generation as u32, Index(0), usize::MAX).await?);
        }
        let end = logs.last().and_then(|log| log.last()).map_or(0, |record| record.next_index().0);
        match logs.iter().all(|log| !log.is_empty()) && end == next as u64 {
            true => Ok(logs),
            false => Err(corrupt(key, &format!("it ends at {end}, and should at {next}")).into()),
        }
    }
}

fn corrupt(key: &RunKey, why: &str) -> StoreError {
    StoreError::LogCorrupt { key: key.clone(), index: Index(0), why: why.to_owned() }
}
