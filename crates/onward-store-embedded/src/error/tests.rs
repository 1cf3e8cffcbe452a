//! Tests of the parent module.

use super::*;

fn out_of_memory() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_NOMEM), None)
}

/// F30: a failed allocation is a temporary error; it is neither damage nor a reason to repair.
#[test]
fn a_lack_of_memory_is_not_taken_for_damage() {
    assert_eq!(read_error(out_of_memory()).code(), "store_unavailable");
    let error = OpError::Sql(out_of_memory());
    assert!(matches!(Failure::of(&error), Failure::Busy(_)));
    assert!(!error.is_repairable());
    let key = RunKey::new(Default::default(), onward_core::RunId::new("a").unwrap());
    let of_run = |error| damage_of_run(&key, Index(3), error).code();
    assert_eq!(of_run(read_error(out_of_memory())), "store_unavailable");
    assert_eq!(of_run(StoreError::Corrupt { why: String::new() }), "log_corrupt");
}

/// T3: after a failed COMMIT the batch may be on disk, whatever the reason.
#[test]
fn a_lack_of_memory_in_a_commit_stops_the_store() {
    assert!(matches!(Failure::of_commit(&out_of_memory()), Failure::Io(_)));
}
