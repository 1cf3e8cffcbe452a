//! Timers that outlive processes.

use onward::prelude::*;
use onward::{AwaitedKind, Status, join};
use onward_store::Clock;

use crate::site::{count, events, eventually, everywhere, paused, until_logged, until_status};

async fn nap(ctx: Ctx, (): ()) -> Result<u64> {
    let before = ctx.now();
    ctx.sleep(hours(2)).await?;
    Ok(ctx.now().since(before).as_secs())
}

everywhere! {
    /// Scenario 24.
    async fn a_timer_outlives_the_worker_that_started_it_and_fires_once(site) {
        let onward = site.builder().await.workflow("nap", nap).start().await.unwrap();
        let run = onward.start::<u64, _>("nap", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        site.pass(&onward, hours(1)).await;
        drop(run);
        onward.shutdown().await;

        let onward = site.builder().await.workflow("nap", nap).start().await.unwrap();
        let run = onward.run::<u64>("r").unwrap();
        site.pass(&onward, mins(59)).await;
        assert_eq!(count(&run, "timer_fired").await, 0, "not a minute early");
        site.pass(&onward, mins(1)).await;
        assert!(run.result().await.unwrap() >= 7_200);
        site.pass(&onward, hours(9)).await;
        assert_eq!(count(&run, "timer_fired").await, 1);
    }

    /// Scenario 39.
    async fn two_timers_of_the_same_instant_are_both_delivered_once(site) {
        async fn twins(ctx: Ctx, (): ()) -> Result<()> {
            let due_at = ctx.now().after(hours(1));
            let (a, b) = join!(ctx.sleep_until(due_at), ctx.sleep_until(due_at));
            a.and(b)
        }
        let onward = site.builder().await.workflow("twins", twins).start().await.unwrap();
        let run = onward.start::<(), _>("twins", &()).await.unwrap();
        until_status(&run, Status::Waiting).await;
        // Several sweeps at the same time.
        site.clock.advance(hours(1));
        let sweeps = (0..8).map(|_| site.runtime(&onward).tick());
        futures::future::join_all(sweeps).await;
        run.result().await.unwrap();
        assert_eq!(count(&run, "timer_fired").await, 2);
    }

    /// RD1
    async fn a_run_that_passes_its_deadline_is_canceled_and_compensates(site) {
        async fn trip(ctx: Ctx, (): ()) -> Result<()> {
            ctx.on_failure("undo", async || Ok::<_, Failure>(()));
            ctx.signal("paid").recv::<()>().await
        }
        let onward = site.builder().await.workflow("trip", trip).start().await.unwrap();
        let run = onward.start::<(), _>("trip", &()).id("r").deadline(hours(2)).await.unwrap();
        until_status(&run, Status::Waiting).await;
        site.pass(&onward, mins(119)).await;
        assert_eq!(count(&run, "cancel_requested").await, 0, "not a minute early");
        site.pass(&onward, mins(1)).await;
        let failure = run.result().await.unwrap_err();
        assert!(failure.to_string().contains("its deadline has passed"), "{failure}");
        let head = run.view().await.unwrap().head;
        assert_eq!((head.status, head.deadline_at), (Status::Canceled, None));
        assert_eq!(count(&run, "step_completed").await, 1, "it compensated");
    }

    /// DS1
    async fn a_delayed_run_begins_at_its_time_and_finds_its_signals(site) {
        async fn late(ctx: Ctx, (): ()) -> Result<(u64, usize)> {
            Ok((ctx.now().0, ctx.signal("paid").count()))
        }
        let onward = site.builder().await.workflow("late", late).start().await.unwrap();
        let due = site.clock.now().after(hours(2));
        let run = onward.start::<(u64, usize), _>("late", &()).id("r").at(due).await.unwrap();
        run.signal("paid", &()).await.unwrap();
        let view = run.view().await.unwrap();
        assert_eq!((view.head.status, view.awaiting[0].kind, view.awaiting[0].deadline), (Status::Waiting, AwaitedKind::Start, Some(due)));
        drop(run);
        onward.shutdown().await;

        let onward = site.builder().await.workflow("late", late).start().await.unwrap();
        let run = onward.run::<(u64, usize)>("r").unwrap();
        site.pass(&onward, mins(119)).await;
        assert_eq!(count(&run, "run_begun").await, 0, "not a minute early");
        site.pass(&onward, mins(1)).await;
        let (began, signals) = run.result().await.unwrap();
        assert!(began >= due.0, "{began} is before {due}");
        assert_eq!((signals, count(&run, "run_begun").await), (1, 1));
    }

    /// DS4
    async fn a_delayed_run_that_is_canceled_runs_no_code(site) {
        let onward = site.builder().await.workflow("nap", nap).start().await.unwrap();
        let run = onward.start::<u64, _>("nap", &()).after(hours(1)).await.unwrap();
        run.cancel("not needed").await.unwrap();
        let failure = run.result().await.unwrap_err();
        assert!(failure.to_string().contains("not needed"), "{failure}");
        site.pass(&onward, hours(2)).await;
        assert_eq!(events(&run).await.len(), 2);
        let both = onward.start::<u64, _>("nap", &()).after(hours(1)).at(site.clock.now()).await.map(drop);
        assert_eq!(both.unwrap_err().code(), "start_time_invalid");
        let never = onward.start::<u64, _>("nap", &()).after(std::time::Duration::MAX).await.map(drop);
        assert_eq!(never.unwrap_err().code(), "start_time_invalid");
    }

    async fn a_timer_that_became_due_during_downtime_fires_at_the_next_start(site) {
        let onward = site.builder().await.workflow("nap", nap).start().await.unwrap();
        let run = onward.start::<u64, _>("nap", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;
        site.clock.advance(days(30));
        let onward = site.builder().await.workflow("nap", nap).start().await.unwrap();
        let run = onward.run::<u64>("r").unwrap();
        assert_eq!(run.result().await.unwrap(), 30 * 86_400);
    }

    /// Scenario 44.
    async fn a_pause_freezes_a_timer_with_its_remaining_time(site) {
        let onward = site.builder().await.workflow("nap", nap).start().await.unwrap();
        let run = onward.start::<u64, _>("nap", &()).await.unwrap();
        until_status(&run, Status::Waiting).await;
        site.pass(&onward, hours(1)).await;
        run.pause("lunch").await.unwrap();
        assert_eq!(paused(&run).await.message, "lunch");
        site.pass(&onward, days(7)).await;
        assert_eq!(count(&run, "timer_fired").await, 0);
        run.resume().await.unwrap();
        site.pass(&onward, mins(59)).await;
        assert_eq!(count(&run, "timer_fired").await, 0, "an hour was left and an hour is left");
        site.pass(&onward, mins(1)).await;
        run.result().await.unwrap();
    }

    /// Scenario 44.
    async fn a_timer_that_was_due_before_the_pause_fires_when_the_run_is_resumed(site) {
        async fn nap_and_wait(ctx: Ctx, (): ()) -> Result<()> {
            ctx.sleep(hours(2)).await?;
            ctx.signal("end").recv().await
        }
        let onward = site.builder().await.workflow("nap", nap_and_wait).start().await.unwrap();
        let run = onward.start::<(), _>("nap", &()).await.unwrap();
        until_status(&run, Status::Waiting).await;
        // Due and not yet fired when the pause comes, or fired right before it: either way the run continues when it is resumed.
        site.clock.advance(hours(2));
        run.pause("").await.unwrap();
        run.resume().await.unwrap();
        site.pass(&onward, secs(0)).await;
        run.signal("end", &()).await.unwrap();
        run.result().await.unwrap();
        assert_eq!(count(&run, "timer_fired").await, 1);
    }

    async fn a_paused_run_takes_signals_and_does_nothing_until_it_is_resumed(site) {
        async fn echo(ctx: Ctx, (): ()) -> Result<u32> {
            let n = ctx.signal("s").recv().await?;
            ctx.step("echo", async || Ok::<_, Failure>(n)).await
        }
        let onward = site.builder().await.workflow("echo", echo).start().await.unwrap();
        let run = onward.start::<u32, _>("echo", &()).await.unwrap();
        until_status(&run, Status::Waiting).await;
        run.pause("wait for me").await.unwrap();
        run.signal("s", &6).await.unwrap();
        site.pass(&onward, secs(1)).await;
        let view = run.view().await.unwrap();
        assert_eq!((view.head.status, view.counts.steps_completed), (Status::Paused, 0));
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 6);
    }

    async fn a_resume_of_a_run_that_is_not_paused_is_refused(site) {
        let onward = site.builder().await.workflow("nap", nap).start().await.unwrap();
        let run = onward.start::<u64, _>("nap", &()).await.unwrap();
        assert_eq!(run.resume().await.unwrap_err().code(), "run_not_paused");
    }

    /// Scenario 32.
    async fn the_pause_before_a_steps_next_attempt_is_durable(site) {
        async fn flaky(ctx: Ctx, (): ()) -> Result<u32> {
            let step = ctx.step_with("flaky", async |attempt: Attempt| {
                if attempt.number < 3 { Err(Failure::retryable("busy")) } else { Ok(attempt.number) }
            });
            step.retry(RetryPolicy::attempts(3).delay(hours(1)).delay_max(hours(9))).await
        }
        let onward = site.builder().await.workflow("flaky", flaky).start().await.unwrap();
        let run = onward.start::<u32, _>("flaky", &()).id("r").await.unwrap();
        until_logged(&run, "step_failed", 1).await;
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;

        let onward = site.builder().await.workflow("flaky", flaky).start().await.unwrap();
        let run = onward.run::<u32>("r").unwrap();
        site.pass(&onward, mins(59)).await;
        assert_eq!(count(&run, "timer_fired").await, 0);
        site.pass(&onward, mins(2)).await;
        until_logged(&run, "step_failed", 2).await;
        eventually("the third attempt", async || {
            site.pass(&onward, mins(30)).await;
            (count(&run, "step_completed").await == 1).then_some(())
        })
        .await;
        assert_eq!(run.result().await.unwrap(), 3);
    }
}
