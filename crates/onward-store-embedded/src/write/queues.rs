//! Rows of queues that are shared out: their settings, the keys that wait, what they hold, and what began lately.
//!
//! The one writer thread makes claims one after the other, so no lock is needed. A damaged row of starts is treated as absent: it
//! only has what began within one period.

use onward_core::queue::settings::settings_kind;
use onward_core::queue::{QueueSettings, QueueStarts, Turn, WaitingKey};
use onward_core::task::Task;
use onward_core::{KindSchemas, Name, Namespace};
use onward_store::ClaimTasks;
use onward_store::unit_of_work::{KEYS_MAX, KeyPage, SharedQueue};
use rusqlite::params;

use crate::error::Outcome;
use crate::row::{Statements, due_number, number, seal, unseal};
use crate::write::tasks::TaskRow;
use crate::write::writer::Writer;

/// The next key with claimable tasks of one kind, and the same with the key itself.
pub(crate) const NEXT_KEY: &str = "SELECT qkey FROM tasks WHERE state = 0 AND ns = ?1 AND queue = ?2 AND kind = ?3 AND qkey > ?4
  ORDER BY qkey LIMIT 1";
const THIS_KEY: &str = "SELECT qkey FROM tasks WHERE state = 0 AND ns = ?1 AND queue = ?2 AND kind = ?3 AND qkey = ?4 LIMIT 1";

/// The claimable tasks of one key and kind, by rank.
pub(crate) const TASKS_OF_KEY: &str = "SELECT visible - priority * 60000, tk FROM tasks
  WHERE state = 0 AND ns = ?1 AND queue = ?2 AND kind = ?3 AND qkey = ?4 ORDER BY visible - priority * 60000, tk LIMIT ?5";

/// The leases of a queue, and of one key.
pub(crate) const HELD: &str = "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE state = 1 AND ns = ?1 AND queue = ?2 LIMIT ?3)";
pub(crate) const HELD_BY_KEY: &str =
    "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE state = 1 AND ns = ?1 AND queue = ?2 AND qkey = ?3 LIMIT ?4)";

/// The next queue in which runs wait; the kind is [`onward_core::run::run_queue::SLOT_KIND`].
pub(crate) const NEXT_RUN_QUEUE: &str =
    "SELECT ns, queue FROM tasks WHERE state = 0 AND kind = 'queue:run' AND (ns, queue) > (?1, ?2)
  ORDER BY ns, queue LIMIT 1";

/// Rows of starts that are removed with each one that is written.
const FORGOTTEN_MAX: i64 = 8;

/// Queues whose turns are kept in memory.
const TURNS_MAX: usize = 10_000;

impl Writer<'_> {
    /// Returns the queues of a request that have settings or waiting tasks with keys.
    pub(super) fn find_shared_queues(&self, request: &ClaimTasks) -> Outcome<Vec<SharedQueue>> {
        let mut shared = Vec::new();
        for queue in &request.queues {
            let of =
                SharedQueue { namespace: request.namespace.clone(), queue: queue.clone(), settings: QueueSettings::default() };
            let settings = self.settings_of(&of.namespace, queue.as_ref())?;
            if settings.is_some() || self.next_key(request, &of, "", false)?.is_some() {
                shared.push(SharedQueue { settings: settings.unwrap_or_default(), ..of });
            }
        }
        Ok(shared)
    }

    /// Returns the settings of a queue. A damaged row is an error: a limit must not vanish.
    pub(super) fn settings_of(&self, namespace: &Namespace, queue: Option<&Name>) -> Outcome<Option<QueueSettings>> {
        let Ok(kind) = settings_kind(queue) else { return Ok(None) };
        let sql = "SELECT data FROM kinds WHERE ns = ?1 AND task = 0 AND kind = ?2 AND version = ''";
        let data = self.db.one(sql, params![namespace.as_str(), kind.as_str()], |row| row.get::<_, Vec<u8>>(0))?;
        let Some(data) = data else { return Ok(None) };
        let row: KindSchemas = unseal("the settings of a queue", &data)?;
        debug_assert_eq!(row.kind, kind);
        Ok(row.queue.map(|settings| *settings))
    }

    /// Returns queues in which runs wait, with one index step for each.
    pub(super) fn find_run_queues(&self, after: &str, limit: usize) -> Outcome<Vec<(Namespace, Name)>> {
        let (namespace, queue) = after.split_once('\n').unwrap_or_default();
        let (mut last, mut found) = ((namespace.to_owned(), queue.to_owned()), Vec::new());
        while found.len() < limit {
            let next = self.db.one(NEXT_RUN_QUEUE, params![last.0, last.1], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let Some(next) = next else { break };
            last = next;
            // A damaged row is repaired when its run is read.
            if let (Ok(namespace), Ok(queue)) = (Namespace::new(&last.0), Name::new(&last.1)) {
                found.push((namespace, queue));
            }
        }
        Ok(found)
    }

    pub(super) fn waiting_in(&self, namespace: &Namespace, queue: Option<&Name>, limit: u64) -> Outcome<u64> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE state = 0 AND ns = ?1 AND queue = ?2 LIMIT ?3)";
        let params = params![namespace.as_str(), queue.map_or("", Name::as_str), number(limit)];
        let count: Option<i64> = self.db.one(sql, params, |row| row.get(0))?;
        Ok(count.unwrap_or_default() as u64)
    }

    pub(super) fn held_in(&self, shared: &SharedQueue, limit: u32) -> Outcome<u32> {
        let count: Option<i64> =
            self.db.one(HELD, params![shared.namespace.as_str(), shared.queue_text(), limit], |row| row.get(0))?;
        Ok(count.unwrap_or_default() as u32)
    }

    /// Returns the first key behind another one, or that one itself, with tasks that the request may claim.
    fn next_key(&self, request: &ClaimTasks, shared: &SharedQueue, from: &str, has_from: bool) -> Outcome<Option<String>> {
        let mut first: Option<String> = None;
        for sql in if has_from { &[THIS_KEY, NEXT_KEY][..] } else { &[NEXT_KEY] } {
            for kind in request.kinds.iter() {
                let params = params![shared.namespace.as_str(), shared.queue_text(), kind.as_str(), from];
                let found: Option<String> = self.db.one(sql, params, |row| row.get(0))?;
                first = first.into_iter().chain(found).min();
            }
            if first.is_some() {
                break;
            }
        }
        Ok(first)
    }

    pub(super) fn find_waiting_keys(
        &self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        page: &KeyPage,
    ) -> Outcome<Vec<WaitingKey>> {
        let (mut keys, mut from, mut has_from) = (Vec::new(), page.from.clone(), page.has_from);
        while keys.len() < KEYS_MAX
            && let Some(key) = self.next_key(request, shared, &from, has_from)?.filter(|key| page.has(key))
        {
            keys.push(self.waiting_key(request, shared, &key, page.waiting_max)?);
            (from, has_from) = (key, false);
        }
        Ok(keys)
    }

    fn waiting_key(&self, request: &ClaimTasks, shared: &SharedQueue, key: &str, waiting_max: u32) -> Outcome<WaitingKey> {
        let (namespace, queue) = (shared.namespace.as_str(), shared.queue_text());
        let mut waiting = 0;
        for kind in request.kinds.iter() {
            let sql = "SELECT count(*) FROM (SELECT 1 FROM tasks
                WHERE state = 0 AND ns = ?1 AND queue = ?2 AND kind = ?3 AND qkey = ?4 LIMIT ?5)";
            let count: Option<i64> =
                self.db.one(sql, params![namespace, queue, kind.as_str(), key, waiting_max], |row| row.get(0))?;
            waiting += count.unwrap_or_default() as u32;
        }
        let held = match shared.settings.key_concurrency_max {
            Some(limit) => self.db.one(HELD_BY_KEY, params![namespace, queue, key, limit], |row| row.get::<_, i64>(0))?,
            None => None,
        };
        let starts = match shared.settings.key_rate {
            Some(_) if !key.is_empty() => self.find_starts(shared, key)?,
            _ => None,
        };
        let held = held.unwrap_or_default() as u32;
        Ok(WaitingKey { key: Name::new(key).ok(), waiting: waiting.min(waiting_max), held, starts })
    }

    pub(super) fn find_tasks_of_keys(
        &mut self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        wanted: &[(Option<Name>, u32)],
    ) -> Outcome<Vec<(TaskRow, Task)>> {
        let mut rows = Vec::new();
        for (key, count) in wanted {
            let mut found: Vec<(i64, i64)> = Vec::new();
            for kind in request.kinds.iter() {
                let key = key.as_ref().map_or("", Name::as_str);
                let params = params![shared.namespace.as_str(), shared.queue_text(), kind.as_str(), key, count];
                found.extend(self.db.all(TASKS_OF_KEY, params, |row| Ok((row.get(0)?, row.get(1)?)))?);
            }
            found.sort_unstable(); // QL6
            found.dedup();
            rows.extend(found.into_iter().take(*count as usize).map(|(_, tk)| tk));
        }
        self.tasks_to_claim(rows)
    }

    /// Returns the starts of a key, or of the queue as a whole if the key is empty.
    pub(super) fn find_starts(&self, shared: &SharedQueue, key: &str) -> Outcome<Option<QueueStarts>> {
        let sql = "SELECT data FROM queue_keys WHERE ns = ?1 AND queue = ?2 AND qkey = ?3";
        let params = params![shared.namespace.as_str(), shared.queue_text(), key];
        let data = self.db.one(sql, params, |row| row.get::<_, Vec<u8>>(0))?;
        let starts = data.and_then(|data| unseal::<QueueStarts>("starts of a queue", &data).ok());
        let is_its = |starts: &QueueStarts| {
            starts.namespace == shared.namespace
                && starts.queue == shared.queue
                && starts.key.as_ref().map_or("", Name::as_str) == key
        };
        Ok(starts.filter(is_its))
    }

    pub(super) fn write_starts(&mut self, changed: &[QueueStarts]) -> Outcome<()> {
        for starts in changed {
            let (queue, key) = (starts.queue.as_ref().map_or("", Name::as_str), starts.key.as_ref().map_or("", Name::as_str));
            let params = params![starts.namespace.as_str(), queue, key, seal(starts), due_number(starts.until)];
            self.db.run("INSERT OR REPLACE INTO queue_keys(ns, queue, qkey, data, until) VALUES (?1, ?2, ?3, ?4, ?5)", params)?;
            let sql = "DELETE FROM queue_keys WHERE seq IN (SELECT seq FROM queue_keys WHERE until <= ?1 LIMIT ?2)";
            self.db.run(sql, params![due_number(self.set.now), FORGOTTEN_MAX])?;
        }
        Ok(())
    }

    pub(super) fn turn_of(&self, shared: &SharedQueue) -> Turn {
        self.turns.get(&shared.name()).cloned().unwrap_or_default()
    }

    pub(super) fn keep_turn(&mut self, shared: &SharedQueue, turn: Turn) {
        if self.turns.len() >= TURNS_MAX {
            self.turns.clear();
        }
        self.turns.insert(shared.name(), turn);
    }
}
