//! `onward torture-worker`: the process that the crash test kills, as often as it likes.
//!
//! Works on a fixed load until all of it is done, in a directory of its own or for a server, which somebody else drives, and leaves a line in a side file for everything that was really done and for
//! everything that was acknowledged. Started again after a kill it asks for the very same things, with the same ids; what that means
//! is the engine's to know. It checks nothing: the test does, from the logs and from the side file.

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
    /// How many runs there are, their children apart
    #[arg(long, default_value_t = 0)]
    runs: u64,
    /// Only works, for the server at this address, until it is killed or terminated
    #[arg(long)]
    work_for: Option<String>,
    /// How long an attempt of the task `once` takes after its effect
    #[arg(long, default_value_t = 0)]
    hold_ms: u64,
    /// How long a shutdown waits for what is under way
    #[arg(long, default_value_t = 10_000)]
    shutdown_ms: u64,
    /// Where what was done and acknowledged is noted
    #[arg(long)]
    side: PathBuf,
    /// How large the one large payload of each run is
    #[arg(long, default_value_t = 100)]
    large: usize,
}

pub async fn work(args: TortureArgs, global: &Global) -> Result<ExitCode> {
    interrupt::end_with_parent();
    let side = Side::new(args.side);
    let place = args.work_for.as_ref().map_or_else(|| Onward::embedded(global.directory()), Onward::connect);
    let onward = place
        .shutdown_timeout(Duration::from_millis(args.shutdown_ms))
        .dep(side.clone())
        .dep(load::Hold(Duration::from_millis(args.hold_ms)))
        .workflow("load", load::load)
        .workflow("child", load::child)
        .workflow("gather", load::gather)
        .workflow("once", load::once)
        .task_with("flaky", load::flaky)
        .task_with("once", load::effect)
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
