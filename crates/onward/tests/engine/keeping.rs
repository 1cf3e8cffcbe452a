//! Retention of closed runs.

use std::sync::Arc;

use onward::prelude::*;
use onward_store::{ManualClock, MemoryStore};

use crate::site::eventually;

async fn done(_: Ctx, (): ()) -> Result<()> {
    Ok(())
}

#[tokio::test]
async fn closed_runs_of_a_kind_go_when_the_time_of_their_kind_is_over() {
    let clock = Arc::new(ManualClock::default());
    let builder = Onward::with_store(Arc::new(MemoryStore::new(clock.clone())), clock.clone());
    let builder = builder.workflow("short", done).workflow("long", done).retention(days(1)).retention_of("short", hours(1));
    let onward = builder.start().await.unwrap();
    for kind in ["short", "long"] {
        onward.start::<(), _>(kind, &()).id(kind).await.unwrap().result().await.unwrap();
    }
    for (span, gone) in [(hours(2), "short"), (days(1), "long")] {
        let run = onward.run::<()>(gone).unwrap();
        assert!(run.view().await.is_ok(), "{gone}");
        clock.advance(span);
        let error = eventually("the run goes", async || {
            onward.runtime().unwrap().tick().await;
            run.view().await.err()
        });
        assert_eq!(error.await.code(), "run_not_found");
    }
}
