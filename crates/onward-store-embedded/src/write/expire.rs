//! Time-driven changes: timers, task timeouts, expired worker sessions.

use std::sync::atomic::Ordering;

use onward_core::Timestamp;
use onward_core::event::TimerFired;
use onward_core::run::Input;
use onward_store::Expired;
use rusqlite::params;

use super::tasks::{COLUMNS, TaskRow, read_row};
use crate::error::{Outcome, Trouble, may_be_mended};
use crate::row::{NEVER, read_call_id};
use crate::write::writer::{Batch, Writer};

impl Writer<'_> {
    pub(crate) fn expire(&mut self, limit: usize) -> Outcome<Expired> {
        let (timers_fired, more_timers) = self.fire_timers(limit)?;
        let (tasks_expired, more_tasks) = self.expire_tasks(limit)?;
        let (free, workers_lost, more_workers) = self.shared.leases.end_sessions(self.batch.steady, limit);
        for rk in free {
            match self.key_of(rk) {
                Ok(Some(key)) => self.settle_free(&key)?,
                Err(trouble @ (Trouble::Sql(_) | Trouble::Panicked(_))) => return Err(trouble),
                _ => self.mend_wanted = true,
            }
        }
        let more_delayed = self.show_delayed_tasks()?;
        let next_due = self.next_due()?;
        self.shared.announced_due.store(next_due.map_or(u64::MAX, |due| due.0), Ordering::Relaxed);
        let more = more_timers || more_tasks || more_workers || more_delayed;
        Ok(Expired { timers_fired, tasks_expired, workers_lost: workers_lost as u64, more, next_due })
    }

    /// Queues a run whose worker's session expired. An unreadable run stays unleased and does not block the others.
    fn settle_free(&mut self, key: &onward_core::RunKey) -> Outcome<()> {
        match self.heads.get(self.db, &self.shared.leases, key) {
            Ok(Some(cached)) => self.settle_run(cached, false),
            Ok(None) | Err(Trouble::Refused(_)) => {
                self.mend_wanted = true;
                Ok(())
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn fire_timers(&mut self, limit: usize) -> Outcome<(u64, bool)> {
        let db = self.db;
        let mut statement =
            db.prepare_cached("SELECT rk, call_id FROM timers WHERE due <= ?1 ORDER BY due, rk, call_id LIMIT ?2")?;
        let params = params![self.batch.now.0 as i64, sql_limit(limit)];
        let mut due: Vec<(i64, Vec<u8>)> =
            statement.query_map(params, |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        let more = due.len() > limit;
        due.truncate(limit);
        for (rk, call_id) in &due {
            // The timer row is removed in the write that adds the event: a timer fires once (L10).
            let key = match self.head_of(*rk) {
                Ok(found) => found,
                Err(Trouble::Refused(error)) if may_be_mended(&error) && !self.upkeep.mended_in_vain() => {
                    self.mend_wanted = true;
                    continue;
                }
                Err(Trouble::Refused(_)) => {
                    // The run is damaged: its timer is frozen, so that it does not block the others.
                    db.prepare_cached(
                        "UPDATE timers SET due = due + ?3, crc = row_crc(rk, call_id, due + ?3) WHERE rk = ?1 AND call_id = ?2",
                    )?
                    .execute(params![rk, call_id, NEVER])?;
                    continue;
                }
                Err(trouble) => return Err(trouble),
            };
            db.prepare_cached("DELETE FROM timers WHERE rk = ?1 AND call_id = ?2")?.execute(params![rk, call_id])?;
            if let Some((key, generation)) = key
                && let Ok(call_id) = read_call_id(call_id)
            {
                self.append_outcome(&key, Input::outcome(TimerFired { call_id }.into(), generation), None)?;
            }
        }
        Ok((due.len() as u64, more))
    }

    /// Returns the run of a timer or task, read before anything is written for it.
    fn head_of(&mut self, rk: i64) -> Outcome<Option<(onward_core::RunKey, u32)>> {
        let Some(key) = self.key_of(rk)? else { return Ok(None) };
        let cached = self.heads.get(self.db, &self.shared.leases, &key)?;
        let hot = cached.map(|cached| &self.heads[cached]).filter(|hot| hot.rk == rk);
        Ok(hot.map(|hot| (hot.head.key.clone(), hot.head.generation)))
    }

    fn expire_tasks(&mut self, limit: usize) -> Outcome<(u64, bool)> {
        if self.batch.steady < self.jumps.hold_until() {
            return Ok((0, false));
        }
        let mut statement = self.db.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM tasks WHERE due IS NOT NULL AND due <= ?1 ORDER BY due, tk LIMIT ?2"
        ))?;
        let params = params![self.batch.now.0 as i64, sql_limit(limit)];
        let mut due: Vec<TaskRow> = statement.query_map(params, read_row)?.collect::<Result<_, _>>()?;
        let more = due.len() > limit;
        due.truncate(limit);
        for row in &due {
            match (self.read_task(row), self.head_of(row.rk)) {
                (Ok(mut task), Ok(_)) => {
                    let fate = task.expire(self.batch.now);
                    self.seal_fate(row.rk, task, fate, None)?;
                }
                (Err(error), Ok(_)) | (_, Err(Trouble::Refused(error))) => self.pass_over(row, &error)?,
                (_, Err(trouble)) => return Err(trouble),
            }
        }
        Ok((due.len() as u64, more))
    }

    fn next_due(&self) -> Outcome<Option<Timestamp>> {
        let mut statement = self.db.prepare_cached("SELECT min(due) FROM timers WHERE due < ?1")?;
        let timer: Option<i64> = statement.query_row(params![NEVER], |row| row.get(0))?;
        let timer = timer.map(|due| Timestamp(due as u64));
        let Batch { now, steady, .. } = self.batch;
        let later = |at: Timestamp| now.after(at.since(steady));
        let session = self.shared.leases.next_session_end().map(later);
        // While expiry of task leases is suspended, they are not due.
        let task = self.next_task_due()?.map(|due| due.max(later(self.jumps.hold_until().max(steady))));
        Ok([timer, task, session].into_iter().flatten().min())
    }
}

/// Returns one more than the limit, which shows whether there is more.
fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX)
}
