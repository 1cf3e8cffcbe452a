//! The workflow of the demo: an order.
//!
//! Every step runs in the worker process. Its result is recorded before the next line runs. After a crash, a new process runs
//! this function again from the top, and recorded steps return their results from the log.

use onward::prelude::*;
use onward::try_join;
use serde::{Deserialize, Serialize};

use super::worker::World;

pub const ORDER: Workflow<Order, String> = Workflow::new("order");

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub item: String,
    pub cents: u64,
    pub hold_ms: u64,
}

pub async fn order(ctx: Ctx, order: Order) -> Result<String> {
    let world = ctx.dep::<World>();
    // Two steps in parallel. Each gets an idempotency key that is the same for every attempt.
    let (payment, shelf) = try_join!(
        ctx.step_with("charge", async |attempt| world.charge(&order, &attempt.idempotency_key()).await),
        ctx.step_with("reserve", async |attempt| world.reserve(&order, &attempt.idempotency_key()).await),
    )?;
    // A timer is a row on disk: it holds no thread and keeps its due time across crashes.
    ctx.sleep(std::time::Duration::from_millis(order.hold_ms)).await?;
    // A task runs on any worker that registered its kind.
    let label: String = ctx.task("print-label", &shelf).retry(3).await?;
    // A person decides within three weeks.
    let ship = ctx.approval("ship", format!("Ship {}?", order.item)).within(days(21)).await?;
    if !ship.approved {
        return ctx.step_with("refund", async |attempt| world.refund(&payment, &attempt.idempotency_key()).await).await;
    }
    ctx.step_with("ship", async |attempt| world.ship(&label, &attempt.idempotency_key()).await).await
}

pub async fn print_label(ctx: TaskCtx, shelf: String) -> Result<String> {
    ctx.dep::<World>().print_label(&shelf, ctx.idempotency_key()).await
}
