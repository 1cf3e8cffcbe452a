//! Pending runs that nobody holds, one queue per kind and version.
//!
//! Owns nothing that must be right: an entry is a hint that the claim checks. What must hold is the other direction, that every
//! claimable run is either in a queue or will be found by the queue's scan of the table. Must never hold more than a bounded number of
//! entries per queue, nor look at runs of kinds that the claiming worker does not know (L14).

use std::collections::{HashMap, VecDeque};

use onward_core::Name;
use onward_store::ClaimRuns;
use rusqlite::{Connection, params};

/// How many entries one queue holds before it relies on scans.
const QUEUE_MAX: usize = 8192;
const SCAN_PAGE: usize = 1024;

#[derive(Default)]
pub(crate) struct Ready {
    queues: HashMap<Name, HashMap<Option<Name>, Queue>>,
    /// Orders entries over all queues; what a scan finds is older than what was pushed.
    counter: u64,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// The run behind which the scan goes on; `None` when the table holds nothing that is not in `entries`.
    scan: Option<i64>,
    /// Something was left out behind the scan: it begins again when it comes to the end.
    again: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    order: u64,
    rk: i64,
}

/// Orders of pushed entries begin here; below are run keys, which scans use.
const PUSHED: u64 = 1 << 62;

impl Ready {
    /// Finds which kinds and versions have pending runs; their queues are filled when somebody asks.
    pub fn load(db: &Connection) -> rusqlite::Result<Ready> {
        let mut ready = Ready::default();
        let mut statement = db.prepare(
            "SELECT kind, version FROM runs WHERE status = 0 AND (kind, version) > (?1, ?2) ORDER BY kind, version LIMIT 1",
        )?;
        let mut after = (String::new(), String::new());
        loop {
            let next = statement.query_map(params![after.0, after.1], |row| Ok((row.get(0)?, row.get(1)?)))?.next();
            let Some(next) = next else { return Ok(ready) };
            after = next?;
            if let Ok(kind) = Name::new(&after.0) {
                let version = Name::new(&after.1).ok();
                ready.queues.entry(kind).or_default().insert(version, Queue { scan: Some(0), ..Queue::default() });
            }
        }
    }

    /// Puts a run behind the others of its kind.
    pub fn push(&mut self, kind: &Name, version: &Option<Name>, rk: i64) {
        self.counter += 1;
        let order = PUSHED + self.counter;
        if !self.queues.contains_key(kind) {
            self.queues.insert(kind.clone(), HashMap::new());
        }
        let Some(versions) = self.queues.get_mut(kind) else { return };
        let queue = match versions.get_mut(version) {
            Some(queue) => queue,
            None => versions.entry(version.clone()).or_default(),
        };
        if queue.scan.is_some() || queue.entries.len() >= QUEUE_MAX {
            // The scan finds it: either it is still to come, or it begins again.
            queue.scan.get_or_insert(0);
            queue.again = true;
        } else {
            queue.entries.push_back(Entry { order, rk });
        }
    }

    /// Takes the oldest entry that the worker knows. The caller checks whether it may be claimed, and asks again if not.
    pub fn pop(&mut self, db: &Connection, request: &ClaimRuns) -> rusqlite::Result<Option<i64>> {
        let mut oldest: Option<(Entry, &Name, &Option<Name>)> = None;
        for (kind, versions) in request.knows.iter() {
            let Some(queues) = self.queues.get_mut(kind) else { continue };
            for version in versions {
                let Some(queue) = queues.get_mut(version) else { continue };
                queue.fill(db, kind, version)?;
                if let Some(entry) = queue.entries.front()
                    && oldest.is_none_or(|(other, _, _)| entry.order < other.order)
                {
                    oldest = Some((*entry, kind, version));
                }
            }
        }
        let Some((entry, kind, version)) = oldest else { return Ok(None) };
        if let Some(queue) = self.queues.get_mut(kind).and_then(|queues| queues.get_mut(version)) {
            queue.entries.pop_front();
        }
        Ok(Some(entry.rk))
    }
}

impl Queue {
    fn fill(&mut self, db: &Connection, kind: &Name, version: &Option<Name>) -> rusqlite::Result<()> {
        while self.entries.is_empty()
            && let Some(after) = self.scan
        {
            let mut statement = db.prepare_cached(
                "SELECT rk FROM runs WHERE status = 0 AND kind = ?1 AND version = ?2 AND rk > ?3 ORDER BY rk LIMIT ?4",
            )?;
            let version = version.as_ref().map_or("", Name::as_str);
            let found =
                statement.query_map(params![kind.as_str(), version, after, SCAN_PAGE as i64], |row| row.get::<_, i64>(0))?;
            for rk in found {
                let rk = rk?;
                self.entries.push_back(Entry { order: rk as u64, rk });
                self.scan = Some(rk);
            }
            if self.entries.len() < SCAN_PAGE {
                self.scan = std::mem::take(&mut self.again).then_some(0);
            }
        }
        Ok(())
    }
}
