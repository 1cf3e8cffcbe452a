//! Due work: timers, task timeouts, silent workers. Any number of servers may do it at the same time: each locks the runs that
//! are not locked, and checks again under the lock.

use onward_core::event::TimerFired;
use onward_core::run::Input;
use onward_core::{CallId, RunKey, Timestamp};
use onward_store::Expired;
use onward_store::durable::seal::{call_id_key, read_call_id};

use crate::connection::sql::Sql;
use crate::error::{Outcome, Trouble};
use crate::notify::pulse::Found;
use crate::write::claim::limit_number;
use crate::write::load::read_timer;
use crate::write::unit::{Timer, UnitOfWork};

pub(crate) const DUE_TIMERS: &str =
    "SELECT rk, call_id, due FROM onward.timers WHERE NOT frozen AND due <= $1 ORDER BY due, rk, call_id LIMIT $2";
pub(crate) const DUE_TASKS: &str =
    "SELECT rk, call_id FROM onward.tasks WHERE due IS NOT NULL AND due <= $1 ORDER BY due, ord LIMIT $2";
pub(crate) const DUE_SESSIONS: &str =
    "SELECT worker FROM onward.sessions WHERE until <= $1 ORDER BY until, worker LIMIT $2 FOR UPDATE SKIP LOCKED";
/// Reads the time, the earliest due times, and whether anything is waiting; each with one index lookup.
pub(crate) const NEXT_DUE: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  (SELECT due FROM onward.timers WHERE NOT frozen ORDER BY due, rk, call_id LIMIT 1),
  (SELECT due FROM onward.tasks WHERE due IS NOT NULL ORDER BY due, ord LIMIT 1),
  (SELECT visible FROM onward.tasks WHERE state = 3 ORDER BY visible, ord LIMIT 1),
  (SELECT until FROM onward.sessions ORDER BY until LIMIT 1),
  (SELECT id FROM onward.outbox ORDER BY id LIMIT 1) IS NOT NULL,
  (SELECT ready FROM onward.runs WHERE ready IS NOT NULL ORDER BY ns, kind, version, ready LIMIT 1) IS NOT NULL,
  (SELECT ord FROM onward.tasks WHERE state = 0 ORDER BY ns, queue, kind, priority DESC, visible, ord LIMIT 1) IS NOT NULL";

impl UnitOfWork<'_> {
    pub async fn expire(&mut self, limit: usize) -> Outcome<Expired> {
        let (timers_fired, more_timers) = self.fire_timers(limit).await?;
        let (tasks_expired, more_tasks) = self.expire_tasks(limit).await?;
        let (workers_lost, more_workers) = self.end_sessions(limit).await?;
        let more_delayed = self.show_delayed_tasks().await?;
        self.let_damaged_sleep().await?;
        let more = more_timers || more_tasks || more_workers || more_delayed;
        Ok(Expired { timers_fired, tasks_expired, workers_lost, more, next_due: None })
    }

    async fn fire_timers(&mut self, limit: usize) -> Outcome<(u64, bool)> {
        let (mut due, more) = self.due(DUE_TIMERS, limit).await?;
        let numbers = due.iter().map(|(rk, _)| *rk).collect();
        self.lock_free(numbers).await?;
        // Whether a timer still exists and is due is known only under the lock of its run.
        due.retain(|(rk, _)| self.keys.contains_key(rk));
        let armed = self.armed(&due).await?;
        let armed = self.with_sound_waits(armed).await?;
        for (key, call_id) in &armed {
            // The row is deleted in the same write that appends the event: a timer fires once (L10).
            let locked = self.locked(key);
            locked.timers.remove(call_id);
            let generation = locked.head.generation;
            self.append_outcome(key, Input::outcome(TimerFired { call_id: call_id.clone() }.into(), generation), None).await?;
        }
        Ok((armed.len() as u64, more))
    }

    /// Freezes timers whose question is damaged, so that they do not block the others forever; returns the rest.
    async fn with_sound_waits(&mut self, armed: Vec<(RunKey, CallId)>) -> Outcome<Vec<(RunKey, CallId)>> {
        match self.need_waits(armed.clone()).await {
            Err(Trouble::Refused(_)) => {}
            other => return other.map(|()| armed),
        }
        let mut sound = Vec::new();
        for (key, call_id) in armed {
            match self.need_waits(vec![(key.clone(), call_id.clone())]).await {
                Ok(()) => sound.push((key, call_id)),
                Err(Trouble::Refused(_)) => {
                    let sleeping = Timer { due_at: self.now, is_frozen: true };
                    self.locked(&key).timers.put(call_id, sleeping);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(sound)
    }

    /// Freezes timers and tasks of damaged runs until the runs are repaired: they would be due forever.
    async fn let_damaged_sleep(&mut self) -> Outcome<()> {
        let numbers: Vec<i64> = self.damaged.values().copied().collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let statements = [
            Sql::new("UPDATE onward.timers SET frozen = true WHERE rk = ANY($1) AND NOT frozen").numbers(numbers.clone()),
            Sql::new("UPDATE onward.tasks SET due = NULL WHERE rk = ANY($1)").numbers(numbers),
        ];
        self.db.pipeline(None, &statements, None).await?;
        Ok(())
    }

    /// Returns the timers that are due under the locks, in the order of their times.
    async fn armed(&mut self, due: &[(i64, CallId)]) -> Outcome<Vec<(RunKey, CallId)>> {
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let text = "SELECT t.rk, t.call_id, t.due, t.frozen, t.crc FROM onward.timers t JOIN unnest($1::bigint[], $2::bytea[]) AS k(rk, call_id)
          ON t.rk = k.rk AND t.call_id = k.call_id WHERE NOT t.frozen AND t.due <= $3 ORDER BY t.due, t.rk, t.call_id";
        let (numbers, call_ids) = due.iter().map(|(rk, call_id)| (*rk, call_id_key(call_id))).unzip();
        let sql = Sql::new(text).numbers(numbers).byteses(call_ids).number(self.now.0 as i64);
        let rows = self.db.query(&sql).await?;
        let mut sound = Vec::new();
        for row in &rows {
            match read_timer(row) {
                Some((call_id, _)) => sound.push((self.key_of(row.get(0)), call_id)),
                // A damaged timer does not fire, and must not stay due forever.
                None => {
                    let sql = Sql::new("UPDATE onward.timers SET frozen = true WHERE rk = $1 AND call_id = $2");
                    self.db.query(&sql.number(row.get(0)).bytes(row.get(1))).await?;
                }
            }
        }
        Ok(sound)
    }

    async fn expire_tasks(&mut self, limit: usize) -> Outcome<(u64, bool)> {
        let (due, more) = self.due(DUE_TASKS, limit).await?;
        let unlocked = due.iter().map(|(rk, _)| *rk).filter(|rk| !self.keys.contains_key(rk)).collect();
        self.lock_free(unlocked).await?;
        let ours: Vec<(RunKey, CallId)> =
            due.into_iter().filter_map(|(rk, call_id)| Some((self.keys.get(&rk)?.clone(), call_id))).collect();
        let mut count = 0;
        let is_sound = match self.need_tasks(ours.clone()).await {
            Err(Trouble::Refused(_)) => false,
            other => other.map(|()| true)?,
        };
        for (key, call_id) in ours {
            if !is_sound && !self.has_sound_task(&key, &call_id).await? {
                continue;
            }
            let queued = self.locked(&key).tasks.get(&call_id).cloned();
            let is_due = |queued: &crate::write::unit::Queued| queued.task.due_at().is_some_and(|due| due <= self.now);
            if let Some(mut queued) = queued.filter(is_due) {
                let fate = queued.task.expire(self.now);
                self.seal_fate(queued, fate, None).await?;
                count += 1;
            }
        }
        Ok((count, more))
    }

    /// Returns whether the task is intact; a damaged one has no timeout any more.
    async fn has_sound_task(&mut self, key: &RunKey, call_id: &CallId) -> Outcome<bool> {
        match self.need_tasks(vec![(key.clone(), call_id.clone())]).await {
            Err(Trouble::Refused(_)) => {
                let rk = self.locked(key).rk;
                let sql = Sql::new("UPDATE onward.tasks SET due = NULL WHERE rk = $1 AND call_id = $2");
                self.db.query(&sql.number(rk).bytes(call_id_key(call_id))).await?;
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// Frees the runs of workers whose session has expired. If one of the runs is locked, the worker keeps its session until the
    /// next pass: this never waits, and no lease is left without a session (DB5).
    async fn end_sessions(&mut self, limit: usize) -> Outcome<(u64, bool)> {
        let sql = Sql::new(DUE_SESSIONS).number(self.now.0 as i64).number(limit_number(limit.saturating_add(1)));
        let mut workers: Vec<String> = self.db.query(&sql).await?.iter().map(|row| row.get(0)).collect();
        let mut more = workers.len() > limit;
        workers.truncate(limit);
        if workers.is_empty() {
            return Ok((0, more));
        }
        let sql = Sql::new("SELECT rk, worker FROM onward.runs WHERE worker = ANY($1)").texts(workers.clone());
        let held: Vec<(i64, String)> = self.db.query(&sql).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
        let unlocked = held.iter().map(|(rk, _)| *rk).filter(|rk| !self.keys.contains_key(rk)).collect();
        self.lock_free(unlocked).await?;
        let busy: Vec<String> = held.iter().filter(|(rk, _)| !self.keys.contains_key(rk)).map(|own| own.1.clone()).collect();
        more |= !busy.is_empty();
        workers.retain(|worker| !busy.contains(worker));
        for (rk, worker) in held.iter().filter(|(_, worker)| workers.contains(worker)) {
            let key = self.key_of(*rk);
            let locked = self.locked(&key);
            if locked.worker.as_ref().is_some_and(|own| own.as_str() == worker) {
                locked.worker = None;
                self.settle(&key);
            }
        }
        self.db.query(&Sql::new("DELETE FROM onward.sessions WHERE worker = ANY($1)").texts(workers.clone())).await?;
        Ok((workers.len() as u64, more))
    }

    /// Returns up to `limit` timers or tasks that seem to be due, and whether there are more.
    async fn due(&self, text: &str, limit: usize) -> Outcome<(Vec<(i64, CallId)>, bool)> {
        let sql = Sql::new(text).number(self.now.0 as i64).number(limit_number(limit.saturating_add(1)));
        let rows = self.db.query(&sql).await?;
        let call_ids = rows.iter().take(limit).map(|row| Ok((row.get(0), read_call_id(row.get(1))?)));
        Ok((call_ids.collect::<Outcome<Vec<_>>>()?, rows.len() > limit))
    }
}

/// Result of [`NEXT_DUE`].
pub(crate) struct Look {
    pub clock_micros: i64,
    pub next_due: Option<Timestamp>,
    pub found: Found,
}

impl Look {
    pub fn read(row: &tokio_postgres::Row) -> Look {
        let due = (1..5).filter_map(|at| row.get::<_, Option<i64>>(at)).min();
        let found = Found { outbox_messages: row.get(5), runs: row.get(6), tasks: row.get(7) };
        Look { clock_micros: row.get(0), next_due: due.map(|due| Timestamp(due as u64)), found }
    }
}
