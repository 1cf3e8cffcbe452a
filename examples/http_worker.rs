//! The worker behind the commands of docs/http.md: a workflow, a task and an agent, connected to a server.
//!
//! `onward dev -- cargo run --example http-worker`

#[path = "agents/model.rs"]
mod model;

use std::sync::{Arc, Mutex, PoisonError};

use onward::agent::Agent;
use onward::prelude::*;
use serde::Deserialize;
use serde_json::Value;

const ORDER: Workflow<Order, String> = Workflow::new("order");

#[derive(Deserialize, serde::Serialize)]
struct Order {
    item: String,
}

async fn order(ctx: Ctx, order: Order) -> Result<String> {
    let address = Arc::new(Mutex::new("unknown".to_owned()));
    let (reader, writer) = (address.clone(), address.clone());
    ctx.query("progress", move |_: Value| Ok(format!("to {}", reader.lock().unwrap_or_else(PoisonError::into_inner))));
    ctx.update("set-address", move |new: String| {
        *writer.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok("stored")
    });
    let item = ctx.step("check", async || check(&order.item).await).await?; // call 0
    let payment: Value = ctx.signal("payment").recv().await?; // call 1
    ctx.state().set("paid", &payment)?; // call 2
    let decision = ctx.approval("ship", format!("Ship {item}?")).within(days(2)).await?; // call 3
    ctx.state().set("approved", &decision.approved)?; // call 4
    if !decision.approved {
        return Err(Failure::fatal("not shipped").with_code("not_shipped"));
    }
    let parcel: Value = ctx.promise("parcel").await?; // call 5
    Ok(format!("{item} is shipped: {parcel}"))
}

/// Fails for one item, so that there is a failed run to retry.
async fn check(item: &str) -> Result<String> {
    match item {
        "a cracked teapot" => Err(Failure::fatal("it is cracked").with_code("cracked")),
        item => Ok(item.to_owned()),
    }
}

async fn resize(image: Value) -> Result<String> {
    tokio::time::sleep(secs(1)).await;
    Ok(format!("resized {}", image["image"].as_str().unwrap_or("nothing")))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("ONWARD_URL").unwrap_or("http://127.0.0.1:7400".into());
    let model = model::talker().await?;
    let support = Agent::new("support").model(model.name).system("You help customers of a teapot shop.").converse();
    let onward = Onward::connect(url).workflow(&ORDER, order).task("resize", resize).queue("gpu");
    let onward = onward.model(model.name, &model.provider).register(support).start().await?;
    tokio::signal::ctrl_c().await?;
    onward.shutdown().await;
    Ok(())
}
