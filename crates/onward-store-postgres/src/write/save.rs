//! Writing of a unit of work: one function per table, one statement that calls them, one round trip with the COMMIT. Rows that
//! exceed the size of one statement, of a long conversation that is forked for example, get more statements.
//!
//! Must never decide: every value is in the unit of work.

use bytes::Bytes;
use onward_core::run::Wait;
use onward_core::{CallId, Hash, RunHead, Timestamp};
use onward_store::durable::seal::{call_id_key, due_number, seal, seal_bytes, task_state_number};
use onward_store::durable::{Blobs, Body};
use onward_store::unit_of_work::{NewRecord, QueuedTask, Table, Timer};

use crate::connection::sql::Sql;
use crate::row::{crc, event_crc, seal_head};
use crate::write::claim::text_of;
use crate::write::ledger;
use crate::write::op::BATCH_BYTES_MAX;
use crate::write::unit::{LockedRun, UnitOfWork, columns_of};

impl UnitOfWork<'_> {
    /// Returns the statement that writes everything, and further ones for rows it has no room for; none if nothing changed.
    pub fn statements(mut self) -> Vec<Sql> {
        let (mut calls, mut more) = (Vec::new(), Vec::new());
        // The outbox is saved first, while its senders are at their positions.
        self.save_outbox(&mut calls);
        let mut runs: Vec<Box<LockedRun>> = self.set.runs.take();
        // New runs are inserted in the order of their names, so that transactions that start the same ones do not deadlock (DB4).
        runs.sort_unstable_by(|a, b| a.head.key.cmp(&b.head.key));
        save_runs(&runs, &mut calls);
        push_all(save_events(&mut runs, &mut self.blobs), &mut calls, &mut more);
        save_idempotency(&runs, &mut calls);
        self.save_waits(&runs, &mut calls);
        save_timers(&runs, &mut calls);
        self.save_tasks(&runs, &mut calls);
        save_attributes(&runs, &mut calls);
        ledger::save(&runs, &mut calls);
        push_all(self.save_blobs(), &mut calls, &mut more);
        self.save_sessions(&mut calls);
        self.save_spent(&mut calls);
        let all = (!calls.is_empty()).then_some(calls);
        all.into_iter().chain(more.into_iter().map(|call| vec![call])).map(Sql::all).collect()
    }

    fn save_waits(&mut self, runs: &[Box<LockedRun>], calls: &mut Vec<Sql>) {
        let Some((gone, rows)) = changes(runs, |locked| &locked.waits) else { return };
        let mut rows: Vec<(i64, Wait)> = rows.into_iter().map(|(rk, _, wait)| (rk, wait.clone())).collect();
        rows.iter_mut().for_each(|(rk, wait)| self.blobs.push((*rk, Blobs::take(wait))));
        calls.push(
            gone.with(Sql::call("put_waits"))
                .numbers(rows.iter().map(|(rk, _)| *rk).collect())
                .byteses(rows.iter().map(|(_, wait)| call_id_key(&wait.call_id)).collect())
                .texts(rows.iter().map(|(_, wait)| wait.run.namespace.as_str().to_owned()).collect())
                .texts(rows.iter().map(|(_, wait)| wait.run.id.as_str().to_owned()).collect())
                .smalls(rows.iter().map(|(_, wait)| i16::from(wait.kind.number())).collect())
                .numbers(rows.iter().map(|(_, wait)| wait.requested_at.0 as i64).collect())
                .byteses(rows.iter().map(|(_, wait)| seal(wait)).collect()),
        );
    }

    fn save_tasks(&mut self, runs: &[Box<LockedRun>], calls: &mut Vec<Sql>) {
        let Some((gone, rows)) = changes(runs, |locked| &locked.tasks) else { return };
        let rows = rows.into_iter().map(|(rk, _, queued)| (rk, queued.clone())).collect();
        calls.push(put_tasks(gone, rows, self.set.now, &mut self.blobs));
    }

    fn save_outbox(&mut self, calls: &mut Vec<Sql>) {
        let mut rows = Vec::new();
        for (from, mut message) in std::mem::take(&mut self.set.outbox) {
            let rk = self.set.runs[from].own.rk;
            self.blobs.push((rk, Blobs::take(&mut message)));
            rows.push((rk, seal_bytes(message.to_bytes())));
        }
        if !rows.is_empty() {
            let (numbers, data) = rows.into_iter().unzip();
            calls.push(Sql::call("put_outbox").numbers(numbers).byteses(data));
        }
    }

    fn save_blobs(&mut self) -> Vec<Sql> {
        let blobs = std::mem::take(&mut self.blobs).into_iter();
        let rows = blobs.flat_map(|(rk, blobs)| blobs.blobs.into_iter().map(move |(hash, data)| (rk, hash, data)));
        let call = |rows: Vec<(i64, Hash, Bytes)>| {
            Sql::call("put_blobs")
                .numbers(rows.iter().map(|row| row.0).collect())
                .byteses(rows.iter().map(|row| row.1.0.to_vec()).collect())
                .byteses(rows.iter().map(|row| row.2.to_vec()).collect())
        };
        portions(rows, |(_, _, data)| data.len()).into_iter().map(call).collect()
    }

    /// Creates sessions; existing ones keep their expiry. Their rows are locked in either case, so that a session cannot end
    /// while its worker gets a run (DB5); the lock is shared with other claims and with heartbeats.
    fn save_sessions(&mut self, calls: &mut Vec<Sql>) {
        if self.set.sessions.is_empty() {
            return;
        }
        let sessions = std::mem::take(&mut self.set.sessions);
        let (workers, until) = sessions.into_iter().map(|(worker, at)| (worker.as_str().to_owned(), at.0 as i64)).unzip();
        calls.push(Sql::call("open_sessions").texts(workers).numbers(until));
    }
}

/// Inserts or updates tasks.
pub(crate) fn put_tasks(gone: Gone, mut rows: Vec<(i64, QueuedTask)>, now: Timestamp, blobs: &mut Vec<(i64, Blobs)>) -> Sql {
    rows.iter_mut().for_each(|(rk, queued)| blobs.push((*rk, Blobs::take(&mut queued.task))));
    gone.with(Sql::call("put_keyed_tasks"))
        .numbers(rows.iter().map(|(rk, _)| *rk).collect())
        .byteses(rows.iter().map(|(_, row)| call_id_key(&row.task.id.call_id)).collect())
        .texts(rows.iter().map(|(_, row)| row.task.id.run.namespace.as_str().to_owned()).collect())
        .texts(rows.iter().map(|(_, row)| text_of(row.task.options.queue.as_ref())).collect())
        .texts(rows.iter().map(|(_, row)| row.task.options.key_text().to_owned()).collect())
        .texts(rows.iter().map(|(_, row)| row.task.kind.as_str().to_owned()).collect())
        .ints(rows.iter().map(|(_, row)| row.task.options.priority()).collect())
        .numbers(rows.iter().map(|(_, row)| row.order).collect())
        .smalls(rows.iter().map(|(_, row)| i16::from(task_state_number(&row.task, now))).collect())
        .numbers(rows.iter().map(|(_, row)| due_number(row.task.visible_at)).collect())
        .maybe_numbers(rows.iter().map(|(_, row)| row.task.due_at().map(due_number)).collect())
        .byteses(rows.iter().map(|(_, row)| seal(&row.task)).collect())
}

fn save_runs(runs: &[Box<LockedRun>], calls: &mut Vec<Sql>) {
    let changed = || runs.iter().map(|locked| &**locked).filter(|locked| locked.is_changed);
    let is_same = |locked: &&LockedRun| locked.own.stored.as_ref().is_some_and(|stored| stored.columns == columns_of(locked));
    let heads: Vec<&LockedRun> = changed().filter(is_same).collect();
    if !heads.is_empty() {
        let numbers = heads.iter().map(|locked| locked.own.rk).collect();
        let sealed = heads.iter().map(|locked| seal_head(&locked.head, locked.input_hash.as_ref())).collect();
        let next = heads.iter().map(|locked| locked.head.next_index.0 as i64).collect();
        calls.push(Sql::call("put_heads").numbers(numbers).byteses(sealed).numbers(next));
    }
    let others: Vec<&LockedRun> = changed().filter(|locked| locked.own.stored.is_some() && !is_same(locked)).collect();
    if !others.is_empty() {
        calls.push(columns(Sql::call("put_runs"), &others));
    }
    let new: Vec<&LockedRun> = changed().filter(|locked| locked.own.stored.is_none()).collect();
    if !new.is_empty() {
        let parent = |locked: &&LockedRun| locked.head.parent.as_ref().map(|link| link.run.clone());
        calls.push(
            columns(Sql::call("make_runs"), &new)
                .texts(new.iter().map(|locked| locked.head.key.namespace.as_str().to_owned()).collect())
                .texts(new.iter().map(|locked| locked.head.key.id.as_str().to_owned()).collect())
                .maybe_texts(new.iter().map(|locked| parent(locked).map(|key| key.namespace.as_str().to_owned())).collect())
                .maybe_texts(new.iter().map(|locked| parent(locked).map(|key| key.id.as_str().to_owned())).collect()),
        );
    }
    let past: Vec<(&LockedRun, &RunHead)> =
        runs.iter().flat_map(|locked| locked.past.iter().map(move |head| (&**locked, head))).collect();
    if !past.is_empty() {
        calls.push(
            Sql::call("put_past")
                .numbers(past.iter().map(|(locked, _)| locked.own.rk).collect())
                .ints(past.iter().map(|(_, head)| head.generation as i32).collect())
                .byteses(past.iter().map(|(locked, head)| seal_head(head, locked.input_hash.as_ref())).collect()),
        );
    }
}

fn columns(sql: Sql, runs: &[&LockedRun]) -> Sql {
    let columns: Vec<_> = runs.iter().map(|locked| columns_of(locked)).collect();
    let at = |at: Timestamp| at.0 as i64;
    sql.numbers(runs.iter().map(|locked| locked.own.rk).collect())
        .texts(columns.iter().map(|own| own.1.as_str().to_owned()).collect())
        .texts(columns.iter().map(|own| text_of(own.2.as_ref())).collect())
        .smalls(columns.iter().map(|own| i16::from(own.0.number())).collect())
        .numbers(columns.iter().map(|own| at(own.3)).collect())
        .maybe_numbers(columns.iter().map(|own| own.4.map(at)).collect())
        .maybe_numbers(columns.iter().map(|own| own.5).collect())
        .maybe_texts(columns.iter().map(|own| own.6.as_ref().map(|worker| worker.as_str().to_owned())).collect())
        .byteses(runs.iter().map(|locked| seal_head(&locked.head, locked.input_hash.as_ref())).collect())
        .ints(runs.iter().map(|locked| locked.head.generation as i32).collect())
        .numbers(runs.iter().map(|locked| locked.head.next_index.0 as i64).collect())
}

fn save_events(runs: &mut [Box<LockedRun>], blobs: &mut Vec<(i64, Blobs)>) -> Vec<Sql> {
    let mut records = Vec::new();
    for locked in runs {
        for mut record in std::mem::take(&mut locked.records) {
            let large = std::mem::take(&mut record.body.blobs);
            if !large.blobs.is_empty() {
                blobs.push((locked.own.rk, large));
            }
            records.push((locked.own.rk, record));
        }
    }
    let crc =
        |(rk, record): &(i64, NewRecord<Body>)| event_crc(*rk, record.generation, record.index, record.at, &record.body.bytes);
    let call = |records: Vec<(i64, NewRecord<Body>)>| {
        Sql::call("put_events")
            .numbers(records.iter().map(|(rk, _)| *rk).collect())
            .ints(records.iter().map(|(_, record)| record.generation as i32).collect())
            .numbers(records.iter().map(|(_, record)| record.index.0 as i64).collect())
            .numbers(records.iter().map(|(_, record)| record.at.0 as i64).collect())
            .numbers(records.iter().map(crc).collect())
            .byteses(records.into_iter().map(|(_, record)| record.body.bytes).collect())
    };
    portions(records, |(_, record)| record.body.bytes.len()).into_iter().map(call).collect()
}

/// Adds the first portion to the common statement; the others get their own.
fn push_all(portions: Vec<Sql>, calls: &mut Vec<Sql>, more: &mut Vec<Sql>) {
    let mut portions = portions.into_iter();
    calls.extend(portions.next());
    more.extend(portions);
}

/// Splits rows into portions of about the byte limit of a transaction; a larger row gets its own.
fn portions<T>(rows: impl IntoIterator<Item = T>, payload_bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut portions, mut bytes) = (Vec::new(), 0);
    for row in rows {
        let weight = payload_bytes(&row);
        bytes += weight;
        match portions.last_mut() {
            Some(portion) if bytes <= BATCH_BYTES_MAX => Vec::push(portion, row),
            _ => {
                portions.push(vec![row]);
                bytes = weight;
            }
        }
    }
    portions
}

fn save_idempotency(runs: &[Box<LockedRun>], calls: &mut Vec<Sql>) {
    let changes = runs.iter().flat_map(|locked| locked.slots.changes().map(move |(key, slot)| (locked.own.rk, key, slot)));
    let (rows, gone): (Vec<_>, Vec<_>) = changes.partition(|(_, _, slot)| slot.is_some());
    let (gone, gone_keys): (Vec<i64>, Vec<Vec<u8>>) = gone.into_iter().map(|(rk, key, _)| (rk, key.clone().into_bytes())).unzip();
    let rows: Vec<_> = rows.into_iter().filter_map(|(rk, key, slot)| Some((rk, key.as_bytes(), slot?))).collect();
    if gone.is_empty() && rows.is_empty() {
        return;
    }
    calls.push(
        Sql::call("put_idempotency")
            .numbers(gone)
            .byteses(gone_keys)
            .numbers(rows.iter().map(|row| row.0).collect())
            .byteses(rows.iter().map(|row| row.1.to_vec()).collect())
            .byteses(rows.iter().map(|row| row.2.token.clone().into_bytes()).collect())
            .numbers(rows.iter().map(|row| row.2.index.0 as i64).collect())
            .numbers(rows.iter().map(|row| row.2.at.0 as i64).collect())
            .numbers(
                rows.iter()
                    .map(|(rk, key, slot)| crc(&[*rk, slot.index.0 as i64, slot.at.0 as i64], &[key, slot.token.as_bytes()]))
                    .collect(),
            ),
    );
}

fn save_timers(runs: &[Box<LockedRun>], calls: &mut Vec<Sql>) {
    let Some((gone, rows)) = changes(runs, |locked| &locked.timers) else { return };
    let row = |(rk, call_id, timer): (_, _, &Timer)| (rk, call_id_key(call_id), due_number(timer.due_at), timer.is_frozen);
    let rows: Vec<(i64, Vec<u8>, i64, bool)> = rows.into_iter().map(row).collect();
    calls.push(
        gone.with(Sql::call("put_timers"))
            .numbers(rows.iter().map(|row| row.0).collect())
            .byteses(rows.iter().map(|row| row.1.clone()).collect())
            .numbers(rows.iter().map(|row| row.2).collect())
            .flags(rows.iter().map(|row| row.3).collect())
            .numbers(rows.iter().map(|(rk, call_id, due, frozen)| crc(&[*rk, *due, i64::from(*frozen)], &[call_id])).collect()),
    );
}

/// Replaces the attributes of runs whose attributes have changed.
fn save_attributes(runs: &[Box<LockedRun>], calls: &mut Vec<Sql>) {
    let is_other = |locked: &&LockedRun| {
        let before = locked.own.stored.as_ref().map(|stored| &stored.attributes);
        before.map_or(!locked.head.attributes.is_empty(), |before| *before != locked.head.attributes)
    };
    let changed: Vec<&LockedRun> = runs.iter().map(|locked| &**locked).filter(is_other).collect();
    if changed.is_empty() {
        return;
    }
    let numbers = changed.iter().map(|locked| locked.own.rk).collect();
    let rows: Vec<_> = changed.iter().flat_map(|locked| locked.head.attributes.iter().map(|own| (locked.own.rk, own))).collect();
    calls.push(
        Sql::call("put_attributes")
            .numbers(numbers)
            .numbers(rows.iter().map(|row| row.0).collect())
            .texts(rows.iter().map(|row| row.1.name.as_str().to_owned()).collect())
            .byteses(rows.iter().map(|row| row.1.value.to_key().into_bytes()).collect()),
    );
}

/// A row to write, with the number of its run.
type ChangedRow<'a, V> = (i64, &'a CallId, &'a V);

/// Returns what changed in one table of the runs, if anything did.
fn changes<V>(
    runs: &[Box<LockedRun>],
    table: impl Fn(&LockedRun) -> &Table<CallId, V>,
) -> Option<(Gone, Vec<ChangedRow<'_, V>>)> {
    let (mut gone, mut rows) = (Gone::default(), Vec::new());
    for locked in runs {
        let (rk, table) = (locked.own.rk, table(locked));
        // A new run has no stored rows.
        gone.runs.extend((table.is_cleared() && locked.own.stored.is_some()).then_some(rk));
        for (call_id, row) in table.changes() {
            match row {
                Some(row) => rows.push((rk, call_id, row)),
                None => {
                    gone.numbers.push(rk);
                    gone.call_ids.push(call_id_key(call_id));
                }
            }
        }
    }
    let is_changed = !gone.runs.is_empty() || !gone.numbers.is_empty() || !rows.is_empty();
    is_changed.then_some((gone, rows))
}

/// Rows to delete: all of a run, or by run and call id.
#[derive(Default)]
pub(crate) struct Gone {
    runs: Vec<i64>,
    numbers: Vec<i64>,
    call_ids: Vec<Vec<u8>>,
}

impl Gone {
    fn with(self, call: Sql) -> Sql {
        call.numbers(self.runs).numbers(self.numbers).byteses(self.call_ids)
    }
}

#[cfg(test)]
mod tests;
