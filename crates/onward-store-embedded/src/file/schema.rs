//! The format on disk: file names, tables, connection settings.
//!
//! Owns the format version and every `CREATE`. Must never touch a file of a newer or another program: the kind of a file is read
//! from its first 100 bytes before SQLite opens it.
#![allow(unsafe_code, reason = "SQLite functions that rusqlite does not wrap")]

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use onward_store::StoreError;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OpenFlags, ffi};

use crate::error::{damaged, read_error};
use crate::file::pages::{self, PAGE_BYTES};
use crate::file::wal;
use crate::row::row_crc;

/// The format that this program reads and writes.
pub const FORMAT: u32 = 4;

/// "Onwd": application id of the SQLite file.
pub(crate) const APPLICATION_ID: u32 = 0x4f6e_7764;

pub(crate) const DATABASE: &str = "onward.db";
pub(crate) const LOCK: &str = "onward.lock";
/// Name of a database that is being created; one rename makes it `onward.db`, which therefore is never incomplete.
pub(crate) const UNFINISHED: &str = "onward.db.new";

/// The oldest SQLite without the race that could lose a checkpoint.
const SQLITE_VERSION_MIN: i32 = 3_053_000;

/// Rows are appended in order of arrival, whatever their run: one page takes many appends. `events_run` finds them by run and is
/// a second guard against two events with one index.
///
/// `events.n` is the number of commits in the run's log up to this row and `last` the index of the latest of them, so that a
/// run's head can be derived from its last row. Absent versions, queues and keys are stored as the empty text, which no name can be.
///
/// Every row has a checksum (I2): in `crc`, or in a checksummed blob that contains all that the columns contain (except
/// `outbox.root`, which only delays the deletion of a run). All tables have row ids and all indexes have names, so that an index
/// can be rebuilt from its table.
///
/// `queue_keys` has the starts of queues that count for their rates; it is not rebuilt, since no row matters for longer than a
/// period.
///
/// `attributes` repeats the attributes of heads for filters; `ledger` has the costs from logs and outlives them (LG4); `past`
/// locates the logs of earlier generations.
const TABLES: &str = "
CREATE TABLE meta(seq INTEGER PRIMARY KEY, key TEXT NOT NULL, value INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE runs(rk INTEGER PRIMARY KEY, root INTEGER NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL, generation INTEGER NOT NULL,
  current INTEGER NOT NULL, kind TEXT NOT NULL, version TEXT NOT NULL, status INTEGER NOT NULL, created INTEGER NOT NULL,
  ended INTEGER, parent_ns TEXT, parent_id TEXT, parent_generation INTEGER, input_hash BLOB NOT NULL, head BLOB NOT NULL,
  crc INTEGER NOT NULL);
CREATE TABLE events(seq INTEGER PRIMARY KEY, rk INTEGER NOT NULL, idx INTEGER NOT NULL, at INTEGER NOT NULL, n INTEGER NOT NULL,
  last INTEGER, crc INTEGER NOT NULL, body BLOB NOT NULL, blobs BLOB);
CREATE TABLE idempotency(seq INTEGER PRIMARY KEY, root INTEGER NOT NULL, key TEXT NOT NULL, token TEXT NOT NULL, idx INTEGER NOT NULL,
  at INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE timers(seq INTEGER PRIMARY KEY, rk INTEGER NOT NULL, call_id BLOB NOT NULL, due INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE tasks(tk INTEGER PRIMARY KEY, rk INTEGER NOT NULL, call_id BLOB NOT NULL, ns TEXT NOT NULL, queue TEXT NOT NULL,
  kind TEXT NOT NULL, qkey TEXT NOT NULL, priority INTEGER NOT NULL, state INTEGER NOT NULL, visible INTEGER NOT NULL,
  due INTEGER, data BLOB NOT NULL, blobs BLOB);
CREATE TABLE queue_keys(seq INTEGER PRIMARY KEY, ns TEXT NOT NULL, queue TEXT NOT NULL, qkey TEXT NOT NULL, data BLOB NOT NULL,
  until INTEGER NOT NULL);
CREATE TABLE waits(wk INTEGER PRIMARY KEY, rk INTEGER NOT NULL, call_id BLOB NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL,
  kind INTEGER NOT NULL, requested INTEGER NOT NULL, data BLOB NOT NULL, blobs BLOB);
CREATE TABLE outbox(id INTEGER PRIMARY KEY, root INTEGER NOT NULL, data BLOB NOT NULL, blobs BLOB);
CREATE TABLE deleted(seq INTEGER PRIMARY KEY, ns TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL,
  at INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE blobs(seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, refs INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE payloads(seq INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE kinds(seq INTEGER PRIMARY KEY, ns TEXT NOT NULL, task INTEGER NOT NULL, kind TEXT NOT NULL,
  version TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE attributes(seq INTEGER PRIMARY KEY, rk INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
  crc INTEGER NOT NULL);
CREATE TABLE ledger(seq INTEGER PRIMARY KEY, ns TEXT NOT NULL, id TEXT NOT NULL, tree TEXT NOT NULL,
  generation INTEGER NOT NULL, incarnation INTEGER NOT NULL, day INTEGER NOT NULL, model TEXT NOT NULL, sum BLOB NOT NULL,
  crc INTEGER NOT NULL);
CREATE TABLE past(rk INTEGER PRIMARY KEY, root INTEGER NOT NULL, generation INTEGER NOT NULL, crc INTEGER NOT NULL);
";

/// An index with its name, table, columns and row filter.
pub(crate) struct Index {
    pub name: &'static str,
    pub table: &'static str,
    pub is_unique: bool,
    columns: &'static str,
    only: &'static str,
}

const fn unique(name: &'static str, table: &'static str, columns: &'static str) -> Index {
    Index { name, table, is_unique: true, columns, only: "" }
}

const fn plain(name: &'static str, table: &'static str, columns: &'static str, only: &'static str) -> Index {
    Index { name, table, is_unique: false, columns, only }
}

pub(crate) const INDEXES: &[Index] = &[
    unique("runs_key", "runs", "id, ns, generation"),
    // Lists are ordered and filtered by these indexes alone (I9): they have every column that a list uses.
    plain("runs_created", "runs", "ns, created, id, version, current", "current = 1"),
    plain("runs_kind", "runs", "ns, kind, created, id, version, current", "current = 1"),
    plain("runs_status", "runs", "ns, status, created, id, kind, version, current", "current = 1"),
    plain("runs_pending", "runs", "ns, kind, version, rk", "status = 0"),
    plain("runs_ended", "runs", "kind, ended", "current = 1 AND ended IS NOT NULL"),
    plain("runs_parent", "runs", "parent_id, parent_ns", "parent_id IS NOT NULL"),
    unique("events_run", "events", "rk, idx"),
    unique("idempotency_key", "idempotency", "root, key"),
    unique("timers_run", "timers", "rk, call_id"),
    plain("timers_due", "timers", "due, rk, call_id", ""),
    unique("tasks_run", "tasks", "rk, call_id"),
    plain("tasks_ready", "tasks", "ns, queue, kind, qkey, visible - priority * 60000, tk", "state = 0"),
    plain("tasks_held", "tasks", "ns, queue, qkey", "state = 1"),
    plain("tasks_runs", "tasks", "ns, queue", "state = 0 AND kind = 'queue:run'"),
    plain("tasks_delayed", "tasks", "visible, tk", "state = 3"),
    plain("tasks_due", "tasks", "due, tk", "due IS NOT NULL"),
    unique("queue_keys_key", "queue_keys", "ns, queue, qkey"),
    plain("queue_keys_until", "queue_keys", "until", ""),
    unique("waits_run", "waits", "rk, call_id"),
    plain("waits_list", "waits", "ns, requested, id, call_id", ""),
    unique("outbox_id", "outbox", "id"),
    plain("outbox_root", "outbox", "root", ""),
    unique("blobs_hash", "blobs", "hash"),
    unique("kinds_key", "kinds", "ns, task, kind, version"),
    unique("attributes_run", "attributes", "rk, name"),
    unique("ledger_row", "ledger", "ns, day, id, generation, incarnation, model"),
    plain("ledger_tree", "ledger", "ns, tree", ""),
    plain("attributes_value", "attributes", "name, value, rk", ""),
    unique("past_key", "past", "root, generation"),
];

impl Index {
    pub fn create(&self) -> String {
        let Index { name, table, columns, only, .. } = self;
        let unique = if self.is_unique { "UNIQUE " } else { "" };
        let only = if only.is_empty() { String::new() } else { format!(" WHERE {only}") };
        format!("CREATE {unique}INDEX IF NOT EXISTS {name} ON {table}({columns}){only};")
    }

    /// Returns a query that reads every page of the index and nothing else.
    pub fn scan(&self) -> String {
        let only = if self.only.is_empty() { "1" } else { self.only };
        format!("SELECT total(rowid) FROM {} INDEXED BY {} WHERE {only}", self.table, self.name)
    }
}

/// Returns the statements that create all tables and indexes.
pub(crate) fn make_tables() -> String {
    format!("{TABLES}{}", INDEXES.iter().map(Index::create).collect::<String>())
}

/// Content of the first bytes of a database file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Nothing,
    Ours {
        format: u32,
    },
    /// Not an Onward database, or no longer one; the reason continues "its onward.db …".
    Foreign(String),
}

/// Inspects a database file without opening it as one.
///
/// Format and application id are in the file itself, never only in its write-ahead log: [`create`] closes the file before its
/// first use, and a change of format creates another file.
pub(crate) fn inspect(path: &Path) -> Result<FileKind, StoreError> {
    let foreign = |why: &str| Ok(FileKind::Foreign(why.to_owned()));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(FileKind::Nothing),
        Err(error) => return Err(unusable(path, &error)),
    };
    let kind = file.metadata().map_err(|error| unusable(path, &error))?;
    if !kind.is_file() {
        return foreign("is not a file");
    }
    let mut page = Vec::with_capacity(PAGE_BYTES);
    file.by_ref().take(PAGE_BYTES as u64).read_to_end(&mut page).map_err(|error| unusable(path, &error))?;
    if page.is_empty() {
        return foreign("is empty: if it never held runs, remove it, else restore a backup");
    }
    let summed = usize::from(page.get(RESERVED_AT).copied().unwrap_or(0)) == pages::SUM_BYTES;
    let is_ours = page.len() == PAGE_BYTES && page.ends_with(&pages::MARK);
    if is_ours && pages::check(1, &page) == pages::Sum::Wrong && !wal::has_page(path, 1)? {
        return Err(damaged(&path.display().to_string(), "its first page has a wrong checksum"));
    }
    if !page.starts_with(b"SQLite format 3\0") {
        return foreign("was written by another program, or its beginning was overwritten");
    }
    if page.len() < HEADER_BYTES {
        return foreign("is truncated: restore a backup");
    }
    let number = |at: usize| u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    if number(68) != APPLICATION_ID {
        return foreign("was written by another program");
    }
    if page.len() == PAGE_BYTES && summed && pages::check(1, &page) == pages::Sum::Wrong && !wal::has_page(path, 1)? {
        return Err(damaged(&path.display().to_string(), "its first page has a wrong checksum"));
    }
    Ok(FileKind::Ours { format: number(60) })
}

/// Length of a database header, and offset of the number of bytes that SQLite leaves free in each page.
const HEADER_BYTES: usize = 100;
const RESERVED_AT: usize = 20;

/// Converts an I/O error that will not go away by itself.
pub(crate) fn unusable(path: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::StorageFull => StoreError::DiskFull,
        _ => StoreError::DirectoryUnusable { path: path.to_owned(), why: error.to_string() },
    }
}

pub(crate) fn io_error(path: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::StorageFull => StoreError::DiskFull,
        _ => StoreError::Unavailable { why: format!("{}: {error}", path.display()) },
    }
}

/// Creates a database at `path`, complete and synced on return; `fill` writes its initial content.
pub(crate) fn create(path: &Path, fill: impl FnOnce(&Connection) -> Result<(), StoreError>) -> Result<(), StoreError> {
    prepare_sqlite();
    let mut options = std::fs::OpenOptions::new();
    options.create_new(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, crate::file::directory::OWNER_ONLY);
    options.open(path).map_err(|error| unusable(path, &error))?;
    let failed = |error: rusqlite::Error| match crate::error::Failure::of_commit(&error) {
        crate::error::Failure::Full => StoreError::DiskFull,
        _ => StoreError::Unavailable { why: format!("{}: {error}", path.display()) },
    };
    let make = || -> rusqlite::Result<Connection> {
        let db = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), pages::VFS)?;
        reserve_bytes(&db)?;
        add_functions(&db)?;
        db.execute_batch(&format!(
            "PRAGMA page_size = {PAGE_BYTES}; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA synchronous = FULL;"
        ))?;
        db.pragma_update(None, "application_id", APPLICATION_ID)?;
        db.pragma_update(None, "user_version", FORMAT)?;
        db.execute_batch("BEGIN IMMEDIATE")?;
        db.execute_batch(&make_tables())?;
        Ok(db)
    };
    let db = make().map_err(failed)?;
    fill(&db)?;
    let finish = || -> rusqlite::Result<()> {
        db.execute_batch("COMMIT")?;
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        db.close().map_err(|(_, error)| error)
    };
    finish().map_err(failed)?;
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| io_error(path, &error))
}

/// Writes the content of an empty database: a boot counter of zero.
pub(crate) fn fill_empty(db: &Connection) -> Result<(), StoreError> {
    write_boot(db, 0).map_err(open_error)
}

/// Reserves the end of each page for checksums. Must run before the first page is written.
fn reserve_bytes(db: &Connection) -> rusqlite::Result<()> {
    let mut bytes = pages::SUM_BYTES as std::ffi::c_int;
    // SAFETY: the handle is open, and the file control takes a pointer to one int, which it reads and writes.
    let code = unsafe {
        let bytes: *mut std::ffi::c_int = &mut bytes;
        ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), ffi::SQLITE_FCNTL_RESERVE_BYTES, bytes.cast())
    };
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)) }
}

/// Registers `row_crc(..)`, the checksum of the values of a row.
fn add_functions(db: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    db.create_scalar_function("row_crc", -1, flags, |context| {
        Ok(i64::from(row_crc((0..context.len()).map(|at| context.get_raw(at)))))
    })
}

/// Time that a connection waits for a lock.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the writing connection.
pub(crate) fn open_writer(directory: &Path) -> Result<Connection, StoreError> {
    prepare_sqlite();
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(damaged("SQLite is too old", rusqlite::version()));
    }
    let open = || -> rusqlite::Result<Connection> {
        let db = open_file(directory, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
             PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -32768;
             PRAGMA fullfsync = 1; PRAGMA checkpoint_fullfsync = 1; PRAGMA secure_delete = ON;",
        )?;
        // The log stays until the mark records that it is not needed (`writer::close`).
        keep_log(&db, true)?;
        db.set_prepared_statement_cache_capacity(128);
        Ok(db)
    };
    open().map_err(read_error)
}

/// Makes SQLite report a full disk at `bytes`.
pub(crate) fn limit_size(db: &Connection, bytes: u64) -> Result<(), StoreError> {
    let pages = i64::try_from(bytes / PAGE_BYTES as u64).unwrap_or(i64::MAX).max(1);
    db.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).map_err(read_error)
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(directory: &Path) -> Result<Connection, StoreError> {
    prepare_sqlite();
    let open = || -> rusqlite::Result<Connection> {
        let db = open_file(directory, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        db.execute_batch("PRAGMA cache_size = -8192;")?;
        db.set_prepared_statement_cache_capacity(64);
        Ok(db)
    };
    open().map_err(read_error)
}

/// Opens a connection with the settings of readers and the writer.
fn open_file(directory: &Path, mode: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags_and_vfs(database(directory), flags, pages::VFS)?;
    db.execute_batch("PRAGMA busy_timeout = 5000; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = 1;")?;
    // SQLite plans a statement once, not per value: our plans never depend on values.
    db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    add_functions(&db)?;
    Ok(db)
}

/// Sets whether closing the connection keeps the write-ahead log.
pub(crate) fn keep_log(db: &Connection, keep: bool) -> rusqlite::Result<()> {
    db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop)
}

/// Configures SQLite before the first connection: no allocation statistics, which take a process-wide lock (no effect if SQLite
/// is already in use), and registers our VFS.
fn prepare_sqlite() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: the call takes one int; if SQLite is already in use it refuses and changes nothing. Concurrent first opens of our
    // own wait for each other here.
    ONCE.call_once(|| unsafe {
        ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as std::ffi::c_int);
    });
    pages::register();
}

/// Increments the boot counter durably: every epoch of this process is above all earlier ones.
///
/// Stored twice, since no log contains it: one valid row is enough; with neither, the directory cannot be opened.
pub(crate) fn next_boot(db: &Connection) -> Result<u64, StoreError> {
    let read = "SELECT max(value) FROM meta WHERE key = 'boot' AND crc = row_crc(key, value)";
    let last: Option<i64> = db.query_row(read, [], |row| row.get(0)).map_err(open_error)?;
    let boot = last.ok_or_else(|| damaged("the boot counter", "neither of its two rows is valid"))? + 1;
    let transaction = db.unchecked_transaction().map_err(open_error)?;
    write_boot(db, boot).and_then(|()| transaction.commit()).map_err(open_error)?;
    Ok(boot as u64)
}

pub(crate) fn write_boot(db: &Connection, boot: i64) -> rusqlite::Result<()> {
    for seq in [1, 2] {
        db.execute(
            "INSERT OR REPLACE INTO meta(seq, key, value, crc) VALUES (?1, 'boot', ?2, row_crc('boot', ?2))",
            [seq, boot],
        )?;
    }
    Ok(())
}

/// Converts an error of a write during opening.
pub(crate) fn open_error(error: rusqlite::Error) -> StoreError {
    match &error {
        rusqlite::Error::SqliteFailure(code, _) if code.extended_code & 0xff == ffi::SQLITE_FULL => StoreError::DiskFull,
        _ => read_error(error),
    }
}

pub(crate) fn database(directory: &Path) -> PathBuf {
    directory.join(DATABASE)
}
