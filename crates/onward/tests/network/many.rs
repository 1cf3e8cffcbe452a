//! Very many waits on one connection.

use std::time::Duration;

use onward::prelude::*;
use onward::{Onward, RunHandle};

use crate::site::{DEADLINE, Site};

/// Far more than a connection has streams.
const RUNS: usize = 1_000;

async fn patient(ctx: Ctx, n: u64) -> Result<u64> {
    let more: u64 = ctx.signal("go").recv().await?;
    if more == 0 { Err(Failure::fatal("told to fail")) } else { Ok(n + more) }
}

async fn start_all(onward: &Onward) -> Vec<RunHandle<u64>> {
    let mut runs = Vec::new();
    for n in 0..RUNS as u64 {
        runs.push(onward.start::<u64, _>("patient", &n).id(format!("p-{n}")).await.unwrap());
    }
    runs
}

async fn connect(site: &Site) -> Onward {
    Onward::connect(format!("http://{}", site.address)).workflow("patient", patient).start().await.unwrap()
}

/// A thousand waits block neither each other nor other calls on the connection, and each gets its own result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_ends_are_awaited_at_once_over_one_connection() {
    let site = Site::memory().await;
    let onward = connect(&site).await;
    let runs = start_all(&onward).await;
    let waits: Vec<_> = runs.iter().cloned().map(|run| tokio::spawn(async move { run.result().await })).collect();
    // While all of them wait, calls succeed: they need streams, too. A wait that occupied one would occupy it for longer than
    // this.
    let calls = async {
        for run in runs.iter().rev().take(50) {
            run.view().await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, calls).await.expect("calls do not wait for waits");
    for (n, run) in runs.iter().enumerate().rev() {
        run.signal("go", &(n as u64 % 2)).await.unwrap();
    }
    let all = async {
        for (n, wait) in waits.into_iter().enumerate() {
            let n = n as u64;
            match (n % 2, wait.await.unwrap()) {
                (1, Ok(sum)) => assert_eq!(sum, n + 1),
                (0, Err(error)) => assert_eq!(error.code(), "run_failed"),
                (_, other) => panic!("run {n} ended with {other:?}"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, all).await.expect("every end is heard");
    onward.shutdown().await;
}

/// Waits continue when the server comes back, and results from meanwhile are delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_survive_the_death_of_the_server() {
    let mut site = Site::directory().await;
    let onward = connect(&site).await;
    let (short, long) = (onward.start::<u64, _>("patient", &1).id("short"), onward.start::<u64, _>("patient", &2).id("long"));
    let (short, long) = (short.await.unwrap(), long.await.unwrap());
    let spawn = |run: RunHandle<u64>| tokio::spawn(async move { run.result().await.unwrap() });
    let (short_wait, long_wait) = (spawn(short.clone()), spawn(long.clone()));
    site.until_logged("short", "signal_awaited", 1).await;
    site.kill().await;
    site.revive().await;
    crate::site::insist(async || short.signal("go", &10).id("s").await).await;
    assert_eq!(tokio::time::timeout(DEADLINE, short_wait).await.unwrap().unwrap(), 11);
    site.kill().await;
    site.revive().await;
    crate::site::insist(async || long.signal("go", &20).id("l").await).await;
    assert_eq!(tokio::time::timeout(DEADLINE, long_wait).await.unwrap().unwrap(), 22);
    onward.shutdown().await;
}

/// A wait for a missing run, and one that was dropped, do not affect the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_wait_that_fails_or_is_given_up_leaves_the_others_alone() {
    let site = Site::memory().await;
    let onward = connect(&site).await;
    let run = onward.start::<u64, _>("patient", &1).id("p").await.unwrap();
    let missing = onward.run::<u64>("nope").unwrap();
    let (first, second) = (run.clone(), run.clone());
    let kept = tokio::spawn(async move { first.result().await.unwrap() });
    let given_up = tokio::time::timeout(Duration::from_millis(50), second.result()).await;
    assert!(given_up.is_err());
    assert_eq!(missing.result().await.unwrap_err().code(), "run_not_found");
    run.signal("go", &1).await.unwrap();
    assert_eq!(tokio::time::timeout(DEADLINE, kept).await.unwrap().unwrap(), 2);
    assert_eq!(run.result().await.unwrap(), 2, "a past end is delivered, too");
    onward.shutdown().await;
}
