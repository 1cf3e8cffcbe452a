//! Live views and feeds: notices reach readers at every server, and never wait for one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::api::RunQuery;
use onward_core::live::{LiveContent, LiveFrame, RunningStep, StepsReport};
use onward_core::task::{TaskOptions, TaskReport};
use onward_core::{Payload, Record, RunHead, Status, Timestamp};
use onward_runtime::{Emitted, FeedFrame, Inbox, LocalConnection, Question, RunChange, RunFeed, RunUpdates, WorkerConnection};

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
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.status), (RunChange::Started, Status::Pending));
    let worker = kit.worker("w");
    let mut held = kit.next_held(&worker).await;
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.status), (RunChange::Status, Status::Running), "a claim appends nothing");
    kit.complete(&mut held).await;
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
    let kit = shared();
    let mut feed = kit.runtime.watch_runs(RunQuery::default());
    kit.start("r").await;
    kit.store.hint(&onward_store::Change::Missed);
    assert_eq!(feed.next().await.unwrap(), FeedFrame::Reset);
    kit.closed("s").await;
    let (change, head) = changed(&mut feed).await;
    assert_eq!((change, head.key), (RunChange::Ended, key("s")));
}
