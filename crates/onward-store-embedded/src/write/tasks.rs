//! Rows of tasks, and due times.

use std::sync::atomic::Ordering;

use onward_core::task::{Task, TaskState};
use onward_core::{CallId, Index, Name, Timestamp};
use onward_store::durable::Blobs;
use onward_store::durable::seal::{DELAYED, task_state_number};
use onward_store::unit_of_work::{self, block_on_ready};
use onward_store::{Change, ClaimTasks, Expired, StoreError};
use rusqlite::{Connection, Row, params};

use crate::error::{OpError, Outcome, damage_of_run, damaged_row, is_repairable, read_error};
use crate::read::{blobs, heads};
use crate::row::{NEVER, Statements, call_id_key, due_number, number, seal, unseal};
use crate::store::WorkersInside;
use crate::write::rows::sql_limit;
use crate::write::writer::Writer;

/// The columns that [`read_row`] reads.
pub(crate) const COLUMNS: &str = "tk, rk, data, call_id, ns, queue, kind, priority, state, visible, due, qkey, slots";

/// The claimable tasks without a key of one namespace, queue and kind, in claim order.
pub(crate) const READY_TASKS: &str = "SELECT visible - priority * 60000, tk FROM tasks
  WHERE state = 0 AND ns = ?1 AND queue = ?2 AND kind = ?3 AND qkey = '' ORDER BY visible - priority * 60000, tk LIMIT ?4";

/// Maximum number of delayed tasks that become claimable at once: there may be very many after an outage.
const SHOWN_MAX: i64 = 1_024;

impl Writer<'_> {
    /// Makes tasks claimable whose delay is over, up to a limit; returns whether there may be more.
    pub(super) fn make_visible(&mut self) -> Outcome<bool> {
        let text = format!("SELECT {COLUMNS} FROM tasks WHERE state = 3 AND visible <= ?1 ORDER BY visible, tk LIMIT ?2");
        let rows = self.db.all(&text, params![self.set.now.0 as i64, SHOWN_MAX], read_row)?;
        let is_cut = rows.len() as i64 >= SHOWN_MAX;
        for row in rows {
            let task = match self.read_task(&row) {
                Ok(task) => task,
                Err(error) => {
                    self.pass_over(&row, &error)?;
                    continue;
                }
            };
            self.db.run("UPDATE tasks SET state = 0 WHERE tk = ?1", [row.tk])?;
            self.set.notify(|_| Change::TaskQueued { task: Box::new(task) });
        }
        Ok(is_cut)
    }

    /// Reads a task with its large payloads, and checks that its row belongs to its run.
    pub(super) fn read_task(&self, row: &TaskRow) -> Result<Task, StoreError> {
        let mut task = row.task()?;
        let run = &task.id.run;
        let cached = self.set.runs.get(run).map(|run| &self.set.runs[run].own);
        let rk = cached.filter(|own| own.generation == task.id.generation).map(|own| own.rk);
        if rk != Some(row.rk) && heads::key_of(self.db, row.rk)?.as_ref() != Some(run) {
            return Err(damaged_row(run, "the run of a task"));
        }
        match blobs::restore(self.db, &mut task) {
            Ok(()) => Ok(task),
            // The log has the same payload and is damaged too. A task without its payloads is never handed out, whatever the
            // reason.
            Err(error) => Err(damage_of_run(&task.id.run, Index(0), error)),
        }
    }

    /// Returns the open task of a call.
    pub(super) fn find_task(&self, rk: i64, call_id: &CallId) -> Outcome<Option<Task>> {
        let sql = format!("SELECT {COLUMNS} FROM tasks WHERE rk = ?1 AND call_id = ?2");
        let row = self.db.one(&sql, params![rk, call_id_key(call_id)], read_row).map_err(read_error)?;
        Ok(row.map(|row| self.read_task(&row)).transpose()?)
    }

    /// Returns all tasks of a run that is paused or resumed.
    pub(super) fn tasks_of(&self, rk: i64) -> Outcome<Vec<Task>> {
        let rows = self.db.all(&format!("SELECT {COLUMNS} FROM tasks WHERE rk = ?1"), [rk], read_row)?;
        rows.iter().map(|row| self.read_task(row).map_err(OpError::Damaged)).collect()
    }

    /// Returns the tasks without a key that a claim may get, in claim order.
    pub(super) fn claimable_tasks(&mut self, request: &ClaimTasks) -> Outcome<Vec<(TaskRow, Task)>> {
        let mut found: Vec<(i64, i64)> = Vec::new();
        for queue in &request.queues {
            for kind in request.kinds.iter() {
                let queue = queue.as_ref().map_or("", Name::as_str);
                let params = params![request.namespace.as_str(), queue, kind.as_str(), number(request.limit)];
                found.extend(self.db.all(READY_TASKS, params, |row| Ok((row.get(0)?, row.get(1)?)))?);
            }
        }
        found.sort_unstable(); // L21
        found.dedup();
        self.tasks_to_claim(found.into_iter().take(request.limit).map(|(_, tk)| tk).collect())
    }

    /// Reads tasks that are about to be claimed; damaged ones are passed over.
    pub(super) fn tasks_to_claim(&mut self, found: Vec<i64>) -> Outcome<Vec<(TaskRow, Task)>> {
        let mut tasks = Vec::new();
        for tk in found {
            let Some(row) = self.db.one(&format!("SELECT {COLUMNS} FROM tasks WHERE tk = ?1"), [tk], read_row)? else {
                self.repair_wanted = true;
                continue;
            };
            match self.read_task(&row) {
                Ok(task) if task.may_be_claimed(self.set.now) => tasks.push((row, task)),
                Ok(_) => {}
                Err(error) => self.pass_over(&row, &error)?,
            }
        }
        Ok(tasks)
    }

    /// Returns tasks that timed out, and whether there are more; none while expiry of task leases is suspended.
    pub(super) fn expired_tasks(&mut self, limit: usize) -> Outcome<(Vec<TaskRow>, bool)> {
        if self.batch.steady < self.clock_jumps.hold_until {
            return Ok((Vec::new(), false));
        }
        let text = format!("SELECT {COLUMNS} FROM tasks WHERE due IS NOT NULL AND due <= ?1 ORDER BY due, tk LIMIT ?2");
        let mut due = self.db.all(&text, params![self.set.now.0 as i64, sql_limit(limit)], read_row)?;
        let more = due.len() > limit;
        due.truncate(limit);
        Ok((due, more))
    }

    pub(super) fn remove_task(&mut self, row: &TaskRow) -> Outcome<()> {
        self.remove_rows("DELETE FROM tasks WHERE tk = ?1 RETURNING blobs", params![row.tk]).map(drop)
    }

    /// Skips a damaged task, which is repaired later, so that it does not block the others. Removes a task of a run with a
    /// damaged log, which reads of the run report.
    pub(super) fn pass_over(&mut self, row: &TaskRow, error: &StoreError) -> Outcome<()> {
        match error {
            StoreError::LogCorrupt { .. } if !is_repairable(error) => self.remove_task(row),
            _ => {
                self.repair_wanted = true;
                Ok(())
            }
        }
    }

    pub(super) fn expire(&mut self, limit: usize) -> Outcome<Expired> {
        let expired = block_on_ready(unit_of_work::expire(self, limit))?;
        let next_due = self.next_due()?;
        self.shared.announced_due.store(next_due.map_or(u64::MAX, |due| due.0), Ordering::Relaxed);
        Ok(Expired { next_due, ..expired })
    }

    fn next_due(&self) -> Outcome<Option<Timestamp>> {
        let timer: Option<Option<i64>> = self.db.one("SELECT min(due) FROM timers WHERE due < ?1", [NEVER], |row| row.get(0))?;
        let timer = timer.flatten().map(|due| Timestamp(due as u64));
        let (now, steady) = (self.set.now, self.batch.steady);
        let later = |at: Timestamp| now.after(at.since(steady));
        let session = self.shared.leases.next_session_end().map(later);
        // While expiry of task leases is suspended, they are not due.
        let task = self.next_task_due()?.map(|due| due.max(later(self.clock_jumps.hold_until.max(steady))));
        Ok([timer, task, session].into_iter().flatten().min())
    }

    /// Returns the time at which the next task times out or becomes visible.
    pub(super) fn next_task_due(&self) -> Outcome<Option<Timestamp>> {
        let read = |sql| self.db.prepare_cached(sql)?.query_row([], |row| row.get::<_, Option<i64>>(0));
        let due = read("SELECT min(due) FROM tasks WHERE due IS NOT NULL")?;
        let visible = read("SELECT min(visible) FROM tasks WHERE state = 3")?;
        Ok(due.into_iter().chain(visible).min().map(|due| Timestamp(due as u64)))
    }
}

/// A row of a task. The checksummed task repeats the content of the columns.
pub(crate) struct TaskRow {
    pub tk: i64,
    pub rk: i64,
    data: Vec<u8>,
    call_id: Vec<u8>,
    names: [String; 4],
    priority: i64,
    state: i64,
    visible: i64,
    due: Option<i64>,
    slots: i64,
}

/// Reads a row; a value of an unexpected type is damage of this row only, detected later.
pub(crate) fn read_row(row: &Row<'_>) -> rusqlite::Result<TaskRow> {
    let bytes = |at: usize| Ok::<_, rusqlite::Error>(row.get_ref(at)?.as_blob().map(<[u8]>::to_vec).unwrap_or_default());
    let text = |at: usize| Ok::<_, rusqlite::Error>(row.get_ref(at)?.as_str().unwrap_or("?").to_owned());
    let integer = |at: usize| Ok::<_, rusqlite::Error>(row.get_ref(at)?.as_i64().unwrap_or(i64::MIN));
    Ok(TaskRow {
        tk: row.get(0)?,
        rk: integer(1)?,
        data: bytes(2)?,
        call_id: bytes(3)?,
        names: [text(4)?, text(5)?, text(6)?, text(11)?],
        priority: integer(7)?,
        state: integer(8)?,
        visible: integer(9)?,
        due: row.get_ref(10)?.as_i64_or_null().unwrap_or(Some(i64::MIN)),
        slots: integer(12)?,
    })
}

impl TaskRow {
    /// Returns the task without its large payloads, if the row is consistent (I2).
    pub fn task(&self) -> Result<Task, StoreError> {
        let task: Task = unseal("a task", &self.data)?;
        let queue = task.options.queue.as_ref().map_or("", Name::as_str);
        let names = [task.id.run.namespace.as_str(), queue, task.kind.as_str(), task.options.key_text()];
        let is_delayed = self.state == i64::from(DELAYED) && task.waits_its_turn();
        // The visibility of a queued task depends on the time at which its row was written.
        let state = if is_delayed { DELAYED } else { task_state_number(&task, Timestamp(u64::MAX)) };
        let is_sound = self.call_id == call_id_key(&task.id.call_id)
            && self.names == names
            && self.priority == i64::from(task.options.priority())
            && self.state == i64::from(state)
            && self.slots == i64::from(task.options.slots())
            && self.visible == due_number(task.visible_at)
            && self.due == task.due_at().map(due_number);
        if is_sound { Ok(task) } else { Err(damaged_row(&task.id.run, "a task")) }
    }
}

/// Writes a task over its row, or into a new one.
pub(crate) fn put_row(db: &Connection, rk: i64, mut task: Task, now: Timestamp) -> rusqlite::Result<()> {
    let blobs = Blobs::take(&mut task);
    // Incremented before the old row's references are dropped, so that a shared blob stays.
    blobs::write(&blobs, db)?;
    let call_id = call_id_key(&task.id.call_id);
    let sql = "SELECT blobs FROM tasks WHERE rk = ?1 AND call_id = ?2";
    let old = db.one(sql, params![rk, call_id], blobs::read_column)?;
    db.prepare_cached(
        "INSERT INTO tasks(rk, call_id, ns, queue, kind, priority, state, visible, due, data, blobs, qkey, slots)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT(rk, call_id) DO UPDATE SET state = ?7, visible = ?8, due = ?9, data = ?10, blobs = ?11",
    )?
    .execute(params![
        rk,
        call_id,
        task.id.run.namespace.as_str(),
        task.options.queue.as_ref().map_or("", Name::as_str),
        task.kind.as_str(),
        task.options.priority(),
        task_state_number(&task, now),
        due_number(task.visible_at),
        task.due_at().map(due_number),
        seal(&task),
        blobs::column(&blobs),
        task.options.key_text(),
        task.options.slots(),
    ])?;
    blobs::drop_references(db, old.flatten().as_deref())
}

/// Takes back the task leases that a previous process left.
///
/// Run leases end with their process; task leases are in rows, since remote workers outlive the server. Workers inside the
/// process that held the lock are dead, so their tasks lose their leases at opening. Each loss is counted, so that a task that
/// keeps killing its process is quarantined as usual (K3).
pub(crate) fn take_tasks_back(db: &Connection, workers: WorkersInside, now: Timestamp) -> rusqlite::Result<()> {
    let transaction = db.unchecked_transaction()?;
    let sql = format!("SELECT {COLUMNS} FROM tasks WHERE due IS NOT NULL AND state = ?1");
    for row in db.all(&sql, [TaskState::Leased.number()], read_row)? {
        // A damaged task is handled when its lease expires. Large payloads stay where they are: the row's references do not
        // change.
        let (tk, Ok(mut task)) = (row.tk, row.task()) else { continue };
        if !task.worker.as_ref().is_some_and(|worker| workers.includes(worker)) {
            continue;
        }
        task.lose_worker(now);
        let (state, visible) = (task_state_number(&task, now), due_number(task.visible_at));
        let params = params![tk, state, visible, task.due_at().map(due_number), seal(&task)];
        db.run("UPDATE tasks SET state = ?2, visible = ?3, due = ?4, data = ?5 WHERE tk = ?1", params)?;
    }
    transaction.commit()
}
