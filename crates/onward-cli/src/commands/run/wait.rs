//! `onward run wait`: until a run has ended.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::args::Global;
use crate::directory::{open_to_read, run_key};
use crate::error::{Mistake, RUN_FAILED, TIMED_OUT};
use crate::output::document::Outcome;
use crate::output::{print, print_json};

/// How often another process's run is looked at.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The run
    id: String,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

/// Ends with 0 when the run completed, 3 when it did not, 124 when it took too long.
pub async fn execute(args: WaitArgs, global: &Global) -> Result<ExitCode> {
    let key = run_key(&args.id)?;
    let deadline = args.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let runtime = open_to_read(&global.directory())?;
    let outcome = loop {
        if let Some(outcome) = runtime.read_outcome(&key).await? {
            break outcome;
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let message = format!("run {key} has not ended");
            let hint = Some("the run is not affected; `onward run show` says what it waits for".to_owned());
            return Err(Mistake { code: "wait_timed_out", message, hint, exit: TIMED_OUT }.into());
        }
        tokio::time::sleep(LOOK).await;
    };
    match &outcome {
        outcome if global.json => print_json(&Outcome::from(outcome))?,
        Ok(output) => print(&crate::output::escape::text(&format!("{output:?}")))?,
        Err(_) => {}
    }
    match outcome {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(_) if global.json => Ok(ExitCode::from(RUN_FAILED)),
        Err(failure) => {
            let message = format!("run {key} failed: [{}] {failure}", failure.code);
            Err(Mistake { code: "run_failed", message, hint: None, exit: RUN_FAILED }.into())
        }
    }
}
