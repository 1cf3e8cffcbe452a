//! Queues that are shared out: their settings, the keys that wait, what they hold, and what began lately.
//!
//! Invariant DB13 (QL1, QL2): a claim locks the row of the settings of a queue before it counts anything, in a statement of its
//! own. So claims of that queue by all servers come one after the other, and each sees the leases of the one before. The lock
//! waits: its holder waits for no lock but those of further settings, which are taken in the order of their names.

use std::collections::HashMap;
use std::sync::Mutex;

use onward_core::queue::settings::{settings_kind, settings_queue};
use onward_core::queue::{QueueSettings, QueueStarts, Turn, WaitingKey};
use onward_core::task::Task;
use onward_core::{KindSchemas, Name, Namespace};
use onward_store::ClaimTasks;
use onward_store::durable::seal::{due_number, number, seal, unseal};
use onward_store::sync::lock;
use onward_store::unit_of_work::{KEYS_MAX, KeyPage, SharedQueue};
use tokio_postgres::Row;

use crate::connection::sql::Sql;
use crate::error::Outcome;
use crate::write::claim::text_of;
use crate::write::unit::UnitOfWork;

/// Locks the settings of queues (DB13).
const LOCK_SETTINGS: &str = "SELECT s.data FROM unnest($2::text[]) AS k(kind)
  JOIN onward.kinds s ON s.ns = $1 AND NOT s.task AND s.kind = k.kind AND s.version = ''
  ORDER BY s.kind FOR UPDATE OF s";

const SETTINGS: &str = "SELECT k.position, s.data FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(ns, kind, position)
  JOIN onward.kinds s ON s.ns = k.ns AND NOT s.task AND s.kind = k.kind AND s.version = ''";

/// Finds the queues in which tasks with keys wait.
const KEYED_QUEUES: &str = "SELECT q.queue FROM unnest($2::text[]) AS q(queue) WHERE EXISTS (
    SELECT FROM unnest($3::text[]) AS k(kind) CROSS JOIN LATERAL (
      SELECT 1 FROM onward.tasks t
        WHERE t.state = 0 AND t.ns = $1 AND t.queue = q.queue AND t.kind = k.kind AND t.qkey > '' ORDER BY t.qkey LIMIT 1) AS f)";

/// Walks over the keys with claimable tasks, with one index step for each key and kind. `$4` is the first key, `$5` whether it is
/// part of the page.
pub(crate) const WAITING_KEYS: &str = "WITH RECURSIVE walk(qkey, n) AS (
    SELECT (SELECT min(f.qkey) FROM unnest($3::text[]) AS k(kind) CROSS JOIN LATERAL (
        SELECT t.qkey FROM onward.tasks t
          WHERE t.state = 0 AND t.ns = $1 AND t.queue = $2 AND t.kind = k.kind AND t.qkey >= $4 AND ($5 OR t.qkey > $4)
          ORDER BY t.qkey LIMIT 1) AS f), 1
    UNION ALL
    SELECT (SELECT min(f.qkey) FROM unnest($3::text[]) AS k(kind) CROSS JOIN LATERAL (
        SELECT t.qkey FROM onward.tasks t
          WHERE t.state = 0 AND t.ns = $1 AND t.queue = $2 AND t.kind = k.kind AND t.qkey > w.qkey
          ORDER BY t.qkey LIMIT 1) AS f), w.n + 1
      FROM walk w WHERE w.qkey IS NOT NULL AND w.n < $6)
  SELECT w.qkey,
    (SELECT coalesce(sum(f.count), 0)::bigint FROM unnest($3::text[]) AS k(kind) CROSS JOIN LATERAL (
      SELECT count(*) AS count FROM (SELECT 1 FROM onward.tasks t
        WHERE t.state = 0 AND t.ns = $1 AND t.queue = $2 AND t.kind = k.kind AND t.qkey = w.qkey LIMIT $7) AS c) AS f),
    (SELECT count(*) FROM (SELECT 1 FROM onward.tasks t
      WHERE t.state = 1 AND t.ns = $1 AND t.queue = $2 AND t.qkey = w.qkey LIMIT $8) AS c),
    (SELECT s.data FROM onward.queue_keys s WHERE $9 AND s.ns = $1 AND s.queue = $2 AND s.qkey = w.qkey)
  FROM walk w WHERE w.qkey IS NOT NULL ORDER BY w.n";

/// Finds so many tasks of each key, by rank.
pub(crate) const TASKS_OF_KEYS: &str = "SELECT f.rk, f.call_id FROM unnest($4::text[], $5::bigint[]) AS w(qkey, count)
  CROSS JOIN LATERAL (
    SELECT g.rk, g.call_id FROM unnest($3::text[]) AS k(kind) CROSS JOIN LATERAL (
      SELECT t.rk, t.call_id, t.visible - t.priority::bigint * 60000 AS rank, t.ord FROM onward.tasks t
        WHERE t.state = 0 AND t.ns = $1 AND t.queue = $2 AND t.kind = k.kind AND t.qkey = w.qkey
        ORDER BY t.visible - t.priority::bigint * 60000, t.ord LIMIT w.count) AS g
    ORDER BY g.rank, g.ord LIMIT w.count) AS f";

pub(crate) const HELD: &str =
    "SELECT count(*) FROM (SELECT 1 FROM onward.tasks t WHERE t.state = 1 AND t.ns = $1 AND t.queue = $2 LIMIT $3) AS c";

const WAITING: &str =
    "SELECT count(*) FROM (SELECT 1 FROM onward.tasks t WHERE t.state = 0 AND t.ns = $1 AND t.queue = $2 LIMIT $3) AS c";

/// Rows of starts that are removed in each claim that writes some.
const FORGOTTEN_MAX: i64 = 64;

/// Queues whose turns are kept in memory.
const TURNS_MAX: usize = 10_000;

/// A queue of a namespace.
pub(crate) type QueueName = (Namespace, Option<Name>);

/// Whose turn it is, by queue. Each server has its own.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<QueueName, Turn>>);

impl Turns {
    pub fn get(&self, shared: &SharedQueue) -> Turn {
        lock(&self.0).get(&shared.name()).cloned().unwrap_or_default()
    }

    pub fn put(&self, shared: &SharedQueue, turn: Turn) {
        let mut turns = lock(&self.0);
        if turns.len() >= TURNS_MAX {
            turns.clear();
        }
        turns.insert(shared.name(), turn);
    }
}

impl UnitOfWork<'_> {
    /// Locks the settings of the requested queues (DB13), and finds those with settings or waiting tasks with keys. In the same
    /// round trip it finds the tasks for [`UnitOfWork::lock_ready_tasks`], for the usual case that there is no such queue.
    pub async fn lock_shared_queues(&mut self, request: &ClaimTasks) -> Outcome<Vec<SharedQueue>> {
        let queues = request.queues.iter().map(|queue| text_of(queue.as_ref())).collect();
        let settings = request.queues.iter().filter_map(|queue| settings_kind(queue.as_ref()).ok());
        let statements = [
            self.of_request(LOCK_SETTINGS, request).texts(settings.map(|kind| kind.as_str().to_owned()).collect()),
            self.of_request(KEYED_QUEUES, request).texts(queues).texts(kinds(request)),
            self.ready_tasks_query(request),
        ];
        let mut answers = self.db.pipeline(None, &statements, None).await?.into_iter();
        let (settings, keyed) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
        let mut shared: Vec<SharedQueue> = Vec::new();
        let of = |queue, settings| SharedQueue { namespace: request.namespace.clone(), queue, settings };
        for row in settings {
            // A damaged row is an error: a limit must not vanish.
            let row: KindSchemas = unseal("the settings of a queue", row.get(0))?;
            if let (Some(queue), Some(settings)) = (settings_queue(&row.kind), row.queue) {
                shared.push(of(queue, *settings));
            }
        }
        for row in keyed {
            let queue = Name::new(row.get::<_, &str>(0)).ok();
            if !shared.iter().any(|other| other.queue == queue) {
                shared.push(of(queue, QueueSettings::default()));
            }
        }
        // A quota may lower the request.
        let has_quota = !matches!(self.quotas.get(&request.namespace), Some(Ok(None)));
        self.found_tasks = (shared.is_empty() && !has_quota).then(|| answers.next().unwrap_or_default());
        Ok(shared)
    }

    /// Reads the settings of queues, without a lock.
    pub async fn need_settings(&mut self, queues: Vec<QueueName>) -> Outcome<()> {
        let mut missing: Vec<QueueName> = queues.into_iter().filter(|queue| !self.settings.contains_key(queue)).collect();
        missing.sort_unstable();
        missing.dedup();
        let kind =
            |queue: &QueueName| settings_kind(queue.1.as_ref()).map_or_else(|_| String::new(), |kind| kind.as_str().to_owned());
        if missing.is_empty() {
            return Ok(());
        }
        let namespaces = missing.iter().map(|queue| queue.0.as_str().to_owned()).collect();
        let rows = self.db.query(&Sql::new(SETTINGS).texts(namespaces).texts(missing.iter().map(kind).collect())).await?;
        for row in rows {
            let stored: KindSchemas = unseal("the settings of a queue", row.get(1))?;
            let queue = missing[row.get::<_, i64>(0) as usize - 1].clone();
            self.settings.insert(queue, stored.queue.map(|settings| *settings));
        }
        for queue in missing {
            self.settings.entry(queue).or_default();
        }
        Ok(())
    }

    /// Counts claimable tasks, with those that this transaction adds.
    pub async fn waiting_in(&self, namespace: &Namespace, queue: Option<&Name>, limit: u64) -> Outcome<u64> {
        let sql = Sql::new(WAITING).text(namespace.as_str()).text(text_of(queue)).number(number(limit));
        let stored = self.db.query(&sql).await?.first().map_or(0, |row| row.get::<_, i64>(0)) as u64;
        let is_there = |task: &Task| {
            task.id.run.namespace == *namespace && task.options.queue.as_ref() == queue && task.may_be_claimed(self.set.now)
        };
        let added = self.set.runs.iter().filter(|run| run.own.stored.is_none());
        let added = added.flat_map(|run| run.tasks.changes()).filter_map(|(_, queued)| queued);
        Ok(stored + added.filter(|queued| is_there(&queued.task)).count() as u64)
    }

    pub async fn held_in(&self, shared: &SharedQueue, limit: u32) -> Outcome<u32> {
        let rows = self.db.query(&self.of_queue(HELD, shared).number(i64::from(limit))).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0)) as u32)
    }

    pub async fn find_waiting_keys(
        &mut self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        page: &KeyPage,
    ) -> Outcome<Vec<WaitingKey>> {
        let settings = &shared.settings;
        let sql = self
            .of_queue(WAITING_KEYS, shared)
            .texts(kinds(request))
            .text(page.from.as_str())
            .flag(page.has_from)
            .int(KEYS_MAX as i32)
            .number(i64::from(page.waiting_max))
            .number(settings.key_concurrency_max.map_or(0, i64::from))
            .flag(settings.key_rate.is_some());
        let rows = self.db.query(&sql).await?;
        Ok(rows.iter().filter(|row| page.has(row.get(0))).map(|row| waiting_key(row, page)).collect())
    }

    pub async fn lock_tasks_of_keys(
        &mut self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        wanted: &[(Option<Name>, u32)],
    ) -> Outcome<Vec<((i64, i64), Task)>> {
        let (keys, counts) = wanted.iter().map(|(key, count)| (text_of(key.as_ref()), i64::from(*count))).unzip();
        let sql = self.of_queue(TASKS_OF_KEYS, shared).texts(kinds(request)).texts(keys).numbers(counts);
        let found = self.db.query(&sql).await?;
        self.lock_found_tasks(found).await
    }

    pub async fn read_starts(&self, shared: &SharedQueue) -> Outcome<Option<QueueStarts>> {
        let text = "SELECT data FROM onward.queue_keys WHERE ns = $1 AND queue = $2 AND qkey = ''";
        let rows = self.db.query(&self.of_queue(text, shared)).await?;
        Ok(rows.first().and_then(|row| unseal("starts of a queue", row.get(0)).ok()))
    }

    pub async fn write_starts(&mut self, changed: Vec<QueueStarts>) -> Outcome<()> {
        let text = "INSERT INTO onward.queue_keys(ns, queue, qkey, data, until) SELECT * FROM unnest($1, $2, $3, $4, $5)
          ON CONFLICT (ns, queue, qkey) DO UPDATE SET data = excluded.data, until = excluded.until";
        let put = Sql::new(text)
            .texts(changed.iter().map(|starts| starts.namespace.as_str().to_owned()).collect())
            .texts(changed.iter().map(|starts| text_of(starts.queue.as_ref())).collect())
            .texts(changed.iter().map(|starts| text_of(starts.key.as_ref())).collect())
            .byteses(changed.iter().map(|starts| seal(starts)).collect())
            .numbers(changed.iter().map(|starts| due_number(starts.until)).collect());
        let text = "DELETE FROM onward.queue_keys q USING (SELECT ns, queue, qkey FROM onward.queue_keys WHERE until <= $1
            ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED) AS f WHERE q.ns = f.ns AND q.queue = f.queue AND q.qkey = f.qkey";
        let forget = Sql::new(text).number(due_number(self.set.now)).number(FORGOTTEN_MAX);
        self.db.pipeline(None, &[put, forget], None).await?;
        Ok(())
    }

    fn of_request(&self, text: &str, request: &ClaimTasks) -> Sql {
        Sql::new(text).text(request.namespace.as_str())
    }

    fn of_queue(&self, text: &str, shared: &SharedQueue) -> Sql {
        Sql::new(text).text(shared.namespace.as_str()).text(shared.queue_text())
    }
}

fn kinds(request: &ClaimTasks) -> Vec<String> {
    request.kinds.iter().map(|kind| kind.as_str().to_owned()).collect()
}

/// Reads a row of [`WAITING_KEYS`]. Damaged starts are treated as absent: they only have what began within one period.
fn waiting_key(row: &Row, page: &KeyPage) -> WaitingKey {
    let starts = row.get::<_, Option<&[u8]>>(3).and_then(|data| unseal::<QueueStarts>("starts of a queue", data).ok());
    let key = Name::new(row.get::<_, &str>(0)).ok();
    let waiting = u32::try_from(row.get::<_, i64>(1)).unwrap_or(u32::MAX).min(page.waiting_max);
    let held = u32::try_from(row.get::<_, i64>(2)).unwrap_or(u32::MAX);
    WaitingKey { starts: starts.filter(|_| key.is_some()), key, waiting, held }
}
