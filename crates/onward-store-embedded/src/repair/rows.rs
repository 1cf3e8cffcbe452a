//! Online repair: indexes are rebuilt from their tables, rows from their checksummed blobs or from the log.
//!
//! Owns the check of all small tables after damage was met. The log is the source of truth (L16): the row of a run has a
//! checksummed head and a log, either of which restores it; timers, tasks and waits are rebuilt from the logs of open runs, rows
//! of `ledger` and `past` from all logs. Idempotency records and outbox messages have no other copy and stay as they are; using a
//! damaged one fails. Must never touch an event, nor free a page of damaged data: its neighbors in the file may belong to another
//! table.
//!
//! Invariants:
//! - I3: a rebuilt row has exactly the content that was written or, for a task, the content of its log.
//! - I11: an offline repair loses no id of a run with a complete log that the run's row, its sealed head, the index of ids or an
//!   index of lists has.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::ledger::{LedgerKey, LedgerSum, add_rows};
use onward_core::projection::Projection;
use onward_core::run::{LogKey, Wait};
use onward_core::{CallId, Hash, Index, Namespace, Record, RunHead, RunId, RunKey, Timestamp};
use onward_store::unit_of_work::Timer;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::is_malformed;
use crate::file::schema::INDEXES;
use crate::read::heads::{self, RunRow};
use crate::read::ledger;
use crate::read::past;
use crate::read::reader::read_records;
use crate::repair::salvage::{IndexedRun, Pages};
use crate::row::{Statements, call_id_key, unseal};
use crate::write::save::{put_attributes, put_timer, put_wait};
use crate::write::tasks;

/// Runs `work`; if damage prevents it, repairs and runs it again.
pub(crate) fn with_repair<T>(db: &Connection, now: Timestamp, work: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    match work() {
        Err(error) if is_malformed(&error) && repair(db, now)? > 0 => work(),
        other => other,
    }
}

/// Checks everything but events and large payloads, and repairs it in one transaction. Returns the number of repairs.
pub(crate) fn repair(db: &Connection, now: Timestamp) -> rusqlite::Result<u64> {
    let runs = damage_of_runs(db)?;
    let views = damaged_views(db)?;
    let is_past_whole = past::is_whole(db)?;
    let mut doomed: BTreeSet<&str> = BTreeSet::new();
    let mut unreadable = 0;
    for index in INDEXES {
        // The index entries of a changed row cannot be found again.
        let beneath = match index.table {
            "runs" => !runs.is_empty(),
            "past" => !is_past_whole,
            table => views.contains_key(table),
        };
        let is_unreadable = !is_readable(db, &index.scan())?;
        unreadable += u64::from(is_unreadable || (beneath && index.table != "runs"));
        if beneath || is_unreadable {
            doomed.insert(index.name);
        }
    }
    let count = unreadable + views.values().map(Vec::len).sum::<usize>() as u64;
    if count == 0 && runs.is_empty() {
        return Ok(0);
    }
    db.execute_batch("BEGIN IMMEDIATE")?;
    let done = repair_all(db, &doomed, &runs, &views, now);
    // If nothing could be rebuilt, everything stays as it was.
    let end = if done.as_ref().is_ok_and(|repaired| count + repaired > 0) { "COMMIT" } else { "ROLLBACK" };
    let ended = db.execute_batch(end);
    if ended.is_err() && !db.is_autocommit() {
        db.execute_batch("ROLLBACK")?;
    }
    let repaired = done?;
    ended.map(|()| count + repaired)
}

/// Returns the number of rebuilt rows of runs.
fn repair_all(
    db: &Connection,
    doomed: &BTreeSet<&str>,
    runs: &DamagedRuns,
    views: &BTreeMap<&str, Vec<i64>>,
    now: Timestamp,
) -> rusqlite::Result<u64> {
    forget_indexes(db, doomed)?;
    let (of_events, others): (Vec<_>, Vec<_>) =
        INDEXES.iter().filter(|index| doomed.contains(index.name)).partition(|index| index.table == "events");
    // First the index of the logs, from which the rows are rebuilt.
    if !of_events.is_empty() {
        return_events(db)?;
    }
    of_events.iter().try_for_each(|index| db.execute_batch(&index.create()))?;
    let repaired = repair_runs(db, runs)?;
    if doomed.contains("past_key") {
        past::restore(db)?;
    }
    for (table, rows) in views {
        let mut delete = db.prepare(&format!("DELETE FROM {table} WHERE rowid = ?1"))?;
        rows.iter().try_for_each(|row| delete.execute([row]).map(drop))?;
    }
    others.iter().try_for_each(|index| db.execute_batch(&index.create()))?;
    if views.contains_key("attributes") {
        restore_attributes(db)?;
    }
    if views.contains_key("ledger") {
        restore_ledger(db)?;
    }
    if !views.is_empty() {
        restore_views(db, now)?;
    }
    Ok(repaired)
}

fn is_readable(db: &Connection, sql: &str) -> rusqlite::Result<bool> {
    let read = db.prepare(sql).and_then(|mut statement| statement.query_row([], |_| Ok(())));
    match read {
        Err(error) if is_malformed(&error) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Removes indexes from the schema and leaves their pages unused.
fn forget_indexes(db: &Connection, names: &BTreeSet<&str>) -> rusqlite::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    db.execute_batch("PRAGMA writable_schema = ON")?;
    let forgotten = || -> rusqlite::Result<()> {
        let mut forget = db.prepare("DELETE FROM sqlite_schema WHERE type = 'index' AND name = ?1")?;
        names.iter().try_for_each(|name| forget.execute([name]).map(drop))
    };
    let forgotten = forgotten();
    db.execute_batch("PRAGMA writable_schema = RESET")?;
    forgotten
}

/// Returns events to the runs they belong to: an event whose run number was changed has a valid checksum with one run only. Other
/// damaged events stay and are reported by their readers.
fn return_events(db: &Connection) -> rusqlite::Result<()> {
    let mut runs: Vec<i64> = db.all("SELECT rk FROM runs NOT INDEXED", [], |row| row.get(0))?;
    runs.extend(past::logs(db)?);
    let mut statement = db.prepare(&format!("SELECT {}, seq FROM events NOT INDEXED", heads::EVENT_COLUMNS))?;
    let mut rows = statement.query([])?;
    let mut strays = Vec::new();
    while let Some(row) = rows.next()? {
        let Ok(event) = heads::event_row(row) else { continue };
        if !event.is_of(event.rk)
            && let Some(rk) = runs.iter().find(|rk| event.is_of(**rk))
        {
            strays.push((row.get::<_, i64>("seq")?, *rk));
        }
    }
    let mut give_back = db.prepare("UPDATE events SET rk = ?2 WHERE seq = ?1")?;
    strays.iter().try_for_each(|(seq, rk)| give_back.execute(params![seq, rk]).map(drop))
}

/// A row of a run with the columns derived from its head.
struct CheckedRow {
    row: RunRow,
    current: Option<i64>,
    status: Option<i64>,
    ended: Option<i64>,
    /// Kind and version.
    names: [Option<String>; 2],
}

fn read_seen(row: &Row<'_>) -> rusqlite::Result<CheckedRow> {
    let number = |name: &str| Ok::<_, rusqlite::Error>(row.get_ref(name)?.as_i64().ok());
    let text = |name: &str| Ok::<_, rusqlite::Error>(row.get_ref(name)?.as_str().ok().map(str::to_owned));
    Ok(CheckedRow {
        current: number("current")?,
        status: number("status")?,
        ended: number("ended")?,
        names: [text("kind")?, text("version")?],
        row: heads::read_row(row)?,
    })
}

/// Returns the numbers of the runs with a damaged row.
fn damaged_runs(db: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut statement =
        db.prepare(&format!("SELECT {}, current, status, ended, kind, version FROM runs NOT INDEXED", heads::COLUMNS))?;
    let newest = newest_generations(db)?;
    let mut damaged = Vec::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let seen = read_seen(row)?;
        if !seen.is_sound(&newest) {
            damaged.push(seen.row.rk);
        }
    }
    Ok(damaged)
}

/// Damage to the rows of runs.
#[derive(Debug, Default)]
pub(crate) struct DamagedRuns {
    /// Rows with wrong content.
    damaged: Vec<i64>,
    /// Rows whose number is not in the index of ids: the number itself is damaged.
    strays: Vec<i64>,
    /// Rows that are in the index of ids and not in the table.
    missing: Vec<i64>,
    /// The keys of all these in the index of ids.
    keys: BTreeMap<i64, LogKey>,
}

impl DamagedRuns {
    fn is_empty(&self) -> bool {
        self.damaged.is_empty() && self.strays.is_empty() && self.missing.is_empty()
    }
}

/// Compares the rows of runs with their checksums and with the index of ids.
fn damage_of_runs(db: &Connection) -> rusqlite::Result<DamagedRuns> {
    let damaged = damaged_runs(db)?;
    let count = |how: &str| db.query_row(&format!("SELECT count(*) FROM runs {how}"), [], |row| row.get::<_, i64>(0));
    let keys = match count("INDEXED BY runs_key WHERE id >= ''") {
        Ok(indexed) if damaged.is_empty() && indexed == count("NOT INDEXED")? => return Ok(DamagedRuns::default()),
        Err(error) if is_malformed(&error) => BTreeMap::new(),
        indexed => {
            indexed?;
            indexed_keys(db)?
        }
    };
    if keys.is_empty() {
        return Ok(DamagedRuns { damaged, ..DamagedRuns::default() });
    }
    let rows = numbers(db, "SELECT rk FROM runs NOT INDEXED")?;
    let missing: Vec<i64> = keys.keys().filter(|rk| !rows.contains(rk)).copied().collect();
    let (damaged, strays): (Vec<i64>, Vec<i64>) = damaged.into_iter().partition(|rk| keys.contains_key(rk));
    let keys = damaged.iter().chain(&missing).filter_map(|rk| Some((*rk, keys.get(rk)?.clone()))).collect();
    Ok(DamagedRuns { damaged, strays, missing, keys })
}

fn numbers(db: &Connection, sql: &str) -> rusqlite::Result<BTreeSet<i64>> {
    db.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

/// Returns the keys of all runs by their numbers, from the index of ids.
fn indexed_keys(db: &Connection) -> rusqlite::Result<BTreeMap<i64, LogKey>> {
    let mut statement = db.prepare("SELECT rk, id, ns, generation FROM runs INDEXED BY runs_key WHERE id >= ''")?;
    let mut rows = statement.query([])?;
    let mut keys = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let names = (RunId::new(row.get::<_, String>(1)?), Namespace::new(row.get::<_, String>(2)?));
        let (Ok(id), Ok(namespace)) = names else { continue };
        keys.insert(row.get(0)?, LogKey { key: RunKey::new(namespace, id), generation: row.get(3)? });
    }
    Ok(keys)
}

/// Rebuilds the rows of runs and returns their number. Fails if only the index knows a run, so that the index is not rebuilt
/// without it.
fn repair_runs(db: &Connection, runs: &DamagedRuns) -> rusqlite::Result<u64> {
    let mut repaired = 0;
    if !runs.missing.is_empty() {
        let mut delete = db.prepare("DELETE FROM runs WHERE rk = ?1")?;
        runs.strays.iter().try_for_each(|rk| delete.execute([rk]).map(drop))?;
    }
    let generation = |rk: &i64| runs.keys.get(rk).map_or(0, |key| key.generation);
    let mut rows: Vec<(u32, i64)> = runs.damaged.iter().chain(&runs.missing).map(|rk| (generation(rk), *rk)).collect();
    rows.sort_unstable(); // a first generation comes before those that refer to it
    for (_, rk) in rows {
        match repair_run(db, rk, runs.keys.get(&rk).map(|indexed| &indexed.key))? {
            true => repaired += 1,
            false if runs.keys.contains_key(&rk) && heads::either_key(db, rk).is_none() => return Err(unrepairable()),
            false => {}
        }
    }
    Ok(repaired)
}

fn unrepairable() -> rusqlite::Error {
    let why = "the row of a run and its log are damaged".to_owned();
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT), Some(why))
}

/// Rebuilds the rows of runs in a new database: damaged rows, and rows of logs without one, which the indexes of runs name
/// (I11). Returns the keys from the indexes by the numbers of the logs.
pub(crate) fn restore_runs(db: &Connection, pages: &Pages) -> rusqlite::Result<BTreeMap<i64, RunKey>> {
    let logs = numbers(db, "SELECT DISTINCT rk FROM events")?;
    let rows = numbers(db, "SELECT rk FROM runs UNION SELECT rk FROM past")?;
    let (damaged, strays): (Vec<i64>, Vec<i64>) = damaged_runs(db)?.into_iter().partition(|rk| logs.contains(rk));
    let nameless: BTreeSet<i64> = logs.difference(&rows).chain(&damaged).copied().collect();
    let indexed = pages.indexed_runs(&nameless);
    let keys: BTreeMap<i64, RunKey> =
        indexed.into_iter().filter_map(|(rk, entries)| Some((rk, indexed_key(db, rk, &entries)?))).collect();
    // A row with a damaged number conflicts with the rebuilt one.
    let mut delete = db.prepare("DELETE FROM runs WHERE rk = ?1")?;
    let taken: BTreeSet<&RunKey> = keys.iter().filter(|(rk, _)| !rows.contains(rk)).map(|(_, key)| key).collect();
    let is_in_the_way = |rk: &&i64| heads::either_key(db, **rk).is_some_and(|key| taken.contains(&key));
    strays.iter().filter(is_in_the_way).try_for_each(|rk| delete.execute([rk]).map(drop))?;
    // In the order of their numbers: a first generation comes before those that refer to it.
    let unsound: BTreeSet<i64> = nameless.into_iter().chain(strays).collect();
    unsound.iter().try_for_each(|rk| repair_run(db, *rk, keys.get(rk)).map(drop))?;
    Ok(keys)
}

/// Returns the key that the indexes give a log, if all entries that agree with the log have the same one.
fn indexed_key(db: &Connection, rk: i64, entries: &BTreeSet<IndexedRun>) -> Option<RunKey> {
    let head = heads::rebuild(db, rk, entries.first()?.key.clone()).ok();
    let agrees = |entry: &&IndexedRun| {
        head.as_ref().is_none_or(|head| entry.created.map_or(head.generation == 0, |created| created == head.created_at))
    };
    let mut keys = entries.iter().filter(agrees).map(|entry| &entry.key);
    let key = keys.next()?;
    keys.all(|other| other == key).then(|| key.clone())
}

/// Describes the damage to the rows of runs: wrong content, logs without a row and rows without a log.
pub(crate) fn describe_damage(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let DamagedRuns { damaged, strays, missing, keys } = damage_of_runs(db)?;
    let name = |rk: &i64| heads::either_key(db, *rk).or_else(|| Some(keys.get(rk)?.key.clone()));
    let name_of =
        |rk: &i64| name(rk).map_or_else(|| format!("a run whose id is not readable (row {rk})"), |key| format!("run {key}"));
    let mut found: Vec<String> = damaged.iter().chain(&strays).map(|rk| format!("{}: its row is damaged", name_of(rk))).collect();
    found.extend(missing.iter().map(|rk| format!("{}: its row is missing", name_of(rk))));
    let logs = numbers(db, "SELECT DISTINCT rk FROM events INDEXED BY events_run WHERE rk >= 0")?;
    let rows = numbers(db, "SELECT rk FROM runs NOT INDEXED")?;
    let past = past::logs(db)?;
    let known = |rk: &&i64| rows.contains(rk) || past.contains(rk) || missing.contains(rk) || strays.contains(rk);
    found.extend(logs.iter().filter(|rk| !known(rk)).map(|rk| format!("log {rk} has no row that names its run")));
    let without = rows.iter().chain(&past).filter(|rk| !logs.contains(rk) && !strays.contains(rk));
    found.extend(without.map(|rk| format!("{}: its log is missing", name_of(rk))));
    Ok(found)
}

/// Returns the newest generation of each run that has more than one.
fn newest_generations(db: &Connection) -> rusqlite::Result<BTreeMap<RunKey, u32>> {
    let mut statement = db.prepare(&format!("SELECT {} FROM runs NOT INDEXED WHERE generation > 0", heads::COLUMNS))?;
    let mut newest = BTreeMap::new();
    for row in statement.query_map([], heads::read_row)? {
        let row = row?;
        let Some(LogKey { key, generation }) = row.named else { continue };
        let known = newest.entry(key).or_insert(0);
        *known = generation.max(*known);
    }
    Ok(newest)
}

impl CheckedRow {
    fn is_sound(&self, newest: &BTreeMap<RunKey, u32>) -> bool {
        let Some(named) = self.row.named.as_ref().filter(|_| self.row.is_consistent()) else { return false };
        let is_current = newest.get(&named.key).is_none_or(|newest| *newest == named.generation);
        let Some(head) = &self.row.head else { return !is_current && self.current == Some(0) };
        let version = head.version.as_ref().map_or("", |version| version.as_str());
        self.names.each_ref().map(Option::as_deref) == [Some(head.kind.as_str()), Some(version)]
            && self.status == Some(i64::from(head.status.number()))
            && self.ended == head.ended_at.map(|at| at.0 as i64)
            && self.current == Some(i64::from(is_current))
    }
}

/// Rebuilds the row of a run from its head or from its log. Its key is one of the copies in the row, else that of an index.
/// Returns whether the row is valid now.
fn repair_run(db: &Connection, rk: i64, indexed: Option<&RunKey>) -> rusqlite::Result<bool> {
    let sql = format!("SELECT {} FROM runs WHERE rk = ?1", heads::COLUMNS);
    let row = db.query_row(&sql, [rk], heads::read_row).optional()?;
    let Some(key) = row.as_ref().and_then(RunRow::key).or(indexed).cloned() else { return Ok(false) };
    let head = row.and_then(|row| row.head).filter(|head| head.key == key);
    let Some(head) = head.or_else(|| heads::rebuild(db, rk, key).ok()) else { return Ok(false) };
    let Some((root, input_hash)) = origin(db, &head, rk)? else { return Ok(false) };
    let later = "SELECT 1 FROM runs NOT INDEXED WHERE id = ?1 AND ns = ?2 AND generation > ?3 AND rk <> ?4";
    let (id, namespace) = (head.key.id.as_str(), head.key.namespace.as_str());
    let is_current = !db.prepare_cached(later)?.exists(params![id, namespace, head.generation, rk])?;
    heads::write_row(db, heads::insert_run!("OR REPLACE"), rk, root, input_hash, is_current, &head).map(|()| true)
}

/// Returns the number of the run's first generation and the hash of the input it was started with.
pub(crate) fn origin(db: &Connection, head: &RunHead, rk: i64) -> rusqlite::Result<Option<(i64, Hash)>> {
    let root = match head.generation {
        0 => Some(rk),
        _ => {
            let sql = "SELECT rk FROM runs NOT INDEXED WHERE id = ?1 AND ns = ?2 AND generation = 0";
            db.one(sql, params![head.key.id.as_str(), head.key.namespace.as_str()], |row| row.get(0))?
        }
    };
    let Some(root) = root else { return Ok(None) };
    let first = read_records(db, &head.key, root, Index(0), 1).unwrap_or_default();
    Ok(first.first().and_then(Record::started).map(|started| (root, Hash::of(&started.input))))
}

/// Tables whose rows are rebuilt from logs. Each has an index of all rows, with the run first: `timers_run` and so on.
const VIEWS: [&str; 4] = ["timers", "attributes", "tasks", "waits"];

/// Returns the damaged rows of timers, attributes, tasks, waits and the ledger, by table.
fn damaged_views(db: &Connection) -> rusqlite::Result<BTreeMap<&'static str, Vec<i64>>> {
    let mut damaged = BTreeMap::new();
    let mut note = |table, row: i64| damaged.entry(table).or_insert_with(Vec::new).push(row);
    for seq in numbers(db, "SELECT seq FROM timers NOT INDEXED WHERE crc IS NOT row_crc(rk, call_id, due)")? {
        note("timers", seq);
    }
    for seq in numbers(db, "SELECT seq FROM attributes NOT INDEXED WHERE crc IS NOT row_crc(rk, name, value)")? {
        note("attributes", seq);
    }
    let mut statement = db.prepare(&format!("SELECT {} FROM tasks NOT INDEXED", tasks::COLUMNS))?;
    for row in statement.query_map([], tasks::read_row)? {
        let row = row?;
        let run = row.task().ok().map(|task| task.id.run);
        if run.is_none() || heads::either_key(db, row.rk) != run {
            note("tasks", row.tk);
        }
    }
    let mut statement = db.prepare("SELECT wk, rk, call_id, ns, id, kind, requested, data FROM waits NOT INDEXED")?;
    for row in statement.query_map([], |row| Ok((row.get(0)?, wait_is_sound(db, row)?)))? {
        let (wk, is_sound) = row?;
        if !is_sound {
            note("waits", wk);
        }
    }
    // Rows in an index and not in the table: SQLite could not parse them.
    for table in VIEWS {
        let counted = |how: &str| db.query_row(&format!("SELECT count(*) FROM {table} {how}"), [], |row| row.get::<_, i64>(0));
        match counted(&format!("INDEXED BY {table}_run WHERE rk >= 0")) {
            Ok(indexed) if indexed != counted("NOT INDEXED")? => drop(damaged.entry(table).or_insert_with(Vec::new)),
            Err(error) if !is_malformed(&error) => return Err(error),
            _ => {}
        }
    }
    for (run, rows) in ledger::damaged_rows(db)? {
        // A run's missing rows can be rebuilt. Further damaged rows are of an earlier run with that id, or of one with damaged
        // logs: they cannot be rebuilt and stay, so that queries report them (LG4).
        let ledger = ledger_of(db, "NOT INDEXED", &run)?.unwrap_or_default();
        let sound = ledger::sound_rows(db, &run)?;
        let missing = ledger.keys().filter(|row| !sound.contains(row)).count();
        let known = damaged.entry("ledger").or_default();
        known.extend(rows.iter().filter(|_| rows.len() <= missing));
    }
    Ok(damaged)
}

fn wait_is_sound(db: &Connection, row: &Row<'_>) -> rusqlite::Result<bool> {
    let Some(wait) = row.get_ref(7)?.as_blob().ok().and_then(|data| unseal::<Wait>("a wait", data).ok()) else {
        return Ok(false);
    };
    let run = row.get_ref(1)?.as_i64().ok().and_then(|rk| heads::either_key(db, rk));
    Ok(run.as_ref() == Some(&wait.run)
        && row.get_ref(2)?.as_blob() == Ok(&call_id_key(&wait.call_id))
        && row.get_ref(3)?.as_str() == Ok(wait.run.namespace.as_str())
        && row.get_ref(4)?.as_str() == Ok(wait.run.id.as_str())
        && row.get_ref(5)?.as_i64() == Ok(i64::from(wait.kind.number()))
        && row.get_ref(6)?.as_i64() == Ok(wait.requested_at.0 as i64))
}

/// Rebuilds the attributes from the heads of runs.
pub(crate) fn restore_attributes(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM attributes", [])?;
    let mut statement = db.prepare(&format!("SELECT {} FROM runs NOT INDEXED", heads::COLUMNS))?;
    for row in statement.query_map([], heads::read_row)? {
        let row = row?;
        if let Some(head) = &row.head {
            put_attributes(db, row.rk, &head.attributes)?;
        }
    }
    Ok(())
}

/// Rebuilds the ledger rows of every existing run.
pub(crate) fn restore_ledger(db: &Connection) -> rusqlite::Result<()> {
    let mut statement = db.prepare(&format!("SELECT {} FROM runs NOT INDEXED WHERE current = 1", heads::COLUMNS))?;
    let rows = statement.query_map([], heads::read_row)?.collect::<rusqlite::Result<Vec<_>>>()?;
    for row in rows {
        let has_spent = row.head.as_ref().is_none_or(|head| head.spend.is_some());
        let Some(key) = row.key().filter(|_| has_spent) else { continue };
        let costs = ledger_of(db, "", key)?.unwrap_or_default();
        costs.iter().try_for_each(|(row, sum)| ledger::put(db, row, sum))?;
    }
    Ok(())
}

/// Returns the costs in all logs of a run; `None` if one of them cannot be read. `how` is SQL behind a table's name.
fn ledger_of(db: &Connection, how: &str, key: &RunKey) -> rusqlite::Result<Option<BTreeMap<LedgerKey, LedgerSum>>> {
    let mut own = db.prepare(&format!("SELECT generation, rk, root FROM runs {how} WHERE id = ?1 AND ns = ?2"))?;
    let own =
        own.query_map(params![key.id.as_str(), key.namespace.as_str()], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    let own: Vec<((u32, i64), i64)> = own.collect::<Result<_, _>>()?;
    let mut logs: BTreeMap<u32, i64> = own.iter().map(|(log, _)| *log).collect();
    if let Some((_, root)) = own.first() {
        logs.extend(past::logs_of(db, how, *root)?.into_iter().map(|(rk, generation)| (generation, rk)));
    }
    let mut rows = BTreeMap::new();
    let mut count = 0;
    for (generation, rk) in logs {
        let records = read_records(db, key, rk, Index(0), usize::MAX).ok().filter(|_| generation == count);
        let Some(projection) = records.and_then(|records| Projection::of(key.clone(), &records)) else { return Ok(None) };
        add_rows(&mut rows, projection.ledger);
        count += 1;
    }
    Ok((count > 0).then_some(rows))
}

/// Inserts what the logs of open runs leave open and the tables lack.
pub(crate) fn restore_views(db: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    for rk in numbers(db, "SELECT rk FROM runs NOT INDEXED WHERE status < 4 AND current = 1")? {
        // A damaged log is reported by reads of its run.
        let Ok(Some(key)) = heads::key_of(db, rk) else { continue };
        let Ok(records) = read_records(db, &key, rk, Index(0), usize::MAX) else { continue };
        if let Some(open) = Projection::of(key, &records) {
            restore_run(db, rk, open, now)?;
        }
    }
    Ok(())
}

fn restore_run(db: &Connection, rk: i64, open: Projection, now: Timestamp) -> rusqlite::Result<()> {
    let is_missing = |table: &str, call_id: &CallId| {
        let mut row = db.prepare_cached(&format!("SELECT 1 FROM {table} WHERE rk = ?1 AND call_id = ?2"))?;
        row.exists(params![rk, call_id_key(call_id)]).map(|exists| !exists)
    };
    for (call_id, timer) in open.timers {
        if is_missing("timers", &call_id)? {
            put_timer(db, rk, &call_id, Timer { due_at: timer.due_at, is_frozen: timer.is_frozen })?;
        }
    }
    for (call_id, wait) in open.waits {
        if is_missing("waits", &call_id)? {
            put_wait(db, rk, wait)?;
        }
    }
    for (call_id, mut task) in open.tasks {
        if is_missing("tasks", &call_id)? {
            task.claim_after(now); // K8
            tasks::put_row(db, rk, task, now)?;
        }
    }
    Ok(())
}
