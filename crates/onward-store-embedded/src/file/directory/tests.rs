//! Tests of the parent module.

use super::*;

/// A forked process shares the open file.
#[test]
fn a_directory_is_free_when_its_store_is_closed_whatever_has_the_lock_file_open() {
    let directory = tempfile::tempdir().unwrap();
    let held = lock(directory.path()).unwrap();
    let inherited = held.0.try_clone().unwrap();
    assert!(matches!(lock(directory.path()), Err(StoreError::DirectoryLocked { .. })));
    drop(held);
    lock(directory.path()).unwrap();
    drop(inherited);
}
