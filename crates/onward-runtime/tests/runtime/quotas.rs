//! Quotas of namespaces: what becomes of starts and tasks that they hold back.

use onward_core::api::{PutQuotaRequest, PutScheduleRequest, ScheduleRequest};
use onward_core::event::OnParentClose;
use onward_core::quota::{QuotaSettings, next_day};
use onward_core::schedule::{Ending, Interval, Overlap, ScheduleDefinition, ScheduleOptions, ScheduleSpec, ScheduleTarget};
use onward_core::spend::PicoDollars;
use onward_core::task::{Task, TaskOptions, TaskReport};
use onward_core::{Namespace, Status, Timestamp};
use onward_runtime::{BlockReason, CallContext, LocalConnection};

use crate::kit::*;

fn none() -> QuotaSettings {
    QuotaSettings::default()
}

async fn set(kit: &Harness, settings: QuotaSettings) {
    kit.runtime.put_quota(PutQuotaRequest { namespace: Namespace::default(), settings }).await.unwrap();
}

async fn next_task(worker: &LocalConnection) -> Task {
    let mut tasks = tokio::time::timeout(seconds(600), worker.next_tasks(1)).await.expect("there is a task for the worker");
    tokio::task::yield_now().await;
    tasks.remove(0)
}

/// A start of a schedule that is refused is not retried: its slot ends with the code, and the next one is started again.
#[tokio::test(start_paused = true)]
async fn a_slot_that_a_quota_refuses_says_why_and_the_schedule_goes_on() {
    let kit = Harness::new();
    kit.clock.set(Timestamp(600_000));
    let target = ScheduleTarget {
        kind: name("order"),
        input: text("in"),
        is_template: false,
        version: None,
        attributes: Vec::new(),
        deadline_ms: None,
    };
    let spec = ScheduleSpec { every: vec![Interval { every_ms: 60_000, offset_ms: 0 }], ..ScheduleSpec::default() };
    let options = ScheduleOptions { overlap: Overlap::AllowAll, ..ScheduleOptions::default() };
    let definition = ScheduleDefinition { target, spec, options, requester: None, granted: None };
    let (namespace, schedule) = (Namespace::default(), name("s"));
    let put =
        PutScheduleRequest { namespace: namespace.clone(), schedule: schedule.clone(), definition, budget: None, force: true };
    set(&kit, QuotaSettings { runs_open_max: Some(0), ..none() }).await;
    kit.runtime.put_schedule(put, CallContext::default()).await.expect("a schedule is no run of a caller");
    let about = ScheduleRequest { namespace, schedule };
    kit.advance(seconds(60));
    kit.settle().await;
    let view = kit.runtime.read_schedule(&about).await.unwrap();
    let ended = view.history.last().unwrap().ended.clone().unwrap();
    assert_eq!((ended.ending, ended.code.as_deref()), (Ending::Failed, Some("quota_exceeded")));
    assert!(kit.runtime.store().outbox_messages(10).await.unwrap().is_empty(), "NQ5: nothing is in the way of others");
    refused(kit.runtime.read_run(&key("s@1970-01-01T00:11:00Z")).await, "run_not_found");
    set(&kit, QuotaSettings { runs_open_max: Some(1), ..none() }).await;
    kit.advance(seconds(60));
    kit.settle().await;
    kit.head("s@1970-01-01T00:12:00Z").await;
}

/// NQ1: a commit that starts a child is not failed by a quota, neither then nor when the child is started.
#[tokio::test(start_paused = true)]
async fn a_child_is_started_beyond_the_quota() {
    let kit = Harness::new();
    set(&kit, QuotaSettings { runs_open_max: Some(1), ..none() }).await;
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    refused(kit.runtime.start_run(start("s")).await, "quota_exceeded");
    kit.commit(&mut held, vec![child(0, "r/c", OnParentClose::Abandon)]).await;
    kit.settle().await;
    assert!(!kit.head("r/c").await.status.is_closed());
    let view = kit.runtime.read_quota(Namespace::default()).await.unwrap();
    assert_eq!(view.usage.runs_open, 2);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_quota_holds_back_says_so() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.runtime.tick().await;
    let mut held = kit.start_held(&worker, "r").await;
    set(&kit, QuotaSettings { tasks_running_max: Some(0), ..none() }).await;
    let costs = TaskOptions { costs: true, ..TaskOptions::default() };
    kit.commit(&mut held, vec![task(0, TaskOptions::default()), task(1, costs)]).await;
    let why = async || {
        let found = kit.runtime.blocked_on(&key("r")).await.unwrap();
        found.iter().filter(|of| of.task.is_some()).map(|of| (of.why, of.until)).collect::<Vec<_>>()
    };
    assert_eq!(why().await, [(BlockReason::TaskQuota, None), (BlockReason::TaskQuota, None)]);
    set(&kit, QuotaSettings { spend_per_day_max: Some(PicoDollars(0)), ..none() }).await;
    assert_eq!(next_task(&worker).await.id.call_id, at(0), "it costs nothing");
    let until = next_day(kit.runtime.clock().now());
    assert_eq!(why().await, [(BlockReason::SpendQuota, Some(until))]);
    assert!(kit.runtime.blocked_on(&key("r")).await.unwrap()[0].hint().unwrap().contains("onward quota show"));
    set(&kit, QuotaSettings { spend_per_day_max: Some(PicoDollars(1)), ..none() }).await;
    assert_eq!(next_task(&worker).await.id.call_id, at(1), "the quota was raised");
    assert_eq!(kit.head("r").await.status, Status::Waiting);
}

/// The end of a task wakes the worker that a quota made wait.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_makes_room_for_the_next_one_at_once() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.runtime.tick().await;
    let mut held = kit.start_held(&worker, "r").await;
    set(&kit, QuotaSettings { tasks_running_max: Some(1), ..none() }).await;
    kit.commit(&mut held, vec![task(0, TaskOptions::default()), task(1, TaskOptions::default())]).await;
    let first = next_task(&worker).await;
    assert!(waits(worker.next_tasks(1)).await, "NQ3");
    let begun = tokio::time::Instant::now();
    let report = worker.report_task(first.id.clone(), first.claim, TaskReport::Completed(text("sent")));
    let (reported, second) = tokio::join!(report, next_task(&worker));
    reported.unwrap();
    assert_eq!((second.id.call_id, begun.elapsed()), (at(1), seconds(0)));
}
