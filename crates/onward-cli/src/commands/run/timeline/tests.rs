//! Tests of the parent module.

use onward_core::api::Timeline;
use onward_core::{RunId, Status};

use super::*;

fn timeline() -> Timeline {
    Timeline {
        run: RunId::new("r").unwrap(),
        kind: Name::new("order").unwrap(),
        generation: 0,
        generations: 1,
        status: Status::Completed,
        started_at: Timestamp(1_000),
        ended_at: Some(Timestamp(2_000)),
        now: Timestamp(9_000),
        calls: Vec::new(),
        next: None,
    }
}

fn call(queued: Option<u64>, started: Option<u64>, attempts: usize) -> TimelineCall {
    let attempt =
        onward_core::timeline::CallAttempt { attempt: 1, started_at: None, ended_at: None, failure: None, worker: None };
    TimelineCall {
        call_id: "0".to_owned(),
        r#type: onward_core::timeline::CallType::Task,
        name: None,
        status: CallStatus::Completed,
        queued_at: queued.map(Timestamp),
        started_at: started.map(Timestamp),
        ended_at: None,
        attempts: vec![attempt; attempts],
        first_index: None,
        last_index: None,
        child: None,
        deadline: None,
        input: None,
        abandoned: false,
        memo_from: None,
    }
}

#[test]
fn a_bar_shows_when_a_call_was_queued_ran_and_waited() {
    let timeline = timeline();
    let bar = |call: &TimelineCall, until| bar(&timeline, call, Timestamp(until), 10);
    assert_eq!(bar(&call(Some(1_200), Some(1_500), 1), 1_800), "  ···███");
    assert_eq!(bar(&call(None, Some(1_000), 1), 1_100), "█");
    assert_eq!(bar(&call(None, Some(1_500), 0), 2_000), "     ░░░░░");
    assert_eq!(bar(&call(Some(1_500), None, 0), 2_000), "     ·····", "it never started");
    assert_eq!(bar(&call(None, Some(2_000), 1), 2_000), "         █", "at the very end");
}
