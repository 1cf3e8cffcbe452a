//! Code with forbidden calls: its run pauses, everything else continues, and a fixed build finishes it.

use std::time::Duration;

use onward::Builder;
use onward::prelude::*;
use onward_core::event::PauseReason;

use crate::site::{Site, count, everywhere, paused, until_logged};

/// The forbidden calls, by name.
const WRONG: &[(&str, &str)] = &[
    ("tokio sleep", "`ctx.sleep`"),
    ("tokio timeout", "`ctx.timeout`"),
    ("channel", "`ctx.signal(..)`"),
    ("yield", "leave it out"),
    ("spawn", "`ctx.step`"),
    ("pending", "await only what `ctx` returns"),
    ("foreign join", "`onward::join_all`"),
    ("context in a step", "before or after the step"),
    ("panic", "index 7 out of bounds"),
    ("spin", "`recv()`"),
    ("late options", "before anything is awaited"),
    ("bad name", "must not be empty"),
];

async fn wrong(ctx: Ctx, way: String) -> Result<u32> {
    ctx.step("before", async || Ok::<_, Failure>(())).await?;
    match &*way {
        "tokio sleep" => tokio::time::sleep(Duration::from_millis(1)).await,
        "tokio timeout" => drop(tokio::time::timeout(Duration::from_secs(1), ctx.signal("s").recv::<()>()).await),
        "channel" => drop(tokio::sync::mpsc::channel::<()>(1).1.recv().await),
        "yield" => tokio::task::yield_now().await,
        "spawn" => drop(tokio::spawn(async {}).await),
        "pending" => std::future::pending().await,
        "foreign join" => drop(futures::future::join_all((0..40).map(|n| ctx.task::<()>("work", &n))).await),
        "context in a step" => {
            let inner = ctx.clone();
            ctx.step("outer", async || Ok::<_, Failure>(inner.signal("s").has())).await?;
        }
        "panic" => panic!("index 7 out of bounds"),
        "spin" => while !ctx.signal("s").has() {},
        "late options" => {
            let task = ctx.task::<()>("work", &());
            ctx.step("between", async || Ok::<_, Failure>(())).await?;
            task.retry(3).await?;
        }
        "bad name" => ctx.step("", async || Ok::<_, Failure>(())).await?,
        _ => {}
    }
    Ok(1)
}

/// The fixed code.
async fn right(ctx: Ctx, _: String) -> Result<u32> {
    ctx.step("before", async || Ok::<_, Failure>(())).await?;
    ctx.step("after", async || Ok::<_, Failure>(2)).await
}

/// The wrong code scheduled a task first: the fixed build has to schedule it as well.
async fn right_with_task(ctx: Ctx, _: String) -> Result<u32> {
    ctx.step("before", async || Ok::<_, Failure>(())).await?;
    drop(ctx.task::<()>("work", &()));
    ctx.step("between", async || Ok::<_, Failure>(())).await?;
    Ok(2)
}

async fn fine(_: Ctx, n: u32) -> Result<u32> {
    Ok(n)
}

async fn engine(site: &Site, with_code: impl FnOnce(Builder) -> Builder) -> Onward {
    with_code(site.builder().await).workflow("fine", fine).threads(1).start().await.unwrap()
}

everywhere! {
    async fn every_misuse_pauses_its_run_alone_and_a_fixed_build_finishes_it(site) {
        let onward = engine(site, |builder| builder.workflow("w", wrong)).await;
        for (way, instead) in WRONG {
            let run = onward.start::<u32, _>("w", way).id(*way).await.unwrap();
            let pause = paused(&run).await;
            assert_eq!((pause.reason, pause.divergence), (PauseReason::ActivationFailed, None), "{way}");
            assert!(pause.message.contains(instead), "{way} does not say {instead:?}: {}", pause.message);
            assert_eq!(count(&run, "run_failed").await, 0, "a mistake in the code is not the run's failure");
            let other = onward.start::<u32, _>("fine", &5).await.unwrap();
            assert_eq!(other.result().await.unwrap(), 5, "other runs go on after {way}");
        }
        onward.shutdown().await;

        let onward = engine(site, |builder| builder.workflow("w", right)).await;
        for (way, _) in WRONG.iter().filter(|(way, _)| *way != "late options") {
            let run = onward.run::<u32>(way).unwrap();
            run.resume().await.unwrap();
            assert_eq!(run.result().await.unwrap(), 2, "{way}");
            assert_eq!(count(&run, "step_completed").await, 2, "earlier records stay after {way}");
        }
        onward.shutdown().await;

        let onward = engine(site, |builder| builder.workflow("w", right_with_task)).await;
        let run = onward.run::<u32>("late options").unwrap();
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 2);
    }

    async fn a_panic_in_a_query_or_an_update_is_an_answer_and_the_run_goes_on(site) {
        async fn fragile(ctx: Ctx, (): ()) -> Result<()> {
            ctx.query("q", |(): ()| -> Result<()> { panic!("no such thing") });
            ctx.update("u", |(): ()| -> Result<()> { panic!("nor such") });
            ctx.signal("end").recv().await
        }
        let onward = engine(site, |builder| builder.workflow("w", fragile)).await;
        let run = onward.start::<(), _>("w", &()).id("r").await.unwrap();
        let error = run.query::<()>("q", &()).await.unwrap_err();
        assert_eq!(error.failure().unwrap().message, "the query panicked: no such thing");
        for _ in 0..2 {
            let updated = run.update::<()>("u", &()).id("u1").await.unwrap_err();
            let failure = updated.failure().unwrap();
            assert_eq!((&*failure.code, &*failure.message), ("panicked", "the update panicked: nor such"));
        }
        drop(run);
        onward.shutdown().await;

        let onward = engine(site, |builder| builder.workflow("w", fragile)).await;
        let run = onward.run::<()>("r").unwrap();
        run.signal("end", &()).await.unwrap();
        run.result().await.unwrap();
        assert_eq!(count(&run, "update_answered").await, 1);
    }

    async fn a_step_that_panics_fails_and_takes_nothing_with_it(site) {
        async fn fragile(ctx: Ctx, (): ()) -> Result<String> {
            let step = ctx.step("fragile", async || {
                tokio::task::yield_now().await;
                if true {
                    panic!("out of luck");
                }
                Ok::<_, Failure>(())
            });
            Ok(step.await.expect_err("it panics").message)
        }
        let onward = engine(site, |builder| builder.workflow("w", fragile)).await;
        let run = onward.start::<String, _>("w", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "the step panicked: out of luck");
        assert_eq!(onward.start::<u32, _>("fine", &5).await.unwrap().result().await.unwrap(), 5);
    }

    /// Code that differs from replay to replay is found by the check after each commit, before it does harm.
    async fn code_that_depends_on_chance_is_found_before_it_matters(site) {
        static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        async fn random(ctx: Ctx, (): ()) -> Result<u32> {
            let n = RUNS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            ctx.task("t", &n).await
        }
        let onward = engine(site, |builder| builder.workflow("w", random)).await;
        let run = onward.start::<u32, _>("w", &()).await.unwrap();
        let pause = paused(&run).await;
        assert_eq!(pause.reason, PauseReason::Diverged);
        until_logged(&run, "task_scheduled", 1).await;
    }
}
