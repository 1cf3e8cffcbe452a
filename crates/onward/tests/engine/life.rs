//! A run from start to end, over both stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::{Builder, Decide};
use serde::{Deserialize, Serialize};

use crate::{embedded, in_memory};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    id: String,
    cents: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    label: String,
    paid: u64,
}

const FULFIL: Workflow<Order, Receipt> = Workflow::new("fulfil");

struct Charges(AtomicU32);

async fn fulfil(ctx: Ctx, order: Order) -> Result<Receipt> {
    let charges = ctx.dep::<Arc<Charges>>();
    let charge = ctx
        .step("charge", async || {
            charges.0.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            Ok::<_, Failure>(order.cents)
        })
        .await?;
    let ship = ctx.approval("ship", format!("Ship {}?", order.id)).within(days(2)).await?;
    if !ship.approved {
        return Err(Failure::fatal("rejected"));
    }
    let label: String = ctx.task("print-label", &order).retry(5).timeout(mins(2)).await?;
    ctx.sleep(std::time::Duration::from_millis(20)).await?;
    let paid: u64 = ctx.signal("payment").recv().await?;
    Ok(Receipt { label, paid: paid + charge })
}

async fn print_label(order: Order) -> Result<String> {
    Ok(format!("label for {}", order.id))
}

async fn lives(builder: Builder) {
    let charges = Arc::new(Charges(AtomicU32::new(0)));
    let onward = builder.dep(charges.clone()).workflow(&FULFIL, fulfil).task("print-label", print_label).start().await.unwrap();
    let order = Order { id: "order-42".to_owned(), cents: 100 };
    let run = onward.start(&FULFIL, &order).id("order-42").await.unwrap();
    run.signal("payment", &7u64).await.unwrap();
    let approval = loop {
        let waits = onward.list_approvals().await.unwrap();
        if let Some(wait) = waits.first() {
            break format!("{}~{}~{}", wait.run.id, wait.generation, wait.call_id);
        }
        tokio::task::yield_now().await;
    };
    let decide =
        Decide { approved: true, feedback: None, decided_by: Some("ada".to_owned()), answer: None, decision_id: "d1".to_owned() };
    onward.decide_approval(&approval, decide).await.unwrap();
    let receipt = run.result().await.unwrap();
    assert_eq!(receipt, Receipt { label: "label for order-42".to_owned(), paid: 107 });
    let again = onward.start(&FULFIL, &order).id("order-42").await.unwrap();
    assert_eq!(again.result().await.unwrap(), receipt);
    assert_eq!(charges.0.load(Ordering::SeqCst), 1);
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_from_start_to_end_in_memory() {
    lives(in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_from_start_to_end_in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    lives(embedded(directory.path())).await;
}

/// Dropping an engine releases the directory, whatever its runs were doing.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_engine_frees_its_directory() {
    async fn wait(ctx: Ctx, _: ()) -> Result<()> {
        let never: () = ctx.signal("never").recv().await?;
        Ok(never)
    }
    async fn busy(ctx: Ctx, _: ()) -> Result<()> {
        ctx.step("busy", async || {
            tokio::time::sleep(std::time::Duration::from_secs(600)).await;
            Ok::<_, Failure>(())
        })
        .await
    }
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let builder = || embedded(directory.path()).workflow("wait", wait).workflow("busy", busy);
        let onward = crate::site::eventually("the directory is free", async || builder().start().await.ok()).await;
        for number in 0..5 {
            let waiting = onward.start::<(), _>("wait", &()).id(format!("wait-{number}")).await.unwrap();
            crate::site::until_logged(&waiting, "signal_awaited", 1).await;
            onward.start::<(), _>("busy", &()).id(format!("busy-{number}")).await.unwrap();
        }
        drop(onward);
    }
}

/// Every acknowledged signal is consumed, however often the run continues as new meanwhile.
async fn pours_into_generations(builder: Builder) {
    async fn collect(ctx: Ctx, mut seen: Vec<u32>) -> Result<Vec<u32>> {
        let next: u32 = ctx.signal("go").recv().await?;
        if next == u32::MAX {
            return Ok(seen);
        }
        seen.push(next);
        ctx.continue_as_new(&seen).await
    }
    let onward = builder.workflow("collect", collect).start().await.unwrap();
    let run = onward.start::<Vec<u32>, _>("collect", &Vec::<u32>::new()).id("collector").await.unwrap();
    for number in 0..150u32 {
        run.signal("go", &number).await.unwrap();
    }
    run.signal("go", &u32::MAX).await.unwrap();
    assert_eq!(run.result().await.unwrap(), (0..150).collect::<Vec<u32>>());
    onward.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_signal_is_lost_between_generations() {
    pours_into_generations(in_memory()).await;
    let directory = tempfile::tempdir().unwrap();
    pours_into_generations(embedded(directory.path())).await;
}

/// Values of a workflow may panic when they are dropped; the thread that drops them continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_drop_is_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    async fn bomb(ctx: Ctx, _: ()) -> Result<()> {
        let _bomb = Bomb;
        ctx.signal("never").recv().await
    }
    async fn fine(ctx: Ctx, number: u32) -> Result<u32> {
        ctx.step("fine", async || Ok::<_, Failure>(number)).await
    }
    let builder = in_memory().threads(1).cached_runs_max(0).workflow("bomb", bomb).workflow("fine", fine);
    let onward = builder.start().await.unwrap();
    for number in 0..3 {
        let waiting = onward.start::<(), _>("bomb", &()).id(format!("bomb-{number}")).await.unwrap();
        crate::site::until_logged(&waiting, "signal_awaited", 1).await;
        let run = onward.start::<u32, _>("fine", &number).await.unwrap();
        assert_eq!(run.result().await.unwrap(), number);
    }
    crate::site::eventually("the bombs are out of memory", async || (onward.hot_runs() == 0).then_some(())).await;
}

/// A query that tries to change the run fails, and the run is not affected.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_cannot_change_the_run() {
    async fn queried(ctx: Ctx, _: ()) -> Result<u32> {
        let inner = ctx.clone();
        ctx.state().set("count", &1u32)?;
        ctx.query("read", move |(): ()| Ok((inner.state().get::<u32>("count")?, inner.now().0 > 0)));
        let inner = ctx.clone();
        ctx.query("write", move |(): ()| {
            inner.state().set("count", &2u32)?;
            Ok(inner.random())
        });
        ctx.signal("end").recv::<()>().await?;
        Ok(ctx.state().get("count")?.unwrap_or(0))
    }
    let onward = in_memory().workflow("queried", queried).start().await.unwrap();
    let run = onward.start::<u32, _>("queried", &()).await.unwrap();
    crate::site::until_logged(&run, "signal_awaited", 1).await;
    let before = run.log().await.unwrap();
    let refused = run.query::<u64>("write", &()).await.unwrap_err();
    assert!(refused.to_string().contains("use an update"), "{refused}");
    assert_eq!(run.query::<(Option<u32>, bool)>("read", &()).await.unwrap(), (Some(1), true));
    assert_eq!(run.log().await.unwrap(), before);
    run.signal("end", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
}
