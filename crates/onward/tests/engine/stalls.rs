//! Code that blocks its thread is reported with its run, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onward::Onward;
use onward::prelude::*;
use onward_store::{ManualClock, MemoryStore};

use crate::warnings::Warnings;

/// Blocks for so long, by the clock that measures it.
async fn block(ctx: Ctx, (in_code, in_step): (u64, u64)) -> Result<()> {
    let clock = ctx.dep::<Arc<ManualClock>>();
    let blocked = clock.clone();
    let step = async || {
        blocked.advance(Duration::from_millis(in_step));
        Ok::<_, Failure>(())
    };
    ctx.step("first", step).await?;
    ctx.step("second", step).await?;
    clock.advance(Duration::from_millis(in_code));
    Ok(())
}

async fn warnings(run: &str, in_code: u64, in_step: u64) -> Vec<BTreeMap<&'static str, String>> {
    let (collector, clock) = (Warnings::collect(), Arc::new(ManualClock::default()));
    let builder = Onward::with_store(Arc::new(MemoryStore::new(clock.clone())), clock.clone());
    let onward = builder.workflow("blocks", block).dep(clock).start().await.unwrap();
    let started = onward.start::<(), _>("blocks", &(in_code, in_step)).id(run).await.unwrap();
    started.result().await.unwrap();
    collector.about(run)
}

#[tokio::test]
async fn a_step_that_blocks_is_named_once_with_its_run_and_what_to_do() {
    let messages = warnings("blocking step", 0, 1_500).await;
    assert_eq!(messages.len(), 1, "both steps block: {messages:?}");
    assert_eq!((messages[0]["kind"].as_str(), messages[0]["took_ms"].as_str()), ("blocks", "1500"));
    for part in ["for 1.5s, at the start, before the next call (call id 1)", "`tokio::task::spawn_blocking`"] {
        assert!(messages[0]["message"].contains(part), "{messages:?}");
    }
}

#[tokio::test]
async fn a_busy_workflow_is_named_with_where_it_was() {
    let messages = warnings("busy code", 2_000, 0).await;
    assert_eq!(messages.len(), 1);
    assert!(messages[0]["message"].contains("for 2.0s, after step `second` (#2, call id 1)"), "{messages:?}");
}

#[tokio::test]
async fn code_that_comes_back_within_a_second_is_not_named() {
    assert_eq!(warnings("quick", 999, 999).await, []);
}
