//! `onward torture-worker`: the worker process that crash tests kill.
//!
//! Runs a fixed load on its own directory until it is complete, or works for a server whose runs the test starts. Appends a line
//! to a side file for every execution and every acknowledgement. After a restart it repeats the same requests with the same ids.
//! The test checks the logs and the side file; this process checks only results.

mod driver;
mod load;
mod side;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward::Onward;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Global;
use crate::interrupt;
use side::Side;

#[derive(Debug, Args)]
pub struct TortureArgs {
    /// Number of runs, without their children
    #[arg(long, default_value_t = 0)]
    runs: u64,
    /// Only work for the server at this URL until the process is killed or terminated
    #[arg(long)]
    work_for: Option<String>,
    /// Duration of an attempt of the task `once` after its effect
    #[arg(long, default_value_t = 0)]
    hold_ms: u64,
    /// Time that a shutdown waits for running attempts
    #[arg(long, default_value_t = 10_000)]
    shutdown_ms: u64,
    /// File for executions and acknowledgements
    #[arg(long)]
    side: PathBuf,
    /// Size of the large payload of each run in bytes
    #[arg(long, default_value_t = 100)]
    large: usize,
}

pub async fn work(args: TortureArgs, global: &Global) -> Result<ExitCode> {
    interrupt::end_with_parent();
    let side = Side::new(args.side);
    let builder = args.work_for.as_ref().map_or_else(|| Onward::embedded(global.directory()), Onward::connect);
    let onward = builder
        .shutdown_timeout(Duration::from_millis(args.shutdown_ms))
        .dep(side.clone())
        .dep(load::Hold(Duration::from_millis(args.hold_ms)))
        .workflow("load", load::load)
        .workflow("child", load::child)
        .workflow("gather", load::gather)
        .workflow("once", load::once)
        .task("flaky", load::flaky)
        .task("once", load::effect)
        .start()
        .await?;
    if args.work_for.is_some() {
        let mut terminated = signal(SignalKind::terminate())?;
        terminated.recv().await;
        onward.shutdown().await;
        return Ok(ExitCode::SUCCESS);
    }
    driver::drive(&onward, &side, args.runs, args.large).await?;
    onward.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
