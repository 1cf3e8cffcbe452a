//! Tests of the parent module.

use super::*;
use crate::Event;
use crate::log::CommitId;
use crate::log::codec::{Field, Reader};
use crate::log::event::RunResumed;
use crate::run::view::tests::{Script, awaited, script, signal};
use crate::run::{Carries, Commit};

const AT: Timestamp = Timestamp(5_000);

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

/// Loses the worker `w{n}` with the epoch `n`.
fn lose(run: &mut Script, n: u64) -> Option<Input> {
    run.head.lose_worker(&worker(&format!("w{n}")), Epoch(n), AT, 3)
}

/// Commits as the worker that holds the run.
fn commit(run: &mut Script) {
    let commit = Commit {
        key: run.head.key.clone(),
        generation: 0,
        epoch: run.head.epoch,
        n: run.head.next_commit,
        commit_id: CommitId(1),
        horizon: Index(run.head.next_index.0 - 1),
        events: vec![awaited(0, "paid")],
        waits: true,
        end_over_unread: false,
        is_while_paused: false,
        carries: Carries::default(),
    };
    run.records.push(run.head.admit_commit(commit, AT).unwrap().record);
}

fn paused(input: Option<Input>) -> RunPaused {
    let Some(Input { event: Event::RunPaused(pause), .. }) = input else { panic!("the run is paused: {input:?}") };
    pause
}

/// CW1
#[test]
fn the_third_worker_in_a_row_pauses_the_run_and_is_named() {
    let mut run = script(vec![]);
    assert_eq!((lose(&mut run, 1), lose(&mut run, 2)), (None, None));
    let pause = paused(lose(&mut run, 3));
    assert_eq!(pause.reason, PauseReason::WorkerCrashed);
    let lost = pause.lost_workers.clone().unwrap();
    assert_eq!((lost.count, lost.last_index, lost.next_commit), (3, Index(0), 0));
    let named: Vec<&str> = lost.latest.iter().map(|lost| lost.worker.as_str()).collect();
    assert_eq!(named, ["w1", "w2", "w3"]);
    assert!(lost.latest.iter().all(|lost| lost.at == AT));
    let run = run.input(pause);
    assert_eq!(run.head.crashed(), Some(&lost));
}

/// CW1: a resumed run may lose as many again.
#[test]
fn a_resumed_run_has_lost_no_worker() {
    let mut run = script(vec![]);
    let pause = (1..=3).find_map(|n| lose(&mut run, n));
    let mut run = run.input(paused(pause)).input(RunResumed::default());
    assert_eq!((run.head.status, run.head.lost_workers.clone()), (Status::Pending, None));
    assert_eq!((lose(&mut run, 4), lose(&mut run, 5)), (None, None));
    assert!(lose(&mut run, 6).is_some());
}

/// CW1: a commit is progress, although it does not touch the count (CW4).
#[test]
fn a_commit_in_between_ends_the_series() {
    let mut run = script(vec![]);
    assert_eq!((lose(&mut run, 1), lose(&mut run, 2)), (None, None));
    let before = run.head.lost_workers.clone();
    commit(&mut run);
    let mut run = run.input(signal("paid"));
    assert_eq!((run.head.status, run.head.lost_workers.clone()), (Status::Pending, before));
    assert_eq!((lose(&mut run, 3), lose(&mut run, 4)), (None, None));
    assert!(lose(&mut run, 5).is_some());
}

/// CW1: an input is no progress of the run.
#[test]
fn an_input_in_between_ends_no_series() {
    let mut run = script(vec![]);
    assert_eq!((lose(&mut run, 1), lose(&mut run, 2)), (None, None));
    let mut run = run.input(signal("paid"));
    assert_eq!(paused(lose(&mut run, 3)).lost_workers.unwrap().last_index, Index(1));
}

/// CW2
#[test]
fn a_run_that_waits_or_is_paused_loses_no_worker() {
    let mut waiting = script(vec![]).commit(vec![awaited(0, "paid")]);
    assert_eq!(waiting.head.status, Status::Waiting);
    let mut paused = script(vec![]).input(RunPaused::because(PauseReason::Requested, ""));
    for n in 1..=9 {
        assert_eq!((lose(&mut waiting, n), lose(&mut paused, n)), (None, None));
    }
    assert_eq!((waiting.head.lost_workers, paused.head.lost_workers), (None, None));
}

#[test]
fn no_limit_counts_nothing_and_a_limit_of_one_pauses_at_once() {
    let mut run = script(vec![]);
    assert!((1..9).all(|n| run.head.lose_worker(&worker("w"), Epoch(n), AT, 0).is_none()));
    assert_eq!(run.head.lost_workers, None);
    assert!(run.head.lose_worker(&worker("w"), Epoch(9), AT, 1).is_some());
}

/// CW3
#[test]
fn a_worker_that_is_found_does_not_count() {
    let mut run = script(vec![]);
    assert_eq!((lose(&mut run, 1), lose(&mut run, 2)), (None, None));
    assert!(!run.head.find_worker(Epoch(7)), "it was not lost");
    assert!(run.head.find_worker(Epoch(1)));
    assert!(!run.head.find_worker(Epoch(1)), "it is found once");
    assert_eq!(lose(&mut run, 3), None);
    assert!(lose(&mut run, 4).is_some());
    let mut alone = script(vec![]);
    lose(&mut alone, 1);
    assert!(alone.head.find_worker(Epoch(1)));
    assert_eq!(alone.head.lost_workers, None);
}

/// CW3: only a person continues a paused run, and the pause keeps its content.
#[test]
fn a_worker_that_is_found_too_late_leaves_the_pause() {
    let mut run = script(vec![]);
    let pause = (1..=3).find_map(|n| lose(&mut run, n));
    let mut run = run.input(paused(pause));
    assert!(!run.head.find_worker(Epoch(1)));
    assert_eq!(run.head.crashed().unwrap().count, 3);
}

/// CW4: the head that is rebuilt from the log has the pause and no count before it.
#[test]
fn the_count_is_not_in_the_log_and_the_pause_is() {
    let mut run = script(vec![]);
    lose(&mut run, 1);
    let rebuilt = RunHead::rebuild(run.head.key.clone(), &run.records).unwrap();
    assert_ne!(rebuilt, run.head.clone());
    assert_eq!(rebuilt.without_lease(), run.head.clone().without_lease());
    let pause = (2..=3).find_map(|n| lose(&mut run, n));
    let run = run.input(paused(pause));
    let rebuilt = RunHead::rebuild(run.head.key.clone(), &run.records).unwrap();
    assert_eq!(rebuilt, run.head);
    let mut bytes = Vec::new();
    run.head.encode(1, &mut bytes);
    let (_, raw) = Reader::new(&bytes).field().unwrap().unwrap();
    let decoded = RunHead::decode(raw).unwrap();
    assert_eq!(decoded, run.head, "it is stored whole");
    let shown = run.view().pause.unwrap();
    assert_eq!(shown.lost_workers.as_ref(), run.head.crashed());
}

/// CW5: two servers, or a repeated recovery, report one loss.
#[test]
fn one_claim_is_lost_once() {
    let mut run = script(vec![]);
    assert!((0..9).all(|_| lose(&mut run, 1).is_none()));
    assert_eq!(run.head.lost_workers.unwrap().count, 1);
}

/// CW1: another pause means that a person has seen the run.
#[test]
fn a_pause_for_another_reason_forgets_the_lost_workers() {
    let mut run = script(vec![]);
    assert_eq!((lose(&mut run, 1), lose(&mut run, 2)), (None, None));
    let run = run.input(RunPaused::because(PauseReason::Requested, ""));
    assert_eq!(run.head.crashed(), None);
    let mut run = run.input(RunResumed::default());
    assert_eq!(lose(&mut run, 3), None);
}

#[test]
fn a_worker_is_named_as_it_calls_itself_and_only_the_latest_are_kept() {
    let mut run = script(vec![]);
    let connected = worker("w").in_session(&run.head.key.namespace, Some("key"), 7);
    for n in 1..=30 {
        assert_eq!(run.head.lose_worker(&connected, Epoch(n), AT, 99), None);
    }
    let lost = run.head.lost_workers.unwrap();
    assert_eq!((lost.count, lost.latest.len()), (30, NAMED_MAX));
    assert!(lost.latest.iter().all(|lost| lost.worker == worker("w")));
    assert_eq!(lost.latest.last().unwrap().epoch, Epoch(30));
}
