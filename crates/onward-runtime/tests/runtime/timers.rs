//! Timers: once, never early, oldest first, in bounded passes.

use std::sync::{Arc, Mutex};

use onward_core::event::{PauseReason, RunPaused, WaitCanceled};
use onward_core::{Event, Timestamp};
use onward_store::{Change, Clock, Listener, Store};

use crate::kit::*;

async fn sleeping(kit: &Harness, span: std::time::Duration) -> HeldRun {
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    kit.commit(&mut held, vec![timer(0, kit.clock.now().after(span))]).await;
    worker.leave().await;
    held
}

#[tokio::test]
async fn a_timer_fires_once_and_never_early() {
    let kit = Harness::new();
    let due = kit.clock.now().after(seconds(10));
    sleeping(&kit, seconds(10)).await;
    kit.clock.set(Timestamp(due.0 - 1));
    let tick = kit.runtime.tick().await;
    assert_eq!((tick.counts.timers_fired, tick.next_due), (0, Some(due)));
    kit.clock.set(due);
    assert_eq!(kit.runtime.tick().await.counts.timers_fired, 1);
    assert_eq!(kit.runtime.tick().await.counts.timers_fired, 0);
    assert_eq!(kit.log("r").await, ["run_started", "timer_started", "timer_fired"]);
}

#[tokio::test]
async fn a_timer_whose_firing_was_not_acknowledged_fires_no_second_time() {
    for when in [crate::faulty::When::Before, crate::faulty::When::After] {
        let kit = Harness::new();
        sleeping(&kit, seconds(10)).await;
        kit.advance(seconds(10));
        kit.store.fail_once("expire", when);
        kit.settle().await;
        assert_eq!(kit.log("r").await, ["run_started", "timer_started", "timer_fired"]);
    }
}

#[tokio::test]
async fn a_canceled_timer_never_fires() {
    let kit = Harness::new();
    let mut held = sleeping(&kit, seconds(10)).await;
    kit.commit(&mut held, vec![WaitCanceled { call_id: at(0) }.into()]).await;
    kit.advance(seconds(60));
    kit.settle().await;
    assert_eq!(kit.log("r").await, ["run_started", "timer_started", "wait_canceled"]);
}

#[tokio::test]
async fn a_paused_runs_timer_keeps_its_remaining_time() {
    let kit = Harness::new();
    sleeping(&kit, seconds(10)).await;
    kit.advance(seconds(4));
    let pause = RunPaused::because(PauseReason::Requested, "");
    kit.runtime.pause_run(&key("r"), pause).await.unwrap();
    kit.advance(seconds(3_600));
    assert_eq!(kit.runtime.tick().await.counts.timers_fired, 0);
    kit.runtime.resume_run(&key("r"), None).await.unwrap();
    kit.advance(seconds(5));
    assert_eq!(kit.runtime.tick().await.counts.timers_fired, 0);
    kit.advance(seconds(1));
    assert_eq!(kit.runtime.tick().await.counts.timers_fired, 1);
}

#[tokio::test]
async fn two_runtimes_over_one_store_fire_a_timer_once() {
    let kit = Harness::new();
    let other = kit.other_runtime();
    sleeping(&kit, seconds(10)).await;
    kit.advance(seconds(10));
    let (one, two) = tokio::join!(kit.runtime.tick(), other.tick());
    assert_eq!(one.counts.timers_fired + two.counts.timers_fired, 1);
    assert_eq!(kit.log("r").await, ["run_started", "timer_started", "timer_fired"]);
}

/// A listener that records whose timers fire, in order.
#[derive(Default)]
struct Fired(Mutex<Vec<String>>);

impl Listener for Fired {
    fn changed(&self, change: &Change) {
        if let Change::Appended { head, record } = change
            && let Some(Event::TimerFired(_)) = record.events.first()
        {
            self.0.lock().unwrap().push(head.key.id.to_string());
        }
    }
}

/// F26: everything became due while the process was down.
#[tokio::test]
async fn ten_thousand_due_timers_fire_in_bounded_passes_oldest_first() {
    let count: u64 = if std::env::var_os("ONWARD_SLOW").is_some() { 10_000 } else { 2_000 };
    let kit = Harness::new();
    let worker = kit.runtime.join_worker(profile("w", usize::MAX));
    let begun = kit.clock.now();
    for number in 0..count {
        kit.start(&format!("r{number}")).await;
    }
    let mut runs = Vec::new();
    while runs.len() < count as usize {
        runs.extend(worker.next_runs(1_000).await);
    }
    for (number, run) in runs.iter().enumerate() {
        // Due in another order than they were started in.
        let due = begun.after(std::time::Duration::from_millis((number as u64 * 7_919) % count));
        let events = vec![timer(0, due)];
        kit.runtime.store().commit(HeldRun::of(run).draft(onward_core::Index(0), events)).await.unwrap();
    }
    let fired = Arc::new(Fired::default());
    kit.store.memory.subscribe(fired.clone());
    kit.clock.set(begun.after(seconds(20)));
    assert_eq!(kit.runtime.tick().await.counts.timers_fired, count);
    let passes = kit.store.calls("expire") as u64;
    assert!((count / 256..count / 256 + 3).contains(&passes), "{passes} passes");
    let order: Vec<u64> = fired.0.lock().unwrap().iter().map(|id| id[1..].parse::<u64>().unwrap() * 7_919 % count).collect();
    assert_eq!(order.len() as u64, count);
    assert!(order.is_sorted());
}
