//! A run that is paused while its steps run: their results are recorded, and nothing new begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::{Builder, Status, join};

use crate::site::{Gate, count, eventually, everywhere, until_logged, until_status};

/// Counts how often each step ran, and holds the steps until a test releases them.
struct Work {
    ran: [AtomicU32; 3],
    gates: [Arc<Gate>; 3],
}

impl Work {
    fn new() -> Arc<Work> {
        Arc::new(Work { ran: Default::default(), gates: std::array::from_fn(|_| Gate::shut()) })
    }

    async fn run(&self, step: usize) -> Result<u32> {
        let ran = self.ran[step].fetch_add(1, Ordering::SeqCst) + 1;
        self.gates[step].pass().await;
        Ok(ran)
    }

    async fn until_ran(&self, step: usize, times: u32) {
        eventually("the step runs", async || (self.ran(step) == times).then_some(())).await;
    }

    fn ran(&self, step: usize) -> u32 {
        self.ran[step].load(Ordering::SeqCst)
    }

    fn open_all(&self) {
        self.gates.iter().for_each(|gate| gate.open());
    }
}

async fn two_and_one(ctx: Ctx, (): ()) -> Result<(u32, u32, u32)> {
    let work = ctx.dep::<Arc<Work>>();
    let (a, b) = join!(ctx.step("a", async || work.run(0).await), ctx.step("b", async || work.run(1).await));
    let c = ctx.step("c", async || work.run(2).await).await?;
    Ok((a?, b?, c))
}

fn with_code(builder: Builder, work: &Arc<Work>) -> Builder {
    builder.workflow("w", two_and_one).dep(work.clone())
}

const LEASE: std::time::Duration = secs(30);

everywhere! {
    async fn what_steps_bring_while_their_run_is_paused_is_kept(site) {
        let work = Work::new();
        let onward = with_code(site.builder().await, &work).start().await.unwrap();
        let run = onward.start::<(u32, u32, u32), _>("w", &()).id("r").await.unwrap();
        work.until_ran(0, 1).await;
        work.until_ran(1, 1).await;
        run.pause("hold on").await.unwrap();
        work.open_all();
        until_logged(&run, "step_completed", 2).await;
        eventually("the run is let go", async || (onward.hot_runs() == 0).then_some(())).await;
        assert_eq!(run.view().await.unwrap().head.status, Status::Paused);
        assert_eq!((work.ran(2), count(&run, "run_suspended").await), (0, 0), "nothing new begins");
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), (1, 1, 1), "each step ran once");
    }

    async fn a_run_that_is_resumed_while_its_steps_still_run_goes_on_where_it_is(site) {
        let work = Work::new();
        let onward = with_code(site.builder().await, &work).start().await.unwrap();
        let run = onward.start::<(u32, u32, u32), _>("w", &()).id("r").await.unwrap();
        work.until_ran(1, 1).await;
        work.until_ran(0, 1).await;
        run.pause("").await.unwrap();
        work.gates[0].open();
        until_logged(&run, "step_completed", 1).await;
        run.resume().await.unwrap();
        run.pause("").await.unwrap();
        run.resume().await.unwrap();
        assert_eq!(run.view().await.unwrap().head.status, Status::Running, "its worker has it still");
        work.open_all();
        assert_eq!(run.result().await.unwrap(), (1, 1, 1));
    }

    async fn a_step_whose_process_died_while_its_run_was_paused_runs_again(site) {
        site.lease.set(LEASE).unwrap();
        let (dead, work) = (Work::new(), Work::new());
        let onward = with_code(site.builder().await, &dead).start().await.unwrap();
        let run = onward.start::<(u32, u32, u32), _>("w", &()).id("r").await.unwrap();
        dead.until_ran(0, 1).await;
        dead.until_ran(1, 1).await;
        run.pause("").await.unwrap();
        dead.gates[0].open();
        until_logged(&run, "step_completed", 1).await;
        drop((run, onward)); // no shutdown: the process dies during the second step

        work.open_all();
        let onward = with_code(site.builder().await, &work).start().await.unwrap();
        let run = onward.run::<(u32, u32, u32)>("r").unwrap();
        site.pass(&onward, secs(60)).await;
        assert_eq!((run.view().await.unwrap().head.status, work.ran(1)), (Status::Paused, 0));
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), (1, 1, 1));
        assert_eq!((dead.ran(0), work.ran(0), dead.ran(1), work.ran(1)), (1, 0, 1, 1));
    }

    async fn a_step_that_fails_while_its_run_is_paused_is_tried_again_after_the_resume(site) {
        async fn flaky(ctx: Ctx, (): ()) -> Result<u32> {
            let work = ctx.dep::<Arc<Work>>();
            let attempt = ctx.step_with("a", async |attempt: Attempt| {
                let ran = work.run(0).await?;
                if attempt.number == 1 { Err(Failure::retryable("busy")) } else { Ok(ran) }
            });
            attempt.retry(3).await
        }
        let work = Work::new();
        let onward = site.builder().await.workflow("flaky", flaky).dep(work.clone()).start().await.unwrap();
        let run = onward.start::<u32, _>("flaky", &()).await.unwrap();
        work.until_ran(0, 1).await;
        run.pause("").await.unwrap();
        work.open_all();
        until_logged(&run, "step_failed", 1).await;
        site.pass(&onward, days(1)).await;
        assert_eq!(count(&run, "timer_fired").await, 0, "its timers are paused as well");
        run.resume().await.unwrap();
        eventually("the second attempt", async || {
            site.pass(&onward, secs(10)).await;
            (count(&run, "step_completed").await == 1).then_some(())
        })
        .await;
        assert_eq!(run.result().await.unwrap(), 2);
    }

    /// Pauses at any time neither lose nor repeat anything; every commit is replayed from the start.
    async fn pauses_at_any_moment_change_nothing(site) {
        async fn busy(ctx: Ctx, (): ()) -> Result<u32> {
            let work = ctx.dep::<Arc<Work>>();
            let mut sum = 0;
            for _ in 0..20 {
                let (a, b, signaled) = join!(
                    ctx.step("a", async || work.run(0).await.map(|_| 1)),
                    ctx.step("b", async || {
                        tokio::task::yield_now().await;
                        work.run(1).await.map(|_| 1)
                    }),
                    ctx.signal("s").recv::<u32>(),
                );
                sum += a? + b? + signaled? + u32::from(ctx.signal("never").has());
            }
            Ok(sum)
        }
        let work = Work::new();
        work.open_all();
        let onward = site.builder().await.workflow("busy", busy).dep(work.clone()).start().await.unwrap();
        let run = onward.start::<u32, _>("busy", &()).id("r").await.unwrap();
        for number in 0..20 {
            run.pause("").await.unwrap();
            run.signal("s", &1u32).await.unwrap();
            if number % 2 == 0 {
                tokio::task::yield_now().await;
            }
            run.resume().await.unwrap();
        }
        assert_eq!(run.result().await.unwrap(), 60);
        assert_eq!((work.ran(0), work.ran(1)), (20, 20));
    }

    async fn a_paused_run_that_waits_is_let_go_and_found_again(site) {
        async fn wait(ctx: Ctx, (): ()) -> Result<u32> {
            ctx.signal("s").recv().await
        }
        let onward = site.builder().await.workflow("wait", wait).start().await.unwrap();
        let run = onward.start::<u32, _>("wait", &()).await.unwrap();
        until_status(&run, Status::Waiting).await;
        run.pause("").await.unwrap();
        run.signal("s", &7).await.unwrap();
        eventually("the run is let go", async || (onward.hot_runs() == 0).then_some(())).await;
        assert_eq!(run.view().await.unwrap().head.status, Status::Paused);
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
    }
}
