//! Migration from format 1.
//!
//! Copies the rows of the old file into a new one, which replaces it by one rename: a crash leaves the old or the new directory,
//! complete. Must never turn a damaged row into one that looks valid: checksums of the old format are copied unchanged.
//!
//! Format 1 had no checksums in pages, nor in the rows of timers, idempotency records, deleted runs and reference counts.

use std::path::Path;
use std::time::Duration;

use onward_store::StoreError;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use crate::error::{damaged, read_error};
use crate::file::schema::{self, open_error};
use crate::row::seal_bytes;

/// The copy of one table's rows from the old file into the new one.
struct Table {
    name: &'static str,
    columns: &'static str,
    /// The column with references to large payloads, which now have a checksum.
    references: Option<usize>,
    insert: &'static str,
}

const TABLES: &[Table] = &[
    Table {
        name: "runs",
        columns: "rk, root, ns, id, generation, current, kind, version, status, created, ended, parent_ns, parent_id,
          parent_generation, input_hash, head",
        references: None,
        insert: "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
          row_crc(?1, ?2, ?3, ?4, ?5, ?10, ?12, ?13, ?14, ?15)",
    },
    Table {
        name: "events",
        columns: "seq, rk, idx, at, n, last, crc, body, blobs",
        references: Some(8),
        insert: "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9",
    },
    Table {
        name: "slots",
        columns: "root, key, token, idx, at",
        references: None,
        insert: "NULL, ?1, ?2, ?3, ?4, ?5, row_crc(?1, ?2, ?3, ?4, ?5)",
    },
    Table { name: "timers", columns: "rk, call_id, due", references: None, insert: "NULL, ?1, ?2, ?3, row_crc(?1, ?2, ?3)" },
    Table {
        name: "tasks",
        columns: "tk, rk, call_id, ns, queue, kind, priority, state, visible, due, data, blobs",
        references: Some(11),
        insert: "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12",
    },
    Table {
        name: "waits",
        columns: "wk, rk, call_id, ns, id, kind, requested, data, blobs",
        references: Some(8),
        insert: "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9",
    },
    Table { name: "outbox", columns: "id, root, data, blobs", references: Some(3), insert: "?1, ?2, ?3, ?4" },
    Table {
        name: "deleted",
        columns: "seq, ns, id, kind, reason, at",
        references: None,
        insert: "?1, ?2, ?3, ?4, ?5, ?6, row_crc(?2, ?3, ?4, ?5, ?6)",
    },
    Table { name: "blobs", columns: "rowid, hash, refs", references: None, insert: "?1, ?2, ?3, row_crc(?2, ?3)" },
    // Format 1 had the reference count and the bytes of a large payload in one row.
    Table { name: "payloads", columns: "rowid, data", references: None, insert: "?1, ?2" },
];

/// Opens a directory of format 1 and checkpoints its write-ahead log, so that the database file has everything.
pub(crate) fn open_format_1(directory: &Path) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<(Connection, String)> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(schema::database(directory), flags)?;
        db.busy_timeout(Duration::from_secs(5))?;
        db.execute_batch("PRAGMA synchronous = FULL;")?;
        let mode = db.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
        Ok((db, mode))
    };
    let (db, mode) = open().map_err(read_error)?;
    if mode != "delete" {
        let why = format!("{} must be migrated, and another process is reading it", directory.display());
        return Err(StoreError::Unavailable { why });
    }
    Ok(db)
}

/// Copies all tables into a new database.
pub(crate) fn copy_format_1(old: &Connection, new: &Connection) -> Result<(), StoreError> {
    let boot = old.query_row("SELECT value FROM meta WHERE key = 'boot'", [], |row| row.get(0));
    schema::write_boot(new, boot.map_err(read_error)?).map_err(open_error)?;
    for table in TABLES {
        let there = old.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1");
        // The table of deleted runs was added later.
        if there.and_then(|mut there| there.exists([table.source()])).map_err(read_error)? {
            table.copy(old, new)?;
        } else if table.name != "deleted" {
            return Err(damaged("the old database", format!("it has no table {}", table.name)));
        }
    }
    Ok(())
}

impl Table {
    fn source(&self) -> &'static str {
        if self.name == "payloads" { "blobs" } else { self.name }
    }

    fn copy(&self, old: &Connection, new: &Connection) -> Result<(), StoreError> {
        let Table { name, columns, references, insert } = self;
        let mut select = old.prepare(&format!("SELECT {columns} FROM {}", self.source())).map_err(read_error)?;
        let mut insert = new.prepare(&format!("INSERT INTO {name} VALUES ({insert})")).map_err(open_error)?;
        let count = select.column_count();
        let mut rows = select.query([]).map_err(read_error)?;
        while let Some(row) = rows.next().map_err(read_error)? {
            let values = (0..count).map(|at| row.get::<_, Value>(at)).collect::<rusqlite::Result<Vec<_>>>();
            let mut values = values.map_err(read_error)?;
            if let Some(Value::Blob(list)) = references.and_then(|at| values.get_mut(at)) {
                *list = seal_bytes(std::mem::take(list));
            }
            insert.execute(rusqlite::params_from_iter(values)).map_err(open_error)?;
        }
        Ok(())
    }
}
