//! Writing of a unit of work: the rows of the runs that one operation changed.
//!
//! Must never decide: every value is in the working set. A plain step is one insert into `events`.

use std::sync::atomic::Ordering;

use onward_core::run::{OutboxMessage, Wait};
use onward_core::{Attribute, CallId, Hash, KindSchemas, Name, RunHead, Timestamp};
use onward_store::admission::TakenSlot;
use onward_store::durable::limits::is_quota;
use onward_store::durable::{Blobs, Body};
use onward_store::unit_of_work::{NewRecord, QueuedTask, RunRef, Table, Timer};
use onward_store::{Change, OutboxId};
use rusqlite::{Connection, params};

use crate::error::Outcome;
use crate::read::{blobs, heads, ledger, past};
use crate::row::{NEVER, Statements, call_id_key, due_number, event_crc, seal, seal_bytes};
use crate::write::tasks;
use crate::write::writer::{Undo, Writer};

impl Writer<'_> {
    /// Forgets the rows that an operation read; returns false if it changed a run.
    pub(super) fn forget_touched(&mut self) -> bool {
        let mut touched = std::mem::take(&mut self.set.touched);
        let is_unchanged = !touched.iter().any(|run| self.set.runs[*run].is_changed);
        touched.drain(..).for_each(|run| self.forget_rows(run));
        self.set.touched = touched;
        is_unchanged
    }

    pub(super) fn forget_rows(&mut self, run: RunRef) {
        let loaded = &mut self.set.runs[run];
        (loaded.is_touched, loaded.is_changed, loaded.is_head_changed) = (false, false, false);
        if !loaded.has_rows() {
            return;
        }
        loaded.slots = Table::default();
        loaded.waits = Table::default();
        loaded.timers = Table::default();
        loaded.tasks = Table::default();
        loaded.ledger = Table::default();
    }

    pub(super) fn save_run(&mut self, run: RunRef) -> Outcome<()> {
        let loaded = &self.set.runs[run];
        let (before, has_rows) = (loaded.own.rk, loaded.has_rows());
        let (loses_lease, has_stored_rows) = (loaded.own.is_leased && loaded.lease.is_none(), has_rows && !loaded.own.is_new);
        if loses_lease {
            self.drop_lease(run);
        }
        if has_stored_rows {
            self.remove_changed(run)?;
        }
        let records = std::mem::take(&mut self.set.runs[run].records);
        let past = std::mem::take(&mut self.set.runs[run].past);
        if !records.is_empty() {
            self.put_records(run, &records, &past)?;
        } else if self.set.runs[run].is_head_changed {
            self.update_row(run, true, false, false)?;
        }
        if has_rows {
            self.put_changed(run)?;
        }
        let loaded = &mut self.set.runs[run];
        if let Some(worker) = loaded.lease.as_ref().filter(|_| !loaded.own.is_leased) {
            self.shared.leases.grant(loaded.own.rk, &loaded.head.key, loaded.head.epoch, worker);
            loaded.own.is_leased = true;
            self.batch.undo.push(Undo::Granted(loaded.head.key.clone(), loaded.own.rk));
        }
        if loaded.ready.is_some() && (!loaded.own.is_queued || loaded.own.rk != before) {
            self.ready.push(&loaded.head, loaded.own.rk);
        }
        loaded.own.is_queued = loaded.ready.is_some();
        Ok(())
    }

    fn drop_lease(&mut self, run: RunRef) {
        let loaded = &mut self.set.runs[run];
        loaded.own.is_leased = false;
        let (key, rk) = (loaded.head.key.clone(), loaded.own.rk);
        if let Some(lease) = self.shared.leases.drop(rk, None) {
            self.undo_later(Undo::Dropped(key, rk, lease));
        }
    }

    /// Deletes the rows that were removed from the tables of a run.
    fn remove_changed(&mut self, run: RunRef) -> Outcome<()> {
        let loaded = &self.set.runs[run];
        let (rk, root, is_bare) = (loaded.own.rk, loaded.own.root, loaded.own.is_bare);
        let keys = |call_ids: Vec<&CallId>| call_ids.into_iter().map(call_id_key).collect::<Vec<_>>();
        let timers = keys(removed(&loaded.timers));
        let tasks = keys(removed(&loaded.tasks));
        let waits = keys(removed(&loaded.waits));
        let slots: Vec<String> = removed(&loaded.slots).into_iter().cloned().collect();
        let (clears_timers, clears_tasks) = (loaded.timers.is_cleared(), loaded.tasks.is_cleared());
        let clears_waits = loaded.waits.is_cleared();
        if clears_timers && !is_bare {
            self.db.run("DELETE FROM timers WHERE rk = ?1", params![rk])?;
        }
        if clears_tasks && !is_bare {
            self.remove_rows("DELETE FROM tasks WHERE rk = ?1 RETURNING blobs", params![rk])?;
        }
        if clears_waits && !is_bare {
            self.remove_rows("DELETE FROM waits WHERE rk = ?1 RETURNING blobs", params![rk])?;
        }
        for call_id in timers {
            self.db.run("DELETE FROM timers WHERE rk = ?1 AND call_id = ?2", params![rk, call_id])?;
        }
        for call_id in tasks {
            self.remove_rows("DELETE FROM tasks WHERE rk = ?1 AND call_id = ?2 RETURNING blobs", params![rk, call_id])?;
        }
        for call_id in waits {
            self.remove_rows("DELETE FROM waits WHERE rk = ?1 AND call_id = ?2 RETURNING blobs", params![rk, call_id])?;
        }
        for key in slots {
            self.db.run("DELETE FROM idempotency WHERE root = ?1 AND key = ?2", params![root, key])?;
        }
        Ok(())
    }

    /// Writes the rows that were added to the tables of a run or changed there.
    fn put_changed(&mut self, run: RunRef) -> Outcome<()> {
        let (db, now, loaded) = (self.db, self.set.now, &mut self.set.runs[run]);
        let (rk, root) = (loaded.own.rk, loaded.own.root);
        let mut has_rows = false;
        for (call_id, timer) in put(&loaded.timers) {
            has_rows = true;
            put_timer(db, rk, call_id, *timer)?;
        }
        // New rows are numbered in the order in which their tasks were scheduled.
        let mut tasks: Vec<&QueuedTask> = put(&loaded.tasks).map(|(_, queued)| queued).collect();
        tasks.sort_by_key(|queued| queued.order);
        for queued in tasks {
            has_rows = true;
            tasks::put_row(db, rk, queued.task.clone(), now)?;
        }
        for (_, wait) in put(&loaded.waits) {
            has_rows = true;
            put_wait(db, rk, wait.clone())?;
        }
        for (key, slot) in put(&loaded.slots) {
            put_slot(db, root, key, slot)?;
        }
        for (row, sum) in put(&loaded.ledger) {
            ledger::put(db, row, sum)?;
        }
        loaded.own.is_bare &= !has_rows;
        Ok(())
    }

    /// Inserts the records of a run, the only insert of a plain step, and writes what they change in its row.
    fn put_records(&mut self, run: RunRef, records: &[NewRecord<Body>], past: &[RunHead]) -> Outcome<()> {
        let (mut is_kept, mut sets_attributes, mut sets_external_state) = (false, false, false);
        for record in records {
            let own = &self.set.runs[run].own;
            if own.is_new || own.generation != record.generation {
                self.begin_generation(run, record.generation, past)?;
                (is_kept, sets_attributes, sets_external_state) = (false, false, false);
            } else {
                is_kept |= record.is_kept_in_head;
                sets_attributes |= record.sets_attributes;
                sets_external_state |= record.sets_external_state;
            }
            let (rk, body, last) = (self.set.runs[run].own.rk, &record.body, record.last_commit);
            let crc = event_crc(rk, record.index, record.at, record.commit_count, last, &body.bytes);
            blobs::write(&body.blobs, self.db)?;
            self.insert_event.execute(params![
                rk,
                record.index.0 as i64,
                record.at.0 as i64,
                record.commit_count as i64,
                last.map(|index| index.0 as i64),
                i64::from(crc),
                body.bytes,
                blobs::column(&body.blobs),
            ])?;
            self.batch.events += 1;
            self.batch.event_bytes += body.bytes.len() as u64;
        }
        self.update_row(run, is_kept || self.set.runs[run].is_head_changed, sets_attributes, sets_external_state)
    }

    /// Writes the row of a run if its status changed or new records set something that it has.
    fn update_row(&mut self, run: RunRef, is_kept: bool, sets_attributes: bool, sets_external_state: bool) -> Outcome<()> {
        let loaded = &mut self.set.runs[run];
        let (rk, head) = (loaded.own.rk, &loaded.head);
        if sets_external_state {
            write_external_row(self.db, rk, head)?;
        } else if head.status != loaded.own.row_status || is_kept {
            let params = params![rk, head.status.number(), head.ended_at.map(|at| at.0 as i64), seal(head)];
            self.db.run("UPDATE runs SET status = ?2, ended = ?3, head = ?4 WHERE rk = ?1", params)?;
        }
        loaded.own.row_status = head.status;
        if sets_attributes {
            self.db.run("DELETE FROM attributes WHERE rk = ?1", [rk])?;
            put_attributes(self.db, rk, &head.attributes)?;
        }
        Ok(())
    }

    /// Writes the row of a generation that begins, after that of the generation before it.
    fn begin_generation(&mut self, run: RunRef, generation: u32, past: &[RunHead]) -> Outcome<()> {
        let loaded = &self.set.runs[run];
        let (own, current) = (&loaded.own, &loaded.head);
        let head_of = |generation| past.iter().find(|head| head.generation == generation).unwrap_or(current);
        let (rk, input_hash) = if own.is_new {
            (own.rk, loaded.input_hash)
        } else {
            let rk = self.next_rk;
            self.next_rk += 1;
            let keeps_row = own.rk == own.root || current.origin_incarnation().is_none();
            let input_hash = match own.has_current_row {
                true => Some(retire(self.db, own.rk, own.root, head_of(own.generation), keeps_row)?),
                false => loaded.input_hash,
            };
            (rk, input_hash)
        };
        let input_hash = input_hash.expect("a new run has the hash of its input");
        let (head, root, is_current) = (head_of(generation), own.root, generation == current.generation);
        if is_current || rk == root || head.origin_incarnation().is_none() {
            heads::write_row(self.db, heads::insert_run!(""), rk, root, input_hash, is_current, head)?;
            if is_current {
                put_attributes(self.db, rk, &head.attributes)?;
            }
        } else {
            past::put(self.db, rk, root, generation)?;
        }
        let row_status = head.status;
        let loaded = &mut self.set.runs[run];
        loaded.input_hash = Some(input_hash);
        let own = &mut loaded.own;
        // An earlier generation may have spawned children.
        (own.is_bare, own.is_new) = (own.is_new && generation == 0, false);
        (own.rk, own.generation) = (rk, generation);
        (own.has_current_row, own.row_status) = (is_current, row_status);
        Ok(())
    }

    /// Deletes rows and decrements the counts of their blobs; returns the number of rows.
    pub(crate) fn remove_rows(&mut self, sql: &str, params: &[&dyn rusqlite::ToSql]) -> Outcome<usize> {
        let columns = self.db.all(sql, params, blobs::read_column)?;
        for column in columns.iter().flatten() {
            blobs::drop_references(self.db, Some(column))?;
        }
        Ok(columns.len())
    }

    pub(super) fn put_message(&mut self, from_root: i64, mut message: OutboxMessage) -> Outcome<()> {
        let id = self.next_message;
        self.next_message += 1;
        let blobs = Blobs::take(&mut message);
        blobs::write(&blobs, self.db)?;
        let params = params![id, from_root, seal_bytes(message.to_bytes()), blobs::column(&blobs)];
        self.db.run("INSERT INTO outbox(id, root, data, blobs) VALUES (?1, ?2, ?3, ?4)", params)?;
        Ok(())
    }

    pub(crate) fn finish_deliveries(&mut self, done: &[OutboxId]) -> Outcome<()> {
        for id in done {
            self.remove_rows("DELETE FROM outbox WHERE id = ?1 RETURNING blobs", params![id.0 as i64])?;
        }
        Ok(())
    }

    pub(crate) fn register_kinds(&mut self, kinds: Vec<KindSchemas>) -> Outcome<()> {
        for kind in kinds {
            let kind = KindSchemas { registered_at: self.set.now, ..kind };
            let (namespace, is_task, name, version) = kind.key();
            let (namespace, name, version) = (namespace.as_str(), name.as_str(), version.map_or("", Name::as_str));
            if kind.has_schemas() {
                let sql = "INSERT OR REPLACE INTO kinds(ns, task, kind, version, data) VALUES (?1, ?2, ?3, ?4, ?5)";
                self.db.run(sql, params![namespace, is_task, name, version, seal(&kind)])?;
            } else {
                let sql = "DELETE FROM kinds WHERE ns = ?1 AND task = ?2 AND kind = ?3 AND version = ?4";
                self.db.run(sql, params![namespace, is_task, name, version])?;
            }
            if is_quota(&kind) {
                self.forget_quotas();
                self.batch.quotas.push(kind);
            }
        }
        Ok(())
    }

    /// Notifies listeners if `at` is earlier than the announced due time.
    pub(crate) fn announce_due(&mut self, at: Timestamp) {
        if at.0 < self.shared.announced_due.load(Ordering::Relaxed) {
            self.shared.announced_due.store(at.0, Ordering::Relaxed);
            self.set.notify(|_| Change::DueAt(at));
        }
    }
}

/// Returns the keys of the rows that were removed from a table.
fn removed<K: Ord + Clone, V>(table: &Table<K, V>) -> Vec<&K> {
    table.changes().filter(|(_, row)| row.is_none()).map(|(key, _)| key).collect()
}

/// Returns the rows that were added to a table or changed there.
fn put<K: Ord + Clone, V>(table: &Table<K, V>) -> impl Iterator<Item = (&K, &V)> {
    table.changes().filter_map(|(key, row)| Some((key, row?)))
}

/// Retires the row of a generation that a later one replaces; returns the hash of the run's first input. A row of `past` can be
/// rebuilt only if the logs identify their run; otherwise the row is kept.
fn retire(db: &Connection, rk: i64, root: i64, ended: &RunHead, keeps_row: bool) -> Outcome<Hash> {
    // Only the attributes of the current generation are searched.
    db.run("DELETE FROM attributes WHERE rk = ?1", [rk])?;
    if keeps_row {
        let sql = "UPDATE runs SET current = 0, head = ?2, status = ?3, ended = ?4 WHERE rk = ?1 RETURNING input_hash";
        let ended_at = ended.ended_at.map(|at| at.0 as i64);
        let params = params![rk, heads::retired(&ended.key, ended.generation), ended.status.number(), ended_at];
        return Ok(Hash(db.prepare_cached(sql)?.query_row(params, |row| row.get(0))?));
    }
    past::put(db, rk, root, ended.generation)?;
    let mut remove = db.prepare_cached("DELETE FROM runs WHERE rk = ?1 RETURNING input_hash")?;
    Ok(Hash(remove.query_row([rk], |row| row.get(0))?))
}

/// Rewrites the whole row of an external run after its engine set a new state.
fn write_external_row(db: &Connection, rk: i64, head: &RunHead) -> rusqlite::Result<()> {
    let version = head.version.as_ref().map_or("", |version| version.as_str());
    let ended = head.ended_at.map(|at| at.0 as i64);
    let params = params![rk, head.status.number(), ended, seal(head), head.kind.as_str(), version];
    let sql = "UPDATE runs SET status = ?2, ended = ?3, head = ?4, kind = ?5, version = ?6 WHERE rk = ?1";
    db.run(sql, params).map(drop)
}

fn put_slot(db: &Connection, root: i64, key: &str, slot: &TakenSlot) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO idempotency(root, key, token, idx, at, crc)
         VALUES (?1, ?2, ?3, ?4, ?5, row_crc(?1, ?2, ?3, ?4, ?5))";
    db.run(sql, params![root, key, slot.token, slot.index.0 as i64, slot.at.0 as i64]).map(drop)
}

pub(crate) fn put_timer(db: &Connection, rk: i64, call_id: &CallId, timer: Timer) -> rusqlite::Result<()> {
    let due = due_number(timer.due_at) + if timer.is_frozen { NEVER } else { 0 };
    let sql = "INSERT OR REPLACE INTO timers(rk, call_id, due, crc) VALUES (?1, ?2, ?3, row_crc(?1, ?2, ?3))";
    db.run(sql, params![rk, call_id_key(call_id), due]).map(drop)
}

pub(crate) fn put_wait(db: &Connection, rk: i64, mut wait: Wait) -> rusqlite::Result<()> {
    let blobs = Blobs::take(&mut wait);
    blobs::write(&blobs, db)?;
    db.prepare_cached(
        "INSERT OR REPLACE INTO waits(rk, call_id, ns, id, kind, requested, data, blobs) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        rk,
        call_id_key(&wait.call_id),
        wait.run.namespace.as_str(),
        wait.run.id.as_str(),
        wait.kind.number(),
        wait.requested_at.0 as i64,
        seal(&wait),
        blobs::column(&blobs),
    ])
    .map(drop)
}

pub(crate) fn put_attributes(db: &Connection, rk: i64, attributes: &[Attribute]) -> rusqlite::Result<()> {
    if attributes.is_empty() {
        return Ok(());
    }
    let mut insert =
        db.prepare_cached("INSERT INTO attributes(rk, name, value, crc) VALUES (?1, ?2, ?3, row_crc(?1, ?2, ?3))")?;
    for attribute in attributes {
        insert.execute(params![rk, attribute.name.as_str(), attribute.value.to_key()])?;
    }
    Ok(())
}
