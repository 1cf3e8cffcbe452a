//! Watches and waiting for the end.

use onward_core::Payload;

use crate::faulty::{Happening, When};
use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn a_watch_returns_after_an_append_and_not_before() {
    let kit = Harness::new();
    kit.start("r").await;
    kit.start("other").await;
    let mut watch = kit.runtime.watch_run(&key("r")).await.unwrap();
    kit.runtime.signal_run(&key("other"), signal("x")).await.unwrap();
    assert!(waits(watch.changed()).await);
    for _ in 0..3 {
        kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    }
    watch.changed().await.unwrap();
    assert!(waits(watch.changed()).await, "several appends are one change");
}

#[tokio::test(start_paused = true)]
async fn an_append_while_the_watch_is_made_is_a_change() {
    let kit = Harness::new();
    kit.start("r").await;
    let append = |memory: &onward_store::MemoryStore| {
        let request = onward_core::event::CancelRequested::new(String::new());
        now(onward_store::Store::append_input(memory, key("r"), onward_core::run::Input::new(request))).unwrap();
    };
    kit.store.once("read_run", When::After, Happening::Do(Box::new(append)));
    let mut watch = kit.runtime.watch_run(&key("r")).await.unwrap();
    let begun = tokio::time::Instant::now();
    watch.changed().await.unwrap();
    assert_eq!(begun.elapsed(), seconds(0));
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_notifications_polls() {
    let kit = Harness::new();
    kit.start("r").await;
    let mut watch = kit.runtime.watch_run(&key("r")).await.unwrap();
    kit.store.go_deaf();
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    tokio::time::timeout(seconds(2), watch.changed()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_for_very_long_costs_few_looks() {
    let kit = Harness::new();
    kit.start("r").await;
    let before = kit.store.calls("read_run");
    let waited = tokio::time::timeout(seconds(3_600), kit.runtime.wait_for_outcome(&key("r"))).await;
    assert!(waited.is_err());
    assert!(kit.store.calls("read_run") - before < 250, "{}", kit.store.calls("read_run"));
}

#[tokio::test(start_paused = true)]
async fn the_watch_of_a_deleted_run_reports_it() {
    let kit = Harness::new();
    kit.closed("r").await;
    let mut watch = kit.runtime.watch_run(&key("r")).await.unwrap();
    kit.runtime.delete_run(&key("r"), "").await.unwrap();
    refused(watch.changed().await, "run_not_found");
}

/// The end comes at every moment of the wait: before it, during the first read, and after.
#[tokio::test(start_paused = true)]
async fn the_end_is_never_missed() {
    for deaf in [false, true] {
        for moment in 0..4 {
            let kit = Harness::new();
            kit.start("r").await;
            if deaf {
                kit.store.go_deaf();
            }
            let end = |memory: &onward_store::MemoryStore| {
                let request = onward_core::event::TerminateRequested { reason: String::new(), reset_to: None };
                now(onward_store::Store::append_input(memory, key("r"), onward_core::run::Input::new(request))).unwrap();
            };
            match moment {
                0 => end(&kit.store.memory),
                1 => kit.store.once("read_run", When::Before, Happening::Do(Box::new(end))),
                2 => kit.store.once("read_run", When::After, Happening::Do(Box::new(end))),
                _ => {}
            }
            let late = async {
                tokio::task::yield_now().await;
                if moment == 3 {
                    end(&kit.store.memory);
                }
            };
            let (run, begun) = (key("r"), tokio::time::Instant::now());
            let (outcome, ()) = tokio::join!(kit.runtime.wait_for_outcome(&run), late);
            assert_eq!(outcome.unwrap().unwrap_err().code, "terminated", "deaf {deaf}, moment {moment}");
            assert!(deaf || begun.elapsed() == seconds(0), "moment {moment}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_is_the_end_of_its_last_generation() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let changes = async {
        tokio::task::yield_now().await;
        kit.commit(&mut held, vec![continued()]).await;
        let mut next = kit.next_held(&worker).await;
        kit.complete(&mut next).await;
    };
    let run = key("r");
    let (outcome, ()) = tokio::join!(kit.runtime.wait_for_outcome(&run), changes);
    assert_eq!(outcome.unwrap(), Ok(text("out")));
    assert_eq!(kit.runtime.read_run(&key("r")).await.unwrap().head.generation, 1);
}

#[tokio::test(start_paused = true)]
async fn a_received_end_is_not_read_again() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let (reads, end) = (kit.store.calls("read_log"), async {
        tokio::task::yield_now().await;
        kit.complete(&mut held).await;
    });
    let run = key("r");
    let (outcome, ()) = tokio::join!(kit.runtime.wait_for_outcome(&run), end);
    assert_eq!((outcome.unwrap(), kit.store.calls("read_log")), (Ok(text("out")), reads));
    assert_ne!(text("out"), Payload::null());
}
