//! Run heads, read from rows.
//!
//! Owns the derivation of a [`RunHead`] from rows. A run's row is written when the run is created, when its status or attributes
//! change and when it ends, not at each append; until then the last event rows show where its log ends. The row of an external
//! run is also written with each state its engine sets.

use onward_core::run::{LastCommit, LogKey};
use onward_core::{Hash, Index, Namespace, Record, RunHead, RunId, RunKey, Timestamp};
use onward_store::StoreError;
use rusqlite::{Connection, Row, params};

use crate::error::{damage_of_run, damaged, damaged_row, read_error};
use crate::read::past;
use crate::read::reader::read_records;
use crate::repair::rows;
use crate::row::{EventRow, Statements, run_crc, seal, unseal};

pub(crate) struct Loaded {
    pub rk: i64,
    pub root: i64,
    /// Hash of the input that the run was first started with.
    pub input_hash: Hash,
    pub head: RunHead,
}

/// The columns that [`read_row`] reads.
pub(crate) const COLUMNS: &str = concat!("rk, head, root, input_hash, ns, id, generation, crc IS ", run_crc!(), " AS is_sound");

/// Runs a statement of [`insert_run`]; its parameters are the columns of a run's row, in schema order.
pub(crate) fn write_row(
    db: &Connection,
    sql: &str,
    rk: i64,
    root: i64,
    input_hash: Hash,
    is_current: bool,
    head: &RunHead,
) -> rusqlite::Result<()> {
    let parent = head.parent.as_ref();
    let columns = params![
        rk,
        root,
        head.key.namespace.as_str(),
        head.key.id.as_str(),
        head.generation,
        is_current,
        head.kind.as_str(),
        head.version.as_ref().map_or("", |version| version.as_str()),
        head.status.number(),
        head.created_at.0 as i64,
        head.ended_at.map(|at| at.0 as i64),
        parent.map(|parent| parent.run.namespace.as_str()),
        parent.map(|parent| parent.run.id.as_str()),
        parent.map(|parent| parent.generation),
        &input_hash.0[..],
        if is_current { seal(head) } else { retired(&head.key, head.generation) },
    ];
    db.run(sql, columns).map(drop)
}

/// The insert of a run's row with the parameters of [`write_row`] and the checksum of its immutable columns. `$or` follows
/// `INSERT`.
macro_rules! insert_run {
    ($or:literal) => {
        concat!(
            "INSERT ",
            $or,
            " INTO runs(rk, root, ns, id, generation, current, kind, version, status, created, ended,
               parent_ns, parent_id, parent_generation, input_hash, head, crc)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
               row_crc(?1, ?2, ?3, ?4, ?5, ?10, ?12, ?13, ?14, ?15))"
        )
    };
}
pub(crate) use insert_run;

/// Returns what the row of an earlier generation keeps in place of its head. The log has the rest, which is rarely read; an agent
/// has a generation for each turn.
pub(crate) fn retired(key: &RunKey, generation: u32) -> Vec<u8> {
    seal(&LogKey { key: key.clone(), generation })
}

/// A row of a run, as far as its checksums are valid. Identity and head have one each, since only the head changes.
pub(crate) struct RunRow {
    pub rk: i64,
    pub identity: Option<Identity>,
    /// The key and generation of the head that the row has, or would have.
    pub named: Option<LogKey>,
    pub head: Option<RunHead>,
}

/// The immutable part of a run's row.
pub(crate) struct Identity {
    pub root: i64,
    /// Hash of the input that the run was first started with.
    pub input_hash: Hash,
    pub key: RunKey,
    pub generation: u32,
}

pub(crate) fn read_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let identity = if row.get::<_, bool>("is_sound")? { read_identity(row)? } else { None };
    let sealed = row.get_ref("head")?.as_blob().ok();
    let head = sealed.and_then(|head| unseal::<RunHead>("a run's row", head).ok());
    let named = match &head {
        Some(head) => Some(LogKey { key: head.key.clone(), generation: head.generation }),
        None => sealed.and_then(|named| unseal::<LogKey>("a run's row", named).ok()),
    };
    Ok(RunRow { rk: row.get("rk")?, identity, named, head })
}

fn read_identity(row: &Row<'_>) -> rusqlite::Result<Option<Identity>> {
    let names = (Namespace::new(row.get::<_, String>("ns")?), RunId::new(row.get::<_, String>("id")?));
    let (Ok(namespace), Ok(id)) = names else { return Ok(None) };
    let input_hash = Hash(row.get::<_, [u8; 16]>("input_hash")?);
    let (root, generation) = (row.get("root")?, row.get("generation")?);
    Ok(Some(Identity { root, input_hash, key: RunKey::new(namespace, id), generation }))
}

impl RunRow {
    /// Returns the run's key, from whichever copy is valid.
    pub fn key(&self) -> Option<&RunKey> {
        self.identity.as_ref().map(|identity| &identity.key).or(self.named.as_ref().map(|named| &named.key))
    }

    /// Returns whether both copies of its key are valid and equal.
    pub fn is_consistent(&self) -> bool {
        let names = self.identity.as_ref().zip(self.named.as_ref());
        names.is_some_and(|(identity, named)| identity.key == named.key && identity.generation == named.generation)
    }
}

/// Returns the hash of the input that a run was first started with.
pub(crate) fn input_hash(db: &Connection, key: &RunKey) -> Result<Hash, StoreError> {
    let identity = read_run_row(db, key, None)?.and_then(|row| row.identity);
    Ok(identity.ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?.input_hash)
}

/// Reads a run's current generation, or an earlier one.
pub(crate) fn load(db: &Connection, key: &RunKey, generation: Option<u32>) -> Result<Option<Loaded>, StoreError> {
    read_run_row(db, key, generation)?.map(|row| finish(db, row)).transpose()
}

/// Reads the row of a run and verifies that it belongs to it (I2).
fn read_run_row(db: &Connection, key: &RunKey, generation: Option<u32>) -> Result<Option<RunRow>, StoreError> {
    let (id, namespace) = (key.id.as_str(), key.namespace.as_str());
    let select = format!("SELECT {COLUMNS} FROM runs WHERE id = ?1 AND ns = ?2");
    let found = match generation {
        None => db.one(&(select + " ORDER BY generation DESC LIMIT 1"), params![id, namespace], read_row),
        Some(generation) => db.one(&(select + " AND generation = ?3"), params![id, namespace, generation], read_row),
    };
    let Some(row) = found.map_err(read_error)? else {
        return generation.map_or(Ok(None), |generation| read_past_row(db, key, generation));
    };
    match &row.identity {
        Some(identity) if identity.key == *key => Ok(Some(row)),
        _ => Err(damaged_row(key, "its own row")),
    }
}

/// Returns the row of an earlier generation without one: everything but the position of its log comes from the current row.
fn read_past_row(db: &Connection, key: &RunKey, generation: u32) -> Result<Option<RunRow>, StoreError> {
    let Some(RunRow { identity: Some(current), head, .. }) = read_run_row(db, key, None)? else { return Ok(None) };
    if generation >= current.generation {
        return Ok(None);
    }
    let incarnation = head.and_then(|head| head.origin_incarnation());
    let Some(rk) = past::log_of(db, current.root, generation, incarnation)? else {
        return Err(damaged_row(key, "that of an earlier generation"));
    };
    let named = Some(LogKey { key: key.clone(), generation });
    Ok(Some(RunRow { rk, identity: Some(Identity { generation, ..current }), named, head: None }))
}

pub(crate) fn row_by_number(db: &Connection, rk: i64) -> Result<Option<RunRow>, StoreError> {
    db.one(&format!("SELECT {COLUMNS} FROM runs WHERE rk = ?1"), [rk], read_row).map_err(read_error)
}

pub(crate) fn load_by_rk(db: &Connection, rk: i64) -> Result<Option<RunHead>, StoreError> {
    let Some(row) = row_by_number(db, rk)? else { return missing_row(db, rk) };
    Ok(finish_leniently(db, row).map(|(_, head)| head))
}

pub(crate) fn finish(db: &Connection, mut row: RunRow) -> Result<Loaded, StoreError> {
    let head = row.head.take().filter(|_| row.is_consistent());
    let rk = row.rk;
    let Some(Identity { root, input_hash, key, .. }) = row.identity else {
        let unreadable = || damaged("a run's row", format!("number {rk} is unreadable"));
        return Err(row.named.map_or_else(unreadable, |named| damaged_row(&named.key, "its own row")));
    };
    let Some(mut head) = head else {
        return Ok(Loaded { rk, root, input_hash, head: rebuild(db, rk, key)? });
    };
    // The row of a closed run is exact, except for an external one, whose engine may append after its end (X5).
    if !head.status.is_closed() || head.external.is_some() {
        catch_up(db, rk, &mut head)?;
    }
    Ok(Loaded { rk, root, input_hash, head })
}

/// Rebuilds a head that is missing or damaged from the log, which contains all of it (L16).
pub(crate) fn rebuild(db: &Connection, rk: i64, key: RunKey) -> Result<RunHead, StoreError> {
    let records = read_records(db, &key, rk, Index(0), usize::MAX)?;
    RunHead::rebuild(key, &records).ok_or_else(|| damaged("a run's row", "neither it nor its log can be read"))
}

/// Reads a head like [`finish`], but falls back to the row if the log is damaged, and returns `None` for an unreadable run.
pub(crate) fn finish_leniently(db: &Connection, row: RunRow) -> Option<(i64, RunHead)> {
    let (rk, stored) = (row.rk, row.head.clone());
    finish(db, row).map(|loaded| loaded.head).ok().or(stored).map(|head| (rk, head))
}

/// Reads a run whose row is damaged or missing from its log, which the index of ids locates.
pub(crate) fn recover(db: &Connection, key: &RunKey, generation: Option<u32>) -> Result<Option<Loaded>, StoreError> {
    let sql = "SELECT rk FROM runs INDEXED BY runs_key WHERE id = ?1 AND ns = ?2 AND (?3 IS NULL OR generation = ?3)
           ORDER BY generation DESC LIMIT 1";
    let params = params![key.id.as_str(), key.namespace.as_str(), generation];
    let Some(rk) = db.one(sql, params, |row| row.get(0)).map_err(read_error)? else { return Ok(None) };
    // A valid copy of the key in the row takes precedence over the index.
    if either_key(db, rk).is_some_and(|named| named != *key) {
        return Ok(None);
    }
    let head = rebuild(db, rk, key.clone())?;
    let origin = rows::origin(db, &head, rk).map_err(read_error)?;
    past::note_missed();
    Ok(origin.map(|(root, input_hash)| Loaded { rk, root, input_hash, head }))
}

/// The position of a run's log, and its minimum length.
pub(crate) struct LogLocation {
    pub rk: i64,
    pub next_index: Index,
}

/// Finds a run without reading its log.
pub(crate) fn find(db: &Connection, key: &RunKey, generation: Option<u32>) -> Result<Option<LogLocation>, StoreError> {
    let Some(row) = read_run_row(db, key, generation)? else { return Ok(None) };
    Ok(Some(LogLocation { rk: row.rk, next_index: row.head.map_or(Index(0), |head| head.next_index) }))
}

/// Advances a head to the end of its log.
fn catch_up(db: &Connection, rk: i64, head: &mut RunHead) -> Result<(), StoreError> {
    let (key, next) = (head.key.clone(), head.next_index);
    let missing = || StoreError::LogCorrupt { key: key.clone(), index: next, why: "its last events are missing".to_owned() };
    let (record, commit_count, last_commit) = read_event(db, rk, None, &key)?.ok_or_else(missing)?;
    if record.next_index() < next {
        return Err(missing());
    }
    let commit = match last_commit {
        Some(index) if index != record.index => Some(read_event(db, rk, Some(index), &key)?.ok_or_else(missing)?.0),
        Some(_) => Some(record.clone()),
        None => None,
    };
    head.next_index = record.next_index();
    head.quiet = head.quiet.filter(|quiet| quiet.to == head.next_index); // later appends did not write the row
    head.updated_at = record.at;
    head.external.iter_mut().for_each(|external| external.catch_up(&record));
    head.next_commit = commit_count;
    head.last_commit = match commit {
        None => None,
        Some(Record { index, at, commit: Some(header), .. }) => Some(LastCommit::new(&header, index, at)),
        Some(Record { index, .. }) => {
            let why = "it is not a commit".to_owned();
            return Err(StoreError::LogCorrupt { key: head.key.clone(), index, why });
        }
    };
    Ok(())
}

/// Reads one event row, without its large payloads: the one at `index`, or the last.
fn read_event(
    db: &Connection,
    rk: i64,
    index: Option<Index>,
    key: &RunKey,
) -> Result<Option<(Record, u64, Option<Index>)>, StoreError> {
    let read = |row: &Row<'_>| -> rusqlite::Result<_> {
        let event = event_row(row)?;
        Ok(event.decode(key).map(|record| (record, event.commit_count, event.last_commit)))
    };
    let select = format!("SELECT {EVENT_COLUMNS} FROM events WHERE rk = ?1");
    let found = match index {
        None => db.one(&(select + " ORDER BY idx DESC LIMIT 1"), params![rk], read),
        Some(index) => db.one(&(select + " AND idx = ?2"), params![rk, index.0 as i64], read),
    };
    found.map_err(|error| log_error(key, index.unwrap_or_default(), error))?.transpose()
}

/// Returns the first record of a log.
pub(crate) fn first_record(db: &Connection, key: &RunKey, rk: i64) -> Result<Record, StoreError> {
    let missing = || StoreError::LogCorrupt { key: key.clone(), index: Index(0), why: "its beginning is missing".to_owned() };
    read_event(db, rk, Some(Index(0)), key)?.map(|(record, ..)| record).ok_or_else(missing)
}

pub(crate) const EVENT_COLUMNS: &str = "rk, idx, at, n, last, crc, body, blobs";

pub(crate) fn event_row<'a>(row: &'a Row<'_>) -> rusqlite::Result<EventRow<'a>> {
    Ok(EventRow {
        rk: row.get(0)?,
        index: Index(row.get::<_, i64>(1)? as u64),
        at: Timestamp(row.get::<_, i64>(2)? as u64),
        commit_count: row.get::<_, i64>(3)? as u64,
        last_commit: row.get::<_, Option<i64>>(4)?.map(|index| Index(index as u64)),
        crc: row.get::<_, i64>(5)? as u32,
        body: row.get_ref(6)?.as_blob()?,
    })
}

/// Converts an error while reading a log: a damaged page there is damage of that run.
pub(crate) fn log_error(key: &RunKey, index: Index, error: rusqlite::Error) -> StoreError {
    damage_of_run(key, index, read_error(error))
}

/// Returns the key of a run from whichever copy is valid: a damaged row is repaired later.
pub(crate) fn either_key(db: &Connection, rk: i64) -> Option<RunKey> {
    row_by_number(db, rk).ok().flatten().and_then(|row| row.key().cloned())
}

/// Distinguishes a deleted run, which has no log either, from a log without a row, which is damage.
fn missing_row<T>(db: &Connection, rk: i64) -> Result<Option<T>, StoreError> {
    let has_log = || db.prepare_cached("SELECT 1 FROM events WHERE rk = ?1 LIMIT 1")?.exists([rk]);
    match has_log().map_err(read_error)? {
        true => Err(damaged("a run's row", format!("number {rk} is missing"))),
        false => Ok(None),
    }
}

/// Returns the key of a run by its number.
pub(crate) fn key_of(db: &Connection, rk: i64) -> Result<Option<RunKey>, StoreError> {
    let Some(row) = row_by_number(db, rk)? else { return missing_row(db, rk) };
    match (row.identity, row.named) {
        (Some(identity), _) => Ok(Some(identity.key)),
        (None, Some(named)) => Err(damaged_row(&named.key, "its own row")),
        (None, None) => Err(damaged("a run's row", format!("number {rk} is unreadable"))),
    }
}
