//! Code that changes while runs are open.

use onward::prelude::*;
use onward::{BlockReason, Builder, Status};
use onward_core::event::PauseReason;

use crate::site::{count, eventually, everywhere, paused, until_logged, until_status};

async fn charging(ctx: Ctx, (): ()) -> Result<u32> {
    let charged = ctx.task::<u32>("charge", &7).await?;
    ctx.signal("end").recv::<()>().await?;
    Ok(charged)
}

async fn refunding(ctx: Ctx, (): ()) -> Result<u32> {
    let refunded = ctx.task::<u32>("refund", &7).await?;
    ctx.signal("end").recv::<()>().await?;
    Ok(refunded)
}

async fn same(n: u32) -> Result<u32> {
    Ok(n)
}

fn with_tasks(builder: Builder) -> Builder {
    builder.task("charge", same).task("refund", same)
}

async fn labelled(ctx: Ctx, label: &'static str) -> Result<String> {
    ctx.signal("end").recv::<()>().await?;
    Ok(label.to_owned())
}

everywhere! {
    /// Scenarios 25 and 27, with the way out.
    async fn code_that_diverges_pauses_the_run_and_fixed_code_resumes_it(site) {
        let onward = with_tasks(site.builder().await).workflow("pay", charging).start().await.unwrap();
        let run = onward.start::<u32, _>("pay", &()).id("r").await.unwrap();
        until_logged(&run, "signal_awaited", 1).await;
        let before = run.log().await.unwrap();
        drop(run);
        onward.shutdown().await;

        let onward = with_tasks(site.builder().await).workflow("pay", refunding).start().await.unwrap();
        let run = onward.run::<u32>("r").unwrap();
        run.signal("end", &()).await.unwrap();
        let pause = paused(&run).await;
        assert_eq!(pause.reason, PauseReason::Diverged);
        let report = pause.divergence.unwrap();
        assert_eq!((&*report.recorded, &*report.attempted), ("task `charge` at 0 with input 7", "task `refund` at 0 with input 7"));
        assert_eq!(report.index.0, 1);
        assert!(report.hint.contains("onward run resume r"), "{}", report.hint);
        let log = run.log().await.unwrap();
        assert_eq!(log[..before.len()], before, "nothing that was recorded is touched");
        assert!(log[before.len()..].iter().all(|record| record.commit.is_none()), "and nothing is committed");

        run.resume().await.unwrap();
        paused(&run).await;
        until_logged(&run, "run_paused", 2).await; // the same code diverges again; the attempt does no harm
        drop(run);
        onward.shutdown().await;

        let onward = with_tasks(site.builder().await).workflow("pay", charging).start().await.unwrap();
        let run = onward.run::<u32>("r").unwrap();
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        assert_eq!(count(&run, "task_scheduled").await, 1);
    }

    /// Scenario 28.
    async fn code_that_grew_at_its_end_goes_on_with_open_runs(site) {
        async fn longer(ctx: Ctx, (): ()) -> Result<u32> {
            let charged = charging(ctx.clone(), ()).await?;
            ctx.step("thank", async || Ok::<_, Failure>(charged + 1)).await
        }
        let onward = with_tasks(site.builder().await).workflow("pay", charging).start().await.unwrap();
        let run = onward.start::<u32, _>("pay", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;
        let onward = with_tasks(site.builder().await).workflow("pay", longer).start().await.unwrap();
        let run = onward.run::<u32>("r").unwrap();
        run.signal("end", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 8);
    }

    /// Scenario 42.
    async fn a_run_stays_with_the_version_it_began_with(site) {
        let v1 = |ctx: Ctx, ()| labelled(ctx, "v1");
        let v2 = |ctx: Ctx, ()| labelled(ctx, "v2");
        let onward = site.builder().await.workflow("w", v1).version("v1").start().await.unwrap();
        let run = onward.start::<String, _>("w", &()).id("old").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;

        let onward = site.builder().await.workflow("w", v2).version("v2").previous("v1", v1).start().await.unwrap();
        let (old, new) = (onward.run::<String>("old").unwrap(), onward.start::<String, _>("w", &()).id("new").await.unwrap());
        let chosen = onward.start::<String, _>("w", &()).version("v1").id("chosen").await.unwrap();
        for (run, label) in [(old, "v1"), (new, "v2"), (chosen, "v1")] {
            run.signal("end", &()).await.unwrap();
            assert_eq!(run.result().await.unwrap(), label);
        }
    }

    /// Scenario 42.
    async fn a_run_of_an_unserved_version_waits_unharmed(site) {
        let v1 = |ctx: Ctx, ()| labelled(ctx, "v1");
        let v2 = |ctx: Ctx, ()| labelled(ctx, "v2");
        let onward = site.builder().await.workflow("w", v1).version("v1").start().await.unwrap();
        let run = onward.start::<String, _>("w", &()).id("old").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;

        let onward = site.builder().await.workflow("w", v2).version("v2").start().await.unwrap();
        let run = onward.run::<String>("old").unwrap();
        run.signal("end", &()).await.unwrap();
        // Other runs of its kind continue; this one stays pending with its signal.
        let other = onward.start::<String, _>("w", &()).signal("end", &()).await.unwrap();
        assert_eq!(other.result().await.unwrap(), "v2");
        let view = run.view().await.unwrap();
        assert_eq!((view.head.status, view.head.version.unwrap().as_str()), (Status::Pending, "v1"));
        assert_eq!(run.blocked_on().await.unwrap()[0].why, BlockReason::NoWorker);
        assert_eq!(other.blocked_on().await.unwrap(), [], "it is over");
        site.pass(&onward, days(1)).await;
        assert_eq!(run.view().await.unwrap().head.status, Status::Pending, "it does not fail");
        let unknown = onward.start::<String, _>("w", &()).version("v3").await;
        match unknown {
            Err(unknown) => assert_eq!(unknown.code(), "unknown_kind"),
            // A server accepts it: a worker with its code may connect later.
            Ok(unknown) => {
                assert!(site.is_remote());
                assert_eq!(unknown.blocked_on().await.unwrap()[0].why, BlockReason::NoWorker);
            }
        }
        drop((run, other));
        onward.shutdown().await;

        let onward = site.builder().await.workflow("w", v2).version("v2").previous("v1", v1).start().await.unwrap();
        assert_eq!(onward.run::<String>("old").unwrap().result().await.unwrap(), "v1");
    }

    async fn runs_from_before_versions_were_named_stay_with_the_first_code(site) {
        let unnamed = |ctx: Ctx, ()| labelled(ctx, "first");
        let onward = site.builder().await.workflow("w", unnamed).start().await.unwrap();
        let run = onward.start::<String, _>("w", &()).id("old").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;
        let onward = site.builder().await.workflow("w", unnamed).version("v1").start().await.unwrap();
        let run = onward.run::<String>("old").unwrap();
        run.signal("end", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "first");
    }

    /// The result of `ctx.version` depends on when the run got there, across real restarts.
    async fn a_change_is_seen_by_runs_that_come_to_it_and_not_by_runs_that_were_past_it(site) {
        async fn before(ctx: Ctx, name: String) -> Result<String> {
            ctx.signal("go").recv::<()>().await?;
            ctx.step("old", async || Ok::<_, Failure>(())).await?;
            ctx.signal("end").recv::<()>().await?;
            Ok(format!("{name} 1"))
        }
        async fn after(ctx: Ctx, name: String) -> Result<String> {
            ctx.signal("go").recv::<()>().await?;
            let way = ctx.version("change", 1, 2);
            ctx.step(if way == 1 { "old" } else { "new" }, async || Ok::<_, Failure>(())).await?;
            ctx.signal("end").recv::<()>().await?;
            Ok(format!("{name} {way}"))
        }
        let onward = site.builder().await.workflow("w", before).start().await.unwrap();
        let past = onward.start::<String, _>("w", "past").id("past").signal("go", &()).await.unwrap();
        until_logged(&past, "step_completed", 1).await;
        until_status(&past, Status::Waiting).await;
        let to_come = onward.start::<String, _>("w", "to come").id("to come").await.unwrap();
        until_status(&to_come, Status::Waiting).await;
        drop((past, to_come));
        onward.shutdown().await;

        let onward = site.builder().await.workflow("w", after).start().await.unwrap();
        onward.run::<()>("to come").unwrap().signal("go", &()).await.unwrap();
        for (id, expected) in [("past", "past 1"), ("to come", "to come 2")] {
            let run = onward.run::<String>(id).unwrap();
            run.signal("end", &()).await.unwrap();
            assert_eq!(run.result().await.unwrap(), expected);
        }
    }

    async fn a_kind_that_is_not_registered_leaves_its_runs_pending(site) {
        let onward = with_tasks(site.builder().await).workflow("pay", charging).start().await.unwrap();
        let run = onward.start::<u32, _>("pay", &()).id("r").await.unwrap();
        until_status(&run, Status::Waiting).await;
        drop(run);
        onward.shutdown().await;
        let onward = site.builder().await.start().await.unwrap();
        let run = onward.run::<u32>("r").unwrap();
        run.signal("end", &()).await.unwrap();
        site.pass(&onward, hours(1)).await;
        eventually("it stays pending", async || (run.view().await.unwrap().head.status == Status::Pending).then_some(())).await;
        let error = run.query::<u32>("anything", &()).await.unwrap_err();
        assert_eq!(error.code(), "no_compatible_worker");
    }
}
