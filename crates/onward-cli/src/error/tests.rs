//! Tests of the parent module.

use super::*;

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let gone = anyhow::Error::from(std::io::Error::from(ErrorKind::BrokenPipe)).context("cannot print");
    assert!(is_broken_pipe(&gone));
    assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
}

#[test]
fn a_wrapper_that_repeats_its_cause_is_printed_once() {
    let name = onward_core::Name::new("").unwrap_err();
    let error = anyhow::Error::from(RuntimeError::IdInvalid { what: "signal id", source: name });
    assert_eq!(message(&error), "the signal id is invalid: a name must not be empty");
    let error = anyhow::Error::from(RuntimeError::Store(StoreError::DiskFull));
    assert_eq!(message(&error), "the disk is full");
}

#[test]
fn an_exit_code_is_the_listed_one_or_follows_from_the_status() {
    assert_eq!(
        (exit_code("run_not_found"), exit_code("directory_missing"), exit_code("disk_full")),
        (NOT_FOUND, FAILURE, FAILURE)
    );
}
