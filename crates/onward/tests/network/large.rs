//! Scenario F25: long logs, deep trees and wide fans over a server, in time that grows with their size and no faster.

use std::time::{Duration, Instant};

use onward::Onward;
use onward::prelude::*;

use crate::site::Site;

async fn long(ctx: Ctx, steps: u32) -> Result<u32> {
    let mut sum = 0;
    for n in 0..steps {
        sum += ctx.step("one", async || Ok::<_, Failure>(n % 2)).await?;
    }
    ctx.signal("end").recv::<()>().await?;
    Ok(sum)
}

async fn deep(ctx: Ctx, depth: u32) -> Result<u32> {
    match depth {
        0 => Ok(0),
        _ => Ok(ctx.child::<u32>("deep", &(depth - 1)).await? + 1),
    }
}

async fn wide(ctx: Ctx, tasks: u32) -> Result<u32> {
    Ok(join_all((0..tasks).map(|n| ctx.task::<u32>("same", &n))).await?.into_iter().sum())
}

fn worker(url: &str) -> onward::Builder {
    let same = async |n: u32| Ok::<_, Failure>(n);
    Onward::connect(url).workflow("long", long).workflow("deep", deep).workflow("wide", wide).task("same", same)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_log_is_made_and_replayed_in_time_that_grows_with_it() {
    let site = Site::directory().await;
    let url = format!("http://{}", site.address);
    let mut replays = Vec::new();
    for steps in [1_000, 4_000] {
        let first = worker(&url).start().await.unwrap();
        let run = first.start::<u32, _>("long", &steps).id(format!("r{steps}")).await.unwrap();
        let waits = |view: &onward::RunView| view.head.status == onward::Status::Waiting;
        tokio::time::timeout(Duration::from_secs(120), run.until(waits)).await.expect("it gets there").unwrap();
        drop(run);
        first.shutdown().await;
        let second = worker(&url).start().await.unwrap();
        let run = second.run::<u32>(&format!("r{steps}")).unwrap();
        let started = Instant::now();
        run.signal("end", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), steps / 2);
        replays.push(started.elapsed());
        second.shutdown().await;
    }
    // Four times the log, and some room for a busy machine; what grows with the square takes sixteen times as long.
    assert!(replays[1] < replays[0] * 10 + Duration::from_secs(1), "{replays:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deep_tree_and_a_wide_fan_come_to_their_ends() {
    let site = Site::memory().await;
    let worker = worker(&format!("http://{}", site.address)).start().await.unwrap();
    let deep = worker.start::<u32, _>("deep", &300).id("d").await.unwrap();
    let wide = worker.start::<u32, _>("wide", &3_000).id("w").await.unwrap();
    let patience = Duration::from_secs(120);
    assert_eq!(tokio::time::timeout(patience, deep.result()).await.expect("the tree ends").unwrap(), 300);
    assert_eq!(tokio::time::timeout(patience, wide.result()).await.expect("the fan ends").unwrap(), 2_999 * 1_500);
}
