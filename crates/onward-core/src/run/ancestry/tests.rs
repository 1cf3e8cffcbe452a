//! Tests of the parent module.

use super::*;
use crate::{Name, Namespace, Payload, RunId};

fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

fn origin(run: &str, generation: u32, commits: u64) -> Origin {
    Origin { run: key(run), generation, seed: u64::from(generation), commits, index: Index(9), set_aside: Vec::new() }
}

fn ancestry(run: &str, generation: u32, origins: Vec<Origin>) -> Ancestry {
    let started = RunStarted { generation, origins, ..RunStarted::new(Name::new("k").unwrap(), Payload::null(), 7) };
    Ancestry::new(&key(run), &started)
}

#[test]
fn a_call_keeps_its_name_in_a_retry_and_gets_a_new_one_in_a_fork() {
    let ancestry = ancestry("fork", 1, vec![origin("first", 3, 2), origin("fork", 0, 5)]);
    let numbers: Vec<usize> = [0, 1, 2, 4, 5, 99].map(|n| ancestry.at_commit(n)).into();
    assert_eq!(numbers, [0, 0, 1, 1, 2, 2]);
    let known = |opened| {
        let identity = ancestry.known_as(opened, ancestry.own());
        (identity.run.id.to_string(), identity.generation)
    };
    assert_eq!([known(0), known(1), known(2)], [("fork".to_owned(), 0), ("fork".to_owned(), 0), ("fork".to_owned(), 1)]);
    assert_eq!(ancestry.known_as(0, 0).run, key("first"));
    assert!(ancestry.is_retry());
}

#[test]
fn a_copy_of_a_copy_knows_all_it_was_recorded_under() {
    let ancestry = ancestry("run", 1, vec![origin("run", 0, 2)]);
    let counts = |commits| -> Vec<(u32, u64)> {
        ancestry.origins_until(commits, Index(9), []).iter().map(|origin| (origin.generation, origin.commits)).collect()
    };
    // The last one is always included: kept events come from it.
    assert_eq!(counts(0), [(0, 0), (1, 0)]);
    assert_eq!(counts(1), [(0, 1), (1, 1)]);
    assert_eq!(counts(2), [(0, 2), (1, 2)]);
    assert_eq!(counts(4), [(0, 2), (1, 4)]);
}

#[test]
fn a_line_is_an_arm_of_the_lines_around_it() {
    let is_on = |other: &str, call_id: &str| is_on_line_of(&CallId::parse(other).unwrap(), &CallId::parse(call_id).unwrap());
    assert!(is_on("1.0.0", "1.0.1"));
    assert!(is_on("7", "1.0.1"));
    assert!(!is_on("1.1.0", "1.0.1"));
    assert!(!is_on("1.0.0", "1"));
}

#[test]
fn only_what_comes_behind_on_the_same_line_follows() {
    let follows = |later: &str, earlier: &str| follows(&CallId::parse(later).unwrap(), &CallId::parse(earlier).unwrap());
    assert!(follows("3", "2"));
    assert!(follows("3.0.0", "2"));
    assert!(follows("3", "2.1.0"));
    assert!(follows("2.1.1", "2.1.0"));
    assert!(!follows("2", "2"));
    assert!(!follows("1", "2"));
    assert!(!follows("2.0.5", "2.1.0"));
    assert!(!follows("2.1.0", "2.1.0"));
}
