//! Tasks that run at the same time on real workers, and waits that race.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::{Status, select};
use tokio::sync::Barrier;

use crate::site::{Gate, count, eventually, everywhere, until_logged, until_status};

async fn fan_out(ctx: Ctx, tasks: u32) -> Result<Vec<u32>> {
    join_all((0..tasks).map(|n| ctx.task::<u32>("work", &n))).await
}

/// Runs two gated tasks, takes the first answer, and sleeps for an hour.
async fn first_then_sleep(ctx: Ctx, (): ()) -> Result<String> {
    let winner: String = select! {
        slow = ctx.task("gated", "slow") => slow?,
        fast = ctx.task("gated", "fast") => fast?,
    };
    ctx.sleep(hours(1)).await?;
    Ok(winner)
}

struct Gates {
    slow: Arc<Gate>,
    fast: Arc<Gate>,
}

async fn gated(ctx: TaskCtx, which: String) -> Result<String> {
    let gates = ctx.dep::<Gates>();
    if which == "slow" {
        gates.slow.pass().await
    } else {
        gates.fast.pass().await
    }
    Ok(which)
}

everywhere! {
    /// Scenario 8.
    async fn tasks_that_end_in_reverse_order_answer_in_the_order_of_the_calls(site) {
        let gates: Vec<_> = (0..3).map(|_| Gate::shut()).collect();
        gates[2].open();
        let reversed = move |n: u32| {
            let gates = gates.clone();
            async move {
                gates[n as usize].pass().await;
                if let Some(before) = n.checked_sub(1) {
                    gates[before as usize].open();
                }
                Ok::<_, Failure>(n * 10)
            }
        };
        let onward = site.builder().await.workflow("fan-out", fan_out).task("work", reversed).start().await.unwrap();
        let run = onward.start::<Vec<u32>, _>("fan-out", &3).await.unwrap();
        assert_eq!(run.result().await.unwrap(), [0, 10, 20]);
    }

    /// Scenarios 9 and 10.
    async fn twenty_tasks_that_end_at_once_wake_the_run_and_none_is_lost(site) {
        let together = Arc::new(Barrier::new(20));
        let work = move |n: u32| {
            let together = together.clone();
            async move {
                together.wait().await;
                Ok::<_, Failure>(n)
            }
        };
        let onward = site.builder().await.workflow("fan-out", fan_out).task("work", work).start().await.unwrap();
        let run = onward.start::<Vec<u32>, _>("fan-out", &20).await.unwrap();
        assert_eq!(run.result().await.unwrap(), (0..20).collect::<Vec<_>>());
        assert_eq!(count(&run, "task_completed").await, 20);
    }

    /// Scenario 10.
    async fn runs_whose_tasks_end_at_any_moment_never_hang(site) {
        async fn work(n: u32) -> Result<u32> {
            for _ in 0..n % 3 {
                tokio::task::yield_now().await;
            }
            Ok(n)
        }
        let onward = site.builder().await.workflow("fan-out", fan_out).task("work", work).start().await.unwrap();
        let mut runs = Vec::new();
        for _ in 0..20 {
            runs.push(onward.start::<Vec<u32>, _>("fan-out", &7).await.unwrap());
        }
        for run in runs {
            assert_eq!(run.result().await.unwrap(), (0..7).collect::<Vec<_>>());
        }
    }

    /// Scenario 11.
    async fn the_winner_of_a_select_survives_a_restart_after_the_loser_has_answered(site) {
        let (slow, fast) = (Gate::shut(), Gate::shut());
        fast.open();
        let start = async |slow: &Arc<Gate>, fast: &Arc<Gate>| {
            let gates = Gates { slow: slow.clone(), fast: fast.clone() };
            let builder = site.builder().await.workflow("first", first_then_sleep);
            builder.task("gated", gated).dep(gates).start().await.unwrap()
        };
        let onward = start(&slow, &fast).await;
        let run = onward.start::<String, _>("first", &()).id("r").await.unwrap();
        until_logged(&run, "timer_started", 1).await;
        slow.open();
        until_logged(&run, "task_completed", 2).await;
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;

        let onward = start(&slow, &fast).await;
        site.pass(&onward, hours(1)).await;
        let run = onward.run::<String>("r").unwrap();
        assert_eq!(run.result().await.unwrap(), "fast");
        assert_eq!(count(&run, "timer_fired").await, 1);
    }

    /// Scenarios 12 and 13.
    async fn an_answer_in_time_stops_its_timer_and_a_late_one_changes_nothing(site) {
        async fn limited(ctx: Ctx, which: String) -> Result<String> {
            let answer = ctx.timeout(ctx.task::<String>("gated", &which), mins(1)).await;
            let outcome = answer.or_else(|failure| if failure.is_timed_out() { Ok("timed out".to_owned()) } else { Err(failure) })?;
            ctx.signal("end").recv::<()>().await?;
            Ok(outcome)
        }
        let gates = Gates { slow: Gate::shut(), fast: Gate::shut() };
        gates.fast.open();
        let slow = gates.slow.clone();
        let builder = site.builder().await.workflow("limited", limited).task("gated", gated).dep(gates);
        let onward = builder.start().await.unwrap();

        let in_time = onward.start::<String, _>("limited", "fast").await.unwrap();
        until_logged(&in_time, "wait_canceled", 1).await;
        let late = onward.start::<String, _>("limited", "slow").await.unwrap();
        until_logged(&late, "timer_started", 1).await;
        site.pass(&onward, hours(1)).await;
        until_logged(&late, "timer_fired", 1).await;
        slow.open();
        until_logged(&late, "task_completed", 1).await;
        site.pass(&onward, days(1)).await;
        for (run, expected, fired) in [(in_time, "fast", 0), (late, "timed out", 1)] {
            run.signal("end", &()).await.unwrap();
            assert_eq!(run.result().await.unwrap(), expected);
            assert_eq!(count(&run, "timer_fired").await, fired, "{expected}");
        }
    }

    /// Scenario 16.
    async fn a_task_that_is_canceled_while_it_runs_is_stopped_and_its_result_is_refused(site) {
        struct Stopped(Arc<AtomicU32>);
        impl Drop for Stopped {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        async fn cancel_loser(ctx: Ctx, (): ()) -> Result<String> {
            let mut endless = ctx.task::<String>("endless", &());
            let winner = select! {
                signal = ctx.signal("go").recv::<String>() => signal?,
                answer = &mut endless => answer?,
            };
            endless.cancel();
            let failure = endless.await.expect_err("a canceled task has no answer");
            Ok(format!("{winner} {}", failure.code))
        }
        let (stopped, began) = (Arc::new(AtomicU32::new(0)), Gate::shut());
        let (in_task, begins) = (stopped.clone(), began.clone());
        let endless = move |(): ()| {
            let (guard, begins) = (Stopped(in_task.clone()), begins.clone());
            async move {
                let _guard = guard;
                begins.open();
                std::future::pending::<Result<String>>().await
            }
        };
        let onward = site.builder().await.workflow("race", cancel_loser).task("endless", endless).start().await.unwrap();
        let run = onward.start::<String, _>("race", &()).await.unwrap();
        began.pass().await;
        run.signal("go", "won").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "won canceled");
        eventually("the attempt is stopped", async || (stopped.load(Ordering::SeqCst) == 1).then_some(())).await;
    }

    async fn a_task_that_fails_is_tried_again_by_its_policy_and_then_fails_the_run(site) {
        async fn insist(ctx: Ctx, (): ()) -> Result<()> {
            ctx.task("flaky", &()).retry(3).await
        }
        let attempts = Arc::new(AtomicU32::new(0));
        let in_task = attempts.clone();
        let flaky = move |ctx: TaskCtx, (): ()| {
            in_task.store(ctx.attempt(), Ordering::SeqCst);
            async { Err::<(), _>(Failure::retryable("busy")) }
        };
        let onward = site.builder().await.workflow("insist", insist).task("flaky", flaky).start().await.unwrap();
        let run = onward.start::<(), _>("insist", &()).await.unwrap();
        for attempt in 1..=3 {
            eventually(&format!("attempt {attempt}"), async || (attempts.load(Ordering::SeqCst) == attempt).then_some(())).await;
            eventually("it waits for the next attempt or is over", async || {
                site.pass(&onward, secs(1)).await;
                (attempts.load(Ordering::SeqCst) > attempt || count(&run, "task_failed").await == 1).then_some(())
            })
            .await;
        }
        let failure = run.result().await.unwrap_err();
        assert_eq!(failure.failure().unwrap().message, "busy");
        assert_eq!(attempts.load(Ordering::SeqCst), 3);
    }

    async fn a_task_that_panics_fails_with_its_words_and_the_worker_goes_on(site) {
        async fn call_work(ctx: Ctx, n: u32) -> Result<u32> {
            ctx.task("work", &n).await
        }
        async fn work(n: u32) -> Result<u32> {
            assert!(n != 0, "zero is not allowed");
            Ok(n)
        }
        let onward = site.builder().await.workflow("ask", call_work).task("work", work).start().await.unwrap();
        let error = onward.start::<u32, _>("ask", &0).await.unwrap().result().await.unwrap_err();
        let failure = error.failure().unwrap();
        assert_eq!((&*failure.code, &*failure.message), ("panicked", "the task panicked: zero is not allowed"));
        assert_eq!(onward.start::<u32, _>("ask", &1).await.unwrap().result().await.unwrap(), 1);
    }
}
