//! F25: long logs, deep trees and wide fans need work that is linear in their size, and bounded memory.
//!
//! Work is counted, not timed: polls of the code, and the CPU time of this process, which a busy machine does not change. Each
//! case has a size and a quarter of it. The ordinary run has small sizes; `ONWARD_SIZES=full` (`cargo xtask torture`) has 100,000
//! steps, 1,000 levels of children and 10,000 tasks at once.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use super::*;

/// Maximum cost of four times the size; quadratic growth costs sixteen times as much.
const GROWTH_MAX: u64 = 8;

fn sizes(ordinary: u32, full: u32) -> [u32; 2] {
    let most = if std::env::var("ONWARD_SIZES").is_ok_and(|sizes| sizes == "full") { full } else { ordinary };
    [most / 4, most]
}

static POLLS: AtomicU64 = AtomicU64::new(0);

/// Counts how often the code is polled.
struct Counted<F>(Pin<Box<F>>);

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        POLLS.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(context)
    }
}

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

async fn wide(ctx: Ctx, tasks: u32) -> Result<u64> {
    let tasks = (0..tasks).map(|n| ctx.task::<u32>("same", &n));
    Ok(join_all(tasks).await?.into_iter().map(u64::from).sum())
}

fn with_code(builder: Builder) -> Builder {
    let same = async |n: u32| Ok::<_, Failure>(n);
    builder
        .workflow("long", |ctx, steps| Counted(Box::pin(long(ctx, steps))))
        .workflow("deep", |ctx, depth| Counted(Box::pin(deep(ctx, depth))))
        .workflow("wide", |ctx, tasks| Counted(Box::pin(wide(ctx, tasks))))
        .task("same", same)
        .threads(1)
}

/// The cost of a case: polls of the code, milliseconds of CPU time, and peak memory in bytes.
#[derive(Debug, Clone, Copy)]
struct Work {
    polls: u64,
    cpu_ms: u64,
    bytes: u64,
}

/// Returns the CPU time of this process so far, in milliseconds.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<u64>().unwrap();
    (ticks(11) + ticks(12)) * 10 // a tick is a hundredth of a second
}

async fn measured(work: impl Future<Output = ()>) -> Work {
    forget_peak();
    let (polls, cpu, memory) = (POLLS.load(Ordering::Relaxed), cpu_ms(), status("VmRSS"));
    tokio::time::timeout(DEADLINE * 10, work).await.expect("it comes to its end");
    let bytes = peak().saturating_sub(memory);
    Work { polls: POLLS.load(Ordering::Relaxed) - polls, cpu_ms: cpu_ms() - cpu, bytes }
}

/// Checks that the cost is linear. `per_unit` is the maximum number of polls, and of bytes, for each step, child or task.
#[track_caller]
fn assert_linear(what: &str, sizes: [u32; 2], work: [Work; 2], per_unit: (u64, u64)) {
    println!("{what} {sizes:?}: {work:?}");
    let most = u64::from(sizes[1]);
    assert!(work[1].polls <= per_unit.0 * most + 100, "{what}: {work:?}");
    // Half a second for what does not depend on the size.
    assert!(work[1].cpu_ms <= GROWTH_MAX * work[0].cpu_ms + 500, "{what}: {work:?}");
    assert!(work[1].bytes <= per_unit.1 * most + 40_000_000, "{what}: {work:?}");
}

#[test]
fn a_long_log_is_made_and_replayed_in_work_that_grows_with_it() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let sizes = sizes(4_000, 100_000);
    let (mut making, mut replaying) = (Vec::new(), Vec::new());
    for steps in sizes {
        let directory = tempfile::tempdir().unwrap();
        let open = async || with_code(Onward::embedded(directory.path())).start().await.unwrap();
        runtime().block_on(async {
            let onward = open().await;
            let made = measured(async {
                let run = onward.start::<u32, _>("long", &steps).id("r").await.unwrap();
                run.until(waits).await.unwrap();
            });
            making.push(made.await);
            onward.shutdown().await;
            let onward = open().await;
            let replayed = measured(async {
                let run = onward.run::<u32>("r").unwrap();
                run.signal("end", &()).await.unwrap();
                assert_eq!(run.result().await.unwrap(), steps / 2);
            });
            replaying.push(replayed.await);
            onward.shutdown().await;
        });
    }
    assert_linear("making steps", sizes, [making[0], making[1]], (4, 4_000));
    assert_linear("replaying steps", sizes, [replaying[0], replaying[1]], (4, 4_000));
}

#[test]
fn a_deep_tree_takes_work_that_grows_with_it() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let sizes = sizes(200, 1_000);
    let mut work = Vec::new();
    for depth in sizes {
        runtime().block_on(async {
            let onward = with_code(Onward::in_memory()).start().await.unwrap();
            let came = measured(async {
                let run = onward.start::<u32, _>("deep", &depth).id("d").await.unwrap();
                assert_eq!(run.result().await.unwrap(), depth);
            });
            work.push(came.await);
            onward.shutdown().await;
        });
    }
    assert_linear("depth", sizes, [work[0], work[1]], (8, 100_000));
}

#[test]
fn a_wide_fan_takes_work_that_grows_with_it() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let sizes = sizes(2_000, 10_000);
    let mut work = Vec::new();
    for tasks in sizes {
        runtime().block_on(async {
            let onward = with_code(Onward::in_memory()).start().await.unwrap();
            let came = measured(async {
                let run = onward.start::<u64, _>("wide", &tasks).id("w").await.unwrap();
                assert_eq!(run.result().await.unwrap(), u64::from(tasks) * u64::from(tasks - 1) / 2);
            });
            work.push(came.await);
            onward.shutdown().await;
        });
    }
    assert_linear("width", sizes, [work[0], work[1]], (8, 20_000));
}
