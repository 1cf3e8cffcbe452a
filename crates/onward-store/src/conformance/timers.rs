//! L10: a timer fires once, not early, and not after it was canceled.

use std::time::Duration;

use onward_core::event::{PromiseCreated, StepFailed, TaskScheduled, TimerStarted, WaitCanceled};
use onward_core::task::TaskOptions;
use onward_core::{CALL_ID_PARTS_MAX, CallId, Event, Failure, Hash};

use super::harness::{Harness, call_id, completed, json, key, name, refused, seconds, task, timer, worker};

const MILLISECOND: Duration = Duration::from_millis(1);

pub async fn a_timer_fires_once_at_its_time_and_not_before(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let due = harness.now().after(seconds(10));
    harness.commit(&mut held, vec![timer(0, due)]).await;
    harness.reopen();
    harness.clock.set(onward_core::Timestamp(due.0 - 1));
    let early = harness.expire().await;
    assert_eq!((early.timers_fired, early.next_due), (0, Some(due)));
    harness.pass(MILLISECOND);
    assert_eq!(harness.expire().await.timers_fired, 1);
    harness.reopen();
    harness.pass(seconds(10));
    assert_eq!(harness.expire().await.timers_fired, 0);
    assert_eq!(harness.log("r").await, ["run_started", "timer_started", "timer_fired"]);
}

pub async fn a_canceled_timer_never_fires(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let due = harness.now().after(seconds(10));
    harness.commit(&mut held, vec![timer(0, due)]).await;
    harness.commit(&mut held, vec![WaitCanceled { call_id: call_id(0) }.into()]).await;
    harness.reopen();
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 0);
    assert_eq!(harness.log("r").await, ["run_started", "timer_started", "wait_canceled"]);
}

pub async fn timers_fire_in_the_order_of_their_times(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let due = |delay| harness.now().after(seconds(delay));
    let timers = vec![timer(0, due(30)), timer(1, due(10)), timer(2, due(20))];
    harness.commit(&mut held, timers).await;
    harness.reopen();
    harness.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    harness.pass(seconds(60));
    let first = harness.store().expire(2).await.unwrap();
    assert_eq!((first.timers_fired, first.more), (2, true));
    let rest = harness.store().expire(2).await.unwrap();
    assert_eq!((rest.timers_fired, rest.more), (1, false));
    let fired: Vec<_> = harness.records("r").await.into_iter().skip(2).flat_map(|record| record.events).collect();
    let expected = [1, 2, 0].map(|ordinal| Event::from(onward_core::event::TimerFired { call_id: call_id(ordinal) }));
    assert_eq!(fired, expected);
}

/// A call id is a key in every store and therefore bounded.
pub async fn a_call_id_may_be_as_deep_as_the_bound_and_no_deeper(mut harness: Harness) {
    let deep = |parts: usize, last: u32| {
        let mut path = vec![u32::MAX; parts];
        path[parts - 1] = last;
        CallId::from_path(&path).unwrap()
    };
    let mut held = harness.start_held("r").await;
    let due_at = harness.now().after(seconds(10));
    let deep_calls = |parts: usize| -> Vec<Event> {
        let input = json("[]");
        let (kind, options, input_hash) = (name("mail"), TaskOptions::default(), Hash::of(&input));
        vec![
            TimerStarted { call_id: deep(parts, 0), due_at }.into(),
            TaskScheduled { call_id: deep(parts, 1), kind, input_hash, input, options }.into(),
            PromiseCreated { call_id: deep(parts, 2), name: name("p"), deadline: None, key: None }.into(),
        ]
    };
    for event in deep_calls(CALL_ID_PARTS_MAX + 2) {
        refused(harness.store().commit(held.commit(vec![event])).await, "commit_malformed");
    }
    assert_eq!(harness.log("r").await, ["run_started"]);
    harness.commit(&mut held, deep_calls(CALL_ID_PARTS_MAX)).await;
    harness.reopen();
    let tasks: Vec<CallId> = harness.claim_tasks("t", 10).await.into_iter().map(|task| task.id.call_id).collect();
    assert_eq!((tasks, harness.waits().await), (vec![deep(CALL_ID_PARTS_MAX, 1)], vec![deep(CALL_ID_PARTS_MAX, 2)]));
    harness.pass(seconds(10));
    assert_eq!(harness.expire().await.timers_fired, 1);
}

pub async fn a_failed_step_gets_its_retry_timer(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let retry_at = harness.now().after(seconds(5));
    let failed = StepFailed {
        call_id: call_id(0),
        name: name("charge"),
        input_hash: None,
        failure: Failure::retryable("busy"),
        attempt: 1,
        took_ms: 3,
        retry_at: Some(retry_at),
        input: None,
    };
    harness.commit(&mut held, vec![failed.into()]).await;
    harness.reopen();
    harness.clock.set(retry_at);
    assert_eq!(harness.expire().await.timers_fired, 1);
    assert_eq!(harness.log("r").await, ["run_started", "step_failed", "timer_fired"]);
}

pub async fn the_next_due_time_is_the_earliest_of_all(harness: Harness) {
    assert_eq!(harness.expire().await.next_due, None);
    harness.store().heartbeat(worker("w"), seconds(100)).await.unwrap();
    let due = |delay| harness.now().after(seconds(delay));
    let mut held = harness.start_held("r").await;
    assert_eq!(harness.expire().await.next_due, Some(due(100)));
    let waits_long = TaskOptions { queued_timeout_ms: Some(80_000), ..Default::default() };
    harness.commit(&mut held, vec![task(0, waits_long)]).await;
    assert_eq!(harness.expire().await.next_due, Some(due(80)));
    harness.commit(&mut held, vec![timer(1, due(60))]).await;
    assert_eq!(harness.expire().await.next_due, Some(due(60)));
    harness.claim_tasks("t", 1).await;
    assert_eq!(harness.expire().await.next_due, Some(due(30)));
}

pub async fn an_ended_run_has_no_timers(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let due = harness.now().after(seconds(10));
    harness.commit(&mut held, vec![timer(0, due)]).await;
    harness.commit(&mut held, vec![completed()]).await;
    harness.reopen();
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 0);
    assert!(harness.store().read_run(key("r"), None).await.unwrap().unwrap().status.is_closed());
}
