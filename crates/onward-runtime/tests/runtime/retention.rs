//! Retention: whole runs, when their time is over, without races with readers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward_core::event::OnParentClose;
use onward_runtime::{Options, Runtime, Signal};
use onward_store::{MemoryStore, Retention, SystemClock};

use crate::kit::*;

fn keeping(default: Duration) -> Harness {
    let by_kind = BTreeMap::from([(name("audit"), seconds(3_600))]);
    Harness::with(Options { retention: Retention { default, by_kind }, ..Default::default() })
}

#[tokio::test]
async fn closed_runs_go_when_the_time_of_their_kind_is_over() {
    let kit = keeping(seconds(100));
    kit.closed("short").await;
    kit.start("open").await;
    let audit = onward_runtime::StartRequest { kind: name("audit"), ..start("long") };
    kit.runtime.start_run(audit).await.unwrap();
    kit.runtime.terminate_run(&key("long"), "").await.unwrap();
    kit.advance(seconds(99));
    assert_eq!(kit.runtime.tick().await.counts.runs_deleted, 0);
    kit.advance(seconds(60));
    assert_eq!(kit.runtime.tick().await.counts.runs_deleted, 1);
    refused(kit.runtime.read_run(&key("short")).await, "run_not_found");
    kit.advance(seconds(3_600));
    assert_eq!(kit.runtime.tick().await.counts.runs_deleted, 1);
    refused(kit.runtime.read_run(&key("long")).await, "run_not_found");
    kit.runtime.read_run(&key("open")).await.unwrap();
}

#[tokio::test]
async fn retention_looks_once_a_minute_and_takes_a_few_at_a_time() {
    let kit = keeping(seconds(0));
    for number in 0..600 {
        kit.closed(&format!("r{number}")).await;
    }
    for expected in [256, 0, 256, 0, 88, 0] {
        assert_eq!(kit.runtime.tick().await.counts.runs_deleted, expected);
        if expected == 0 {
            kit.advance(seconds(1));
        }
    }
    let calls = kit.store.calls("delete_runs");
    for _ in 0..59 {
        kit.advance(seconds(1));
        kit.runtime.tick().await;
    }
    assert!(kit.store.calls("delete_runs") - calls <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_news_are_not_delivered_is_kept() {
    let kit = keeping(seconds(0));
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "p").await;
    kit.start("q").await;
    kit.commit(&mut held, vec![sent(0, "q"), child(1, "c", OnParentClose::Abandon)]).await;
    kit.complete(&mut held).await;
    refused(kit.runtime.delete_run(&key("p"), "").await, "run_busy");
    kit.settle().await;
    refused(kit.runtime.delete_run(&key("p"), "").await, "run_busy");
    kit.runtime.terminate_run(&key("c"), "").await.unwrap();
    kit.settle().await;
    kit.runtime.delete_run(&key("p"), "").await.unwrap();
}

/// F27: a read or a signal during retention gets all of the run or none of it.
#[test]
fn a_run_is_read_whole_or_not_at_all_while_retention_deletes() {
    let clock = Arc::new(SystemClock);
    let options = Options { retention: Retention { default: Duration::ZERO, by_kind: BTreeMap::new() }, ..Default::default() };
    let runtime = Runtime::new(Arc::new(MemoryStore::new(clock.clone())), clock, options);
    let (over, rounds) = (AtomicBool::new(false), if std::env::var_os("ONWARD_SLOW").is_some() { 3_000 } else { 300 });
    let block_on = |future: std::pin::Pin<Box<dyn Future<Output = ()> + '_>>| {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block_on(Box::pin(async {
                for _ in 0..rounds {
                    runtime.start_run(start("r")).await.unwrap();
                    for _ in 0..20 {
                        let signal = Signal { signal_id: None, ..signal("x") };
                        runtime.signal_run(&key("r"), signal).await.unwrap();
                    }
                    runtime.terminate_run(&key("r"), "").await.unwrap();
                    while runtime.read_head(&key("r")).await.is_ok() {
                        std::thread::yield_now();
                    }
                }
                over.store(true, Ordering::SeqCst);
            }))
        });
        scope.spawn(|| {
            block_on(Box::pin(async {
                while !over.load(Ordering::SeqCst) {
                    let delete = runtime.delete_run(&key("r"), "").await;
                    assert!(delete.is_ok() || ["run_busy", "run_not_found"].contains(&delete.unwrap_err().code()));
                }
            }))
        });
        scope.spawn(|| {
            block_on(Box::pin(async {
                while !over.load(Ordering::SeqCst) {
                    match runtime.read_run(&key("r")).await {
                        Ok(view) => {
                            let received = view.counts.signals_received;
                            assert_eq!(received + 1 + u64::from(view.outcome.is_some()), view.head.next_index.0);
                            assert!(view.outcome.is_none() || view.undelivered.len() == 20);
                        }
                        Err(error) => assert_eq!(error.code(), "run_not_found"),
                    }
                    match runtime.signal_run(&key("s"), signal("x")).await {
                        Ok(_) => panic!("there is no such run"),
                        Err(error) => assert_eq!(error.code(), "run_not_found"),
                    }
                }
            }))
        });
    });
}
