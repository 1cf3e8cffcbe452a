//! Due work: timers, task timeouts, silent workers. Any number of servers may do it at the same time: each locks the runs that
//! are not locked, and checks again under the lock.

use onward_core::{CallId, Timestamp};
use onward_store::durable::seal::{call_id_key, number, read_call_id};
use onward_store::unit_of_work::{Due, QueuedTask, RunRef, Timer};

use crate::connection::sql::Sql;
use crate::error::{OpError, Outcome};
use crate::notify::idle_cache::PendingWork;
use crate::write::load::read_timer;
use crate::write::unit::UnitOfWork;

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
  (SELECT ord FROM onward.tasks WHERE state = 0 ORDER BY ns, queue, kind, qkey LIMIT 1) IS NOT NULL,
  (SELECT queue FROM onward.tasks WHERE state = 0 AND kind = 'queue:run' ORDER BY ns, queue LIMIT 1) IS NOT NULL";

impl UnitOfWork<'_> {
    /// Locks the runs of timers that are due. Whether a timer still exists and is due is known only under the lock of its run.
    pub async fn lock_due_timers(&mut self, limit: usize) -> Outcome<Due<(RunRef, CallId)>> {
        let (mut due, more) = self.due(DUE_TIMERS, limit).await?;
        let numbers = due.iter().map(|(rk, _)| *rk).collect();
        self.lock_free(numbers).await?;
        due.retain(|(rk, _)| self.numbers.contains_key(rk));
        let armed = self.armed(&due).await?;
        Ok(Due { found: self.with_sound_waits(armed).await?, more })
    }

    /// Freezes timers whose question is damaged, so that they do not block the others forever; returns the rest.
    async fn with_sound_waits(&mut self, armed: Vec<(RunRef, CallId)>) -> Outcome<Vec<(RunRef, CallId)>> {
        match self.need_waits(armed.clone()).await {
            Err(OpError::Refused(_)) => {}
            other => return other.map(|()| armed),
        }
        let mut sound = Vec::new();
        for (run, call_id) in armed {
            match self.need_waits(vec![(run, call_id.clone())]).await {
                Ok(()) => sound.push((run, call_id)),
                Err(OpError::Refused(_)) => {
                    let sleeping = Timer { due_at: self.set.now, is_frozen: true };
                    self.set.change(run).timers.put(call_id, sleeping);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(sound)
    }

    /// Freezes timers and tasks of damaged runs until the runs are repaired: they would be due forever.
    pub async fn freeze_damaged(&mut self) -> Outcome<()> {
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
    async fn armed(&mut self, due: &[(i64, CallId)]) -> Outcome<Vec<(RunRef, CallId)>> {
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let text = "SELECT t.rk, t.call_id, t.due, t.frozen, t.crc FROM onward.timers t JOIN unnest($1::bigint[], $2::bytea[]) AS k(rk, call_id)
          ON t.rk = k.rk AND t.call_id = k.call_id WHERE NOT t.frozen AND t.due <= $3 ORDER BY t.due, t.rk, t.call_id";
        let (numbers, call_ids) = due.iter().map(|(rk, call_id)| (*rk, call_id_key(call_id))).unzip();
        let sql = Sql::new(text).numbers(numbers).byteses(call_ids).number(self.set.now.0 as i64);
        let rows = self.db.query(&sql).await?;
        let mut sound = Vec::new();
        for row in &rows {
            match read_timer(row) {
                Some((call_id, _)) => sound.push((self.run_of(row), call_id)),
                // A damaged timer does not fire, and must not stay due forever.
                None => {
                    let sql = Sql::new("UPDATE onward.timers SET frozen = true WHERE rk = $1 AND call_id = $2");
                    self.db.query(&sql.number(row.get(0)).bytes(row.get(1))).await?;
                }
            }
        }
        Ok(sound)
    }

    pub async fn lock_due_tasks(&mut self, limit: usize) -> Outcome<Due<(RunRef, QueuedTask)>> {
        let (due, more) = self.due(DUE_TASKS, limit).await?;
        let unlocked = due.iter().map(|(rk, _)| *rk).filter(|rk| !self.numbers.contains_key(rk)).collect();
        self.lock_free(unlocked).await?;
        let ours = due.into_iter().filter_map(|(rk, call_id)| Some((*self.numbers.get(&rk)?, call_id)));
        let ours: Vec<(RunRef, CallId)> = ours.collect();
        let is_sound = match self.need_tasks(ours.clone()).await {
            Err(OpError::Refused(_)) => false,
            other => other.map(|()| true)?,
        };
        let mut found = Vec::new();
        for (run, call_id) in ours {
            if !is_sound && !self.has_sound_task(run, &call_id).await? {
                continue;
            }
            let is_due = |queued: &&QueuedTask| queued.task.due_at().is_some_and(|due| due <= self.set.now);
            let queued = self.set.runs[run].tasks.get(&call_id).filter(is_due);
            found.extend(queued.map(|queued| (run, queued.clone())));
        }
        Ok(Due { found, more })
    }

    /// Returns whether the task is intact; a damaged one has no timeout any more.
    async fn has_sound_task(&mut self, run: RunRef, call_id: &CallId) -> Outcome<bool> {
        match self.need_tasks(vec![(run, call_id.clone())]).await {
            Err(OpError::Refused(_)) => {
                let rk = self.set.runs[run].own.rk;
                let sql = Sql::new("UPDATE onward.tasks SET due = NULL WHERE rk = $1 AND call_id = $2");
                self.db.query(&sql.number(rk).bytes(call_id_key(call_id))).await?;
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// Deletes expired sessions and returns the runs of their workers. If one of the runs is locked, the worker keeps its session
    /// until the next pass: this never waits, and no lease is left without a session (DB5).
    pub async fn delete_sessions(&mut self, limit: usize) -> Outcome<(Due<RunRef>, usize)> {
        let sql = Sql::new(DUE_SESSIONS).number(self.set.now.0 as i64).number(number(limit.saturating_add(1)));
        let mut workers: Vec<String> = self.db.query(&sql).await?.iter().map(|row| row.get(0)).collect();
        let mut more = workers.len() > limit;
        workers.truncate(limit);
        if workers.is_empty() {
            return Ok((Due { found: Vec::new(), more }, 0));
        }
        let sql = Sql::new("SELECT rk, worker FROM onward.runs WHERE worker = ANY($1)").texts(workers.clone());
        let held: Vec<(i64, String)> = self.db.query(&sql).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
        let unlocked = held.iter().map(|(rk, _)| *rk).filter(|rk| !self.numbers.contains_key(rk)).collect();
        self.lock_free(unlocked).await?;
        let busy: Vec<String> = held.iter().filter(|(rk, _)| !self.numbers.contains_key(rk)).map(|own| own.1.clone()).collect();
        more |= !busy.is_empty();
        workers.retain(|worker| !busy.contains(worker));
        let freed = held.iter().filter(|(_, worker)| workers.contains(worker));
        let freed = freed.filter_map(|(rk, worker)| {
            let run = *self.numbers.get(rk)?;
            self.set.runs[run].lease.as_ref().is_some_and(|own| own.as_str() == worker).then_some(run)
        });
        let found: Vec<RunRef> = freed.collect();
        self.db.query(&Sql::new("DELETE FROM onward.sessions WHERE worker = ANY($1)").texts(workers.clone())).await?;
        Ok((Due { found, more }, workers.len()))
    }

    /// Returns up to `limit` timers or tasks that seem to be due, and whether there are more.
    async fn due(&self, text: &str, limit: usize) -> Outcome<(Vec<(i64, CallId)>, bool)> {
        let sql = Sql::new(text).number(self.set.now.0 as i64).number(number(limit.saturating_add(1)));
        let rows = self.db.query(&sql).await?;
        let call_ids = rows.iter().take(limit).map(|row| Ok((row.get(0), read_call_id(row.get(1))?)));
        Ok((call_ids.collect::<Outcome<Vec<_>>>()?, rows.len() > limit))
    }
}

/// Result of [`NEXT_DUE`].
pub(crate) struct NextDue {
    pub clock_micros: i64,
    pub next_due: Option<Timestamp>,
    pub found: PendingWork,
    /// Runs wait in queues, which may have a free slot.
    pub queued_runs: bool,
}

impl NextDue {
    pub fn read(row: &tokio_postgres::Row) -> NextDue {
        let due = (1..5).filter_map(|at| row.get::<_, Option<i64>>(at)).min();
        let found = PendingWork { outbox_messages: row.get(5), runs: row.get(6), tasks: row.get(7) };
        NextDue { clock_micros: row.get(0), next_due: due.map(|due| Timestamp(due as u64)), found, queued_runs: row.get(8) }
    }
}
