//! Runs that are executed on demand only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::prelude::*;
use onward::{Builder, Driven, Onward, RunInput, Status};
use tokio::sync::Notify;

#[derive(Default)]
struct World {
    charged: AtomicU32,
    /// Holds a step back, if a test wants it.
    gate: Notify,
    begun: Notify,
}

async fn order(ctx: Ctx, (): ()) -> Result<u64> {
    let world = ctx.dep::<Arc<World>>();
    ctx.step("charge", async || Ok::<_, Failure>(world.charged.fetch_add(1, Ordering::SeqCst))).await?;
    let paid: u64 = ctx.signal("payment").recv().await?;
    let ship = ctx.approval("ship", "Ship?").await?;
    if ship.approved { Ok(paid) } else { Err(Failure::fatal("rejected")) }
}

async fn slow(ctx: Ctx, (): ()) -> Result<u32> {
    let world = ctx.dep::<Arc<World>>();
    ctx.step("wait", async || {
        world.begun.notify_one();
        world.gate.notified().await;
        Ok::<_, Failure>(())
    })
    .await?;
    Ok(7)
}

fn host(builder: Builder, world: &Arc<World>) -> Builder {
    builder.workflow("order", order).workflow("slow", slow).dep(world.clone()).on_demand()
}

fn waiting(driven: Driven) -> onward::RunView {
    match driven {
        Driven::Waiting(view) => *view,
        other => panic!("it does not wait: {other:?}"),
    }
}

#[tokio::test]
async fn a_run_goes_on_only_while_it_is_driven() {
    let (directory, world) = (tempfile::tempdir().unwrap(), Arc::new(World::default()));
    let onward = host(Onward::embedded(directory.path()), &world).start().await.unwrap();
    let run = onward.start::<u64, _>("order", &()).id("o").await.unwrap();
    // The run is not executed.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((run.view().await.unwrap().head.status, world.charged.load(Ordering::SeqCst)), (Status::Pending, 0));
    let view = waiting(onward.drive("o", RunInput::nothing()).await.unwrap());
    assert_eq!((view.awaiting[0].name.as_ref().unwrap().as_str(), onward.hot_runs()), ("payment", 0));
    drop(run);
    onward.shutdown().await;

    // A new process of the host: recorded steps do not run again.
    let onward = host(Onward::embedded(directory.path()), &world).start().await.unwrap();
    let view = waiting(onward.drive("o", RunInput::signal("payment", &42).id("p")).await.unwrap());
    let approval = view.awaiting[0].id.clone();
    let again = waiting(onward.drive("o", RunInput::signal("payment", &42).id("p")).await.unwrap());
    assert_eq!(again.counts.signals_received, 1);
    let decide = Decide { approved: true, feedback: None, decided_by: None, answer: None, decision_id: "d".to_owned() };
    let Driven::Ended(Ok(output)) = onward.drive("o", RunInput::decision(&approval, decide)).await.unwrap() else { panic!() };
    assert_eq!((output.read::<u64>().unwrap(), world.charged.load(Ordering::SeqCst)), (42, 1));
    let Driven::Ended(Ok(_)) = onward.drive("o", RunInput::nothing()).await.unwrap() else { panic!() };
    assert_eq!(onward.drive("o", RunInput::signal("payment", &1)).await.unwrap_err().code(), "run_closed");
    assert_eq!(onward.drive("nobody", RunInput::nothing()).await.unwrap_err().code(), "run_not_found");
    onward.shutdown().await;
}

/// Exactly one wins; the other gets an error, and its input is not recorded.
#[tokio::test]
async fn of_two_concurrent_drives_of_a_run_one_is_refused_as_busy() {
    let world = Arc::new(World::default());
    let onward = host(Onward::in_memory(), &world).start().await.unwrap();
    let run = onward.start::<u32, _>("slow", &()).id("s").await.unwrap();
    let first = tokio::spawn({
        let onward = onward.clone();
        async move { onward.drive("s", RunInput::nothing()).await }
    });
    world.begun.notified().await;
    let refused = onward.drive("s", RunInput::signal("late", &1)).await.unwrap_err();
    assert_eq!(refused.code(), "run_busy");
    assert_eq!(run.view().await.unwrap().counts.signals_received, 0);
    world.gate.notify_one();
    let Driven::Ended(Ok(output)) = first.await.unwrap().unwrap() else { panic!() };
    assert_eq!(output.read::<u32>().unwrap(), 7);
    onward.shutdown().await;
}

#[tokio::test]
async fn a_host_without_the_code_is_refused_before_any_input_is_taken() {
    let (directory, world) = (tempfile::tempdir().unwrap(), Arc::new(World::default()));
    let onward = host(Onward::embedded(directory.path()), &world).start().await.unwrap();
    onward.start::<u64, _>("order", &()).id("o").await.unwrap();
    onward.shutdown().await;
    let other = Onward::embedded(directory.path()).on_demand().start().await.unwrap();
    assert_eq!(other.drive("o", RunInput::signal("payment", &1)).await.unwrap_err().code(), "unknown_kind");
    assert_eq!(other.run::<u64>("o").unwrap().view().await.unwrap().counts.signals_received, 0);
    other.shutdown().await;
}
