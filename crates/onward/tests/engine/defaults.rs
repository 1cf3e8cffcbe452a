//! Defaults of kinds (KD1 to KD3), in every place that a run can be executed.

use std::time::Duration;

use onward::prelude::*;
use onward_core::Event;
use onward_core::task::TaskOptions;

use crate::site::{everywhere, until_logged};

async fn twice(ctx: Ctx, _: ()) -> Result<u32> {
    let own = ctx.task::<u32>("unsteady", &1).retry(1).await;
    assert_eq!(own.unwrap_err().message, "busy");
    ctx.task::<u32>("unsteady", &0).await
}

/// Fails in its first two attempts.
async fn unsteady(ctx: TaskCtx, _: u32) -> Result<u32> {
    match ctx.attempt() {
        1..=2 => Err(Failure::retryable("busy")),
        attempt => Ok(attempt),
    }
}

/// Returns the options of the tasks that a run scheduled.
async fn options(run: &onward::RunHandle<u32>) -> Vec<TaskOptions> {
    let records = run.log().await.unwrap();
    let tasks = records.into_iter().flat_map(|record| record.events).filter_map(|event| match event {
        Event::TaskScheduled(task) => Some(task.options),
        _ => None,
    });
    tasks.collect()
}

everywhere! {
    async fn a_task_has_the_defaults_of_its_kind_unless_the_call_sets_others(site) {
        let policy = onward::RetryPolicy::attempts(3).delay(Duration::ZERO);
        let builder = site.builder().await.workflow("twice", twice).task("unsteady", unsteady);
        let onward = builder.defaults(|task| task.retry(policy).priority(4)).start().await.unwrap();
        let run = onward.start::<u32, _>("twice", &()).id("r").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
        let recorded = options(&run).await;
        assert_eq!(recorded[0].from_kind, ["priority"], "KD1");
        assert_eq!(recorded[1].from_kind, ["priority", "retry"]);
    }

    async fn live_defaults_apply_to_what_starts_later_and_a_replay_ignores_them(site) {
        let code = async |ctx: Ctx, _: ()| -> Result<u32> {
            let first = ctx.task::<u32>("unsteady", &0).await;
            let () = ctx.signal("go").recv().await?;
            let second = ctx.task::<u32>("unsteady", &0).await;
            Ok(10 * first.unwrap_or_default() + second.unwrap_or_default())
        };
        let onward = site.builder().await.workflow("pair", code).task("unsteady", unsteady).start().await.unwrap();
        let run = onward.start::<u32, _>("pair", &()).id("r").await.unwrap();
        until_logged(&run, "task_failed", 1).await;
        let policy = onward::RetryPolicy::attempts(3).delay(Duration::ZERO);
        let applied = onward.put_defaults("unsteady", |task| task.retry(policy)).await.unwrap();
        assert_eq!(applied.len(), 1);
        drop(run);
        onward.shutdown().await;
        let onward = site.builder().await.workflow("pair", code).task("unsteady", unsteady).start().await.unwrap();
        let run = onward.run::<u32>("r").unwrap();
        run.signal("go", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3, "the first task failed at once, the second after three attempts");
    }
}
