//! L10: a timer fires once, not early, and not after it was canceled.

use std::time::Duration;

use onward_core::event::{PromiseCreated, StepFailed, TaskScheduled, TimerStarted, WaitCanceled};
use onward_core::task::TaskOptions;
use onward_core::{Event, Failure, Hash, CALL_ID_PARTS_MAX, CallId};

use super::kit::{Kit, completed, json, key, name, call_id, refused, seconds, task, timer, worker};

const MILLISECOND: Duration = Duration::from_millis(1);

pub async fn a_timer_fires_once_at_its_time_and_not_before(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    let due = kit.now().after(seconds(10));
    kit.commit(&mut held, vec![timer(0, due)]).await;
    kit.reopen();
    kit.clock.set(onward_core::Timestamp(due.0 - 1));
    let early = kit.expire().await;
    assert_eq!((early.timers_fired, early.next_due), (0, Some(due)));
    kit.pass(MILLISECOND);
    assert_eq!(kit.expire().await.timers_fired, 1);
    kit.reopen();
    kit.pass(seconds(10));
    assert_eq!(kit.expire().await.timers_fired, 0);
    assert_eq!(kit.log("r").await, ["run_started", "timer_started", "timer_fired"]);
}

pub async fn a_canceled_timer_never_fires(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    let due = kit.now().after(seconds(10));
    kit.commit(&mut held, vec![timer(0, due)]).await;
    kit.commit(&mut held, vec![WaitCanceled { call_id: call_id(0) }.into()]).await;
    kit.reopen();
    kit.clock.set(due);
    assert_eq!(kit.expire().await.timers_fired, 0);
    assert_eq!(kit.log("r").await, ["run_started", "timer_started", "wait_canceled"]);
}

pub async fn timers_fire_in_the_order_of_their_times(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    let due = |delay| kit.now().after(seconds(delay));
    let timers = vec![timer(0, due(30)), timer(1, due(10)), timer(2, due(20))];
    kit.commit(&mut held, timers).await;
    kit.reopen();
    kit.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    kit.pass(seconds(60));
    let first = kit.store().expire(2).await.unwrap();
    assert_eq!((first.timers_fired, first.more), (2, true));
    let rest = kit.store().expire(2).await.unwrap();
    assert_eq!((rest.timers_fired, rest.more), (1, false));
    let fired: Vec<_> = kit.records("r").await.into_iter().skip(2).flat_map(|record| record.events).collect();
    let expected = [1, 2, 0].map(|ordinal| Event::from(onward_core::event::TimerFired { call_id: call_id(ordinal) }));
    assert_eq!(fired, expected);
}

/// A call id is a key in every store and therefore bounded.
pub async fn a_call_id_may_be_as_deep_as_the_bound_and_no_deeper(mut kit: Kit) {
    let deep = |parts: usize, last: u32| {
        let mut path = vec![u32::MAX; parts];
        path[parts - 1] = last;
        CallId::from_path(&path).unwrap()
    };
    let mut held = kit.start_held("r").await;
    let due_at = kit.now().after(seconds(10));
    let asked = |parts: usize| -> Vec<Event> {
        let input = json("[]");
        let (kind, options, input_hash) = (name("mail"), TaskOptions::default(), Hash::of(&input));
        vec![
            TimerStarted { call_id: deep(parts, 0), due_at }.into(),
            TaskScheduled { call_id: deep(parts, 1), kind, input_hash, input, options }.into(),
            PromiseCreated { call_id: deep(parts, 2), name: name("p"), deadline: None }.into(),
        ]
    };
    for event in asked(CALL_ID_PARTS_MAX + 2) {
        refused(kit.store().commit(held.commit(vec![event])).await, "commit_malformed");
    }
    assert_eq!(kit.log("r").await, ["run_started"]);
    kit.commit(&mut held, asked(CALL_ID_PARTS_MAX)).await;
    kit.reopen();
    let tasks: Vec<CallId> = kit.claim_tasks("t", 10).await.into_iter().map(|task| task.id.call_id).collect();
    assert_eq!((tasks, kit.waits().await), (vec![deep(CALL_ID_PARTS_MAX, 1)], vec![deep(CALL_ID_PARTS_MAX, 2)]));
    kit.pass(seconds(10));
    assert_eq!(kit.expire().await.timers_fired, 1);
}

pub async fn a_failed_step_gets_its_retry_timer(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    let retry_at = kit.now().after(seconds(5));
    let failed = StepFailed {
        call_id: call_id(0),
        name: name("charge"),
        input_hash: None,
        failure: Failure::retryable("busy"),
        attempt: 1,
        took_ms: 3,
        retry_at: Some(retry_at),
    };
    kit.commit(&mut held, vec![failed.into()]).await;
    kit.reopen();
    kit.clock.set(retry_at);
    assert_eq!(kit.expire().await.timers_fired, 1);
    assert_eq!(kit.log("r").await, ["run_started", "step_failed", "timer_fired"]);
}

pub async fn the_next_due_time_is_the_earliest_of_all(kit: Kit) {
    assert_eq!(kit.expire().await.next_due, None);
    kit.store().heartbeat(worker("w"), seconds(100)).await.unwrap();
    let due = |delay| kit.now().after(seconds(delay));
    let mut held = kit.start_held("r").await;
    assert_eq!(kit.expire().await.next_due, Some(due(100)));
    let waits_long = TaskOptions { queued_timeout_ms: Some(80_000), ..Default::default() };
    kit.commit(&mut held, vec![task(0, waits_long)]).await;
    assert_eq!(kit.expire().await.next_due, Some(due(80)));
    kit.commit(&mut held, vec![timer(1, due(60))]).await;
    assert_eq!(kit.expire().await.next_due, Some(due(60)));
    kit.claim_tasks("t", 1).await;
    assert_eq!(kit.expire().await.next_due, Some(due(30)));
}

pub async fn an_ended_run_has_no_timers(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    let due = kit.now().after(seconds(10));
    kit.commit(&mut held, vec![timer(0, due)]).await;
    kit.commit(&mut held, vec![completed()]).await;
    kit.reopen();
    kit.clock.set(due);
    assert_eq!(kit.expire().await.timers_fired, 0);
    assert!(kit.store().read_run(key("r"), None).await.unwrap().unwrap().status.is_closed());
}
