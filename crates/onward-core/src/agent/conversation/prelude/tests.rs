//! Tests of the parent module.

use super::*;
use crate::agent::conversation::log_before;
use crate::log::event::{Checkpoint, RunStarted};
use crate::run::ancestry::Origin;
use crate::{Index, Name, Namespace, Payload, RunId, Timestamp};

fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

/// Returns the first record of a log with that prelude, copied from that log.
fn first(generation: u32, prelude: Option<u32>, origin: Option<(&str, u32)>) -> Record {
    let checkpoint = prelude.map(|prelude| {
        let (state, kept, keys) = (Payload::null(), Vec::new(), Vec::new());
        let (handoff, left, tally) = Default::default();
        let (leaf, depth, prelude) = (None, 0, Some(prelude));
        Box::new(Checkpoint { state, prelude, awaits: None, leaf, depth, kept, keys, handoff, left, tally })
    });
    let origins = origin.map(|(run, generation)| Origin { generation, ..Origin::of_start(key(run)) }).into_iter().collect();
    let started = RunStarted::new(Name::new("a").unwrap(), Payload::null(), 1);
    Record::input(Index(0), Timestamp(0), RunStarted { generation, checkpoint, origins, ..started }.into())
}

/// Searches the logs of several runs, by id.
fn search(logs: &[(&str, Vec<Record>)], run: &str, within: u32, wanted: u32) -> Search {
    let mut search = PreludeSearch::new(key(run), within, wanted);
    for _ in 0..10 {
        let (run, generation) = search.wants();
        let log = logs.iter().find(|(id, _)| key(id) == run).and_then(|(_, logs)| logs.get(generation as usize));
        match search.take(log) {
            Search::GoesOn => {}
            over => return over,
        }
    }
    panic!("it does not end")
}

#[test]
fn a_prelude_is_the_runs_own_or_that_of_its_original() {
    let original = vec![first(0, None, None), first(1, Some(0), None), first(2, Some(0), None)];
    let fork = vec![first(0, Some(0), Some(("original", 2))), first(1, Some(0), None)];
    let fork_of_fork = vec![first(0, Some(0), Some(("fork", 1))), first(1, Some(0), None)];
    let logs =
        [("original", original), ("fork", fork), ("fork of fork", fork_of_fork)].map(|(id, logs)| (id.replace(' ', "-"), logs));
    let logs: Vec<(&str, Vec<Record>)> = logs.iter().map(|(id, logs)| (id.as_str(), logs.clone())).collect();
    for (run, within) in [("original", 1), ("original", 2), ("fork", 0), ("fork", 1), ("fork-of-fork", 0), ("fork-of-fork", 1)] {
        assert_eq!(search(&logs, run, within, 0), Search::Found(key("original"), 0), "{run} {within}");
    }
    assert_eq!(search(&logs[1..], "fork", 1, 0), Search::Nowhere, "the original is gone");
}

#[test]
fn a_fork_has_its_own_logs_and_one_that_has_not_goes_on_in_those_of_its_original() {
    let before = |run: &str, generation, origins: &[(&str, u32)]| {
        let mut first = first(generation, Some(0), None);
        if let Some(crate::Event::RunStarted(started)) = first.events.first_mut() {
            let origin = |(run, generation): &(&str, u32)| Origin { generation: *generation, ..Origin::of_start(key(run)) };
            started.origins = origins.iter().map(origin).collect();
        }
        log_before(&key(run), &first).map(|(run, generation)| (run.id.to_string(), generation))
    };
    let of = |run: &str, generation| Some((run.to_owned(), generation));
    assert_eq!(before("r", 0, &[]), None);
    assert_eq!(before("r", 3, &[]), of("r", 2));
    assert_eq!(before("r", 3, &[("r", 2)]), of("r", 1), "a retry has the failed log");
    assert_eq!(before("f", 3, &[("r", 3)]), of("f", 2));
    assert_eq!(before("f", 3, &[("r", 2), ("r", 3)]), of("f", 2), "of a retry");
    assert_eq!(before("f", 4, &[("r", 3), ("f", 3)]), of("f", 2), "retried itself");
    assert_eq!(before("g", 2, &[("r", 2), ("f", 2)]), of("g", 1), "of a fork");
    assert_eq!(before("f", 0, &[("r", 0)]), None);
    // Forked from its turn only, retried, and forked in its turn.
    assert_eq!(before("f", 0, &[("r", 3)]), of("r", 2));
    assert_eq!(before("f", 1, &[("r", 3), ("f", 0)]), of("r", 2));
    assert_eq!(before("f", 1, &[]), of("f", 0));
    assert_eq!(before("g", 0, &[("r", 3), ("f", 0)]), of("r", 2));
}

#[test]
fn a_run_that_is_forked_before_its_turns_has_its_own() {
    let logs = [("fork", vec![first(0, None, Some(("original", 0))), first(1, Some(0), None)])];
    assert_eq!(search(&logs, "fork", 1, 0), Search::Found(key("fork"), 0));
}
