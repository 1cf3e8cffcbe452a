//! Workers that shut down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::Onward;
use onward::prelude::*;

use crate::proxy::{Faults, Proxy};
use crate::site::{DEADLINE, LEASE, Site, eventually};

/// How long a shutdown waits for an attempt that does not end.
const SHORT: Duration = Duration::from_millis(100);

async fn call_count(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.task("count", &()).await
}

/// Waits forever at its first attempt; returns the attempt number later.
async fn count(ctx: TaskCtx, (): ()) -> Result<u32> {
    if ctx.dep::<Arc<AtomicU32>>().fetch_add(1, Ordering::SeqCst) == 0 {
        std::future::pending::<()>().await;
    }
    Ok(ctx.attempt())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaving_worker_uses_no_attempt_and_causes_no_delay() {
    let site = Site::memory().await;
    let (url, began) = (format!("http://{}", site.address), Arc::new(AtomicU32::new(0)));
    let first = Onward::connect(&url).task("count", count).dep(began.clone()).shutdown_timeout(SHORT);
    let first = first.start().await.unwrap();
    let second = Onward::connect(&url).workflow("ask", call_count).start().await.unwrap();
    let run = second.start::<u32, _>("ask", &()).await.unwrap();
    eventually("the task has begun", async || (began.load(Ordering::SeqCst) == 1).then_some(())).await;
    first.shutdown().await;
    let _third = Onward::connect(&url).task("count", count).dep(began.clone()).start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2, "the first attempt has used up its number, but no retry");
}

/// K6: it has begun, and its shutdown did not wait long enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_must_not_be_done_twice_outlives_no_shutdown() {
    async fn call_count_once(ctx: Ctx, (): ()) -> Result<u32> {
        ctx.task("count", &()).at_most_once().retry(5).await
    }
    let site = Site::memory().await;
    let (url, began) = (format!("http://{}", site.address), Arc::new(AtomicU32::new(0)));
    let worker = || Onward::connect(&url).task("count", count).dep(began.clone()).shutdown_timeout(SHORT);
    let first = worker().start().await.unwrap();
    let second = Onward::connect(&url).workflow("ask", call_count_once).start().await.unwrap();
    let run = second.start::<u32, _>("ask", &()).await.unwrap();
    eventually("the task has begun", async || (began.load(Ordering::SeqCst) == 1).then_some(())).await;
    let _third = worker().start().await.unwrap();
    first.shutdown().await;
    let failed = run.result().await.unwrap_err();
    assert_eq!(failed.failure().map(|failure| failure.code.as_str()), Some("outcome_unknown"), "{failed}");
    assert_eq!(began.load(Ordering::SeqCst), 1);
}

/// An unreachable server must not keep a worker from ending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_although_the_server_cannot_be_reached() {
    async fn rest(ctx: Ctx, (): ()) -> Result<()> {
        ctx.signal("end").recv::<()>().await
    }
    let site = Site::memory().await;
    let proxy = Proxy::new(site.address, 0).await;
    let worker = Onward::connect(&proxy.url).workflow("rest", rest).start().await.unwrap();
    let run = worker.start::<(), _>("rest", &()).id("r").await.unwrap();
    site.until_logged("r", "signal_awaited", 1).await;
    drop(run);
    proxy.set(Faults { refuse: true, ..Faults::default() });
    proxy.cut();
    tokio::time::timeout(DEADLINE, worker.shutdown()).await.expect("it ends");
    let straight = format!("http://{}", site.address);
    let other = Onward::connect(&straight).workflow("rest", rest).start().await.unwrap();
    let run = other.run::<()>("r").unwrap();
    run.signal("end", &()).await.unwrap();
    tokio::time::timeout(LEASE * 20, run.result()).await.expect("another goes on after the lease").unwrap();
}
