//! The demo's workflow: an order, as somebody would write it.
//!
//! Every step runs in the worker process. Its result is recorded before the next line runs; after a crash a new process runs this
//! function again from the top and gets what was recorded from the log instead of doing it again.

use onward::prelude::*;
use onward::try_join;
use serde::{Deserialize, Serialize};

use super::world::World;

pub const ORDER: Workflow<Order, String> = Workflow::new("order");

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub item: String,
    pub cents: u64,
    pub hold_ms: u64,
}

pub async fn order(ctx: Ctx, order: Order) -> Result<String> {
    let world = ctx.dep::<World>();
    // Two steps at once. Each is handed a key that stays the same however often it has to run.
    let (payment, shelf) = try_join!(
        ctx.step_with("charge", async |attempt| world.charge(&order, &attempt.idempotency_key()).await),
        ctx.step_with("reserve", async |attempt| world.reserve(&order, &attempt.idempotency_key()).await),
    )?;
    // A timer is a row on disk: it holds no thread, and it does not begin again after a crash.
    ctx.sleep(std::time::Duration::from_millis(order.hold_ms)).await?;
    // A task runs on any worker that knows its kind.
    let label: String = ctx.task("print-label", &shelf).retry(3).await?;
    // A person decides, in a second or in three weeks.
    let ship = ctx.approval("ship", format!("Ship {}?", order.item)).within(days(21)).await?;
    if !ship.approved {
        return ctx.step_with("refund", async |attempt| world.refund(&payment, &attempt.idempotency_key()).await).await;
    }
    ctx.step_with("ship", async |attempt| world.ship(&label, &attempt.idempotency_key()).await).await
}

pub async fn print_label(ctx: TaskCtx, shelf: String) -> Result<String> {
    ctx.dep::<World>().print_label(&shelf, ctx.idempotency_key()).await
}
