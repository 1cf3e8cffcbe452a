//! Background jobs: prompt when something is due, quiet when nothing is.

use std::sync::Arc;
use std::time::Duration;

use onward_core::event::OnParentClose;
use onward_core::{Status, Timestamp};
use onward_runtime::{Options, Runtime};
use onward_store::{Clock, MemoryStore};

use crate::faulty::FaultyStore;
use crate::kit::*;

/// A clock that uses tokio's time, which tests can pause.
struct TokioClock(tokio::time::Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_800_000_000_000).after(self.0.elapsed())
    }
}

fn start_up() -> (Runtime, Arc<FaultyStore>, Arc<TokioClock>) {
    let clock = Arc::new(TokioClock(tokio::time::Instant::now()));
    let store = Arc::new(FaultyStore::new(MemoryStore::new(clock.clone())));
    (Runtime::new(store.clone(), clock.clone(), Options::default()), store, clock)
}

#[tokio::test(start_paused = true)]
async fn an_idle_runtime_looks_once_per_fallback() {
    let (runtime, store, _) = start_up();
    let _background = runtime.spawn();
    tokio::time::sleep(seconds(100)).await;
    assert!((99..=102).contains(&store.calls("expire")), "{}", store.calls("expire"));
    assert!(store.calls("delete_runs") <= 3);
    assert_eq!(store.calls("heartbeat"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_timer_fires_at_its_time_and_not_with_the_fallback() {
    let (runtime, _store, clock) = start_up();
    let _background = runtime.spawn();
    let worker = runtime.join_worker(profile("w", 10));
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    runtime.start_run(start("r")).await.unwrap();
    let held = HeldRun::of(&worker.next_runs(1).await[0]);
    let due = clock.now().after(Duration::from_millis(123));
    runtime.store().commit(held.draft(onward_core::Index(0), vec![timer(0, due)])).await.unwrap();
    let mut watch = runtime.watch_run(&key("r")).await.unwrap();
    watch.changed().await.unwrap();
    let late = clock.now().since(due);
    assert!(late <= Duration::from_millis(2), "{late:?} late");
}

#[tokio::test(start_paused = true)]
async fn news_are_carried_at_once() {
    let (runtime, _store, clock) = start_up();
    let _background = runtime.spawn();
    let worker = runtime.join_worker(profile("w", 10));
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    let begun = clock.now();
    runtime.start_run(start("p")).await.unwrap();
    let held = HeldRun::of(&worker.next_runs(1).await[0]);
    let events = vec![child(0, "c", OnParentClose::Cancel)];
    runtime.store().commit(held.draft(onward_core::Index(0), events)).await.unwrap();
    let run = worker.next_runs(1).await.remove(0);
    assert_eq!((run.head.key, clock.now()), (key("c"), begun));
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_kept_known_and_a_silent_one_is_not() {
    let (runtime, store, _) = start_up();
    let background = runtime.spawn();
    let worker = runtime.join_worker(profile("w", 10));
    runtime.start_run(start("r")).await.unwrap();
    let held = HeldRun::of(&worker.next_runs(1).await[0]);
    let diary = open_diary(&worker, &held);
    tokio::time::sleep(seconds(300)).await;
    assert_eq!((runtime.read_head(&key("r")).await.unwrap().status, diary.lost()), (Status::Running, 0));
    assert!((30..=33).contains(&store.calls("heartbeat")), "{}", store.calls("heartbeat"));
    worker.leave().await;
    tokio::time::sleep(seconds(32)).await;
    assert_eq!(runtime.read_head(&key("r")).await.unwrap().status, Status::Pending);
    background.stop().await;
}

#[tokio::test(start_paused = true)]
async fn heartbeats_go_on_while_housekeeping_is_stuck() {
    let (runtime, store, _) = start_up();
    let _background = runtime.spawn();
    let worker = runtime.join_worker(profile("w", 10));
    tokio::time::sleep(seconds(2)).await;
    let _never = store.stall_once("expire", crate::faulty::When::Before);
    runtime.start_run(start("r")).await.unwrap();
    let diary = open_diary(&worker, &HeldRun::of(&worker.next_runs(1).await[0]));
    tokio::time::sleep(seconds(300)).await;
    assert!(store.calls("heartbeat") >= 29);
    assert_eq!(diary.lost(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_in_trouble_is_polled_no_more_often_than_the_fallback() {
    let (runtime, store, _) = start_up();
    let _background = runtime.spawn();
    store.set_down(true);
    tokio::time::sleep(seconds(100)).await;
    assert!(store.calls("expire") <= 102, "{}", store.calls("expire"));
}

#[tokio::test(start_paused = true)]
async fn stopped_or_dropped_it_does_nothing_more() {
    for stop in [false, true] {
        let (runtime, store, _) = start_up();
        let background = runtime.spawn();
        tokio::time::sleep(seconds(5)).await;
        if stop {
            background.stop().await;
        } else {
            drop(background);
        }
        let calls = store.calls("expire");
        tokio::time::sleep(seconds(50)).await;
        assert_eq!(store.calls("expire"), calls);
    }
}
