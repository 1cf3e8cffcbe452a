//! Replays are counted in the runtime.

use std::collections::HashMap;

use onward::prelude::*;
use onward::{ReplayCheck, RunHandle, Status};

use crate::site::{everywhere, until_status};

async fn twice(ctx: Ctx, (): ()) -> Result<u32> {
    ctx.step("once", async || Ok::<_, Failure>(1)).await?;
    let first: u32 = ctx.signal("go").recv().await?;
    let second: u32 = ctx.signal("go").recv().await?;
    Ok(first + second)
}

/// Debug builds replay strictly after the first commit.
async fn sized(ctx: Ctx, map: HashMap<String, u32>) -> Result<usize> {
    let first: usize = ctx.task("size", &map).await?;
    let second: usize = ctx.task("size", &map).await?;
    Ok(first + second)
}

everywhere! {
    async fn a_hash_map_in_a_payload_does_not_pause_the_run(site) {
        let builder = site.builder().await.workflow("sized", sized).check_replay(ReplayCheck::Every);
        let size = async |map: HashMap<String, u32>| Ok::<_, Failure>(map.len());
        let onward = builder.task("size", size).cached_runs_max(0).start().await.unwrap();
        let map: HashMap<String, u32> = (0..20).map(|number| (format!("k{number}"), number)).collect();
        let run: RunHandle<usize> = onward.start("sized", &map).id("a").await.unwrap();
        assert_eq!(run.result().await.unwrap(), 40);
    }

    async fn a_log_that_another_engine_replays_is_counted_once(site) {
        let first = site.builder().await.workflow("twice", twice).start().await.unwrap();
        let run: RunHandle<u32> = first.start("twice", &()).id("a").await.unwrap();
        until_status(&run, Status::Waiting).await;
        let before = site.runtime(&first).replays_ok();
        assert_eq!(before, 0, "nothing was replayed yet");
        drop(run);
        first.shutdown().await;
        let second = site.builder().await.workflow("twice", twice).start().await.unwrap();
        let run: RunHandle<u32> = second.run("a").unwrap();
        run.signal("go", &1).await.unwrap();
        crate::site::until_logged(&run, "signal_consumed", 1).await;
        run.signal("go", &2).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
        assert_eq!(site.runtime(&second).replays_ok(), 1, "the run stayed in memory for the second signal");
        assert_eq!(site.runtime(&second).results_replayed(), 1, "the step was not executed again");
    }
}
