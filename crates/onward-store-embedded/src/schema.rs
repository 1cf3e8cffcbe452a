//! The format on disk: file names, tables, settings of a connection.
//!
//! Owns the format version and every `CREATE`. Must never touch a file that a newer program or somebody else wrote: what a file is,
//! is read from its first 100 bytes, before SQLite sees it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use onward_store::StoreError;
use rusqlite::{Connection, OpenFlags, ffi};

use crate::error::{damaged, read_error};

/// What this program writes. A program reads its own format and older ones.
pub const FORMAT: u32 = 1;

/// "Onwd": marks the SQLite file as ours.
pub(crate) const APPLICATION_ID: u32 = 0x4f6e_7764;

pub(crate) const DATABASE: &str = "onward.db";
pub(crate) const LOCK: &str = "onward.lock";
/// A database that is being made; it becomes `onward.db` by one rename, so that file is never half made.
pub(crate) const UNFINISHED: &str = "onward.db.new";

/// The oldest SQLite without the race that could lose a checkpoint.
const SQLITE_VERSION_MIN: i32 = 3_053_000;

const PAGE_BYTES: u64 = 8192;

/// Rows are appended in the order they come, whatever run they belong to: one page takes many appends. `events_run` finds them
/// again and is a second guard against two events with one index.
///
/// `events.n` is the number of commits in the run's log up to this row and `last` the index of the latest of them, so that a run's
/// head is found from its last row. Versions and queues that are absent are the empty text, which no name can be.
pub(crate) const TABLES: &str = "
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE runs(rk INTEGER PRIMARY KEY, root INTEGER NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL, generation INTEGER NOT NULL,
  current INTEGER NOT NULL, kind TEXT NOT NULL, version TEXT NOT NULL, status INTEGER NOT NULL, created INTEGER NOT NULL,
  ended INTEGER, parent_ns TEXT, parent_id TEXT, parent_generation INTEGER, input_hash BLOB NOT NULL, head BLOB NOT NULL);
CREATE UNIQUE INDEX runs_key ON runs(id, ns, generation);
CREATE INDEX runs_created ON runs(ns, created) WHERE current = 1;
CREATE INDEX runs_kind ON runs(ns, kind, created) WHERE current = 1;
CREATE INDEX runs_status ON runs(ns, status, created) WHERE current = 1;
CREATE INDEX runs_pending ON runs(ns, kind, version, rk) WHERE status = 0;
CREATE INDEX runs_ended ON runs(kind, ended) WHERE current = 1 AND ended IS NOT NULL;
CREATE INDEX runs_parent ON runs(parent_id, parent_ns) WHERE parent_id IS NOT NULL;
CREATE TABLE events(seq INTEGER PRIMARY KEY, rk INTEGER NOT NULL, idx INTEGER NOT NULL, at INTEGER NOT NULL, n INTEGER NOT NULL,
  last INTEGER, crc INTEGER NOT NULL, body BLOB NOT NULL, blobs BLOB);
CREATE UNIQUE INDEX events_run ON events(rk, idx);
CREATE TABLE slots(root INTEGER NOT NULL, key TEXT NOT NULL, token TEXT NOT NULL, idx INTEGER NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY(root, key)) WITHOUT ROWID;
CREATE TABLE timers(rk INTEGER NOT NULL, place BLOB NOT NULL, due INTEGER NOT NULL, PRIMARY KEY(rk, place)) WITHOUT ROWID;
CREATE INDEX timers_due ON timers(due, rk, place);
CREATE TABLE tasks(tk INTEGER PRIMARY KEY, rk INTEGER NOT NULL, place BLOB NOT NULL, ns TEXT NOT NULL, queue TEXT NOT NULL,
  kind TEXT NOT NULL, priority INTEGER NOT NULL, state INTEGER NOT NULL, visible INTEGER NOT NULL, due INTEGER,
  data BLOB NOT NULL, blobs BLOB);
CREATE UNIQUE INDEX tasks_run ON tasks(rk, place);
CREATE INDEX tasks_ready ON tasks(ns, queue, kind, priority DESC, visible, tk) WHERE state = 0;
CREATE INDEX tasks_delayed ON tasks(visible, tk) WHERE state = 3;
CREATE INDEX tasks_due ON tasks(due, tk) WHERE due IS NOT NULL;
CREATE TABLE waits(wk INTEGER PRIMARY KEY, rk INTEGER NOT NULL, place BLOB NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL,
  kind INTEGER NOT NULL, requested INTEGER NOT NULL, data BLOB NOT NULL, blobs BLOB);
CREATE UNIQUE INDEX waits_run ON waits(rk, place);
CREATE INDEX waits_list ON waits(ns, requested, id, place);
CREATE TABLE outbox(id INTEGER PRIMARY KEY, root INTEGER NOT NULL, data BLOB NOT NULL, blobs BLOB);
CREATE INDEX outbox_root ON outbox(root);
CREATE TABLE blobs(hash BLOB PRIMARY KEY, refs INTEGER NOT NULL, data BLOB NOT NULL);
INSERT INTO meta VALUES ('boot', 0);
";

/// Came later: a directory that was made without them gets them when it is opened for writing. Older programs do not look at them.
const ADDED: &str = "
CREATE TABLE IF NOT EXISTS deleted(seq INTEGER PRIMARY KEY, ns TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
  reason TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS attributes(rk INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(rk, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attributes_value ON attributes(name, value, rk);
";

/// Whether there is a table that came later: not in a directory that was made without it and is only read.
pub(crate) fn has_table(db: &Connection, name: &str) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?.exists([name])
}

/// What the first bytes of a database file say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Ours { format: u32 },
    Foreign,
}

/// Looks at a database file without opening it as one.
///
/// Format and application id are in the file itself and never only in its write-ahead log: [`create`] closes the file before anybody
/// can use it, and a change of format must do the same.
pub(crate) fn inspect(path: &Path) -> Result<Found, StoreError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Found::Nothing),
        Err(error) => return Err(io_error(path, &error)),
    };
    let mut header = [0; 100];
    if file.read_exact(&mut header).is_err() || !header.starts_with(b"SQLite format 3\0") {
        return Ok(Found::Foreign);
    }
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Ok(if number(68) == APPLICATION_ID { Found::Ours { format: number(60) } } else { Found::Foreign })
}

pub(crate) fn io_error(path: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::StorageFull => StoreError::DiskFull,
        _ => StoreError::Unavailable { why: format!("{}: {error}", path.display()) },
    }
}

/// Makes an empty database at `path`, complete and synced when this returns.
pub(crate) fn create(path: &Path) -> Result<(), StoreError> {
    count_no_memory();
    let make = || -> rusqlite::Result<()> {
        let db = Connection::open(path)?;
        db.execute_batch(&format!("PRAGMA page_size = {PAGE_BYTES};"))?;
        db.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = FULL;")?;
        db.pragma_update(None, "application_id", APPLICATION_ID)?;
        db.pragma_update(None, "user_version", FORMAT)?;
        db.execute_batch(&format!("BEGIN IMMEDIATE; {TABLES} {ADDED} COMMIT;"))?;
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        db.close().map_err(|(_, error)| error)
    };
    make().map_err(|error| match crate::error::Failure::of_commit(&error) {
        crate::error::Failure::Full => StoreError::DiskFull,
        _ => StoreError::Unavailable { why: format!("{}: {error}", path.display()) },
    })?;
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| io_error(path, &error))
}

/// Opens the connection that writes.
pub(crate) fn open_writer(directory: &Path) -> Result<Connection, StoreError> {
    count_no_memory();
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(damaged("SQLite is too old", rusqlite::version()));
    }
    let open = || -> rusqlite::Result<Connection> {
        let db = Connection::open_with_flags(
            database(directory),
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        db.execute_batch(
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
             PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;
             PRAGMA fullfsync = 1; PRAGMA checkpoint_fullfsync = 1; PRAGMA cell_size_check = 1;",
        )?;
        keep_plans(&db)?;
        db.set_prepared_statement_cache_capacity(128);
        Ok(db)
    };
    open().map_err(read_error)
}

/// Makes SQLite say that the disk is full at `bytes`.
pub(crate) fn limit_size(db: &Connection, bytes: u64) -> Result<(), StoreError> {
    let pages = i64::try_from(bytes / PAGE_BYTES).unwrap_or(i64::MAX).max(1);
    db.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).map_err(read_error)
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(directory: &Path) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        let db =
            Connection::open_with_flags(database(directory), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.execute_batch(
            "PRAGMA busy_timeout = 5000; PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = 1;",
        )?;
        keep_plans(&db)?;
        db.set_prepared_statement_cache_capacity(64);
        Ok(db)
    };
    open().map_err(read_error)
}

/// A statement is planned once, not again for each value: our plans never depend on values.
fn keep_plans(db: &Connection) -> rusqlite::Result<()> {
    db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Lets SQLite allocate without counting under one lock for the whole process. Without effect once somebody has opened a database.
fn count_no_memory() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: the call takes one int; where SQLite is in use already it refuses and changes nothing. Concurrent first opens of our
    // own wait for each other here.
    ONCE.call_once(|| unsafe {
        ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as std::ffi::c_int);
    });
}

/// Raises the boot counter, durably: every epoch of this life is above every epoch of the lives before.
pub(crate) fn next_boot(db: &Connection) -> Result<u64, StoreError> {
    db.execute_batch(ADDED).map_err(open_error)?;
    let boot =
        db.query_row("UPDATE meta SET value = value + 1 WHERE key = 'boot' RETURNING value", [], |row| row.get::<_, i64>(0));
    boot.map(|boot| boot as u64).map_err(open_error)
}

/// A write at opening that failed.
pub(crate) fn open_error(error: rusqlite::Error) -> StoreError {
    match &error {
        rusqlite::Error::SqliteFailure(code, _) if code.extended_code & 0xff == ffi::SQLITE_FULL => StoreError::DiskFull,
        _ => read_error(error),
    }
}

pub(crate) fn database(directory: &Path) -> PathBuf {
    directory.join(DATABASE)
}
