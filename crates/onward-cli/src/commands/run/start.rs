//! `onward run start`, which starts a run or returns the existing one with its id, and `onward run wait`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::api::{Signal, StartRequest};
use onward_core::time::millis;
use onward_core::{ErrorCode, Name, RunKey, Timestamp};
use onward_runtime::RuntimeError;

use super::filter::attribute;
use crate::args::{Global, read_optional_payload, read_payload};
use crate::commands::schedule::spec::parse_time;
use crate::connection::Connection;
use crate::error::{Exit, Mistake, RUN_FAILED};
use crate::output::document::{Outcome, Receipt, Run, StartedRun};
use crate::output::{escape, print, print_json, print_stderr};
use crate::{budget, new_id, span};

/// Minimum timeout, so that `--timeout 0` still finds an existing result.
const TIMEOUT_MIN: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub struct StartArgs {
    /// Kind of workflow or agent to start
    kind: String,
    /// Run id; a repeated start with the same id and input returns the same run [default: a new id]
    #[arg(long)]
    id: Option<String>,
    /// Input: JSON, @FILE, or - for stdin [default: null]
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// Code version to pin the run to
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Set an attribute (repeatable); quote a text that looks like a number: 'order="42"'
    #[arg(long, value_name = "NAME=VALUE")]
    attr: Vec<String>,
    /// Budget of the run: tokens=N, cost=DOLLARS, turns=N or seconds=N (repeatable)
    #[arg(long, value_name = "LIMIT")]
    budget: Vec<String>,
    /// Begin the run's code at this time: 2026-11-20T09:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<Timestamp>,
    /// Begin the run's code after this time: 90s, 2h, 3d
    #[arg(long, value_name = "DURATION", value_parser = span::parse, conflicts_with = "at")]
    after: Option<Duration>,
    /// Begin the run's code when this queue lets it in
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Key whose limits and share of the queue apply to the run
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Priority in the queue; higher begins first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Cancel the run after this time, pauses and the time before --at not counted: 90s, 2h, 3d
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    deadline: Option<Duration>,
    /// Send a signal with the start; the payload is JSON or @FILE
    #[arg(long, value_name = "NAME=JSON")]
    signal: Option<String>,
    /// Wait until the run has ended and print its result
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    wait_timeout: WaitTimeout,
}

#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Run id
    id: String,
    #[command(flatten)]
    wait_timeout: WaitTimeout,
}

#[derive(Debug, Args)]
pub struct WaitTimeout {
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

impl WaitTimeout {
    /// Awaits `work`; returns `None` after the timeout.
    pub async fn or_none<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match self.timeout {
            None => Some(work.await),
            Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds).max(TIMEOUT_MIN), work).await.ok(),
        }
    }
}

pub async fn start(args: StartArgs, global: &Global) -> Result<()> {
    let name = |text: &str| Name::new(text).map_err(RuntimeError::from);
    let (kind, version) = (name(&args.kind)?, args.version.as_deref().map(name).transpose()?);
    let input = read_optional_payload(args.input.as_deref())?;
    let signal = args.signal.as_deref().map(read_signal).transpose()?;
    let attributes = args.attr.iter().map(|text| attribute(text)).collect::<Result<_, _>>().map_err(RuntimeError::from)?;
    let budget = budget::parse(&args.budget)?;
    let connection = Connection::to_write(global).await?;
    if args.wait && connection.is_directory {
        let message = "`--wait` needs a server: this command locks the directory, so no worker can run";
        let hint = "set `--server`, or omit `--wait` and use `onward run wait` while a worker runs";
        return Err(Mistake::usage(ErrorCode::Usage, message, hint).into());
    }
    let key = connection.key(&args.id.unwrap_or_else(new_id::run))?;
    let start = StartRequest {
        version,
        signal,
        attributes,
        budget,
        deadline_ms: args.deadline.map(millis),
        start_at: args.at,
        start_after_ms: args.after.map(millis),
        queue: args.queue.map(Name::new).transpose()?,
        key: args.key.map(Name::new).transpose()?,
        priority: args.priority,
        ..StartRequest::new(key.clone(), kind, input, new_id::random_u64())
    };
    let started = connection.start_run(start).await?;
    let id = escape::text(key.id.as_str());
    if !args.wait {
        let (run, created) = (Run::from(&started.head), started.created);
        let signal = started.signal.as_ref().map(|signal| Receipt::new(&key.id, signal));
        let note = if created { "" } else { " by an earlier request; nothing changed" };
        let begins = match (&started.head.queue, started.head.starts_at) {
            (Some(queue), Some(_)) => format!(", waits in the queue {}", escape::text(queue.name.as_str())),
            (_, at) => at.map(|at| format!(", begins at {at}")).unwrap_or_default(),
        };
        return global.show(&StartedRun { run, created, signal }, || format!("{id}: started{note}{begins}"));
    }
    if !global.json {
        print_stderr(&format!("started {id}"));
    }
    wait_for(&connection, &key, &args.wait_timeout, global).await
}

fn read_signal(text: &str) -> Result<Signal> {
    let (name, payload) = text.split_once('=').unwrap_or((text, "null"));
    let name = Name::new(name).map_err(RuntimeError::from)?;
    Ok(Signal { name, payload: read_payload(payload)?, signal_id: None })
}

pub async fn wait(args: WaitArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let key = connection.key(&args.id)?;
    wait_for(&connection, &key, &args.wait_timeout, global).await
}

/// Waits for the end of the run. Exits with 0 if it completed, 3 if it did not, 124 after the timeout.
async fn wait_for(connection: &Connection, key: &RunKey, wait_timeout: &WaitTimeout, global: &Global) -> Result<()> {
    connection.read_head(key.clone()).await?; // a missing run is an error even with `--timeout 0`
    let Some(outcome) = wait_timeout.or_none(connection.outcome(key)).await else {
        let hint = "the run is not affected; see what it waits for with `onward run show`";
        return Err(Mistake::new(ErrorCode::WaitTimedOut, format!("run {key} has not ended"), Some(hint)).into());
    };
    match &outcome? {
        outcome if global.json => {
            print_json(&Outcome::from(outcome))?;
            if outcome.is_ok() { Ok(()) } else { Err(Exit(RUN_FAILED).into()) }
        }
        Ok(output) => Ok(print(&escape::text(&format!("{output:?}")))?),
        Err(failure) => {
            let message = format!("run {key} failed: [{}] {failure}", failure.code);
            Err(Mistake::new(ErrorCode::RunFailed, message, None).into())
        }
    }
}
