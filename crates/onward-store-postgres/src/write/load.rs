//! Loading of a unit of work: locks first, then the clock, then rows.
//!
//! Every read happens under the lock of its run, in a statement that begins after the lock was granted; so it sees all earlier
//! writes (the isolation level is READ COMMITTED).

use std::collections::{BTreeSet, HashSet};

use onward_core::run::Wait;
use onward_core::task::Task;
use onward_core::{CallId, Epoch, Index, RunKey, Timestamp, WorkerId};
use onward_store::StoreError;
use onward_store::admission::TakenSlot;
use onward_store::durable::large::HasPayloads;
use onward_store::durable::seal::{call_id_key, damaged, read_call_id, unseal};
use onward_store::unit_of_work::{QueuedTask, RunRef, Timer};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::connection::sql::{Db, Sql};
use crate::connection::transaction::LockRequest;
use crate::error::{Outcome, damaged_row};
use crate::read::reader::restore_payloads;
use crate::restore_guard;
use crate::row::{crc, unseal_any_head, unseal_head};
use crate::shared::ServerShared;
use crate::write::quotas::{lock_quotas, read_locked};
use crate::write::unit::{LockedRun, Stored, UnitOfWork, columns_of, stored_run};

/// Columns of a run's row.
const RUN_COLUMNS: &str = "r.rk, r.ns, r.id, r.ready, r.worker, r.head";

pub(crate) const TASK_COLUMNS: &str = "t.rk, t.call_id, t.ord, t.data";

/// Locks in the order of numbers, so that transactions do not deadlock (DB4); defined in `migrations/0001.sql`.
const ENTER: &str = "SELECT * FROM onward.enter($1, $2, $3, $4, $5)";

impl<'c> UnitOfWork<'c> {
    /// Begins a transaction, locks the requested quotas and runs, and reserves numbers for new ones, in one round trip.
    pub async fn begin(db: &'c Db, shared: &ServerShared, request: &LockRequest) -> Outcome<UnitOfWork<'c>> {
        let restore_guard = &shared.connector.restore_guard;
        let mut keys = request.keys.clone();
        keys.sort_unstable();
        keys.dedup();
        let (namespaces, ids) = names(&keys);
        let parents: BTreeSet<usize> = request.parents.iter().filter_map(|parent| keys.binary_search(parent).ok()).collect();
        let sql = Sql::new(ENTER)
            .texts(namespaces)
            .texts(ids)
            .ints(parents.iter().map(|position| *position as i32 + 1).collect())
            .int(i32::try_from(request.fresh).unwrap_or(i32::MAX))
            .flag(restore_guard.is_limited());
        let mut quotas = request.quotas.clone();
        quotas.sort_unstable();
        quotas.dedup();
        let lock = (!quotas.is_empty()).then(|| lock_quotas(&quotas)); // DB14
        let (has_lock, limits) = (lock.is_some(), shared.payload_limits.due());
        let has_limits = limits.is_some();
        let statements: Vec<Sql> = lock.into_iter().chain([sql]).chain(limits).collect();
        let answers = db.pipeline(Some("BEGIN"), &statements, None).await?;
        let locked = if has_lock { answers.first() } else { None };
        let rows = answers.get(usize::from(has_lock)).map(Vec::as_slice).unwrap_or_default();
        if let Some(read) = answers.last().filter(|_| has_limits) {
            shared.payload_limits.learn(read);
        }
        let start = restore_guard::read(rows, 8)?;
        let row = &rows[0];
        let mut unit = UnitOfWork::new(db, shared.clock.now(start.micros), start);
        unit.quotas = read_locked(&quotas, locked.map(Vec::as_slice).unwrap_or_default());
        unit.fresh = array::<i64>(row, 7).into();
        unit.add_locked(&keys, row);
        unit.add_children(&keys, parents, row)?;
        unit.locked_keys = keys.into_iter().collect();
        Ok(unit)
    }

    fn add_locked(&mut self, keys: &[RunKey], row: &Row) {
        let rows = array::<i64>(row, 0).into_iter().zip(array::<i64>(row, 1)).zip(array::<Option<i64>>(row, 2));
        let rows = rows.zip(array::<Option<&str>>(row, 3)).zip(array::<&[u8]>(row, 4));
        for ((((position, rk), ready), worker), head) in rows {
            self.add_row(keys[position as usize - 1].clone(), rk, ready, worker, head);
        }
    }

    fn add_children(&mut self, keys: &[RunKey], parents: BTreeSet<usize>, row: &Row) -> Outcome<()> {
        for position in parents {
            if let Some(run) = self.set.runs.get(&keys[position]) {
                self.set.runs[run].own.children = Some(Vec::new());
            }
        }
        for (position, head) in array::<i32>(row, 5).into_iter().zip(array::<&[u8]>(row, 6)) {
            // A damaged child must not be forgotten.
            let (child, _) = unseal_any_head(head)?;
            if let Some(run) = self.set.runs.get(&keys[position as usize - 1]) {
                self.set.runs[run].own.children.get_or_insert_default().push(child);
            }
        }
        Ok(())
    }

    /// Locks runs by number, except those that another transaction has locked. Returns the locked ones.
    pub async fn lock_free(&mut self, numbers: Vec<i64>) -> Outcome<Vec<RunRef>> {
        let text =
            format!("SELECT {RUN_COLUMNS} FROM onward.runs r WHERE r.rk = ANY($1) ORDER BY r.rk FOR UPDATE OF r SKIP LOCKED");
        let rows = self.db.query(&Sql::new(text).numbers(numbers)).await?;
        Ok(self.add_rows(&rows))
    }

    /// Adds locked runs. A damaged one is left out, and operations on it fail instead of not finding it.
    pub fn add_rows(&mut self, rows: &[Row]) -> Vec<RunRef> {
        let add = |row: &Row| self.add_row(row_key(row, 1).ok()?, row.get(0), row.get(3), row.get(4), row.get(5));
        rows.iter().filter_map(add).collect()
    }

    fn add_row(&mut self, key: RunKey, rk: i64, ready: Option<i64>, worker: Option<&str>, head: &[u8]) -> Option<RunRef> {
        if let Some(run) = self.numbers.get(&rk) {
            return Some(*run);
        }
        match read_run(&key, rk, ready, worker, head) {
            Ok(mut run) => {
                // What was given out before the database went back counts no more (DB9).
                run.head.epoch = run.head.epoch.max(Epoch(self.start.floor as u64));
                Some(self.add(run))
            }
            Err(_) => {
                self.damaged.insert(key, rk);
                None
            }
        }
    }

    /// Reads idempotency records of locked runs.
    pub async fn need_slots(&mut self, wanted: Vec<(RunRef, String)>) -> Outcome<()> {
        let missing = self.missing(wanted, |locked, key| locked.slots.knows(key));
        if missing.is_empty() {
            return Ok(());
        }
        let (numbers, keys) = missing.iter().map(|(rk, _, key)| (*rk, key.clone().into_bytes())).unzip();
        let text = "SELECT s.rk, s.key, s.token, s.idx, s.at, s.crc FROM onward.idempotency s
          JOIN unnest($1::bigint[], $2::bytea[]) AS k(rk, key) ON s.rk = k.rk AND s.key = k.key";
        for row in self.db.query(&Sql::new(text).numbers(numbers).byteses(keys)).await? {
            let run = self.run_of(&row);
            let (slot, taken) = read_slot(&row).ok_or_else(|| self.damaged_row(run, "an idempotency record"))?;
            self.set.runs[run].slots.learn(slot, Some(taken));
        }
        for (_, run, key) in missing {
            self.set.runs[run].slots.learn(key, None);
        }
        Ok(())
    }

    /// Reads open questions of locked runs.
    pub async fn need_waits(&mut self, wanted: Vec<(RunRef, CallId)>) -> Outcome<()> {
        let missing = self.missing(wanted, |locked, call_id| locked.waits.knows(call_id));
        if missing.is_empty() {
            return Ok(());
        }
        let (numbers, call_ids) = missing.iter().map(|(rk, _, call_id)| (*rk, call_id_key(call_id))).unzip();
        let text = "SELECT w.rk, w.call_id, w.data FROM onward.waits w
          JOIN unnest($1::bigint[], $2::bytea[]) AS k(rk, call_id) ON w.rk = k.rk AND w.call_id = k.call_id";
        for row in self.db.query(&Sql::new(text).numbers(numbers).byteses(call_ids)).await? {
            let run = self.run_of(&row);
            let wait: Wait = unseal("a wait", row.get(2)).map_err(|_| self.damaged_row(run, "an open question"))?;
            let wait = self.whole(row.get(0), wait).await?;
            self.set.runs[run].waits.learn(wait.call_id.clone(), Some(wait));
        }
        for (_, run, call_id) in missing {
            self.set.runs[run].waits.learn(call_id, None);
        }
        Ok(())
    }

    /// Reads and locks tasks of locked runs.
    pub async fn need_tasks(&mut self, wanted: Vec<(RunRef, CallId)>) -> Outcome<()> {
        let missing = self.missing(wanted, |locked, call_id| locked.tasks.knows(call_id));
        if missing.is_empty() {
            return Ok(());
        }
        let (numbers, call_ids) = missing.iter().map(|(rk, _, call_id)| (*rk, call_id_key(call_id))).unzip();
        let text = format!(
            "SELECT {TASK_COLUMNS} FROM onward.tasks t JOIN unnest($1::bigint[], $2::bytea[]) AS k(rk, call_id)
               ON t.rk = k.rk AND t.call_id = k.call_id ORDER BY t.rk, t.call_id FOR UPDATE OF t"
        );
        let rows = self.db.query(&Sql::new(text).numbers(numbers).byteses(call_ids)).await?;
        self.learn_tasks(rows).await?;
        for (_, run, call_id) in missing {
            self.set.runs[run].tasks.learn(call_id, None);
        }
        Ok(())
    }

    /// Reads all timers and tasks of a run that is paused or resumed.
    pub async fn need_all(&mut self, run: RunRef) -> Outcome<()> {
        let rk = self.set.runs[run].own.rk;
        if !self.set.runs[run].timers.is_complete() {
            let sql = Sql::new("SELECT rk, call_id, due, frozen, crc FROM onward.timers WHERE rk = $1").number(rk);
            for row in self.db.query(&sql).await? {
                let (call_id, timer) = read_timer(&row).ok_or_else(|| self.damaged_row(run, "a timer"))?;
                self.set.runs[run].timers.learn(call_id, Some(timer));
            }
            self.set.runs[run].timers.learn_all();
        }
        if !self.set.runs[run].tasks.is_complete() {
            let text = format!("SELECT {TASK_COLUMNS} FROM onward.tasks t WHERE t.rk = $1 ORDER BY t.call_id FOR UPDATE OF t");
            let rows = self.db.query(&Sql::new(text).number(rk)).await?;
            self.learn_tasks(rows).await?;
            self.set.runs[run].tasks.learn_all();
        }
        Ok(())
    }

    async fn learn_tasks(&mut self, rows: Vec<Row>) -> Outcome<()> {
        for row in rows {
            let run = self.run_of(&row);
            let task = read_task(&row).map_err(|_| self.damaged_row(run, "a task"))?;
            let task = self.whole(row.get(0), task).await?;
            self.set.runs[run].tasks.learn(task.id.call_id.clone(), Some(QueuedTask { task, order: row.get(2) }));
        }
        Ok(())
    }

    /// Reads the open children of a locked run.
    pub async fn need_children(&mut self, run: RunRef) -> Outcome<()> {
        let LockedRun { own, head, .. } = &self.set.runs[run];
        if own.children.is_some() {
            return Ok(());
        }
        let (namespaces, ids) = names([&head.key]);
        let rows = self.db.query(&Sql::new(OPEN_CHILDREN).texts(namespaces).texts(ids)).await?;
        // A damaged child must not be forgotten.
        let children = rows.iter().map(|row| Ok(unseal_any_head(row.get(2))?.0)).collect::<Outcome<_>>()?;
        self.set.runs[run].own.children = Some(children);
        Ok(())
    }

    /// Restores the large payloads.
    pub async fn whole<C: HasPayloads>(&self, rk: i64, carrier: C) -> Outcome<C> {
        restore_payloads(self.db, rk, carrier).await
    }

    /// Returns the locked run whose number is the first column of a row.
    pub fn run_of(&self, row: &Row) -> RunRef {
        self.numbers.get(&row.get(0)).copied().expect("only rows of locked runs are read")
    }

    fn damaged_row(&self, run: RunRef, what: &str) -> StoreError {
        damaged_row(&self.set.runs[run].head.key, what)
    }

    /// Returns the wanted rows that are not known yet, each once.
    fn missing<K: Ord + Clone + std::hash::Hash + Eq>(
        &self,
        wanted: Vec<(RunRef, K)>,
        knows: impl Fn(&LockedRun, &K) -> bool,
    ) -> Vec<(i64, RunRef, K)> {
        let mut seen = HashSet::new();
        let missing = wanted.into_iter().filter_map(|(run, key)| {
            let locked = &self.set.runs[run];
            (!knows(locked, &key) && seen.insert((run, key.clone()))).then_some((locked.own.rk, run, key))
        });
        missing.collect()
    }
}

pub(crate) const OPEN_CHILDREN: &str = "SELECT r.parent_ns, r.parent_id, r.head FROM onward.runs r
  JOIN unnest($1::text[], $2::text[]) AS k(ns, id) ON r.parent_ns = k.ns AND r.parent_id = k.id WHERE r.status < 4";

/// Returns an array column, empty if it is NULL.
fn array<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Vec<T> {
    row.get::<_, Option<Vec<T>>>(at).unwrap_or_default()
}

fn names<'a>(keys: impl IntoIterator<Item = &'a RunKey>) -> (Vec<String>, Vec<String>) {
    keys.into_iter().map(|key| (key.namespace.as_str().to_owned(), key.id.as_str().to_owned())).unzip()
}

/// Reads a run key from two columns.
pub(crate) fn row_key(row: &Row, at: usize) -> Result<RunKey, StoreError> {
    let unreadable = |_| damaged("a run's row", "invalid names");
    let namespace = onward_core::Namespace::new(row.get::<_, String>(at)).map_err(unreadable)?;
    Ok(RunKey::new(namespace, onward_core::RunId::new(row.get::<_, String>(at + 1)).map_err(unreadable)?))
}

fn read_run(key: &RunKey, rk: i64, ready: Option<i64>, worker: Option<&str>, head: &[u8]) -> Result<Box<LockedRun>, StoreError> {
    let (head, input_hash) = unseal_head(key, head)?;
    let worker = worker.map(WorkerId::new).transpose();
    let worker = worker.map_err(|_| damaged_row(key, "its lease"))?;
    let mut run = stored_run(rk, head, input_hash, worker, ready);
    run.own.stored = Some(Stored { columns: columns_of(&run), attributes: run.head.attributes.clone() });
    Ok(run)
}

fn read_slot(row: &Row) -> Option<(String, TakenSlot)> {
    let (rk, key, token): (i64, Vec<u8>, Vec<u8>) = (row.get(0), row.get(1), row.get(2));
    let (index, at): (i64, i64) = (row.get(3), row.get(4));
    if row.get::<_, i64>(5) != crc(&[rk, index, at], &[&key, &token]) {
        return None;
    }
    let (key, token) = (String::from_utf8(key).ok()?, String::from_utf8(token).ok()?);
    Some((key, TakenSlot { token, index: Index(index as u64), at: Timestamp(at as u64) }))
}

pub(crate) fn read_timer(row: &Row) -> Option<(CallId, Timer)> {
    let (rk, call_id, due, is_frozen): (i64, Vec<u8>, i64, bool) = (row.get(0), row.get(1), row.get(2), row.get(3));
    let is_sound = row.get::<_, i64>(4) == crc(&[rk, due, i64::from(is_frozen)], &[&call_id]);
    let call_id = read_call_id(&call_id).ok().filter(|_| is_sound)?;
    Some((call_id, Timer { due_at: Timestamp(due as u64), is_frozen }))
}

/// Decodes a task, without its large payloads.
pub(crate) fn read_task(row: &Row) -> Result<Task, StoreError> {
    let task: Task = unseal("a task", row.get(3))?;
    let is_sound = row.get::<_, Vec<u8>>(1) == call_id_key(&task.id.call_id);
    if is_sound { Ok(task) } else { Err(damaged("a task", "its call id does not match")) }
}
