//! `onward run wait`: waits until a run has ended.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::RunKey;

use crate::args::Global;
use crate::connection::Connection;
use crate::error::{Mistake, RUN_FAILED, TIMED_OUT};
use crate::output::document::Outcome;
use crate::output::{escape, print, print_json};

/// Minimum timeout, so that `--timeout 0` still finds an existing result.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Run id
    id: String,
    #[command(flatten)]
    patience: Patience,
}

#[derive(Debug, Args)]
pub struct Patience {
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

impl Patience {
    /// Awaits `work`; returns `None` after the timeout.
    pub async fn or_none<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match self.timeout {
            None => Some(work.await),
            Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds).max(LOOK), work).await.ok(),
        }
    }
}

pub async fn execute(args: WaitArgs, global: &Global) -> Result<ExitCode> {
    let connection = Connection::to_read(global)?;
    let key = connection.key(&args.id)?;
    wait(&connection, &key, &args.patience, global).await
}

/// Waits for the end of the run. Exits with 0 if it completed, 3 if it did not, 124 after the timeout.
pub async fn wait(connection: &Connection, key: &RunKey, patience: &Patience, global: &Global) -> Result<ExitCode> {
    connection.read_head(key.clone()).await?; // a missing run is an error even with `--timeout 0`
    let Some(outcome) = patience.or_none(connection.outcome(key)).await else {
        let message = format!("run {key} has not ended");
        let hint = Some("the run is not affected; see what it waits for with `onward run show`".to_owned());
        return Err(Mistake { code: "wait_timed_out", message, hint, exit: TIMED_OUT }.into());
    };
    match &outcome? {
        outcome if global.json => {
            print_json(&Outcome::from(outcome))?;
            Ok(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(RUN_FAILED) })
        }
        Ok(output) => {
            print(&escape::text(&format!("{output:?}")))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            let message = format!("run {key} failed: [{}] {failure}", failure.code);
            Err(Mistake { code: "run_failed", message, hint: None, exit: RUN_FAILED }.into())
        }
    }
}
