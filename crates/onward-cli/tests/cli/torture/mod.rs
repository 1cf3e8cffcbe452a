//! The worker process that crash tests kill: this test binary, started again.
//!
//! Runs a fixed load on its own directory until it is complete, or works for a server whose runs the test starts. Appends a line
//! to a side file for every execution and every acknowledgement. After a restart it repeats the same requests with the same ids.
//! The test checks the logs and the side file; this process checks only results.

mod driver;
mod load;
mod side;

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use onward::Onward;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use crate::kit::isolated;
use side::Side;

/// Environment variable with the settings of the worker, as JSON.
const SETTINGS: &str = "ONWARD_TORTURE_WORKER";

#[derive(Serialize, Deserialize)]
pub struct TortureWorker {
    pub work: Work,
    /// File for executions and acknowledgements.
    pub side: PathBuf,
    /// Duration of an attempt of the task `once` after its effect.
    pub hold: Duration,
    /// Time that a shutdown waits for running attempts.
    pub shutdown: Duration,
}

#[derive(Serialize, Deserialize)]
pub enum Work {
    /// The load on a directory of its own: so many runs, without their children, each with a payload of `large` bytes.
    Load { directory: PathBuf, runs: u64, large: usize },
    /// The runs of the server at this URL, until the process is killed or terminated.
    Server(String),
}

impl TortureWorker {
    pub fn new(work: Work, side: PathBuf) -> TortureWorker {
        TortureWorker { work, side, hold: Duration::ZERO, shutdown: Duration::from_secs(10) }
    }

    /// Returns the command that starts the process.
    pub fn command(&self) -> Command {
        let mut command = isolated(std::env::current_exe().unwrap());
        command.args(["--exact", "torture::worker", "--nocapture", "--test-threads=1"]);
        command.env(SETTINGS, serde_json::to_string(self).unwrap()).stdout(Stdio::null());
        command
    }
}

/// Entry point of the process; does nothing unless a crash test started it.
#[test]
fn worker() {
    let Ok(settings) = std::env::var(SETTINGS) else { return };
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work(serde_json::from_str(&settings).unwrap()));
}

/// Ends this process when the test has ended in any way: the test holds the other end of stdin.
fn end_with_parent() {
    std::thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(130);
    });
}

async fn work(worker: TortureWorker) {
    let side = Side::new(worker.side);
    let builder = match &worker.work {
        Work::Load { directory, .. } => Onward::embedded(directory),
        Work::Server(url) => Onward::connect(url),
    };
    let onward = builder
        .shutdown_timeout(worker.shutdown)
        .dep(side.clone())
        .dep(load::Hold(worker.hold))
        .workflow("load", load::load)
        .workflow("child", load::child)
        .workflow("gather", load::gather)
        .workflow("once", load::once)
        .task("flaky", load::flaky)
        .task("once", load::effect)
        .start()
        .await
        .unwrap();
    match worker.work {
        Work::Load { runs, large, .. } => driver::drive(&onward, &side, runs, large).await.unwrap(),
        Work::Server(_) => drop(signal(SignalKind::terminate()).unwrap().recv().await),
    }
    onward.shutdown().await;
}
