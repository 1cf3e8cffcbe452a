//! Pending, unleased runs, one queue per namespace, kind and version.
//!
//! Entries are hints that the claim verifies. The invariant is the other direction: every claimable run is in a queue or will be
//! found by the queue's scan of the table. Must never hold more than a bounded number of entries per queue, nor read runs of
//! other namespaces (S6) or of kinds that the claiming worker does not have (L14).

use std::collections::{HashMap, VecDeque};

use onward_core::{Name, Namespace, RunHead};
use onward_store::ClaimRuns;
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Number of entries of a queue above which it relies on scans.
const QUEUE_MAX: usize = 8192;
const SCAN_PAGE: usize = 1024;

/// The first namespace, kind and version with pending runs after the given ones.
const NEXT_QUEUE: &str = "SELECT ns, kind, version FROM runs WHERE status = 0 AND (ns, kind, version) > (?1, ?2, ?3)
  ORDER BY ns, kind, version LIMIT 1";

/// The pending runs of one queue after a given run.
const PENDING_RUNS: &str = "SELECT rk FROM runs WHERE status = 0 AND ns = ?1 AND kind = ?2 AND version = ?3 AND rk > ?4
  ORDER BY rk LIMIT ?5";

#[derive(Default)]
pub(crate) struct Ready {
    queues: HashMap<Namespace, Kinds>,
    /// Orders entries over all queues; scanned entries are older than pushed ones.
    counter: u64,
}

/// The queues of one namespace.
type Kinds = HashMap<Name, HashMap<Option<Name>, ReadyQueue>>;

#[derive(Default)]
struct ReadyQueue {
    entries: VecDeque<ReadyEntry>,
    /// The run after which the scan continues; `None` if every run of the table is in `entries`.
    scan: Option<i64>,
    /// A run behind the scan was left out: the scan starts again when it reaches the end.
    again: bool,
}

#[derive(Clone, Copy)]
struct ReadyEntry {
    order: u64,
    rk: i64,
}

/// Orders of pushed entries begin here; below are run keys, which scans use.
const PUSHED: u64 = 1 << 62;

impl Ready {
    /// Finds the namespaces, kinds and versions with pending runs; their queues are filled by the first claim.
    pub fn load(db: &Connection) -> rusqlite::Result<Ready> {
        let mut ready = Ready::default();
        let mut statement = db.prepare(NEXT_QUEUE)?;
        let mut after = (String::new(), String::new(), String::new());
        loop {
            let (namespace, kind, version) = &after;
            let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let Some(next) = statement.query_row(params![namespace, kind, version], row).optional()? else { return Ok(ready) };
            after = next;
            if let (Ok(namespace), Ok(kind)) = (Namespace::new(&after.0), Name::new(&after.1)) {
                let versions = ready.queues.entry(namespace).or_default().entry(kind).or_default();
                versions.insert(Name::new(&after.2).ok(), ReadyQueue { scan: Some(0), ..ReadyQueue::default() });
            }
        }
    }

    /// Appends a run to the queue of its namespace, kind and version.
    pub fn push(&mut self, head: &RunHead, rk: i64) {
        self.counter += 1;
        let order = PUSHED + self.counter;
        let kinds = self.queues.entry(head.key.namespace.clone()).or_default();
        let queue = kinds.entry(head.kind.clone()).or_default().entry(head.version.clone()).or_default();
        if queue.scan.is_some() || queue.entries.len() >= QUEUE_MAX {
            // The scan finds it: it is still ahead, or starts again.
            queue.scan.get_or_insert(0);
            queue.again = true;
        } else {
            queue.entries.push_back(ReadyEntry { order, rk });
        }
    }

    /// Takes the oldest entry that the worker can run. The caller checks whether it may be claimed, and calls again if not.
    pub fn pop(&mut self, db: &Connection, request: &ClaimRuns) -> rusqlite::Result<Option<i64>> {
        let Some(kinds) = self.queues.get_mut(&request.namespace) else { return Ok(None) };
        let mut oldest: Option<(ReadyEntry, &Name, &Option<Name>)> = None;
        for (kind, versions) in request.knows.iter() {
            let Some(queues) = kinds.get_mut(kind) else { continue };
            for version in versions {
                let Some(queue) = queues.get_mut(version) else { continue };
                queue.fill(db, &request.namespace, kind, version)?;
                if let Some(entry) = queue.entries.front()
                    && oldest.is_none_or(|(other, _, _)| entry.order < other.order)
                {
                    oldest = Some((*entry, kind, version));
                }
            }
        }
        let Some((entry, kind, version)) = oldest else { return Ok(None) };
        if let Some(queue) = kinds.get_mut(kind).and_then(|queues| queues.get_mut(version)) {
            queue.entries.pop_front();
        }
        Ok(Some(entry.rk))
    }
}

impl ReadyQueue {
    fn fill(&mut self, db: &Connection, namespace: &Namespace, kind: &Name, version: &Option<Name>) -> rusqlite::Result<()> {
        while self.entries.is_empty()
            && let Some(after) = self.scan
        {
            let mut statement = db.prepare_cached(PENDING_RUNS)?;
            let version = version.as_ref().map_or("", Name::as_str);
            let params = params![namespace.as_str(), kind.as_str(), version, after, SCAN_PAGE as i64];
            let found = statement.query_map(params, |row| row.get::<_, i64>(0))?;
            for rk in found {
                let rk = rk?;
                self.entries.push_back(ReadyEntry { order: rk as u64, rk });
                self.scan = Some(rk);
            }
            if self.entries.len() < SCAN_PAGE {
                self.scan = std::mem::take(&mut self.again).then_some(0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
