//! Runs and tasks that may be claimed: found by index, and locked unless another transaction has locked them.

use std::collections::HashMap;

use onward_core::task::Task;
use onward_core::{Index, Name, Record, RunKey, Timestamp};
use onward_store::durable::large;
use onward_store::durable::seal::number;
use onward_store::unit_of_work::{QueuedTask, RunRef};
use onward_store::{Change, ClaimRuns, ClaimTasks};
use tokio_postgres::Row;

use crate::connection::sql::Sql;
use crate::error::Outcome;
use crate::row::EventRow;
use crate::write::load::{TASK_COLUMNS, read_task};
use crate::write::save::{Gone, put_tasks};
use crate::write::unit::{LockedRun, UnitOfWork};

/// Finds the oldest claimable runs of kinds and versions that the worker knows, except those already seen, and locks those that
/// are not locked.
pub(crate) const READY_RUNS: &str = "WITH oldest AS MATERIALIZED (
    SELECT f.rk, f.ready FROM unnest($2::text[], $3::text[]) AS k(kind, version) CROSS JOIN LATERAL (
      SELECT r.rk, r.ready FROM onward.runs r
        WHERE r.ns = $1 AND r.kind = k.kind AND r.version = k.version AND r.ready IS NOT NULL AND r.rk <> ALL($5)
        ORDER BY r.ready LIMIT $4) AS f
    ORDER BY f.ready LIMIT $4)
  SELECT r.rk, r.ns, r.id, r.ready, r.worker, r.head FROM onward.runs r
    WHERE r.rk IN (SELECT rk FROM oldest) AND r.ready IS NOT NULL FOR UPDATE OF r SKIP LOCKED";

pub(crate) const READY_COUNT: &str = "SELECT f.rk FROM unnest($2::text[], $3::text[]) AS k(kind, version) CROSS JOIN LATERAL (
      SELECT r.rk, r.ready FROM onward.runs r
        WHERE r.ns = $1 AND r.kind = k.kind AND r.version = k.version AND r.ready IS NOT NULL AND r.rk <> ALL($5)
        ORDER BY r.ready LIMIT $4) AS f ORDER BY f.ready LIMIT $4";

/// Finds claimable tasks without a key of one namespace, in the order of their claims.
pub(crate) const READY_TASKS: &str =
    "SELECT f.rk, f.call_id FROM unnest($2::text[], $3::text[]) AS k(queue, kind) CROSS JOIN LATERAL (
    SELECT t.rk, t.call_id, t.visible - t.priority::bigint * 60000 AS rank, t.ord FROM onward.tasks t
      WHERE t.state = 0 AND t.ns = $1 AND t.queue = k.queue AND t.kind = k.kind AND t.qkey = ''
      ORDER BY t.visible - t.priority::bigint * 60000, t.ord LIMIT $4) AS f
  ORDER BY f.rank, f.ord LIMIT $4";

/// Limits of the logs that a claim returns: events of each log, and bytes of all together.
const SHORT_LOG_EVENTS: u64 = 64;
const SHORT_LOGS_BYTES: i64 = 4 * 1024 * 1024;

/// Measures the logs of some runs, without reading values that are stored out of line.
pub(crate) const LOG_BYTES: &str = "SELECT k.rk, s.bytes FROM unnest($1::bigint[], $2::int[]) AS k(rk, generation)
  CROSS JOIN LATERAL (SELECT coalesce(sum(octet_length(e.body)), 0)::bigint AS bytes FROM onward.events e
    WHERE e.rk = k.rk AND e.generation = k.generation) AS s";

/// Reads the logs of some runs, each in its order.
pub(crate) const WHOLE_LOGS: &str = "SELECT e.rk, e.generation, e.idx, e.at, e.crc, e.body
  FROM unnest($1::bigint[], $2::int[]) WITH ORDINALITY AS k(rk, generation, position)
  CROSS JOIN LATERAL (SELECT * FROM onward.events e WHERE e.rk = k.rk AND e.generation = k.generation ORDER BY e.idx) AS e
  ORDER BY k.position, e.idx";

/// Maximum number of queries in one claim that continue beyond locked runs.
const QUERIES_MAX: usize = 8;

/// Maximum number of delayed tasks that become claimable at once: there may be very many after an outage.
const SHOWN_MAX: usize = 1_024;

impl UnitOfWork<'_> {
    /// Locks claimable runs that the worker can execute, and reads their logs if they are short.
    pub async fn lock_ready_runs(&mut self, request: &ClaimRuns) -> Outcome<Vec<RunRef>> {
        let mut pairs = Vec::new();
        for (kind, versions) in request.knows.iter() {
            pairs.extend(versions.iter().map(|version| (kind.as_str().to_owned(), text_of(version.as_ref())))); // L14
        }
        let mut runs: Vec<(i64, RunRef)> = Vec::new();
        let mut seen_runs: Vec<i64> = Vec::new();
        for _ in 0..QUERIES_MAX {
            let wanted = request.limit.saturating_sub(runs.len());
            if wanted == 0 {
                break;
            }
            let sql = |text: &str| {
                let (kinds, versions) = pairs.iter().cloned().unzip();
                let sql = Sql::new(text).text(request.namespace.as_str()).texts(kinds).texts(versions); // S6
                sql.number(number(wanted)).numbers(seen_runs.clone())
            };
            let statements = [sql(READY_COUNT), sql(READY_RUNS)];
            let mut answers = self.db.pipeline(None, &statements, None).await?.into_iter();
            let seen: Vec<i64> = answers.next().unwrap_or_default().iter().map(|row| row.get(0)).collect();
            let locked = answers.next().unwrap_or_default();
            for run in self.add_rows(&locked) {
                runs.push((self.set.runs[run].ready.unwrap_or_default(), run));
            }
            let got = locked.len();
            seen_runs.extend(seen.iter().copied());
            seen_runs.extend(locked.iter().map(|row| row.get::<_, i64>(0)));
            // Everything that was found is now locked here or by another transaction.
            if seen.len() < wanted && got >= seen.len() || seen.is_empty() {
                break;
            }
        }
        runs.sort_unstable();
        runs.truncate(request.limit);
        let runs: Vec<RunRef> = runs.into_iter().map(|(_, run)| run).collect();
        self.logs = self.short_logs(&runs).await?;
        Ok(runs)
    }

    /// Returns the short ones of the logs of runs that were claimed together, with two statements for all. Otherwise a worker
    /// that got many runs would read each log, and other requests would queue behind that. Logs that are long, damaged or have
    /// large payloads are left to a later read.
    async fn short_logs(&mut self, runs: &[RunRef]) -> Outcome<HashMap<RunRef, Vec<Record>>> {
        let short = runs.iter().map(|run| &self.set.runs[*run]).filter(|run| run.head.next_index.0 <= SHORT_LOG_EVENTS);
        let mut short: Vec<&LockedRun> = short.collect();
        let columns = |runs: &[&LockedRun]| runs.iter().map(|run| (run.own.rk, run.head.generation as i32)).unzip();
        // A log of one event is not measured: it only has the start, whose large payloads are stored elsewhere.
        if short.iter().any(|run| run.head.next_index.0 > 1) {
            let (numbers, generations) = columns(&short);
            let rows = self.db.query(&Sql::new(LOG_BYTES).numbers(numbers).ints(generations)).await?;
            let bytes: HashMap<i64, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            let mut remaining = SHORT_LOGS_BYTES;
            short.retain(|run| {
                let bytes = bytes.get(&run.own.rk).copied().unwrap_or(i64::MAX);
                let fits = bytes <= remaining;
                remaining -= if fits { bytes } else { 0 };
                fits
            });
        }
        if short.is_empty() {
            return Ok(HashMap::new());
        }
        let (numbers, generations) = columns(&short);
        let rows = self.db.query(&Sql::new(WHOLE_LOGS).numbers(numbers).ints(generations)).await?;
        let mut logs = HashMap::new();
        for rows in rows.chunk_by(|a, b| a.get::<_, i64>(0) == b.get::<_, i64>(0)) {
            let run = self.run_of(&rows[0]);
            let head = &self.set.runs[run].head;
            let records = whole_log(&head.key, rows);
            let is_whole = |records: &Vec<Record>| records.last().map(Record::next_index) == Some(head.next_index);
            logs.extend(records.filter(is_whole).map(|records| (run, records)));
        }
        Ok(logs)
    }

    /// Returns the query for tasks without a key that may be claimed.
    pub fn ready_tasks_query(&self, request: &ClaimTasks) -> Sql {
        let pairs = request.queues.iter().flat_map(|queue| request.kinds.iter().map(move |kind| (queue, kind)));
        let (queues, kinds): (Vec<String>, Vec<String>) =
            pairs.map(|(queue, kind)| (text_of(queue.as_ref()), kind.as_str().to_owned())).unzip();
        Sql::new(READY_TASKS).text(request.namespace.as_str()).texts(queues).texts(kinds).number(number(request.limit))
    }

    /// Locks tasks without a key that may be claimed.
    pub async fn lock_ready_tasks(&mut self, request: &ClaimTasks) -> Outcome<Vec<((i64, i64), Task)>> {
        let found = match self.found_tasks.take() {
            Some(found) => found,
            None => self.db.query(&self.ready_tasks_query(request)).await?,
        };
        self.lock_found_tasks(found).await
    }

    /// Locks tasks that were found, and the runs of those whose attempts are recorded (K7). A transaction that holds the lock
    /// of a task must not wait for that of its run, because others lock in the opposite order: if the run is locked elsewhere,
    /// the task is announced again.
    pub async fn lock_found_tasks(&mut self, found: Vec<Row>) -> Outcome<Vec<((i64, i64), Task)>> {
        let (numbers, call_ids): (Vec<i64>, Vec<Vec<u8>>) =
            found.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, Vec<u8>>(1))).unzip();
        let text = format!(
            "SELECT {TASK_COLUMNS} FROM onward.tasks t JOIN unnest($1::bigint[], $2::bytea[]) AS k(rk, call_id)
               ON t.rk = k.rk AND t.call_id = k.call_id WHERE t.state = 0
             ORDER BY t.visible - t.priority::bigint * 60000, t.ord FOR UPDATE OF t SKIP LOCKED"
        );
        let rows = self.db.query(&Sql::new(text).numbers(numbers).byteses(call_ids)).await?;
        let mut found = Vec::new();
        for row in rows {
            let rk: i64 = row.get(0);
            // A damaged task must not block the others; operations on its run report it.
            let Ok(task) = read_task(&row) else { continue };
            let Ok(mut task) = self.whole(rk, task).await else { continue };
            if task.may_be_claimed(self.set.now) {
                task.claim_after(self.restored_until()); // DB9
                found.push(((rk, row.get(2)), task));
            }
        }
        let recorded: Vec<i64> = found.iter().filter(|(_, task)| task.is_recorded()).map(|((rk, _), _)| *rk).collect();
        if !recorded.is_empty() {
            self.lock_free(recorded).await?;
            found.retain(|((rk, _), task)| {
                let is_locked = !task.is_recorded() || self.numbers.contains_key(rk);
                // Operations on a damaged run report it.
                if !is_locked && !self.damaged.contains_key(&task.id.run) {
                    self.set.notify(|_| Change::TaskQueued { task: Box::new(task.clone()) });
                }
                is_locked
            });
        }
        Ok(found)
    }

    /// Returns the time until which the database, if it was restored, may have forgotten claims.
    fn restored_until(&self) -> Timestamp {
        Timestamp(u64::try_from(self.start.floor / 1_000).unwrap_or_default())
    }

    /// Makes delayed tasks claimable, up to a limit; returns whether there may be more.
    pub async fn lock_delayed_tasks(&mut self) -> Outcome<bool> {
        let text = format!(
            "SELECT {TASK_COLUMNS} FROM onward.tasks t WHERE t.state = 3 AND t.visible <= $1 ORDER BY t.visible, t.ord
               LIMIT $2 FOR UPDATE OF t SKIP LOCKED"
        );
        let rows = self.db.query(&Sql::new(text).number(self.set.now.0 as i64).number(number(SHOWN_MAX))).await?;
        let is_cut = rows.len() >= SHOWN_MAX;
        let mut shown = Vec::new();
        for row in rows {
            let Ok(task) = read_task(&row) else { continue };
            let here = self.set.runs.get(&task.id.run);
            if here.is_some_and(|run| self.set.runs[run].tasks.knows(&task.id.call_id)) {
                continue; // decided in this transaction
            }
            let Ok(task) = self.whole(row.get(0), task).await else { continue };
            self.set.notify(|_| Change::TaskQueued { task: Box::new(task.clone()) });
            shown.push((row.get(0), QueuedTask { task, order: row.get(2) }));
        }
        // If none could be changed, another pass would not change any either.
        let more = is_cut && !shown.is_empty();
        self.write_tasks(shown).await?;
        Ok(more)
    }

    /// Writes locked tasks whose runs need not be locked: only their attempt changes.
    pub async fn write_tasks(&mut self, tasks: Vec<(i64, QueuedTask)>) -> Outcome<()> {
        if tasks.is_empty() {
            return Ok(());
        }
        let call = put_tasks(Gone::default(), tasks, self.set.now, &mut self.blobs);
        self.db.query(&Sql::all(vec![call])).await?;
        Ok(())
    }
}

/// Decodes the records of one log; returns none if one is damaged, missing, or has payloads that are stored elsewhere.
fn whole_log(key: &RunKey, rows: &[Row]) -> Option<Vec<Record>> {
    let mut records: Vec<Record> = Vec::with_capacity(rows.len());
    for row in rows {
        let (rk, generation) = (row.get(0), row.get::<_, i32>(1) as u32);
        let (index, at) = (Index(row.get::<_, i64>(2) as u64), Timestamp(row.get::<_, i64>(3) as u64));
        let mut record = EventRow { rk, generation, index, at, crc: row.get(4), body: row.get(5) }.decode(key).ok()?;
        let expected = records.last().map_or(Index(0), Record::next_index);
        if record.index != expected || !large::wanted(&mut record.events).is_empty() {
            return None;
        }
        records.push(record);
    }
    Some(records)
}

pub(crate) fn text_of(name: Option<&Name>) -> String {
    name.map_or("", Name::as_str).to_owned()
}
