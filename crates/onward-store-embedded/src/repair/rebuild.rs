//! Repair of a damaged directory: everything that verifies is copied into a new database.
//!
//! Owns the new database, what is rebuilt in it, the list of losses, and the exchange of the files. The log is the source of
//! truth (L16): heads, timers, tasks, waits, attributes and ledger rows are compared with the logs and rebuilt from them. Must
//! never change or remove a damaged file: all of them are moved into a directory beside the new database.
//!
//! Invariants:
//! - I8: after a crash at any point, the directory has the damaged files or the new database, and never the new database with the
//!   old write-ahead log: a file announces the exchange before it begins, and the next opening finishes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use onward_core::projection::Projection;
use onward_core::{CallId, Hash, Index, Record, RunHead, RunKey, Timestamp};
use onward_store::StoreError;
use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::error::read_error;
use crate::file::directory::{lock, remove_unfinished, sync_directory};
use crate::file::lease_file::LEASES;
use crate::file::pages;
use crate::file::schema::{self, DATABASE, UNFINISHED, io_error, open_error, unusable};
use crate::file::synced::SYNCED;
use crate::file::wal::LogDamage;
use crate::read::heads;
use crate::read::past;
use crate::read::reader::read_records;
use crate::repair::rows;
use crate::repair::salvage::{Pages, Row};
use crate::row::{Statements, call_id_key, hashes};

/// Names the directory for the damaged files during the exchange.
const EXCHANGE: &str = "onward.repair";
/// Name prefix of such directories.
const ASIDE: &str = "onward.damaged";

/// Result of a repair.
#[derive(Debug, Clone, Default)]
pub struct Repaired {
    pub runs: u64,
    pub events: u64,
    /// Pages of the database, and rows, with a wrong checksum.
    pub damaged_pages: u64,
    pub damaged_rows: u64,
    pub log_damage: Option<LogDamage>,
    /// Every synced frame of the damaged log was read or corrected, so that no acknowledged write is missing.
    pub is_log_restored: bool,
    pub lost: Vec<Lost>,
    /// Directory of the damaged files; `None` if nothing was damaged and therefore nothing was changed.
    pub aside: Option<PathBuf>,
}

/// Events of a log, or messages of an outbox, that are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// `None` if the run's id is lost: no row and no index has it.
    pub run: Option<RunKey>,
    pub generation: u32,
    /// The first event that cannot be read; `None` if a message to another run is lost and not the log.
    pub index: Option<Index>,
    pub why: String,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.run {
            Some(run) => write!(f, "run {run}")?,
            None => f.write_str("a run whose id is lost")?,
        }
        if self.generation > 0 {
            write!(f, ", generation {}", self.generation)?;
        }
        match self.index {
            Some(index) if self.run.is_some() => write!(f, ", from event {index} on: {}", self.why),
            _ => write!(f, ": {}", self.why),
        }
    }
}

impl Repaired {
    fn found_damage(&self) -> bool {
        self.damaged_pages + self.damaged_rows > 0 || self.log_damage.is_some() || !self.lost.is_empty()
    }
}

/// Copies everything that verifies into a new database and moves the damaged files aside. Changes nothing if nothing is damaged.
pub(crate) fn repair(directory: &Path, now: Timestamp) -> Result<Repaired, StoreError> {
    if !is_ours(directory) {
        let why = format!("its {DATABASE} has no page that Onward wrote");
        return Err(StoreError::DirectoryForeign { path: directory.to_owned(), why });
    }
    let _lock = lock(directory)?;
    finish(directory)?;
    Scratch::remove_old(directory);
    let (pages, log_damage) = Pages::open(directory)?;
    let is_log_restored = log_damage.is_some() && !pages.has_gap;
    let mut repaired = Repaired { damaged_pages: pages.damaged(), log_damage, is_log_restored, ..Repaired::default() };
    remove_unfinished(directory)?;
    let unfinished = directory.join(UNFINISHED);
    schema::create(&unfinished, |db| fill(db, &pages, now, &mut repaired))?;
    if !repaired.found_damage() {
        remove_unfinished(directory)?;
        return Ok(repaired);
    }
    let aside = make_aside(directory, now)?;
    let exchange = directory.join(EXCHANGE);
    let name = aside.file_name().unwrap_or_default().as_encoded_bytes();
    let begin = std::fs::write(&exchange, name).and_then(|()| File::open(&exchange)?.sync_all());
    begin.map_err(|error| unusable(&exchange, &error))?;
    sync_directory(directory)?;
    finish(directory)?;
    repaired.aside = Some(aside);
    Ok(repaired)
}

/// A temporary database with all that verifies of a damaged directory, for reading before a repair; removed on drop.
///
/// SQLite's own view of the damaged files is a state that never existed: the log up to the bad frame, over a database into which
/// later frames may have been copied.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub path: PathBuf,
}

const SCRATCH: &str = "onward.reading";

impl Scratch {
    pub fn fill(directory: &Path, now: Timestamp) -> Result<Scratch, StoreError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{SCRATCH}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let make = |parent: &Path| {
            let path = parent.join(&name);
            DirBuilder::new().mode(0o700).create(&path).map(|()| Scratch { path })
        };
        // A process with read-only access to the directory uses the temporary directory.
        let scratch = make(directory).or_else(|_| make(&std::env::temp_dir())).map_err(|error| unusable(directory, &error))?;
        let (pages, _) = Pages::open(directory)?;
        let database = schema::database(&scratch.path);
        schema::create(&database, |db| fill(db, &pages, now, &mut Repaired::default()))?;
        Ok(scratch)
    }

    /// Removes the leftovers of processes that died while reading. Only under the lock; live readers keep their open files.
    pub fn remove_old(directory: &Path) {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(SCRATCH)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Returns whether one of the first pages has a valid checksum: the first page itself may be damaged.
pub(crate) fn is_ours(directory: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    let Ok(file) = File::open(schema::database(directory)) else { return directory.join(EXCHANGE).exists() };
    let mut page = [0; pages::PAGE_BYTES];
    (1..=8).any(|number| {
        let read = file.read_exact_at(&mut page, (number - 1) * pages::PAGE_BYTES as u64);
        read.is_ok() && pages::check(number, &page) == pages::Sum::Right
    })
}

fn make_aside(directory: &Path, now: Timestamp) -> Result<PathBuf, StoreError> {
    for attempt in 0.. {
        let path = directory.join(format!("{ASIDE}-{}", now.0 + attempt));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unusable(&path, &error)),
        }
    }
    unreachable!("some name is free")
}

/// Finishes an exchange of files that was begun (I8). Only under the lock.
pub(crate) fn finish(directory: &Path) -> Result<(), StoreError> {
    let exchange = directory.join(EXCHANGE);
    let Ok(name) = std::fs::read_to_string(&exchange) else { return Ok(()) };
    if !name.starts_with(ASIDE) || name.contains('/') {
        return Err(StoreError::DirectoryUnusable { path: exchange, why: "it does not name a repair directory".to_owned() });
    }
    let aside = directory.join(name);
    let put_aside = |name: &str| match std::fs::rename(directory.join(name), aside.join(name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io_error(&directory.join(name), &error)),
        _ => Ok(()),
    };
    // The log goes first: otherwise it would be read as that of the new database.
    let (log, index) = (format!("{DATABASE}-wal"), format!("{DATABASE}-shm"));
    [log.as_str(), &index, SYNCED, LEASES].into_iter().try_for_each(put_aside)?;
    let unfinished = directory.join(UNFINISHED);
    if unfinished.exists() {
        put_aside(DATABASE)?;
        std::fs::rename(&unfinished, schema::database(directory)).map_err(|error| io_error(&unfinished, &error))?;
    }
    sync_directory(&aside)?;
    sync_directory(directory)?;
    std::fs::remove_file(&exchange).map_err(|error| io_error(&exchange, &error))?;
    sync_directory(directory)
}

pub(crate) fn is_unfinished(directory: &Path) -> bool {
    directory.join(EXCHANGE).exists()
}

/// Fills the new database.
fn fill(db: &Connection, pages: &Pages, now: Timestamp, repaired: &mut Repaired) -> Result<(), StoreError> {
    let (mut boots, mut partial) = (Vec::new(), Vec::new());
    let insert = |or: &str, table: &str, values: Vec<Value>| {
        let sql = format!("INSERT OR {or} INTO {table} VALUES ({})", vec!["?"; values.len()].join(", "));
        db.run(&sql, rusqlite::params_from_iter(values)).map(drop).map_err(open_error)
    };
    repaired.damaged_rows = pages.rows(|Row { table, values, is_partial }| {
        match table {
            _ if is_partial => partial.push(values),
            "meta" => boots.extend(values.get(2).cloned()),
            // Rebuilt below.
            "attributes" | "blobs" => {}
            table => insert("REPLACE", table, values)?,
        }
        Ok(())
    })?;
    // Partial rows never replace a row that verifies.
    repaired.damaged_rows += partial.len() as u64;
    partial.into_iter().try_for_each(|values| insert("IGNORE", "runs", values))?;
    let boot = boots.iter().filter_map(|boot| if let Value::Integer(boot) = boot { Some(*boot) } else { None }).max();
    let is_log_damaged = repaired.log_damage.is_some();
    let make_again = || -> rusqlite::Result<BTreeMap<i64, RunKey>> {
        write_boot(db, boot, is_log_damaged)?;
        count_references(db)?;
        let keys = rows::restore_runs(db, pages)?;
        past::restore(db)?;
        follow_logs(db)?;
        rows::restore_views(db, now)?;
        rows::restore_attributes(db)?;
        rows::restore_ledger(db)?;
        Ok(keys)
    };
    let keys = make_again().map_err(open_error)?;
    count_contents(db, pages, &keys, repaired).map_err(read_error)
}

/// Writes a boot counter above all epochs that were granted. If its rows are lost, the logs give a lower bound.
fn write_boot(db: &Connection, boot: Option<i64>, is_log_damaged: bool) -> rusqlite::Result<()> {
    const OPENED_WITHOUT_A_COMMIT_MAX: i64 = 1_000_000;
    let boot = match boot {
        // The last openings may be among what is lost.
        Some(boot) if is_log_damaged => boot + OPENED_WITHOUT_A_COMMIT_MAX,
        Some(boot) => boot,
        None => {
            let mut last = 0;
            let mut statement = db.prepare(&format!("SELECT {} FROM events", heads::EVENT_COLUMNS))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let event = heads::event_row(row)?;
                let record = Record::decode_body(event.index, event.at, event.body).ok();
                last = last.max(record.and_then(|record| record.commit).map_or(0, |commit| commit.epoch.0 >> 32));
            }
            last as i64 + OPENED_WITHOUT_A_COMMIT_MAX
        }
    };
    schema::write_boot(db, boot)
}

/// Rebuilds the reference counts of large payloads and drops those without references.
fn count_references(db: &Connection) -> rusqlite::Result<()> {
    let mut counts: BTreeMap<[u8; 16], i64> = BTreeMap::new();
    for table in ["events", "tasks", "waits", "outbox"] {
        let mut statement = db.prepare(&format!("SELECT blobs FROM {table} WHERE blobs IS NOT NULL"))?;
        for list in statement.query_map([], |row| row.get::<_, Vec<u8>>(0))? {
            hashes(Some(&list?)).for_each(|hash| *counts.entry(hash).or_default() += 1);
        }
    }
    let mut statement = db.prepare("SELECT seq, data FROM payloads")?;
    let mut rows = statement.query([])?;
    let (mut kept, mut dropped) = (BTreeMap::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let (seq, hash) = (row.get::<_, i64>(0)?, Hash::of_parts(&[row.get_ref(1)?.as_blob()?]).0);
        match counts.get(&hash) {
            Some(count) if kept.insert(hash, (seq, *count)).is_none() => {}
            _ => dropped.push(seq),
        }
    }
    let mut insert = db.prepare("INSERT INTO blobs(seq, hash, refs, crc) VALUES (?1, ?2, ?3, row_crc(?2, ?3))")?;
    kept.iter().try_for_each(|(hash, (seq, count))| insert.execute(params![seq, hash, count]).map(drop))?;
    let mut delete = db.prepare("DELETE FROM payloads WHERE seq = ?1")?;
    dropped.iter().try_for_each(|seq| delete.execute([seq]).map(drop))
}

/// A generation of a run, with the position of its log.
struct Generation {
    rk: i64,
    root: i64,
    key: RunKey,
    generation: u32,
    is_current: bool,
    /// Minimum length of the log.
    next_index: Index,
}

fn generations(db: &Connection) -> rusqlite::Result<Vec<Generation>> {
    let mut found = Vec::new();
    let mut roots = BTreeMap::new();
    let mut statement = db.prepare(&format!("SELECT {}, current FROM runs", heads::COLUMNS))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let is_current = row.get::<_, i64>("current")? == 1;
        let row = heads::read_row(row)?;
        let Some(heads::Identity { root, key, generation, .. }) = row.identity else { continue };
        roots.insert(root, key.clone());
        let next_index = row.head.map_or(Index(0), |head| head.next_index);
        found.push(Generation { rk: row.rk, root, key, generation, is_current, next_index });
    }
    let mut statement = db.prepare("SELECT rk, root, generation FROM past")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (rk, root, generation) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let Some(key) = roots.get(&root) else { continue };
        found.push(Generation { rk, root, key: key.clone(), generation, is_current: false, next_index: Index(0) });
    }
    Ok(found)
}

/// Aligns heads and views with the logs: a lost page of the write-ahead log may have had their last version.
fn follow_logs(db: &Connection) -> rusqlite::Result<()> {
    let mut open: BTreeSet<i64> = BTreeSet::new();
    for Generation { rk, key, is_current, .. } in generations(db)? {
        if !is_current {
            continue;
        }
        let Ok(records) = read_records(db, &key, rk, Index(0), usize::MAX) else {
            open.insert(rk); // it is unknown what the damaged log leaves open
            continue;
        };
        let Some(projection) = Projection::of(key.clone(), &records) else { continue };
        follow_head(db, rk, &key, &projection.head)?;
        if !projection.head.status.is_closed() {
            open.insert(rk);
            drop_answered(db, "timers", rk, &projection.timers)?;
            drop_answered(db, "tasks", rk, &projection.tasks)?;
            drop_answered(db, "waits", rk, &projection.waits)?;
        }
    }
    for table in ["timers", "tasks", "waits"] {
        let rows: Vec<i64> = db.all(&format!("SELECT DISTINCT rk FROM {table}"), [], |row| row.get(0))?;
        let mut delete = db.prepare(&format!("DELETE FROM {table} WHERE rk = ?1"))?;
        rows.iter().filter(|rk| !open.contains(rk)).try_for_each(|rk| delete.execute([rk]).map(drop))?;
    }
    Ok(())
}

fn follow_head(db: &Connection, rk: i64, key: &RunKey, head: &RunHead) -> rusqlite::Result<()> {
    let plain = |head: &RunHead| head.clone().without_lease();
    let Ok(Some(found)) = heads::load(db, key, None) else { return Ok(()) };
    if found.rk != rk || plain(&found.head) == plain(head) {
        return Ok(());
    }
    heads::write_row(db, heads::insert_run!("OR REPLACE"), rk, found.root, found.input_hash, true, head)
}

/// Removes rows of a run that its log has answered since.
fn drop_answered<T>(db: &Connection, table: &str, rk: i64, open: &BTreeMap<CallId, T>) -> rusqlite::Result<()> {
    let sql = format!("SELECT rowid, call_id FROM {table} WHERE rk = ?1");
    let rows: Vec<(i64, Vec<u8>)> = db.all(&sql, [rk], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let open: BTreeSet<Vec<u8>> = open.keys().map(call_id_key).collect();
    let mut delete = db.prepare(&format!("DELETE FROM {table} WHERE rowid = ?1"))?;
    rows.iter().filter(|(_, call_id)| !open.contains(call_id)).try_for_each(|(row, _)| delete.execute([row]).map(drop))
}

/// Counts runs and events, and lists what is lost. `keys` are those that indexes have of logs without a row.
fn count_contents(db: &Connection, pages: &Pages, keys: &BTreeMap<i64, RunKey>, repaired: &mut Repaired) -> rusqlite::Result<()> {
    let mut known = BTreeSet::new();
    let mut runs = BTreeSet::new();
    let indexed = indexed_ends(db, pages)?;
    for Generation { rk, key, generation, next_index, .. } in generations(db)? {
        known.insert(rk);
        let lost = match read_records(db, &key, rk, Index(0), usize::MAX) {
            Ok(records) => {
                repaired.events += records.iter().map(|record| record.events.len() as u64).sum::<u64>();
                let end = records.last().map_or(Index(0), Record::next_index);
                let is_cut = end < next_index || indexed.get(&rk).is_some_and(|last| *last >= end) || end == Index(0);
                is_cut.then(|| (end, "it is missing".to_owned()))
            }
            Err(StoreError::LogCorrupt { index, why, .. }) => Some((index, why)),
            Err(error) => Some((Index(0), error.to_string())),
        };
        repaired.lost.extend(lost.map(|(index, why)| Lost { run: Some(key.clone()), generation, index: Some(index), why }));
        runs.insert(key);
    }
    repaired.runs = runs.len() as u64;
    let mut statement = db.prepare("SELECT rk, count(*) FROM events GROUP BY rk")?;
    for row in statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))? {
        let (rk, count) = row?;
        if !known.contains(&rk) {
            let run = keys.get(&rk).cloned();
            let why = match run {
                Some(_) => format!("its row is lost and its log of {count} records is damaged"),
                None => format!("{count} records of its log exist without a row or an index entry that names the run"),
            };
            repaired.lost.push(Lost { run, generation: 0, index: Some(Index(0)), why });
        }
    }
    list_lost_messages(db, pages, repaired)
}

/// Lists messages that the indexes of the outbox have and its table has not: the row is the only copy of a message.
fn list_lost_messages(db: &Connection, pages: &Pages, repaired: &mut Repaired) -> rusqlite::Result<()> {
    let kept: BTreeSet<i64> = db.all("SELECT id FROM outbox", [], |row| row.get(0))?.into_iter().collect();
    let roots: BTreeMap<i64, RunKey> = generations(db)?.into_iter().map(|found| (found.root, found.key)).collect();
    for (message, root) in pages.indexed_messages() {
        if !kept.contains(&message) {
            let why = "a message from it to another run was in a damaged row of the outbox".to_owned();
            repaired.lost.push(Lost { run: root.and_then(|root| roots.get(&root).cloned()), generation: 0, index: None, why });
        }
    }
    Ok(())
}

/// Returns the last indexed event of each log: a log that ends before it has lost its end.
fn indexed_ends(db: &Connection, pages: &Pages) -> rusqlite::Result<BTreeMap<i64, Index>> {
    // Index entries of earlier generations also consist of three numbers.
    let past = db.all("SELECT root, generation, rk FROM past", [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let past: BTreeSet<(i64, i64, i64)> = past.into_iter().collect();
    let mut ends: BTreeMap<i64, Index> = BTreeMap::new();
    pages.indexed(|rk, index, row| {
        if index >= 0 && !past.contains(&(rk, index, row)) {
            let end = ends.entry(rk).or_default();
            *end = (*end).max(Index(index as u64));
        }
    });
    Ok(ends)
}
