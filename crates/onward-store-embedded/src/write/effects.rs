//! Effects of an append: rows of timers, tasks, waits and the outbox, and the run's own row when its status changed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onward_core::run::{Effect, OutboxMessage, Wait, wait_key};
use onward_core::{CallId, Event, Index, Record, RunHead, RunKey, Status, Timestamp};
use onward_store::OutboxId;
use onward_store::durable::{Blobs, OwnedChange};
use rusqlite::{Connection, params};

use super::append::wait_generation;
use crate::error::{Outcome, Trouble, damaged_row};
use crate::read::blobs;
use crate::read::heads::CachedRun;
use crate::read::ledger;
use crate::row::{NEVER, call_id_key, due_number, seal, seal_bytes, unseal};
use crate::write::writer::{Undo, Writer};

/// The run that an effect belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub rk: i64,
    pub root: i64,
    pub key: &'a RunKey,
    pub generation: u32,
    /// Index of the append that caused the effect.
    pub index: Index,
}

impl Writer<'_> {
    /// Finishes an append: writes the run's row if its status changed, notifies listeners, carries out the effects and settles
    /// the lease.
    pub(crate) fn after_append(
        &mut self,
        cached: CachedRun,
        before: Status,
        record: Record,
        effects: Vec<Effect>,
    ) -> Outcome<()> {
        let index = record.index;
        let status = self.heads[cached].head.status;
        let is_kept = record.events.iter().any(Event::is_kept_in_head);
        if record.sets_external_state() {
            self.write_external_row(cached)?;
        } else if status != before || is_kept {
            let hot = &self.heads[cached];
            self.db.prepare_cached("UPDATE runs SET status = ?2, ended = ?3, head = ?4 WHERE rk = ?1")?.execute(params![
                hot.rk,
                status.number(),
                hot.head.ended_at.map(|at| at.0 as i64),
                seal(&hot.head),
            ])?;
        }
        if record.events.iter().any(|event| matches!(event, Event::AttributeSet(_))) {
            let (rk, attributes) = (self.heads[cached].rk, self.heads[cached].head.attributes.clone());
            self.put_attributes(rk, &attributes)?;
        }
        let hot = &self.heads[cached];
        let was_claimable = before == Status::Pending && !self.shared.leases.is_held(hot.rk);
        if self.batch.heard {
            let mut head = hot.head.clone();
            if status == Status::Pending && !was_claimable {
                self.shared.leases.show(hot.rk, &mut head);
            }
            self.batch.news.push(OwnedChange::Appended { head, record });
        }
        if !effects.is_empty() {
            let key = hot.head.key.clone();
            let owner = Owner { rk: hot.rk, root: hot.root, key: &key, generation: hot.head.generation, index };
            let is_bare = hot.is_bare && effects.iter().all(|effect| matches!(effect, Effect::EndRun { .. }));
            self.heads[cached].is_bare = is_bare;
            let needed = effects.into_iter().filter(|effect| !(is_bare && matches!(effect, Effect::EndRun { .. })));
            for effect in needed {
                self.carry_out(owner, effect)?;
            }
        }
        if status != before || was_claimable { self.settle_run(cached, was_claimable) } else { Ok(()) }
    }

    /// Rewrites the whole row of an external run after its engine set a new state.
    fn write_external_row(&mut self, cached: CachedRun) -> Outcome<()> {
        let hot = &self.heads[cached];
        let head = &hot.head;
        self.db
            .prepare_cached("UPDATE runs SET status = ?2, ended = ?3, head = ?4, kind = ?5, version = ?6 WHERE rk = ?1")?
            .execute(params![
                hot.rk,
                head.status.number(),
                head.ended_at.map(|at| at.0 as i64),
                seal(head),
                head.kind.as_str(),
                head.version.as_ref().map_or("", |version| version.as_str()),
            ])?;
        Ok(())
    }

    /// Drops the lease of a closed run; queues a run that is pending and unleased.
    pub(crate) fn settle_run(&mut self, cached: CachedRun, was_claimable: bool) -> Outcome<()> {
        let hot = &self.heads[cached];
        let (rk, status) = (hot.rk, hot.head.status);
        if status.is_closed()
            && let Some(lease) = self.shared.leases.drop(rk, None)
        {
            let key = hot.head.key.clone();
            self.undo_later(Undo::Dropped(key, rk, lease));
            return Ok(());
        }
        if status == Status::Pending && !was_claimable && !self.shared.leases.is_held(rk) {
            self.ready.push(&hot.head, rk);
            if self.batch.heard {
                self.batch.news.push(OwnedChange::RunPending { head: hot.head.clone() });
            }
        }
        Ok(())
    }

    pub(super) fn carry_out(&mut self, owner: Owner<'_>, effect: Effect) -> Outcome<()> {
        let db = self.db;
        match effect {
            Effect::StartTimer { call_id, due_at } => {
                put_timer(db, owner.rk, &call_id, due_number(due_at))?;
                self.announce_due(due_at);
            }
            Effect::StopTimer { call_id } => {
                db.prepare_cached("DELETE FROM timers WHERE rk = ?1 AND call_id = ?2")?
                    .execute(params![owner.rk, call_id_key(&call_id)])?;
            }
            Effect::AddTask(task) => self.put_task(owner.rk, *task)?,
            Effect::CancelTask { call_id } => self.remove_task(owner.rk, &call_id)?,
            Effect::OpenWait(wait) => put_wait(db, owner.rk, *wait)?,
            Effect::CloseWait { call_id, token } => self.close_wait(owner, &call_id, &token)?,
            Effect::Send(delivery) => self.send(owner.root, *delivery)?,
            Effect::Freeze { at } => {
                self.check_timers(owner)?;
                db.prepare_cached(
                    "UPDATE timers SET due = due + ?2, crc = row_crc(rk, call_id, due + ?2) WHERE rk = ?1 AND due < ?2",
                )?
                .execute(params![owner.rk, NEVER])?;
                self.change_tasks(owner.rk, |task| task.freeze(at))?;
            }
            Effect::Thaw { shift } => {
                self.check_timers(owner)?;
                self.thaw_timers(owner.rk, shift)?;
                self.change_tasks(owner.rk, |task| task.thaw(shift))?;
            }
            Effect::Charge { row, sum } => ledger::charge(db, &row, &sum)?,
            Effect::EndRun { goes_on } => self.end_run(owner, goes_on)?,
        }
        Ok(())
    }

    fn thaw_timers(&mut self, rk: i64, shift: Duration) -> Outcome<()> {
        let shift = due_number(Timestamp(0).after(shift));
        self.db
            .prepare_cached(
                "UPDATE timers SET due = min(due - ?2 + ?3, ?2 - 1), crc = row_crc(rk, call_id, min(due - ?2 + ?3, ?2 - 1))
                 WHERE rk = ?1 AND due >= ?2",
            )?
            .execute(params![rk, NEVER, shift])?;
        let mut earliest = self.db.prepare_cached("SELECT min(due) FROM timers WHERE rk = ?1")?;
        if let Some(due) = earliest.query_row(params![rk], |row| row.get::<_, Option<i64>>(0))? {
            drop(earliest);
            self.announce_due(Timestamp(due as u64));
        }
        Ok(())
    }

    /// Fails if a timer row is damaged: shifting its due time would give it a fresh checksum (I2).
    fn check_timers(&mut self, owner: Owner<'_>) -> Outcome<()> {
        let mut wrong = self.db.prepare_cached("SELECT 1 FROM timers WHERE rk = ?1 AND crc IS NOT row_crc(rk, call_id, due)")?;
        if wrong.exists(params![owner.rk])? {
            return Err(Trouble::Damaged(damaged_row(owner.key, "a timer")));
        }
        Ok(())
    }

    /// Closes a wait, if one is open, and records its answer: a plain timer has no wait, and an earlier answer keeps its record.
    fn close_wait(&mut self, owner: Owner<'_>, call_id: &CallId, token: &str) -> Outcome<()> {
        let call_id_bytes = call_id_key(call_id);
        let Some(generation) = wait_generation(self.db, owner.rk, &call_id_bytes)? else { return Ok(()) };
        self.remove_rows("DELETE FROM waits WHERE rk = ?1 AND call_id = ?2 RETURNING blobs", params![owner.rk, call_id_bytes])?;
        self.fill_slot(owner.root, &wait_key(generation, call_id), token, owner.index)?;
        Ok(())
    }

    pub(crate) fn fill_slot(&mut self, root: i64, key: &str, token: &str, index: Index) -> Outcome<()> {
        self.put_slot(root, key, token, index, self.batch.now)
    }

    pub(super) fn put_slot(&mut self, root: i64, key: &str, token: &str, index: Index, at: Timestamp) -> Outcome<()> {
        self.db
            .prepare_cached(
                "INSERT OR IGNORE INTO slots(root, key, token, idx, at, crc)
                 VALUES (?1, ?2, ?3, ?4, ?5, row_crc(?1, ?2, ?3, ?4, ?5))",
            )?
            .execute(params![root, key, token, index.0 as i64, at.0 as i64])?;
        Ok(())
    }

    /// Deletes rows and decrements the counts of their blobs; returns the number of rows.
    pub(crate) fn remove_rows(&mut self, sql: &str, params: &[&dyn rusqlite::ToSql]) -> Outcome<usize> {
        let mut statement = self.db.prepare_cached(sql)?;
        let columns = statement.query_map(params, blobs::read_column)?;
        let columns: Vec<Option<Vec<u8>>> = columns.collect::<Result<_, _>>()?;
        for column in columns.iter().flatten() {
            blobs::drop_references(self.db, Some(column))?;
        }
        Ok(columns.len())
    }

    pub(crate) fn send(&mut self, from_root: i64, mut delivery: OutboxMessage) -> Outcome<()> {
        let id = self.next_delivery;
        self.next_delivery += 1;
        let blobs = Blobs::take(&mut delivery);
        blobs::write(&blobs, self.db)?;
        self.db.prepare_cached("INSERT INTO outbox(id, root, data, blobs) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            id,
            from_root,
            seal_bytes(delivery.to_bytes()),
            blobs::column(&blobs)
        ])?;
        if self.batch.heard {
            self.batch.news.push(OwnedChange::OutboxGrew);
        }
        Ok(())
    }

    pub(crate) fn finish_deliveries(&mut self, done: &[OutboxId]) -> Outcome<()> {
        for id in done {
            self.remove_rows("DELETE FROM outbox WHERE id = ?1 RETURNING blobs", params![id.0 as i64])?;
        }
        Ok(())
    }

    fn end_run(&mut self, owner: Owner<'_>, goes_on: bool) -> Outcome<()> {
        self.db.prepare_cached("DELETE FROM timers WHERE rk = ?1")?.execute(params![owner.rk])?;
        self.remove_rows("DELETE FROM tasks WHERE rk = ?1 RETURNING blobs", params![owner.rk])?;
        self.remove_rows("DELETE FROM waits WHERE rk = ?1 RETURNING blobs", params![owner.rk])?;
        for child in self.open_children(owner.key, goes_on.then_some(owner.generation))? {
            if let Some(delivery) = child.parent_closed(owner.generation, goes_on) {
                self.send(owner.root, delivery)?;
            }
        }
        Ok(())
    }

    /// Returns the open children of a run, or of one of its generations, in key order.
    pub(crate) fn open_children(&mut self, parent: &RunKey, generation: Option<u32>) -> Outcome<Vec<RunHead>> {
        let mut statement = self.db.prepare_cached(
            "SELECT head FROM runs WHERE parent_id = ?1 AND parent_ns = ?2 AND status < 4 AND current = 1
               AND (?3 IS NULL OR parent_generation = ?3) ORDER BY ns, id",
        )?;
        let params = params![parent.id.as_str(), parent.namespace.as_str(), generation];
        let rows = statement.query_map(params, |row| row.get::<_, Vec<u8>>(0))?;
        // The end of a child's log does not matter here. A child with a damaged row must not be missed: the row is repaired
        // first.
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        rows.iter().map(|row| unseal::<RunHead>("a child's row", row).map_err(Trouble::Damaged)).collect()
    }

    /// Notifies listeners if `at` is earlier than the announced due time.
    pub(crate) fn announce_due(&mut self, at: Timestamp) {
        if at.0 < self.shared.announced_due.load(Ordering::Relaxed) {
            self.shared.announced_due.store(at.0, Ordering::Relaxed);
            if self.batch.heard {
                self.batch.news.push(OwnedChange::DueAt(at));
            }
        }
    }
}

pub(crate) fn put_timer(db: &Connection, rk: i64, call_id: &CallId, due: i64) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO timers(rk, call_id, due, crc) VALUES (?1, ?2, ?3, row_crc(?1, ?2, ?3))")?
        .execute(params![rk, call_id_key(call_id), due])
        .map(drop)
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
