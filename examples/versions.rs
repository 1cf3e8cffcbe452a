//! Changing code while runs are open: `ctx.version` for a change inside a workflow, `.version(..).previous(..)` for a rewrite.
//!
//! `cargo run --example versions`

use std::path::Path;
use std::time::Duration;

use onward::prelude::*;

const INVOICE: Workflow<u64, String> = Workflow::new("invoice");

/// The code as deployed on Monday.
async fn invoice_v1(ctx: Ctx, net: u64) -> Result<String> {
    let gross = ctx.step("tax", async || add_tax(net, 19).await).await?;
    let _: bool = ctx.signal("approved").recv().await?;
    Ok(format!("v1: {gross}"))
}

/// The code on Tuesday, with a discount before the tax. A run that has passed this point continues without it.
async fn invoice_v1_changed(ctx: Ctx, net: u64) -> Result<String> {
    let discount = ctx.version("discount", 1, 2);
    let net = if discount >= 2 { ctx.step("discount", async || Ok::<_, Failure>(net - 10)).await? } else { net };
    let gross = ctx.step("tax", async || add_tax(net, 19).await).await?;
    let _: bool = ctx.signal("approved").recv().await?;
    Ok(format!("v1 with discount version {discount}: {gross}"))
}

/// A rewrite on Wednesday. Runs that began with v1 stay on v1.
async fn invoice_v2(ctx: Ctx, net: u64) -> Result<String> {
    let gross = ctx.step("tax-and-discount", async || add_tax(net - 10, 7).await).await?;
    Ok(format!("v2: {gross}"))
}

async fn add_tax(net: u64, percent: u64) -> Result<u64> {
    Ok(net * (100 + percent) / 100)
}

/// Starts a run and waits until it awaits its signal or has ended.
async fn start(onward: &Onward, id: &str) -> anyhow::Result<()> {
    let run = onward.start(&INVOICE, &100u64).id(id).await?;
    let mut view = run.view().await?;
    while view.awaiting.is_empty() && view.outcome.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        view = run.view().await?;
    }
    println!("{id} is pinned to {}", view.head.version.map_or("no version".to_owned(), |version| version.to_string()));
    Ok(())
}

/// Deploys the program of one day over the same directory.
async fn deploy(day: &str, directory: &Path) -> anyhow::Result<Onward> {
    println!("{day}:");
    let builder = Onward::embedded(directory);
    let builder = match day {
        "Monday" => builder.workflow(&INVOICE, invoice_v1).version("v1"),
        "Tuesday" => builder.workflow(&INVOICE, invoice_v1_changed).version("v1"),
        _ => builder.workflow(&INVOICE, invoice_v2).version("v2").previous("v1", invoice_v1_changed),
    };
    Ok(builder.start().await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    for day in ["Monday", "Tuesday", "Wednesday"] {
        let onward = deploy(day, directory.path()).await?;
        start(&onward, &format!("invoice-{day}")).await?;
        if day == "Wednesday" {
            for run in ["invoice-Monday", "invoice-Tuesday", "invoice-Wednesday"] {
                let run = onward.run::<String>(run)?;
                drop(run.signal("approved", &true).await); // v2 does not wait for it
                println!("{}: {}", run.id(), run.result().await?);
            }
        }
        onward.shutdown().await;
    }
    Ok(())
}
