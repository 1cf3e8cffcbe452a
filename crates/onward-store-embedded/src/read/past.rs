//! Positions of the logs of earlier generations.
//!
//! Owns the table `past`. A run has a row in `runs` for its first generation, which owns everything kept over all generations,
//! and for its current one; an agent has a generation for each turn, and of those in between only the number of their log is
//! kept. Must never be used to identify a run: `runs` does that.
//!
//! Invariants:
//! - I4: an earlier generation that cannot be found is damage, and its row is rebuilt from the first record of its log.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use onward_core::Record;
use onward_core::event::RunStarted;
use onward_store::StoreError;
use rusqlite::{Connection, params};

use crate::error::{is_malformed, read_error};
use crate::read::heads::{self, EVENT_COLUMNS, Identity, event_row};
use crate::row::Statements;

/// Records the position of the log of a generation that is neither the first nor the current one.
pub(crate) fn put(db: &Connection, rk: i64, root: i64, generation: u32) -> rusqlite::Result<()> {
    let sql = "INSERT INTO past(rk, root, generation, crc) VALUES (?1, ?2, ?3, row_crc(?1, ?2, ?3))";
    db.run(sql, params![rk, root, generation]).map(drop)
}

thread_local! {
    /// Set if a row was missing or damaged and its reader found another way.
    static MISSED: Cell<bool> = const { Cell::new(false) };
}

/// Notes that a row has to be rebuilt.
pub(crate) fn note_missed() {
    MISSED.set(true);
}

/// Returns whether this thread noted a row to rebuild since the last call.
pub(crate) fn take_missed() -> bool {
    MISSED.take()
}

/// Returns the number of the log of a generation of the run that began in `incarnation`. If its row is missing or damaged, searches the
/// logs, so that readers do not wait for the repair.
pub(crate) fn log_of(db: &Connection, root: i64, generation: u32, incarnation: Option<u64>) -> Result<Option<i64>, StoreError> {
    let find = || -> rusqlite::Result<Option<i64>> {
        let row = |how: &str| -> rusqlite::Result<Option<i64>> {
            let sql =
                format!("SELECT rk FROM past {how} WHERE root = ?1 AND generation = ?2 AND crc IS row_crc(rk, root, generation)");
            match db.one(&sql, params![root, generation], |row| row.get(0)) {
                Err(error) if is_malformed(&error) && incarnation.is_some() => Ok(None),
                row => row,
            }
        };
        if let Some(rk) = row("")? {
            return Ok(Some(rk));
        }
        let Some(incarnation) = incarnation else { return Ok(None) };
        MISSED.set(true);
        let found = logs_without_row(db, Some((root, incarnation)))?.get(&(root, generation)).copied();
        // The row may have been rebuilt since, or only the index may lack it.
        found.map_or_else(|| row("NOT INDEXED"), |rk| Ok(Some(rk)))
    };
    find().map_err(read_error)
}

fn each_first_record(db: &Connection, mut visit: impl FnMut(i64, &RunStarted) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let mut statement = db.prepare(&format!("SELECT {EVENT_COLUMNS} FROM events INDEXED BY events_run WHERE idx = 0"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Some(first) = event_row(row).ok().filter(|first| first.is_of(first.rk)) else { continue };
        let Ok(record) = Record::decode_body(first.index, first.at, first.body) else { continue };
        if let Some(started) = record.started() {
            visit(first.rk, started)?;
        }
    }
    Ok(())
}

/// Returns the logs of a run's earlier generations. `how` is SQL behind the table's name.
pub(crate) fn logs_of(db: &Connection, how: &str, root: i64) -> rusqlite::Result<Vec<(i64, u32)>> {
    db.all(&format!("SELECT rk, generation FROM past {how} WHERE root = ?1"), [root], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Returns the numbers of all logs in the table.
pub(crate) fn logs(db: &Connection) -> rusqlite::Result<BTreeSet<i64>> {
    db.prepare("SELECT rk FROM past NOT INDEXED")?.query_map([], |row| row.get(0))?.collect()
}

/// Removes the rows of a run.
pub(crate) fn remove(db: &Connection, root: i64) -> rusqlite::Result<()> {
    db.run("DELETE FROM past WHERE root = ?1", [root]).map(drop)
}

/// Returns whether every row has a valid checksum and no generation of a run is missing.
pub(crate) fn is_whole(db: &Connection) -> rusqlite::Result<bool> {
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    let mut statement = db.prepare("SELECT root, crc IS row_crc(rk, root, generation) FROM past NOT INDEXED")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !row.get::<_, bool>(1)? {
            return Ok(false);
        }
        *counts.entry(row.get(0)?).or_default() += 1;
    }
    let mut newest: BTreeMap<i64, u32> = BTreeMap::new();
    each_run(db, |_, Identity { root, generation, .. }, _| {
        let known = newest.entry(root).or_default();
        *known = (*known).max(generation);
        *counts.entry(root).or_default() += 1;
    })?;
    Ok(newest.iter().all(|(root, newest)| counts.get(root) == Some(&(i64::from(*newest) + 1))))
}

/// Rebuilds damaged and missing rows (I4). The index of the table is dropped meanwhile.
pub(crate) fn restore(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM past WHERE crc IS NOT row_crc(rk, root, generation)", [])?;
    let found = logs_without_row(db, None)?;
    found.into_iter().try_for_each(|((root, generation), rk)| put(db, rk, root, generation))
}

/// Returns the logs that no row refers to, by their root and generation. `of` is the root and the incarnation of a run to search
/// for, in case its own row does not have its incarnation.
///
/// An incarnation does not identify a run: a run imported into another namespace has that of the exported one. So a log belongs
/// to a run only if no row assigns it to another one, and if exactly one run of its incarnation lacks that generation. The log of
/// a first generation has the number of the root itself, and the newest generation has its own row in `runs`: any other log is of
/// a run whose row is lost.
pub(crate) fn logs_without_row(db: &Connection, of: Option<(i64, u64)>) -> rusqlite::Result<BTreeMap<(i64, u32), i64>> {
    let (mut known, mut taken) = known_logs(db)?;
    let mut newest: BTreeMap<i64, u32> = BTreeMap::new();
    let mut roots: BTreeMap<u64, BTreeSet<i64>> = BTreeMap::new();
    each_run(db, |rk, Identity { root, generation, .. }, incarnation| {
        known.insert(rk);
        taken.insert((root, generation));
        let last = newest.entry(root).or_default();
        *last = (*last).max(generation);
        if let Some(incarnation) = incarnation {
            roots.entry(incarnation).or_default().insert(root);
        }
    })?;
    if let Some((root, incarnation)) = of {
        roots.entry(incarnation).or_default().insert(root);
    }
    let mut found: BTreeMap<(i64, u32), Vec<i64>> = BTreeMap::new();
    each_first_record(db, |rk, started| {
        let generation = started.generation;
        let is_without = |root: &&i64| {
            newest.get(*root).is_some_and(|newest| *newest > generation)
                && !taken.contains(&(**root, generation))
                && (generation > 0 || rk == **root)
        };
        let of_life = started.origin_seed().filter(|_| !known.contains(&rk)).and_then(|incarnation| roots.get(&incarnation));
        let candidates: Vec<&i64> = of_life.into_iter().flatten().filter(is_without).collect();
        if let [root] = candidates[..] {
            found.entry((*root, generation)).or_default().push(rk);
        }
        Ok(())
    })?;
    // Two logs of one generation: the right one is unknown.
    Ok(found.into_iter().filter_map(|(key, logs)| if let [rk] = logs[..] { Some((key, rk)) } else { None }).collect())
}

/// The logs that undamaged rows of the table refer to, and the generations of roots that have such a row.
type KnownLogs = (BTreeSet<i64>, BTreeSet<(i64, u32)>);

/// Reads the undamaged rows of the table; empty if its pages are damaged.
fn known_logs(db: &Connection) -> rusqlite::Result<KnownLogs> {
    let read = || -> rusqlite::Result<KnownLogs> {
        let mut known = KnownLogs::default();
        let mut statement =
            db.prepare("SELECT rk, root, generation FROM past NOT INDEXED WHERE crc IS row_crc(rk, root, generation)")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            known.0.insert(row.get(0)?);
            known.1.insert((row.get(1)?, row.get(2)?));
        }
        Ok(known)
    };
    match read() {
        Err(error) if is_malformed(&error) => Ok(KnownLogs::default()),
        known => known,
    }
}

/// Visits the rows of runs with a valid key: their number, their identity, and the incarnation in which the run began, if the row
/// has it.
fn each_run(db: &Connection, mut visit: impl FnMut(i64, Identity, Option<u64>)) -> rusqlite::Result<()> {
    let mut statement = db.prepare(&format!("SELECT {} FROM runs NOT INDEXED", heads::COLUMNS))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let row = heads::read_row(row)?;
        if let Some(identity) = row.identity {
            visit(row.rk, identity, row.head.and_then(|head| head.origin_incarnation()));
        }
    }
    Ok(())
}
