//! `onward flow run`: runs a flow in this process, or on a server, and shows its progress.
//!
//! Without a server, this process serves the directory on a port of 127.0.0.1, as `onward dev` does, with a worker for the flow and
//! for the models and agents of the settings. So approvals can be decided and task workers can connect from other terminals.

mod follow;
mod host;
pub mod inputs;
mod questions;
mod screen;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use onward_core::api::{FlowQuery, StartRequest};
use onward_core::ledger::{SpendBy, SpendQuery};
use onward_core::{ErrorCode, Failure, Name, Payload, RunKey};
use onward_flow::document::Flow;
use onward_runtime::RuntimeError;

use super::document::Document;
use crate::args::Global;
use crate::commands::spend;
use crate::connection::{Connection, Endpoint};
use crate::directory::{own_command, shell_path, shell_word};
use crate::error::{Exit, INTERRUPTED, Mistake, RUN_FAILED};
use crate::new_id;
use crate::output::document::Outcome;
use crate::output::{escape, json_line, print, print_json, print_stderr, time};
use crate::serving::shutdown_signal;
use follow::{Followed, Follower};
use host::Host;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Flow file, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Set an input (repeatable): text, or JSON if the input is no text; @FILE reads a file
    #[arg(long, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// All inputs as a JSON object: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    input_json: Option<String>,
    /// Run id; with `--data`, the same id resumes the run [default: a new id]
    #[arg(long)]
    id: Option<String>,
    /// Name with which approvals are decided in this terminal
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Port on 127.0.0.1 on which this process serves the run [default: a free one]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
    #[command(flatten)]
    host: host::HostArgs,
}

pub async fn execute(args: RunArgs, global: &Global) -> Result<()> {
    let stopped = shutdown_signal();
    let flow = Document::read(&args.file, global)?.into_flow()?;
    let given = inputs::read(&flow, args.input_json.as_deref(), &args.input)?;
    if args.id.is_none() {
        inputs::check_required(&flow, given.as_ref())?; // before a temporary directory is created
    }
    let Endpoint::Directory(_) = Endpoint::of(global)? else {
        args.host.refuse_with_server()?;
        let connection = Connection::to_write(global).await?;
        check_stored(&args.file, &flow, &connection).await?;
        let done = start_and_follow(&args, &flow, given, &connection, None, stopped, global).await;
        return done?.finish(global);
    };
    let host = Host::start(&args.host, args.port, &flow, global).await?;
    let connection = Connection::of(host.runtime().clone(), global)?;
    let done = start_and_follow(&args, &flow, given, &connection, Some(&host), stopped, global).await;
    drop(connection);
    let is_completed = matches!(&done, Ok(Done { followed: Followed::Ended(Ok(_)), .. }));
    let kept = host.stop(is_completed).await;
    if let Ok(done) = &done
        && let Some(directory) = &kept
    {
        done.advise(&args, directory, global)?;
    }
    done?.finish(global)
}

/// Fails unless the server has the definition: a run of another version would wait for a worker for ever.
async fn check_stored(file: &Path, flow: &Flow, connection: &Connection) -> Result<()> {
    let (name, version) = (Name::new(flow.flow.as_str())?, flow.version());
    let query = FlowQuery { namespace: connection.namespace.clone(), flow: Some(name.clone()) };
    let stored = connection.list_flows(query).await?.flows;
    if stored.iter().any(|stored| stored.version.as_str() == version) {
        return Ok(());
    }
    let message = match stored.is_empty() {
        true => format!("the server has no flow `{name}`"),
        false => format!("the server has the flow `{name}`, but not the version {version} of the file"),
    };
    let file = if file == Path::new("-") { "FILE".to_owned() } else { shell_path(file) };
    let hint = format!("store it first: `{} flow apply {file}`", own_command());
    Err(Mistake::usage(ErrorCode::FlowNotFound, message, &hint).into())
}

/// A run that is over, or that this process no longer follows.
struct Done {
    key: RunKey,
    followed: Followed,
    /// The command that resumes the run, if the server that has it is another process.
    on_server: bool,
}

async fn start_and_follow(
    args: &RunArgs,
    flow: &Flow,
    given: Option<serde_json::Value>,
    connection: &Connection,
    host: Option<&Host>,
    stopped: impl Future<Output = ()>,
    global: &Global,
) -> Result<Done> {
    let key = connection.key(&args.id.clone().unwrap_or_else(new_id::run))?;
    let emissions = host.map(|_| connection.listen(&key)); // before the start, so that nothing is missed
    let is_new = start(args, flow, given, connection, &key).await?;
    if !global.json {
        let how = if is_new { "started" } else { "resumed" };
        let at = host.map(|host| format!(" at {}", host.url)).unwrap_or_default();
        print_stderr(&format!("{how} {}{at}", escape::text(key.id.as_str())));
    }
    let decide = match host {
        Some(host) => format!("--server {}", host.url),
        None => global.config.text("url").map(|url| format!("--server {}", shell_word(&url))).unwrap_or_default(),
    };
    let mut follower = Follower::new(connection, key.clone(), flow, decide, args.by.clone(), global.json);
    emissions.into_iter().for_each(|emissions| follower.emissions(emissions));
    let followed = follower.follow(stopped).await;
    follower.close();
    let followed = followed?;
    if let (Followed::Ended(outcome), false) = (&followed, global.json) {
        print_end(connection, &key, outcome).await;
    }
    Ok(Done { key, followed, on_server: host.is_none() })
}

/// Starts the run, unless `--id` names one that exists and no inputs are given. Returns whether it is new.
async fn start(
    args: &RunArgs,
    flow: &Flow,
    given: Option<serde_json::Value>,
    connection: &Connection,
    key: &RunKey,
) -> Result<bool> {
    let name = |text: &str| Name::new(text).map_err(RuntimeError::from);
    let (kind, version) = (name(&flow.flow)?, name(&flow.version())?);
    if args.id.is_some() {
        match connection.read_head(key.clone()).await {
            Ok(head) if head.kind != kind => {
                let message = format!("run {} has kind `{}`, not `{kind}`", key.id, head.kind);
                return Err(Mistake::usage(ErrorCode::Usage, message, "choose another id").into());
            }
            Ok(head) if head.version.as_ref() != Some(&version) && !head.status.is_closed() => {
                let message = format!("run {} began with another version of the flow `{kind}`", key.id);
                let hint = "use the file as it was then, or another id to begin again";
                return Err(Mistake::usage(ErrorCode::Usage, message, hint).into());
            }
            Ok(_) if given.is_none() => return Ok(false),
            Ok(_) => {}
            Err(error) if error.code() == ErrorCode::RunNotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    inputs::check_required(flow, given.as_ref())?;
    let input = Payload::json(&given.unwrap_or_else(|| serde_json::json!({})))?;
    let request = StartRequest { version: Some(version), ..StartRequest::new(key.clone(), kind, input, new_id::random_u64()) };
    Ok(connection.start_run(request).await?.created)
}

/// Prints the status, the duration and the cost of a run that has ended.
async fn print_end(connection: &Connection, key: &RunKey, outcome: &Result<Payload, Failure>) {
    let Ok(view) = connection.read_run(key.clone()).await else { return };
    let took = view.head.ended_at.map(|ended| format!(" (after {})", time::span(ended.since(view.head.created_at))));
    let word = if outcome.is_ok() { "completed".to_owned() } else { view.head.status.to_string() };
    let tree = Some(key.id.clone());
    let query = SpendQuery { namespace: connection.namespace.clone(), tree, limit: 1, ..SpendQuery::by(SpendBy::Tree) };
    let spent = connection.read_spend(query).await.ok().and_then(|mut reply| reply.rows.pop());
    let spent = spent.map(|row| format!("; spent {}", spend::line(&row.totals))).unwrap_or_default();
    print_stderr(&format!("{word}{}{spent}", took.unwrap_or_default()));
}

impl Done {
    /// Prints how to resume a run that has not completed. Its directory was kept.
    fn advise(&self, args: &RunArgs, directory: &Path, global: &Global) -> Result<()> {
        if global.json {
            print_stderr(&json_line(&serde_json::json!({"run": self.key.id, "data": directory.display().to_string()}))?);
            return Ok(());
        }
        let (command, data, id) = (own_command(), shell_path(directory), shell_word(self.key.id.as_str()));
        let show = format!("{command} run show {id} --data {data}");
        match &self.followed {
            Followed::Interrupted => {
                print_stderr("stopped; the run is saved");
                print_stderr(&format!("resume it with: {command} flow run {} --data {data} --id {id}", shell_path(&args.file)));
                print_stderr(&format!("cancel it with: {command} run cancel {id} --data {data}"));
            }
            Followed::Ended(Err(_)) => print_stderr(&format!("see what happened with: {show}")),
            Followed::Ended(Ok(_)) => {}
        }
        Ok(())
    }

    /// Prints the outcome, as `onward run wait` does.
    fn finish(self, global: &Global) -> Result<()> {
        let Done { key, followed, on_server } = self;
        match followed {
            Followed::Interrupted => {
                if on_server {
                    let id = shell_word(key.id.as_str());
                    print_stderr(&format!("the run continues on the server; watch it with: {} run watch {id}", own_command()));
                }
                Err(Exit(INTERRUPTED).into())
            }
            Followed::Ended(outcome) if global.json => {
                print_json(&Outcome::from(&outcome))?;
                if outcome.is_ok() { Ok(()) } else { Err(Exit(RUN_FAILED).into()) }
            }
            Followed::Ended(Ok(output)) => Ok(print(&escape::text(&format!("{output:?}")))?),
            Followed::Ended(Err(failure)) => {
                let message = format!("run {} failed: [{}] {failure}", key.id, failure.code);
                Err(Mistake::new(ErrorCode::RunFailed, message, None).into())
            }
        }
    }
}
