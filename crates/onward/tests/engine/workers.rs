//! Workers that die, fall silent and come back too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::{Builder, Status};

use crate::site::{Gate, Site, count, eventually, everywhere, until_logged, until_status};

/// State of one worker process: how often each step ran there, and whether the second may return.
struct Process {
    ran: [AtomicU32; 2],
    gate: Arc<Gate>,
    name: &'static str,
}

impl Process {
    fn new(name: &'static str) -> Arc<Process> {
        Arc::new(Process { ran: Default::default(), gate: Gate::shut(), name })
    }

    fn ran(&self, step: usize) -> u32 {
        self.ran[step].load(Ordering::SeqCst)
    }
}

async fn two_steps(ctx: Ctx, (): ()) -> Result<String> {
    let process = ctx.dep::<Arc<Process>>();
    ctx.step("first", async || {
        process.ran[0].fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(())
    })
    .await?;
    let name = ctx
        .step("second", async || {
            process.ran[1].fetch_add(1, Ordering::SeqCst);
            process.gate.pass().await;
            Ok::<_, Failure>(process.name.to_owned())
        })
        .await?;
    ctx.signal("end").recv::<()>().await?;
    Ok(name)
}

fn with_code(builder: Builder, process: &Arc<Process>) -> Builder {
    builder.workflow("two-steps", two_steps).dep(process.clone())
}

const LEASE: std::time::Duration = secs(30);

/// The number of live attempts, and of all attempts.
#[derive(Default)]
struct Attempts {
    live: std::sync::atomic::AtomicUsize,
    begun: std::sync::atomic::AtomicUsize,
}

impl Attempts {
    /// Never ends by itself.
    async fn hang(self: Arc<Attempts>) -> Result<(), Failure> {
        struct Live(Arc<Attempts>);
        impl Drop for Live {
            fn drop(&mut self) {
                self.0.live.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.live.fetch_add(1, Ordering::SeqCst);
        let _live = Live(self);
        std::future::pending().await
    }
}

async fn hangs(ctx: Ctx, (): ()) -> onward::Result<()> {
    ctx.task("hang", &()).timeout(secs(5)).retry(3).await
}

fn with_hanging_task(builder: Builder, attempts: &Arc<Attempts>) -> Builder {
    let attempts = attempts.clone();
    builder.workflow("hangs", hangs).task("hang", move |(): ()| attempts.clone().hang())
}

everywhere! {
    /// Attempts must not pile up: each takes up capacity.
    async fn an_attempt_that_timed_out_is_stopped_when_the_next_one_comes(site) {
        let attempts = Arc::new(Attempts::default());
        let onward = with_hanging_task(site.builder().await, &attempts).start().await.unwrap();
        let run = onward.start::<(), _>("hangs", &()).await.unwrap();
        for begun in 1..=3 {
            eventually("the attempt begins", async || {
                if attempts.begun.load(Ordering::SeqCst) < begun && begun > 1 {
                    site.pass(&onward, secs(1)).await;
                }
                (attempts.begun.load(Ordering::SeqCst) == begun).then_some(())
            })
            .await;
            eventually("it is alone", async || (attempts.live.load(Ordering::SeqCst) == 1).then_some(())).await;
            site.pass(&onward, secs(5)).await;
        }
        assert_eq!(run.result().await.unwrap_err().failure().unwrap().code, "timed_out");
        eventually("the last one is stopped too", async || (attempts.live.load(Ordering::SeqCst) == 0).then_some(())).await;
    }

    /// W2: a run that has ended frees its slot.
    async fn a_worker_with_room_for_few_runs_works_on_many_one_after_the_other(site) {
        async fn quick(_: Ctx, number: u32) -> Result<u32> {
            Ok(number)
        }
        let onward = site.builder().await.runs_max(2).workflow("quick", quick).start().await.unwrap();
        for number in 0..10u32 {
            assert_eq!(onward.start::<u32, _>("quick", &number).await.unwrap().result().await.unwrap(), number);
        }
    }

    async fn a_process_that_goes_stops_its_tasks(site) {
        let attempts = Arc::new(Attempts::default());
        let onward = with_hanging_task(site.builder().await, &attempts).start().await.unwrap();
        let run = onward.start::<(), _>("hangs", &()).await.unwrap();
        eventually("the attempt begins", async || (attempts.live.load(Ordering::SeqCst) == 1).then_some(())).await;
        drop((run, onward));
        eventually("the attempt ends", async || (attempts.live.load(Ordering::SeqCst) == 0).then_some(())).await;
    }

    /// Scenario 37.
    async fn a_run_whose_worker_died_goes_on_elsewhere_and_finished_steps_are_not_run_again(site) {
        site.lease.set(LEASE).unwrap();
        let (a, b) = (Process::new("a"), Process::new("b"));
        let onward = with_code(site.builder().await, &a).start().await.unwrap();
        let run = onward.start::<String, _>("two-steps", &()).id("r").await.unwrap();
        until_logged(&run, "step_completed", 1).await;
        eventually("the second step runs", async || (a.ran(1) == 1).then_some(())).await;
        drop((run, onward)); // no shutdown: the process dies during its step

        b.gate.open();
        let onward = with_code(site.builder().await, &b).start().await.unwrap();
        let run = onward.run::<String>("r").unwrap();
        eventually("the lease of the dead runs out", async || {
            site.pass(&onward, secs(10)).await;
            (b.ran(1) == 1).then_some(())
        })
        .await;
        run.signal("end", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "b");
        assert_eq!((a.ran(0), b.ran(0)), (1, 0), "what was recorded is not done again");
    }

    async fn an_unread_run_is_released_by_a_shutdown(site) {
        let (a, b) = (Process::new("a"), Process::new("b"));
        a.gate.open();
        let onward = with_code(site.builder().await, &a).start().await.unwrap();
        let run = onward.start::<String, _>("two-steps", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;
        let onward = with_code(site.builder().await, &b).start().await.unwrap();
        let run = onward.run::<String>("r").unwrap();
        run.signal("end", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "a", "no lease had to run out");
        assert_eq!(b.ran(0) + b.ran(1), 0);
    }
}

/// Scenario 38. Two processes over one store: the reference store, because a directory has one process at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_silent_too_long_is_fenced_when_it_commits_late() {
    let site = Site::memory();
    let (a, b) = (Process::new("a"), Process::new("b"));
    let alive = with_code(site.builder().await, &a).lease(LEASE).start().await.unwrap();
    let run = alive.start::<String, _>("two-steps", &()).id("r").await.unwrap();
    eventually("A works on the second step", async || (a.ran(1) == 1).then_some(())).await;

    let other = with_code(site.builder().await, &b).lease(LEASE).start().await.unwrap();
    for _ in 0..5 {
        // A sends heartbeats in time, so its lease continues however much time passes.
        site.pass(&alive, LEASE / 2).await;
        site.pass(&other, secs(0)).await;
    }
    assert_eq!(b.ran(0) + b.ran(1), 0, "B gets nothing while A holds the lease");

    b.gate.open();
    eventually("A falls silent and B takes over", async || {
        site.pass(&other, LEASE * 2).await;
        (b.ran(1) == 1).then_some(())
    })
    .await;
    until_logged(&run, "step_completed", 2).await;
    a.gate.open(); // A's step returns, too late
    run.signal("end", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "b");
    assert_eq!(count(&run, "step_completed").await, 2, "A's commit was refused");
    assert_eq!((a.ran(0), b.ran(0)), (1, 0));
}

/// A task's worker dies; another one gets the task under the next attempt number (K9), and the lost attempt does not count as
/// failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_worker_died_is_given_to_another_one() {
    async fn call_work(ctx: Ctx, (): ()) -> Result<(String, u32)> {
        ctx.task("work", &()).await
    }
    async fn work(ctx: TaskCtx, (): ()) -> Result<(String, u32)> {
        let process = ctx.dep::<Arc<Process>>();
        process.ran[0].fetch_add(1, Ordering::SeqCst);
        process.gate.pass().await;
        Ok((process.name.to_owned(), ctx.attempt()))
    }
    let site = Site::memory();
    let (a, b) = (Process::new("a"), Process::new("b"));
    let first = site.builder().await.task("work", work).dep(a.clone()).lease(LEASE).start().await.unwrap();
    let second = site.builder().await.workflow("ask", call_work).lease(LEASE).start().await.unwrap();
    let run = second.start::<(String, u32), _>("ask", &()).await.unwrap();
    eventually("A has the task", async || (a.ran(0) == 1).then_some(())).await;
    drop(first);
    b.gate.open();
    let third = site.builder().await.task("work", work).dep(b.clone()).lease(LEASE).start().await.unwrap();
    eventually("B has the task", async || {
        site.pass(&third, secs(10)).await;
        (b.ran(0) == 1).then_some(())
    })
    .await;
    assert_eq!(run.result().await.unwrap(), ("b".to_owned(), 2));
}
