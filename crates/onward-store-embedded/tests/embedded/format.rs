//! Directories of format 1 are migrated completely, or stay unchanged.

use std::path::Path;

use onward_store::conformance::block_on;
use onward_store::{DeletedQuery, Store};
use onward_store_embedded::{EmbeddedStore, FORMAT, Options};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::damage::{copy, told};
use crate::story::{open, remember};

/// The tables of format 1.
const FORMAT_1: &str = "
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE runs(rk INTEGER PRIMARY KEY, root INTEGER NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL, generation INTEGER NOT NULL,
  current INTEGER NOT NULL, kind TEXT NOT NULL, version TEXT NOT NULL, status INTEGER NOT NULL, created INTEGER NOT NULL,
  ended INTEGER, parent_ns TEXT, parent_id TEXT, parent_generation INTEGER, input_hash BLOB NOT NULL, head BLOB NOT NULL);
CREATE UNIQUE INDEX runs_key ON runs(id, ns, generation);
CREATE TABLE events(seq INTEGER PRIMARY KEY, rk INTEGER NOT NULL, idx INTEGER NOT NULL, at INTEGER NOT NULL, n INTEGER NOT NULL,
  last INTEGER, crc INTEGER NOT NULL, body BLOB NOT NULL, blobs BLOB);
CREATE UNIQUE INDEX events_run ON events(rk, idx);
CREATE TABLE slots(root INTEGER NOT NULL, key TEXT NOT NULL, token TEXT NOT NULL, idx INTEGER NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY(root, key)) WITHOUT ROWID;
CREATE TABLE timers(rk INTEGER NOT NULL, call_id BLOB NOT NULL, due INTEGER NOT NULL, PRIMARY KEY(rk, call_id)) WITHOUT ROWID;
CREATE TABLE tasks(tk INTEGER PRIMARY KEY, rk INTEGER NOT NULL, call_id BLOB NOT NULL, ns TEXT NOT NULL, queue TEXT NOT NULL,
  kind TEXT NOT NULL, priority INTEGER NOT NULL, state INTEGER NOT NULL, visible INTEGER NOT NULL, due INTEGER,
  data BLOB NOT NULL, blobs BLOB);
CREATE TABLE waits(wk INTEGER PRIMARY KEY, rk INTEGER NOT NULL, call_id BLOB NOT NULL, ns TEXT NOT NULL, id TEXT NOT NULL,
  kind INTEGER NOT NULL, requested INTEGER NOT NULL, data BLOB NOT NULL, blobs BLOB);
CREATE TABLE outbox(id INTEGER PRIMARY KEY, root INTEGER NOT NULL, data BLOB NOT NULL, blobs BLOB);
CREATE TABLE blobs(hash BLOB PRIMARY KEY, refs INTEGER NOT NULL, data BLOB NOT NULL);
";

/// The columns of today's rows that format 1 had; references had no checksum.
const ROWS: [(&str, &str, Option<usize>); 9] = [
    ("meta", "SELECT DISTINCT key, value FROM meta", None),
    (
        "runs",
        "SELECT rk, root, ns, id, generation, current, kind, version, status, created, ended, parent_ns, parent_id, parent_generation,
           input_hash, head FROM runs",
        None,
    ),
    ("events", "SELECT seq, rk, idx, at, n, last, crc, body, blobs FROM events", Some(8)),
    ("slots", "SELECT root, key, token, idx, at FROM slots", None),
    ("timers", "SELECT rk, call_id, due FROM timers", None),
    ("tasks", "SELECT tk, rk, call_id, ns, queue, kind, priority, state, visible, due, data, blobs FROM tasks", Some(11)),
    ("waits", "SELECT wk, rk, call_id, ns, id, kind, requested, data, blobs FROM waits", Some(8)),
    ("outbox", "SELECT id, root, data, blobs FROM outbox", Some(3)),
    ("blobs", "SELECT hash, refs, data FROM blobs JOIN payloads USING (seq)", None),
];

/// Returns the same runs in a directory of format 1, with a write-ahead log that is not yet copied into the database.
fn as_format_1(today: &Path) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let today = Connection::open(today.join("onward.db")).unwrap();
    let path = directory.path().join("onward.db");
    let old = Connection::open(&path).unwrap();
    old.execute_batch(
        "PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA application_id = 0x4f6e7764; PRAGMA user_version = 1;",
    )
    .unwrap();
    old.execute_batch(FORMAT_1).unwrap();
    old.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    old.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    for (table, select, references) in ROWS {
        let mut select = today.prepare(select).unwrap();
        let count = select.column_count();
        let insert = format!("INSERT INTO {table} VALUES ({})", vec!["?"; count].join(", "));
        let mut rows = select.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let mut values: Vec<Value> = (0..count).map(|at| row.get(at).unwrap()).collect();
            if let Some(Value::Blob(list)) = references.and_then(|at| values.get_mut(at)) {
                list.truncate(list.len() - 4);
            }
            old.execute(&insert, rusqlite::params_from_iter(values)).unwrap();
        }
    }
    // Copied while it is open, as a killed process leaves it.
    copy(directory.path())
}

fn format(directory: &Path) -> u32 {
    let bytes = std::fs::read(directory.join("onward.db")).unwrap();
    u32::from_be_bytes(bytes[60..64].try_into().unwrap())
}

#[test]
fn a_directory_of_format_1_is_opened_with_all_that_is_in_it() {
    let today = told();
    let expected = remember(&open(today.path()));
    let old = as_format_1(today.path());
    assert_eq!(format(old.path()), 1);
    assert_eq!(EmbeddedStore::open_read_only(old.path()).unwrap_err().code(), "directory_unusable");
    let store = open(old.path());
    assert_eq!(remember(&store), expected);
    // Format 1 did not record deleted runs.
    assert_eq!(block_on(store.list_deleted(DeletedQuery::default())).unwrap(), []);
    drop(store);
    assert_eq!(format(old.path()), FORMAT);
    let names: Vec<_> = std::fs::read_dir(old.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "no other files are left: {names:?}");
    assert_eq!(remember(&open(old.path())), expected);
    assert_eq!(remember(&EmbeddedStore::open_read_only(old.path()).unwrap()), expected);
}

#[test]
fn damage_is_not_made_right_by_a_new_format() {
    let today = told();
    let old = as_format_1(today.path());
    let db = Connection::open(old.path().join("onward.db")).unwrap();
    db.execute("UPDATE events SET at = at + 1 WHERE seq = 3", []).unwrap();
    drop(db);
    let store = open(old.path());
    let damaged = block_on(store.read_log(crate::story::key("r0"), None, onward_core::Index(0), 100));
    assert_eq!(damaged.unwrap_err().code(), "log_corrupt");
}

#[test]
fn a_new_format_waits_for_readers_of_the_old_one() {
    let today = told();
    let old = as_format_1(today.path());
    let reader = Connection::open(old.path().join("onward.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM runs;").unwrap();
    let refused = EmbeddedStore::open(old.path(), Options::default()).unwrap_err();
    assert_eq!(refused.code(), "store_unavailable");
    assert_eq!(format(old.path()), 1);
    drop(reader);
    assert_eq!(remember(&open(old.path())), remember(&open(today.path())));
}

#[test]
fn a_process_that_is_killed_while_it_changes_the_format_leaves_the_old_one_or_the_new_one() {
    let today = told();
    let expected = remember(&open(today.path()));
    for point in ["create_before_rename", "create_after_rename", "open_before_boot"] {
        let old = as_format_1(today.path());
        crate::crash::kill_at(point, old.path());
        assert_eq!(format(old.path()), if point == "create_before_rename" { 1 } else { FORMAT }, "{point}");
        assert_eq!(remember(&open(old.path())), expected, "{point}");
    }
}

#[test]
fn a_copy_by_sqlites_own_backup_is_a_directory_like_any_other() {
    let today = told();
    let expected = remember(&open(today.path()));
    // With a write-ahead log that is not empty, through another connection.
    let store = open(today.path());
    let copy = tempfile::tempdir().unwrap();
    let from = Connection::open(today.path().join("onward.db")).unwrap();
    let mut to = Connection::open(copy.path().join("onward.db")).unwrap();
    rusqlite::backup::Backup::new(&from, &mut to).unwrap().run_to_completion(10, std::time::Duration::ZERO, None).unwrap();
    drop((from, to, store));
    let store = open(copy.path());
    assert_eq!(remember(&store), expected);
    assert_eq!(store.stats().mended, 0);
}
