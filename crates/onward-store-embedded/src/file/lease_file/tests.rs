//! Tests of the parent module.

use onward_core::{Namespace, RunId};

use super::*;

fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

fn open(directory: &Path) -> (LeaseFile, Vec<LostLease>) {
    LeaseFile::open(directory, WorkersInside::All).unwrap()
}

fn found(directory: &Path) -> Vec<(i64, u64)> {
    open(directory).1.into_iter().map(|lost| (lost.rk, lost.epoch.0)).collect()
}

/// LF1
#[test]
fn the_file_has_what_is_held_and_slots_are_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut file, lost) = open(directory.path());
    assert_eq!(lost, []);
    let worker = WorkerId::new("w").unwrap();
    for rk in 1..=3 {
        file.grant(rk, &key("r"), Epoch(10), &worker);
    }
    file.drop(2);
    file.drop(7);
    assert_eq!(found(directory.path()), [(1, 10), (3, 10)]);
    file.grant(4, &key("s"), Epoch(11), &worker);
    assert_eq!(found(directory.path()), [(1, 10), (4, 11), (3, 10)]);
    file.close();
    assert_eq!(found(directory.path()), []);
}

/// LF2
#[test]
fn leases_of_the_process_before_stay_until_they_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let worker = WorkerId::new("w").unwrap();
    open(directory.path()).0.grant(1, &key("r"), Epoch(1), &worker);
    let (mut file, lost) = open(directory.path());
    assert!(lost.len() == 1 && lost[0].is_of(&key("r")) && !lost[0].is_of(&key("s")) && lost[0].worker == worker);
    file.grant(2, &key("s"), Epoch(2), &worker);
    assert_eq!(found(directory.path()), [(1, 1), (2, 2)]);
    file.close();
    assert_eq!(found(directory.path()), [(1, 1)], "they are not counted yet");
    let (mut file, _) = open(directory.path());
    file.forget_before();
    file.grant(3, &key("t"), Epoch(3), &worker);
    assert_eq!(found(directory.path()), [(3, 3)]);
}

#[test]
fn a_long_name_is_cut_between_its_characters() {
    let directory = tempfile::tempdir().unwrap();
    let long = "ä".repeat(120);
    open(directory.path()).0.grant(1, &key("r"), Epoch(1), &WorkerId::new(&long).unwrap());
    let lost = open(directory.path()).1;
    assert!(lost.len() == 1 && long.starts_with(lost[0].worker.as_str()) && lost[0].worker.as_str().len() > 90);
}
