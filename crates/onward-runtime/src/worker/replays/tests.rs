//! Tests of the parent module.

use onward_core::{Name, Namespace, Payload, RunId, Timestamp};

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
    replays.claimed(&fresh);
    replays.agreed(&fresh.key, fresh.epoch);
    assert_eq!(replays.count(), 0, "there was nothing to replay");
    replays.claimed(&old);
    replays.agreed(&old.key, Epoch(1));
    assert_eq!(replays.count(), 0, "that was another claim");
    replays.agreed(&old.key, old.epoch);
    replays.agreed(&old.key, old.epoch);
    assert_eq!(replays.count(), 1);
    replays.claimed(&head(4, 5));
    replays.end(&old.key, Epoch(5));
    replays.agreed(&old.key, Epoch(5));
    assert_eq!((replays.count(), lock(&replays.open).len()), (1, 0), "a claim without a commit is not counted");
}
