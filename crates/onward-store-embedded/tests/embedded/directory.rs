//! Opening and locking of directories, and refusals that change nothing.

use std::collections::BTreeMap;
use std::path::Path;

use onward_store::conformance::block_on;
use onward_store::{Store, StoreError};
use onward_store_embedded::{EmbeddedStore, FORMAT, Options};
use rusqlite::Connection;

use crate::damage::prepare_directory;
use crate::workload::{new_run, open, remember, worker};

fn refusal(directory: &Path) -> StoreError {
    EmbeddedStore::open(directory, Options::default()).unwrap_err()
}

/// Returns every file of a directory, byte for byte.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn a_second_store_in_the_same_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let refused = refusal(directory.path());
    assert_eq!(refused.code(), "directory_locked");
    assert!(refused.to_string().ends_with(" is in use by this or another process"), "{refused}");
    drop(first);
    open(directory.path());
}

#[test]
fn an_empty_path_is_not_the_current_directory() {
    let refused = [refusal(Path::new("")), EmbeddedStore::open_read_only("").err().unwrap()];
    for error in refused {
        assert_eq!(error.code(), "directory_unusable");
        assert_eq!(error.to_string(), "the empty path cannot be used: a directory needs a name; use `.` for the current one");
    }
}

#[test]
fn a_directory_is_made_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a/b");
    drop(open(&directory));
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_newer_format_is_refused_and_left_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    block_on(store.start_run(new_run("r"), None)).unwrap();
    drop(store);
    let path = directory.path().join("onward.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60..64].copy_from_slice(&(FORMAT + 1).to_be_bytes());
    // Without a page checksum: a newer program would have written its own.
    bytes[8184..8192].fill(0);
    std::fs::write(&path, bytes).unwrap();
    std::fs::remove_file(directory.path().join("onward.lock")).unwrap();
    let before = contents(directory.path());
    match refusal(directory.path()) {
        StoreError::DirectoryNewer { found, supported, .. } => assert_eq!((found, supported), (FORMAT + 1, FORMAT)),
        other => panic!("{other}"),
    }
    assert_eq!(EmbeddedStore::open_read_only(directory.path()).unwrap_err().code(), "directory_newer");
    assert_eq!(contents(directory.path()), before);
}

#[test]
fn what_is_not_ours_is_refused_and_left_untouched() {
    let files: [(&str, &[u8]); 4] =
        [("notes.txt", b"mine"), ("onward.db", b"not a database"), ("onward.db", b""), ("onward.db", &foreign_database())];
    for (name, bytes) in files {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(name), bytes).unwrap();
        let before = contents(directory.path());
        assert_eq!(refusal(directory.path()).code(), "directory_foreign", "{name}");
        assert_eq!(contents(directory.path()), before);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(refusal(file.path()).code(), "directory_foreign");
}

#[test]
fn a_database_that_is_none_is_refused_with_what_is_wrong_with_it_and_left_untouched() {
    let whole = tempfile::tempdir().unwrap();
    drop(open(whole.path()));
    let whole = std::fs::read(whole.path().join("onward.db")).unwrap();
    let cases: [(&[u8], &str); 4] = [
        (b"", "is empty: if it never held runs, remove it, else restore a backup"),
        (&whole[..60], "is truncated: restore a backup"),
        (b"\0\0\0\0", "was written by another program, or its beginning was overwritten"),
        (&foreign_database(), "was written by another program"),
    ];
    for (bytes, why) in cases {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("onward.db"), bytes).unwrap();
        let before = contents(directory.path());
        for error in [refusal(directory.path()), EmbeddedStore::open_read_only(directory.path()).unwrap_err()] {
            assert_eq!(error.code(), "directory_foreign");
            assert!(error.to_string().ends_with(&format!("its onward.db {why}")), "{error}");
            assert!(error.hint().is_some());
        }
        assert_eq!(contents(directory.path()), before);
    }
}

#[test]
fn a_database_that_is_a_directory_or_cannot_be_read_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("onward.db");
    std::fs::create_dir(&path).unwrap();
    let error = refusal(directory.path());
    assert_eq!((error.code(), error.hint().is_some()), ("directory_foreign", true));
    assert!(error.to_string().ends_with("its onward.db is not a file"), "{error}");
    std::fs::remove_dir(&path).unwrap();
    // A link to itself cannot be opened, whatever the permissions.
    std::os::unix::fs::symlink("onward.db", &path).unwrap();
    for error in [refusal(directory.path()), EmbeddedStore::open_read_only(directory.path()).unwrap_err()] {
        assert_eq!((error.code(), error.hint().is_some()), ("directory_unusable", true), "{error}");
        assert!(error.to_string().contains("onward.db"), "{error}");
    }
}

#[test]
fn a_database_that_lost_its_end_is_named_as_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    block_on(store.start_run(new_run("r"), None)).unwrap();
    drop(store);
    let path = directory.path().join("onward.db");
    let length = std::fs::metadata(&path).unwrap().len();
    for kept in [length - 1, length / 2, 8_192, 5_000] {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(kept).unwrap();
        let code = match EmbeddedStore::open(directory.path(), Options::default()) {
            Err(error) => error.code(),
            Ok(store) => block_on(store.read_log(crate::workload::key("r"), None, onward_core::Index(0), 10))
                .map_or_else(|error| error.code(), |_| "read"),
        };
        assert!(["store_corrupt", "log_corrupt", "directory_foreign", "read"].contains(&code), "{kept} of {length}: {code}");
        assert!(code != "read" || kept == length - 1, "{kept} of {length}");
    }
}

fn foreign_database() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE t(x);").unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn a_half_made_database_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("onward.db.new"), b"half").unwrap();
    std::fs::write(directory.path().join("onward.db.new-journal"), b"half").unwrap();
    drop(open(directory.path()));
    let names: Vec<String> = contents(directory.path()).into_keys().collect();
    assert_eq!(names, ["onward.db", "onward.lock", "onward.synced"]);
}

#[test]
fn a_reader_sees_what_another_store_writes_and_cannot_write() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(EmbeddedStore::open_read_only(directory.path()).unwrap_err().code(), "directory_foreign");
    let store = open(directory.path());
    let reader = EmbeddedStore::open_read_only(directory.path()).unwrap();
    assert_eq!(remember(&reader).runs.len(), 0);
    block_on(store.start_run(new_run("r"), Some(worker()))).unwrap();
    assert_eq!(remember(&reader), remember(&store));
    assert_eq!(block_on(reader.start_run(new_run("s"), None)).unwrap_err().code(), "store_read_only");
    assert_eq!(block_on(reader.heartbeat(worker(), std::time::Duration::ZERO)).unwrap_err().code(), "store_read_only");
    drop(store);
    // Also without a writer.
    assert_eq!(remember(&reader).runs.len(), 1);
    assert_eq!(remember(&EmbeddedStore::open_read_only(directory.path()).unwrap()).runs.len(), 1);
}

#[test]
fn a_copy_by_sqlites_own_backup_is_a_directory_like_any_other() {
    let today = prepare_directory();
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
    assert_eq!(store.stats().repaired, 0);
}
