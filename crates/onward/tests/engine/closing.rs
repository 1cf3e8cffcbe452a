//! The end of an engine: what it held is free.

use onward::prelude::*;

use crate::embedded;

async fn waits(ctx: Ctx, (): ()) -> Result<u64> {
    ctx.step("first", async || Ok::<_, Failure>(1)).await?;
    ctx.signal("never").recv().await
}

/// Found by the command line's tests: the next opening was refused as `directory_locked` now and then, because a thread that was told
/// to stop still held the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_free_when_shutdown_returns() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let onward = embedded(directory.path()).workflow("waits", waits).start().await.expect("the directory is free");
        drop(onward.start::<u64, _>("waits", &()).id(format!("run-{round}")).await.unwrap());
        onward.shutdown().await;
    }
}
