//! `onward demo-worker`: the worker process that the demo kills.
//!
//! It starts the order or continues it, and exits when the run has ended or waits for its approval.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use onward::{Onward, RunHandle};
use onward_core::Index;
use onward_core::view::AwaitedKind;

use super::order::{ORDER, Order, order, print_label};
use super::world::World;
use crate::args::Global;
use crate::interrupt;

#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[arg(long)]
    run: String,
    /// Order as JSON
    #[arg(long)]
    order: String,
    #[arg(long)]
    unit_ms: u64,
    #[arg(long)]
    effects: PathBuf,
}

pub async fn work(args: WorkerArgs, global: &Global) -> Result<ExitCode> {
    interrupt::end_with_parent();
    let input: Order = serde_json::from_str(&args.order).context("invalid order")?;
    let onward = Onward::embedded(global.directory())
        .dep(World { effects: args.effects, unit: Duration::from_millis(args.unit_ms) })
        .workflow(&ORDER, order)
        .task("print-label", print_label)
        .start()
        .await?;
    let run = onward.start(&ORDER, &input).id(args.run).await?;
    nothing_to_do(&run).await?;
    onward.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

async fn nothing_to_do(run: &RunHandle<String>) -> Result<()> {
    let mut log = run.attach(Index(0)).await?;
    while log.next().await?.is_some() {
        let view = run.view().await?;
        if view.awaiting.iter().any(|awaited| awaited.kind == AwaitedKind::Approval) {
            break;
        }
    }
    Ok(())
}
