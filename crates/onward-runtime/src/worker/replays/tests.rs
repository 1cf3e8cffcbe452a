//! Tests of the parent module.

use onward_core::event::{StateCleared, StepCompleted};
use onward_core::{CallId, Name, Namespace, Payload, RunId, Timestamp};

use super::*;

fn head(next_commit: u64, epoch: u64) -> RunHead {
    let key = RunKey::new(Namespace::default(), RunId::new("a").expect("a name"));
    let started = onward_core::event::RunStarted::new(Name::new("k").expect("a name"), Payload::null(), 0);
    let (head, _) = RunHead::start(key, started, Timestamp(0));
    RunHead { next_commit, epoch: Epoch(epoch), ..head }
}

#[test]
fn the_first_commit_of_a_claim_with_a_past_is_a_replay_and_no_other() {
    let replays = Replays::default();
    let (fresh, old) = (head(0, 1), head(3, 2));
    replays.claimed(&fresh, None);
    replays.agreed(&fresh.key, fresh.epoch);
    assert_eq!(replays.count(), 0, "there was nothing to replay");
    replays.claimed(&old, None);
    replays.agreed(&old.key, Epoch(1));
    assert_eq!(replays.count(), 0, "that was another claim");
    replays.agreed(&old.key, old.epoch);
    replays.agreed(&old.key, old.epoch);
    assert_eq!(replays.count(), 1);
    replays.claimed(&head(4, 5), None);
    replays.abandoned(&old.key, Epoch(5));
    replays.agreed(&old.key, Epoch(5));
    assert_eq!((replays.count(), lock(&replays.open).len()), (1, 0), "a claim without a commit is not counted");
}

/// Returns a record with the result of a step and another event.
fn record(index: u64) -> Record {
    let name = Name::new("charge").expect("a name");
    let (call_id, output) = (CallId::root(0), Payload::null());
    let step = StepCompleted { call_id, name: name.clone(), input_hash: None, input: None, output, attempt: 1, took_ms: 0 };
    let events = vec![step.into(), StateCleared { call_id: CallId::root(1), key: name }.into()];
    Record { index: Index(index), at: Timestamp(0), commit: None, events }
}

#[test]
fn results_in_the_log_of_a_claim_are_counted_once_if_its_replay_agreed() {
    let replays = Replays::default();
    let old = RunHead { next_index: Index(5), ..head(3, 2) };
    replays.claimed(&old, Some(&[record(1)]));
    replays.read(&old.key, Some(0), &[record(1), record(3), record(5)]);
    replays.read(&old.key, None, &[record(3)]);
    assert_eq!(replays.results(), 0, "the replay has not agreed yet");
    replays.agreed(&old.key, old.epoch);
    assert_eq!(replays.results(), 2, "each once, and none that came after the claim");
    replays.claimed(&old, None);
    replays.read(&old.key, Some(1), &[record(1)]);
    replays.agreed(&old.key, old.epoch);
    assert_eq!(replays.results(), 2, "the log of another generation is not that of the claim");
}
