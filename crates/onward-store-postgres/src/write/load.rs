//! Loading of a unit of work: locks first, then the clock, then rows.
//!
//! Every read happens under the lock of its run, in a statement that begins after the lock was granted; so it sees all earlier
//! writes (the isolation level is READ COMMITTED).

use std::collections::{BTreeSet, HashSet};

use onward_core::run::Wait;
use onward_core::task::Task;
use onward_core::{CallId, Epoch, Index, RunHead, RunKey, Timestamp, WorkerId};
use onward_store::StoreError;
use onward_store::admission::TakenSlot;
use onward_store::durable::large::HasPayloads;
use onward_store::durable::seal::{call_id_key, damaged, read_call_id, unseal};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::clock::StoreClock;
use crate::connection::sql::{Db, Sql};
use crate::connection::transaction::Wants;
use crate::error::{Outcome, damaged_row};
use crate::restore_guard::{self, RestoreGuard};
use crate::row::{crc, unseal_any_head, unseal_head};
use crate::write::blobs;
use crate::write::unit::{LockedRun, Queued, Stored, Timer, UnitOfWork};

/// Columns of a run's row.
const RUN_COLUMNS: &str = "r.rk, r.ns, r.id, r.ready, r.worker, r.head";

pub(crate) const TASK_COLUMNS: &str = "t.rk, t.call_id, t.ord, t.data";

/// Locks in the order of numbers, so that transactions do not deadlock (DB4); defined in `migrations/0004.sql`.
const ENTER: &str = "SELECT * FROM onward.enter($1, $2, $3, $4, $5)";

impl<'c> UnitOfWork<'c> {
    /// Begins a transaction, locks the requested runs and reserves numbers for new ones, in one round trip.
    pub async fn begin(db: &'c Db, clock: &StoreClock, restore_guard: &RestoreGuard, wants: &Wants) -> Outcome<UnitOfWork<'c>> {
        let mut keys = wants.keys.clone();
        keys.sort_unstable();
        keys.dedup();
        let (namespaces, ids) = names(&keys);
        let parents: BTreeSet<usize> = wants.parents.iter().filter_map(|parent| keys.binary_search(parent).ok()).collect();
        let sql = Sql::new(ENTER)
            .texts(namespaces)
            .texts(ids)
            .ints(parents.iter().map(|call_id| *call_id as i32 + 1).collect())
            .int(i32::try_from(wants.fresh).unwrap_or(i32::MAX))
            .flag(restore_guard.is_dim());
        let answers = db.pipeline(Some("BEGIN"), &[sql], None).await?;
        let rows = answers.first().map(Vec::as_slice).unwrap_or_default();
        let sight = restore_guard::read(rows, 8)?;
        let row = &rows[0];
        let mut unit = UnitOfWork::new(db, clock.now(sight.micros), sight);
        unit.fresh = array::<i64>(row, 7).into();
        unit.seats = keys.iter().map(|key| (key.clone(), None)).collect();
        unit.take_in_locked(&keys, row);
        unit.take_in_children(&keys, parents, row)?;
        Ok(unit)
    }

    fn take_in_locked(&mut self, keys: &[RunKey], row: &Row) {
        let rows = array::<i64>(row, 0).into_iter().zip(array::<i64>(row, 1)).zip(array::<Option<i64>>(row, 2));
        let rows = rows.zip(array::<Option<&str>>(row, 3)).zip(array::<&[u8]>(row, 4));
        for ((((call_id, rk), ready), worker), head) in rows {
            self.take_in_one(keys[call_id as usize - 1].clone(), rk, ready, worker, head);
        }
    }

    fn take_in_children(&mut self, keys: &[RunKey], parents: BTreeSet<usize>, row: &Row) -> Outcome<()> {
        let children = array::<i32>(row, 5).into_iter().zip(array::<&[u8]>(row, 6));
        for call_id in parents {
            if let Some(locked) = self.seats.get_mut(&keys[call_id]).and_then(Option::as_mut) {
                locked.children = Some(Vec::new());
            }
        }
        for (call_id, head) in children {
            // A damaged child must not be forgotten.
            let (child, _) = unseal_any_head(head)?;
            if let Some(locked) = self.seats.get_mut(&keys[call_id as usize - 1]).and_then(Option::as_mut) {
                locked.children.get_or_insert_default().push(child);
            }
        }
        Ok(())
    }

    /// Locks runs by number, except those that another transaction has locked. Returns the keys of the locked ones.
    pub async fn lock_free(&mut self, numbers: Vec<i64>) -> Outcome<Vec<RunKey>> {
        let text =
            format!("SELECT {RUN_COLUMNS} FROM onward.runs r WHERE r.rk = ANY($1) ORDER BY r.rk FOR UPDATE OF r SKIP LOCKED");
        let rows = self.db.query(&Sql::new(text).numbers(numbers)).await?;
        Ok(self.take_in(&rows))
    }

    pub fn take_in(&mut self, rows: &[Row]) -> Vec<RunKey> {
        let mut taken = Vec::new();
        for row in rows {
            let Ok(key) = row_key(row, 1) else { continue };
            if self.take_in_one(key.clone(), row.get(0), row.get(3), row.get(4), row.get(5)) {
                taken.push(key);
            }
        }
        taken
    }

    /// Adds a locked run; returns false if its row is damaged. Operations on a damaged run fail instead of not finding it.
    fn take_in_one(&mut self, key: RunKey, rk: i64, ready: Option<i64>, worker: Option<&str>, head: &[u8]) -> bool {
        let locked = read_seat(&key, rk, ready, worker, head);
        match locked {
            Ok(mut locked) => {
                // What was given out before the database went back counts no more (DB9).
                locked.head.epoch = locked.head.epoch.max(Epoch(self.sight.floor as u64));
                self.add(locked);
                true
            }
            Err(_) => {
                self.damaged.insert(key, rk);
                false
            }
        }
    }

    /// Reads idempotency records of locked runs.
    pub async fn need_slots(&mut self, wanted: Vec<(RunKey, String)>) -> Outcome<()> {
        let missing = self.missing(wanted, |locked, key| locked.slots.knows(key));
        if missing.is_empty() {
            return Ok(());
        }
        let (numbers, keys) = missing.iter().map(|(rk, _, key)| (*rk, key.clone().into_bytes())).unzip();
        let text = "SELECT s.rk, s.key, s.token, s.idx, s.at, s.crc FROM onward.slots s
          JOIN unnest($1::bigint[], $2::bytea[]) AS k(rk, key) ON s.rk = k.rk AND s.key = k.key";
        let rows = self.db.query(&Sql::new(text).numbers(numbers).byteses(keys)).await?;
        for row in rows {
            let key = self.key_of(row.get(0));
            let (slot, taken) = read_slot(&row).ok_or_else(|| damaged_row(&key, "an idempotency record"))?;
            self.locked(&key).slots.learn(slot, Some(taken));
        }
        for (_, run, key) in missing {
            self.locked(&run).slots.learn(key, None);
        }
        Ok(())
    }

    /// Reads open questions of locked runs.
    pub async fn need_waits(&mut self, wanted: Vec<(RunKey, CallId)>) -> Outcome<()> {
        let missing = self.missing(wanted, |locked, call_id| locked.waits.knows(call_id));
        if missing.is_empty() {
            return Ok(());
        }
        let (numbers, call_ids) = missing.iter().map(|(rk, _, call_id)| (*rk, call_id_key(call_id))).unzip();
        let text = "SELECT w.rk, w.call_id, w.data FROM onward.waits w
          JOIN unnest($1::bigint[], $2::bytea[]) AS k(rk, call_id) ON w.rk = k.rk AND w.call_id = k.call_id";
        for row in self.db.query(&Sql::new(text).numbers(numbers).byteses(call_ids)).await? {
            let key = self.key_of(row.get(0));
            let wait: Wait = unseal("a wait", row.get(2)).map_err(|_| damaged_row(&key, "an open question"))?;
            let wait = self.whole(row.get(0), wait).await?;
            self.locked(&key).waits.learn(wait.call_id.clone(), Some(wait));
        }
        for (_, run, call_id) in missing {
            self.locked(&run).waits.learn(call_id, None);
        }
        Ok(())
    }

    /// Reads and locks tasks of locked runs.
    pub async fn need_tasks(&mut self, wanted: Vec<(RunKey, CallId)>) -> Outcome<()> {
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
            self.locked(&run).tasks.learn(call_id, None);
        }
        Ok(())
    }

    /// Reads all timers and tasks of a run that is paused or resumed.
    pub async fn need_all(&mut self, key: &RunKey) -> Outcome<()> {
        let locked = self.locked(key);
        let rk = locked.rk;
        if !locked.timers.is_complete() {
            let sql = Sql::new("SELECT rk, call_id, due, frozen, crc FROM onward.timers WHERE rk = $1").number(rk);
            for row in self.db.query(&sql).await? {
                let (call_id, timer) = read_timer(&row).ok_or_else(|| damaged_row(key, "a timer"))?;
                self.locked(key).timers.learn(call_id, Some(timer));
            }
            self.locked(key).timers.learn_all();
        }
        if !self.locked(key).tasks.is_complete() {
            let text = format!("SELECT {TASK_COLUMNS} FROM onward.tasks t WHERE t.rk = $1 ORDER BY t.call_id FOR UPDATE OF t");
            let rows = self.db.query(&Sql::new(text).number(rk)).await?;
            self.learn_tasks(rows).await?;
            self.locked(key).tasks.learn_all();
        }
        Ok(())
    }

    async fn learn_tasks(&mut self, rows: Vec<Row>) -> Outcome<()> {
        for row in rows {
            let key = self.key_of(row.get(0));
            let task = read_task(&row).map_err(|_| damaged_row(&key, "a task"))?;
            let task = self.whole(row.get(0), task).await?;
            self.locked(&key).tasks.learn(task.id.call_id.clone(), Some(Queued { task, order: row.get(2) }));
        }
        Ok(())
    }

    /// Reads the open children of locked runs.
    pub async fn need_children(&mut self, parents: Vec<RunKey>) -> Outcome<()> {
        let parents: BTreeSet<RunKey> =
            parents.into_iter().filter(|key| self.find(key).is_some_and(|locked| locked.children.is_none())).collect();
        if parents.is_empty() {
            return Ok(());
        }
        let (namespaces, ids) = names(&parents);
        for row in self.db.query(&Sql::new(OPEN_CHILDREN).texts(namespaces).texts(ids)).await? {
            // A damaged child must not be forgotten.
            let (child, _) = unseal_any_head(row.get(2))?;
            let parent = row_key(&row, 0)?;
            self.locked(&parent).children.get_or_insert_default().push(child);
        }
        for parent in parents {
            self.locked(&parent).children.get_or_insert_default();
        }
        Ok(())
    }

    /// Returns the open children of a run in the order of their keys, including changes of this batch.
    pub async fn open_children(&mut self, parent: &RunKey) -> Outcome<Vec<RunHead>> {
        self.need_children(vec![parent.clone()]).await?;
        let stored = self.locked(parent).children.clone().unwrap_or_default();
        let known = |head: &RunHead| self.seats.get(&head.key).is_some_and(Option::is_some);
        let mut heads: Vec<RunHead> = stored.into_iter().filter(|head| !known(head)).collect();
        let here = self.seats.values().flatten().map(|locked| &locked.head);
        let own = here.filter(|head| !head.status.is_closed() && head.parent.as_ref().is_some_and(|link| link.run == *parent));
        heads.extend(own.cloned());
        heads.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(heads)
    }

    /// Restores the large payloads.
    pub async fn whole<C: HasPayloads>(&self, rk: i64, carrier: C) -> Outcome<C> {
        blobs::restore(self.db, rk, carrier).await
    }

    pub fn key_of(&self, rk: i64) -> RunKey {
        self.keys.get(&rk).cloned().expect("only rows of locked runs are read")
    }

    /// Returns the wanted rows of existing runs that are not known yet, each once.
    fn missing<K: Ord + Clone + std::hash::Hash + Eq>(
        &self,
        wanted: Vec<(RunKey, K)>,
        knows: impl Fn(&LockedRun, &K) -> bool,
    ) -> Vec<(i64, RunKey, K)> {
        let mut seen = HashSet::new();
        let found = wanted.into_iter().filter_map(|(run, key)| {
            let locked = self.seats.get(&run).and_then(Option::as_ref)?;
            (!knows(locked, &key) && seen.insert((locked.rk, key.clone()))).then_some((locked.rk, run, key))
        });
        found.collect()
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

fn read_seat(key: &RunKey, rk: i64, ready: Option<i64>, worker: Option<&str>, head: &[u8]) -> Result<Box<LockedRun>, StoreError> {
    let (head, input_hash) = unseal_head(key, head)?;
    let worker = worker.map(WorkerId::new).transpose();
    let worker = worker.map_err(|_| damaged_row(key, "its lease"))?;
    let mut locked = LockedRun::found(rk, head, input_hash, worker, ready);
    locked.stored = Some(Stored { columns: locked.columns(), attributes: locked.head.attributes.clone() });
    Ok(locked)
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
