//! `onward dev`: a development server on loopback, with a banner, an optional browser and an optional child program.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use onward_core::Namespace;
use onward_runtime::Runtime;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::args::Global;
use crate::builtin_agents::{BuiltinAgents, namespaces_of};
use crate::builtin_flows::FlowSettings;
use crate::config::Config;
use crate::directory::{own_command, shell_word};
use crate::error::{Exit, FAILURE, Mistake};
use crate::output::{Style, escape, print_json, print_stderr};
use crate::serving::{KeysArgs, PORT, Protection, Serving, StoreLocation, TraceArgs, WebhookArgs, shutdown_signal};

/// Time for the child to exit after SIGTERM.
const CHILD_PATIENCE: Duration = Duration::from_secs(5);

/// Polling interval for the first worker.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub struct DevArgs {
    /// Port on 127.0.0.1; 0 selects a free one [default: 7400]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Keep runs in memory only
    #[arg(long, conflicts_with = "data")]
    ephemeral: bool,
    /// Directory of flows: each document is stored when it is saved [default: the setting `flows.dir`]
    #[arg(long, value_name = "DIR")]
    flows: Option<PathBuf>,
    /// Open the console in a browser
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    keys: KeysArgs,
    #[command(flatten)]
    webhooks: WebhookArgs,
    #[command(flatten)]
    trace: TraceArgs,
    /// Program to run with ONWARD_URL set; the server stops when it exits
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub async fn execute(args: DevArgs, global: &Global) -> Result<()> {
    global.without_server("dev")?;
    let config = &global.config;
    let location = if args.ephemeral { StoreLocation::Memory } else { StoreLocation::Directory(global.directory()) };
    let port = args.port.map_or_else(|| set_port(config), Ok)?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let trace = args.trace.trace(config)?;
    let keys = args.keys.open(&location, &trace, config)?;
    let webhooks = args.webhooks.open(&location, &trace)?;
    let protection = Protection::open(keys, webhooks, config)?;
    let builtin = BuiltinAgents::open(config)?;
    let flows = FlowSettings::open(config, args.flows, namespaces_of(config)?)?;
    let agent = builtin.as_ref().and_then(BuiltinAgents::first_agent).map(str::to_owned);
    let serving = Serving::start(address, location.clone(), protection, config, builtin, flows, trace).await?;
    let url = serving.url.clone();
    let stopped = shutdown_signal();
    if global.json {
        print_json(&serde_json::json!({"url": url}))?;
    } else {
        banner(&url, &location, agent.as_deref());
        if agent.is_none() {
            tokio::spawn(suggest_start(serving.runtime().clone(), global.namespace()?, url.clone()));
        }
    }
    if args.open {
        open(&url);
    }
    let Some(mut child) = spawn(&args.command, &url)? else {
        serving.run(stopped).await;
        return Ok(());
    };
    let mut ended = None;
    let shutdown = async {
        tokio::select! {
            status = child.wait() => ended = status.ok(),
            // The child stops first, because it may still need the server.
            () = stopped => stop(&mut child).await,
        }
    };
    serving.run(shutdown).await;
    ended.map_or(Ok(()), exit_like)
}

/// Returns the port of the settings.
pub fn set_port(config: &Config) -> Result<u16, Mistake> {
    let parse = |text: &str| text.parse().map_err(|_| "must be a port number".to_owned());
    Ok(config.parsed("dev.port", parse)?.unwrap_or(PORT))
}

/// Prints four lines: version, URL, data directory, and what to do next.
fn banner(url: &str, location: &StoreLocation, agent: Option<&str>) {
    print_stderr(&format!("{} {}", Style::stderr().bold("onward"), env!("CARGO_PKG_VERSION")));
    banner_line("url", url);
    banner_line("data", &location.to_string());
    match agent {
        Some(agent) => banner_line("next", &format!("{} chat --agent {} --server {url}", own_command(), shell_word(agent))),
        None => banner_line("next", &format!("start a worker with ONWARD_URL={url}, or define agents in onward.toml")),
    }
}

fn banner_line(name: &str, value: &str) {
    print_stderr(&format!("  {} {}", Style::stderr().dim(&format!("{name:5}")), escape::text(value)));
}

/// Waits for the first worker and prints the command that starts a run of one of its kinds.
async fn suggest_start(runtime: Runtime, namespace: Namespace, url: String) {
    loop {
        if let Some(known) = runtime.list_workers(&namespace).iter().flat_map(|worker| &worker.kinds).next() {
            let kind = shell_word(known.kind.as_str());
            return banner_line("next", &format!("{} run start {kind} --server {url}", own_command()));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn open(url: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let spawned = Command::new(opener).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = spawned {
        print_stderr(&format!("cannot open a browser with `{opener}`: {error}; {} is running", own_command()));
    }
}

fn spawn(command: &[OsString], url: &str) -> Result<Option<Child>> {
    let Some((program, args)) = command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    // The child inherits stdout and stderr; this program writes only its `--json` document to stdout.
    command.args(args).env("ONWARD_URL", url).kill_on_drop(true);
    let child = command.spawn().with_context(|| format!("cannot run `{}`", program.to_string_lossy()))?;
    Ok(Some(child))
}

/// Sends SIGTERM to the child, and SIGKILL if it does not exit in time.
async fn stop(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id as i32)) {
        let _ = kill_process(pid, Signal::TERM); // it may have exited already
    }
    if tokio::time::timeout(CHILD_PATIENCE, child.wait()).await.is_err() {
        drop(child.kill().await);
    }
}

/// Exits with the exit code of the child, or with 128 plus the signal that ended it, like a shell.
fn exit_like(status: ExitStatus) -> Result<()> {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    if code == 0 { Ok(()) } else { Err(Exit(u8::try_from(code).unwrap_or(FAILURE)).into()) }
}
