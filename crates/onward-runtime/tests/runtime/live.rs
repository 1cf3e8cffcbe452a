//! Live views and feeds: notices reach readers at every server, and never wait for one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::api::{RunQuery, WatchRequest};
use onward_core::event::{RunFailed, StepCompleted, StepFailed};
use onward_core::live::{LiveContent, LiveFrame, RunningStep, StepsReport};
use onward_core::run::reopen::Retry;
use onward_core::task::{TaskOptions, TaskReport};
use onward_core::{Event, Failure, Payload, Record, RunHead, Status, Timestamp};
use onward_runtime::{Emitted, FeedFrame, Inbox, LocalConnection, Question, RunChange, RunFeed, RunUpdates, WorkerConnection};
use onward_store::Change;

use crate::faulty::When;
use crate::kit::*;

/// An inbox that records whether its run is watched.
#[derive(Default)]
struct WatchedInbox(Mutex<Vec<bool>>);

impl Inbox for WatchedInbox {
    fn push(&self, _: Record) {}
    fn lost(&self) {}
    fn ask(&self, question: Question) -> Result<(), Question> {
        Err(question)
    }
    fn watch(&self, on: bool) -> bool {
        self.0.lock().unwrap().push(on);
        true
    }
}

impl WatchedInbox {
    fn last(&self) -> Option<bool> {
        self.0.lock().unwrap().last().copied()
    }

    async fn until(&self, on: bool) {
        while self.last() != Some(on) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn step(call: u32) -> RunningStep {
    RunningStep { call_id: at(call), name: name("charge"), attempt: 1, started_at: Timestamp(3), input: None }
}

fn step_completed(call: u32) -> Event {
    let RunningStep { call_id, name, attempt, input, .. } = step(call);
    StepCompleted { call_id, name, input_hash: None, output: Payload::null(), attempt, took_ms: 1, input }.into()
}

fn step_failed(call: u32) -> Event {
    let RunningStep { call_id, name, attempt, input, .. } = step(call);
    let failure = Failure::fatal("no");
    StepFailed { call_id, name, input_hash: None, failure, attempt, took_ms: 1, retry_at: None, input }.into()
}

fn report(worker: &LocalConnection, is_complete: bool, steps: Vec<RunningStep>) {
    worker.report_steps(StepsReport { run: key("r"), generation: 0, is_complete, steps });
}

async fn next(updates: &mut RunUpdates) -> LiveContent {
    let LiveFrame { content, .. } = updates.next().await.unwrap().expect("the view goes on");
    content
}

fn shared() -> Harness {
    let kit = Harness::new();
    kit.store.share();
    kit
}

#[tokio::test(start_paused = true)]
async fn a_reader_at_another_server_gets_the_steps_of_a_worker() {
    let kit = shared();
    let other = kit.other_runtime();
    let backgrounds = [kit.runtime.spawn(), other.spawn()];
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    let inbox = Arc::new(WatchedInbox::default());
    worker.open_inbox(&held.key, held.epoch, inbox.clone());
    assert_eq!(inbox.last(), None, "LW2: nothing reads it");
    let reporting = {
        let (worker, inbox) = (worker.clone(), inbox.clone());
        tokio::spawn(async move {
            inbox.until(true).await;
            report(&worker, true, vec![step(1)]);
        })
    };
    let mut updates = other.watch_updates(key("r").into()).await.unwrap();
    let LiveContent::Snapshot(snapshot) = next(&mut updates).await else { panic!("LU2") };
    reporting.await.unwrap();
    assert_eq!((snapshot.status, snapshot.active.len()), (Status::Running, 1), "LW3");
    assert!(matches!(next(&mut updates).await, LiveContent::Log(_)));
    report(&worker, false, vec![step(2)]);
    let LiveContent::StepStarted(started) = next(&mut updates).await else { panic!("LW3") };
    assert_eq!(started.step, step(2));
    WorkerConnection::emit(&worker, &key("r"), Emitted::new("sum", Payload::null()));
    assert!(matches!(next(&mut updates).await, LiveContent::Emitted(_)), "LW3");
    drop(updates);
    tokio::time::timeout(seconds(60), inbox.until(false)).await.expect("LW2");
    for background in backgrounds {
        background.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_is_dropped_and_the_worker_does_not_wait() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.start_held(&worker, "r").await;
    let mut updates = kit.runtime.watch_updates(key("r").into()).await.unwrap();
    assert!(matches!(next(&mut updates).await, LiveContent::Snapshot(_)));
    let LiveContent::Log(first) = next(&mut updates).await else { panic!("LU1") };
    for value in 0..5_000u64 {
        WorkerConnection::emit(&worker, &key("r"), Emitted::new("n", Payload::from_json_text(value.to_string())));
    }
    let LiveContent::Dropped(dropped) = next(&mut updates).await else { panic!("LW1") };
    assert_eq!(dropped.cursor.map(|cursor| cursor.index), Some(first.record.last_index()), "LW1");
    assert!(updates.next().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_claimed_run_is_watched_from_the_moment_its_inbox_opens() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    let updates = kit.runtime.watch_updates(key("r").into()).await.unwrap();
    let inbox = Arc::new(WatchedInbox::default());
    worker.open_inbox(&held.key, held.epoch, inbox.clone());
    assert_eq!(inbox.last(), Some(true), "LW2");
    drop(updates);
    assert_eq!(inbox.last(), Some(false), "LW2");
}

#[tokio::test(start_paused = true)]
async fn tasks_are_shown_when_they_start_and_when_they_report_progress() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let mut updates = kit.runtime.watch_updates(key("r").into()).await.unwrap();
    while !matches!(next(&mut updates).await, LiveContent::Log(_)) {}
    kit.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    let claimed = worker.next_tasks(1).await.remove(0);
    let progress = Some(text("half way"));
    worker.report_task(claimed.id.clone(), claimed.claim, TaskReport::Heartbeat { progress: progress.clone() }).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        match next(&mut updates).await {
            LiveContent::TaskStarted(started) => {
                seen.push(format!("{} {:?}", started.name, started.worker.map(|id| id.to_string())))
            }
            LiveContent::TaskProgress(of) => seen.push(format!("{} {:?}", of.name, Some(of.progress) == progress)),
            _ => {}
        }
    }
    assert_eq!(seen, ["mail Some(\"w\")", "mail true"]);
    let active = kit.runtime.active(&key("r")).await.unwrap();
    assert_eq!((active.len(), &active[0].progress, active[0].attempt), (1, &progress, 1));
    worker.report_task(claimed.id, claimed.claim, TaskReport::Completed(Payload::null())).await.unwrap();
    assert!(kit.runtime.active(&key("r")).await.unwrap().is_empty());
}

async fn changed(feed: &mut RunFeed) -> (RunChange, RunHead) {
    match feed.next().await.unwrap() {
        FeedFrame::Run { change, head } => (change, *head),
        FeedFrame::Reset => panic!("nothing was lost"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_shows_changes_that_another_server_made() {
    let kit = shared();
    let other = kit.other_runtime();
    let backgrounds = [kit.runtime.spawn(), other.spawn()];
    let mut feed = other.watch_runs(RunQuery::default());
    tokio::time::sleep(Duration::from_millis(10)).await; // the other server knows of the feed
    kit.start("r").await;
    kit.store.hint(&Change::Elsewhere { run: key("r"), ends: false });
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.status), (RunChange::Started, Status::Pending));
    let worker = kit.worker("w");
    let mut held = kit.next_held(&worker).await;
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.status), (RunChange::Status, Status::Running), "a claim appends nothing");
    kit.complete(&mut held).await;
    kit.store.hint(&Change::Elsewhere { run: key("r"), ends: true });
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.status), (RunChange::Ended, Status::Completed));
    kit.runtime.delete_run(&key("r"), "").await.unwrap();
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.key), (RunChange::Deleted, key("r")));
    for background in backgrounds {
        background.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_is_reset_when_changes_of_other_servers_may_be_lost() {
    let kit = Harness::new();
    let mut feed = kit.runtime.watch_runs(RunQuery::default());
    kit.start("r").await;
    kit.store.hint(&Change::Missed);
    assert_eq!(feed.next().await.unwrap(), FeedFrame::Reset);
    kit.closed("s").await;
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.key), (RunChange::Ended, key("s")));
}

/// LW2
#[tokio::test(start_paused = true)]
async fn a_run_that_waits_in_memory_is_watched_when_a_reader_comes() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let inbox = Arc::new(WatchedInbox::default());
    worker.open_inbox(&held.key, held.epoch, inbox.clone());
    kit.commit(&mut held, vec![awaited(0, "go")]).await;
    assert_eq!(kit.head("r").await.status, Status::Waiting);
    let mut updates = kit.runtime.watch_updates(key("r").into()).await.unwrap();
    assert!(matches!(next(&mut updates).await, LiveContent::Snapshot(_)));
    assert_eq!(inbox.last(), Some(true), "LW2");
    while !matches!(next(&mut updates).await, LiveContent::Log(_)) {}
    report(&worker, false, vec![step(3)]);
    let started = async {
        loop {
            if let LiveContent::StepStarted(started) = next(&mut updates).await {
                break started;
            }
        }
    };
    assert_eq!(started.await.step, step(3), "LU2");
}

/// LU3
#[tokio::test(start_paused = true)]
async fn a_step_that_ended_before_the_snapshot_is_not_shown_as_started() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    worker.open_inbox(&held.key, held.epoch, Arc::new(ListingInbox(worker.clone())));
    let _other = kit.runtime.watch_updates(key("r").into()).await.unwrap();
    let request = WatchRequest { from_end: true, ..key("r").into() };
    let mut updates = kit.runtime.watch_updates(request).await.unwrap();
    report(&worker, false, vec![step(1)]);
    kit.commit(&mut held, vec![step_completed(1)]).await;
    let LiveContent::Snapshot(snapshot) = next(&mut updates).await else { panic!("LU2") };
    assert!(snapshot.active.is_empty(), "{snapshot:?}");
    kit.complete(&mut held).await;
    while let Some(frame) = updates.next().await.unwrap() {
        assert!(!matches!(frame.content, LiveContent::StepStarted(_)), "LU3: {frame:?}");
    }
}

/// A reader that is not scheduled until the run has ended gets what was emitted before.
#[tokio::test(start_paused = true)]
async fn values_that_were_emitted_before_the_end_are_shown_before_it() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let mut updates = kit.runtime.watch_updates(key("r").into()).await.unwrap();
    while !matches!(next(&mut updates).await, LiveContent::Log(_)) {}
    WorkerConnection::emit(&worker, &key("r"), Emitted::new("sum", Payload::null()));
    kit.complete(&mut held).await;
    let mut names = Vec::new();
    while let Some(LiveFrame { content, .. }) = updates.next().await.unwrap() {
        names.extend(match content {
            LiveContent::Emitted(_) => Some("emitted"),
            LiveContent::End(_) => Some("end"),
            _ => None,
        });
    }
    assert_eq!(names, ["emitted", "end"]);
}

/// Lists no steps on each request.
struct ListingInbox(LocalConnection);

impl Inbox for ListingInbox {
    fn push(&self, _: Record) {}
    fn lost(&self) {}
    fn ask(&self, question: Question) -> Result<(), Question> {
        Err(question)
    }
    fn watch(&self, on: bool) -> bool {
        if on {
            let worker = self.0.clone();
            tokio::spawn(async move { report(&worker, true, Vec::new()) }); // not under the lock of the caller
        }
        true
    }
}

/// LU2: ends that a retry has set aside do not hide the attempts that follow.
#[tokio::test(start_paused = true)]
async fn steps_of_a_retried_run_are_shown_as_they_start() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let failed = RunFailed { failure: Failure::fatal("no"), attempts: None };
    kit.commit(&mut held, vec![step_failed(0), failed.into()]).await;
    let retry = Retry::new("q");
    kit.runtime.retry_run(&key("r"), &retry).await.unwrap();
    let held = kit.next_held(&worker).await;
    worker.open_inbox(&held.key, held.epoch, Arc::new(ListingInbox(worker.clone())));
    let mut updates = kit.runtime.watch_updates(key("r").into()).await.unwrap();
    assert!(matches!(next(&mut updates).await, LiveContent::Snapshot(_)));
    report(&worker, false, vec![step(0)]);
    let started = loop {
        match next(&mut updates).await {
            LiveContent::StepStarted(started) => break started,
            LiveContent::Log(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(started.step, step(0));
}

/// LW1
#[tokio::test(start_paused = true)]
async fn unread_notices_of_a_run_take_a_bounded_number_of_bytes() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.start_held(&worker, "r").await;
    let mut updates = kit.runtime.watch_updates(key("r").into()).await.unwrap();
    while !matches!(next(&mut updates).await, LiveContent::Log(_)) {}
    for _ in 0..40 {
        WorkerConnection::emit(&worker, &key("r"), Emitted::new("big", text(&"x".repeat(1024 * 1024))));
    }
    let mut bytes = 0;
    let last = loop {
        match next(&mut updates).await {
            LiveContent::Emitted(emitted) => bytes += emitted.value.data().len(),
            last => break last,
        }
    };
    assert!(matches!(last, LiveContent::Dropped(_)), "{last:?}");
    assert!(bytes <= 17 * 1024 * 1024, "{bytes}");
}

/// FD1
#[tokio::test(start_paused = true)]
async fn a_change_while_a_feed_reads_the_run_is_shown() {
    let kit = shared();
    let worker = kit.worker("w");
    let mut feed = kit.runtime.watch_runs(RunQuery::default());
    let mut held = kit.start_held(&worker, "r").await;
    let changed_elsewhere = |ends| kit.store.hint(&Change::Elsewhere { run: key("r"), ends });
    changed_elsewhere(false);
    let gate = kit.store.stall_once("read_run", When::After);
    let reading = tokio::spawn(async move {
        let frames = [feed.next().await.unwrap(), feed.next().await.unwrap()];
        frames.map(|frame| match frame {
            FeedFrame::Run { head, .. } => head.status,
            FeedFrame::Reset => panic!("nothing was lost"),
        })
    });
    while kit.store.calls("read_run") == 0 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await; // the read has its result
    kit.complete(&mut held).await;
    changed_elsewhere(true);
    gate.notify_one();
    assert_eq!(reading.await.unwrap(), [Status::Running, Status::Completed], "FD1");
}

/// FD2
#[tokio::test(start_paused = true)]
async fn a_run_of_before_the_feed_that_no_longer_matches_is_shown_once_more() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    kit.commit(&mut held, vec![awaited(0, "go")]).await;
    kit.advance(seconds(1));
    let mut feed = kit.runtime.watch_runs(RunQuery { statuses: vec![Status::Waiting], ..RunQuery::default() });
    kit.complete(&mut held).await;
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.status), (RunChange::Ended, Status::Completed), "FD2");
    kit.start("s").await;
    kit.runtime.terminate_run(&key("s"), "").await.unwrap();
    let silent = tokio::time::timeout(seconds(60), feed.next()).await;
    assert!(silent.is_err(), "it never matched: {silent:?}");
}

/// FD1: neither frequent wakeups nor a failed broadcast silence a feed at another server.
#[tokio::test(start_paused = true)]
async fn a_feed_at_another_server_is_announced_however_busy_its_server_is() {
    let kit = shared();
    let other = kit.other_runtime();
    let backgrounds = [kit.runtime.spawn(), other.spawn()];
    kit.start("r").await;
    kit.advance(seconds(1));
    let mut feed = other.watch_runs(RunQuery::default());
    for _ in 0..40 {
        drop(other.active(&key("r")).await.unwrap()); // wakes the exchange of broadcasts
        tokio::time::sleep(seconds(1)).await;
    }
    let worker = kit.worker("w");
    let held = kit.next_held(&worker).await;
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.status), (RunChange::Status, Status::Running));
    kit.store.fail_once("broadcast", When::Before);
    worker.release(held.key.clone(), held.epoch).await.unwrap();
    let frame = tokio::time::timeout(seconds(60), feed.next()).await.expect("FD1").unwrap();
    assert_eq!(frame, FeedFrame::Reset);
    for background in backgrounds {
        background.stop().await;
    }
}
