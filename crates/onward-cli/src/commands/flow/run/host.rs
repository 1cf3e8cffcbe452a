//! The server and the worker of this process for one flow.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use onward::Onward;
use onward_core::ErrorCode;
use onward_flow::document::Flow;
use onward_runtime::Runtime;
use onward_server::trace::{Format, Level, Trace};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::args::Global;
use crate::builtin_agents::BuiltinAgents;
use crate::builtin_flows::FlowSettings;
use crate::config::SettingOrigin;
use crate::error::Mistake;
use crate::new_id::random_u64;
use crate::output::print_stderr;
use crate::serving::{KeysArgs, Protection, Serving, StoreLocation, mark};

#[derive(Debug, Args)]
pub struct HostArgs {
    /// Model of prompts that name none
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Host that the action `http` may reach: HOST, HOST:PORT or *.DOMAIN (repeatable)
    #[arg(long, value_name = "HOST")]
    allow_http: Vec<String>,
    /// Folder for the actions `read` and `write`
    #[arg(long, value_name = "DIR")]
    documents: Option<PathBuf>,
    #[command(flatten)]
    keys: KeysArgs,
}

impl HostArgs {
    /// Fails if an option is given that another server does not take.
    pub fn refuse_with_server(&self) -> Result<()> {
        let given = [
            ("--model", self.model.is_some()),
            ("--allow-http", !self.allow_http.is_empty()),
            ("--documents", self.documents.is_some()),
        ];
        let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
        let message = format!("`{option}` is an option of this process, but the flow runs on a server");
        let hint = "remove `--server` and ONWARD_URL, or set `[flows]` in the settings of the server";
        Err(Mistake::usage(ErrorCode::Usage, message, hint).into())
    }
}

/// A running server with a worker for the flow.
pub struct Host {
    pub url: String,
    directory: PathBuf,
    is_temporary: bool,
    runtime: Runtime,
    worker: Onward,
    shutdown: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Host {
    /// Opens the data directory, or a temporary one, and serves it.
    pub async fn start(args: &HostArgs, port: u16, flow: &Flow, global: &Global) -> Result<Host> {
        let named = global.config.get("data").filter(|data| !matches!(data.origin, SettingOrigin::Default));
        let is_temporary = named.is_none();
        let directory = match named {
            Some(data) => PathBuf::from(data.text),
            None => temporary()?,
        };
        if let Some(url) = mark::server_of(&directory) {
            let message = format!("{} is in use by the server at {url}", directory.display());
            let hint = format!("use `--server {url}`, or another directory");
            return Err(Mistake::new(ErrorCode::DirectoryLocked, message, Some(&hint)).into());
        }
        let builtin = BuiltinAgents::open(&global.config)?;
        let settings = FlowSettings::open(&global.config, None, Vec::new())?;
        warn_of_missing(flow, builtin.as_ref(), args);
        let location = StoreLocation::Directory(directory.clone());
        let trace = Trace::stderr(Format::Pretty, Level::Error);
        // The keys of the directory protect this server, too.
        let keys = args.keys.open(&location, &trace, &global.config)?;
        let protection = Protection::open(keys, None, &global.config)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let serving =
            Serving::start(address, location, protection, &global.config, builtin, FlowSettings::default(), trace).await?;
        let (url, runtime) = (serving.url.clone(), serving.runtime().clone());
        let builder = settings.equip(Onward::within(runtime.clone()).namespace(global.namespace()?.as_str())).flow(flow);
        let builder = args.model.iter().fold(builder, |builder, model| builder.flow_model(model));
        let builder = if args.allow_http.is_empty() { builder } else { builder.flow_http(&args.allow_http) };
        let builder = args.documents.iter().fold(builder, |builder, folder| builder.flow_documents(folder));
        let worker = builder.start().await?;
        let (shutdown, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(serving.run(async { drop(stopped.await) }));
        Ok(Host { url, directory, is_temporary, runtime, worker, shutdown, server })
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Stops the worker and the server. Returns the directory, unless it was temporary and is no longer needed.
    pub async fn stop(self, is_completed: bool) -> Option<PathBuf> {
        let Host { directory, is_temporary, runtime, worker, shutdown, server, .. } = self;
        crate::commands::chat::leave(worker).await;
        drop((runtime, shutdown));
        drop(server.await);
        if is_temporary && is_completed {
            drop(std::fs::remove_dir_all(&directory)); // it may also be left to the system
            return None;
        }
        Some(directory)
    }
}

/// Creates a directory that other users cannot read.
fn temporary() -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("onward-flow-{:016x}", random_u64()));
    std::fs::DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

/// Names models and agents that no worker of this process serves. Others may connect, so this is no error.
fn warn_of_missing(flow: &Flow, builtin: Option<&BuiltinAgents>, args: &HostArgs) {
    let models: Vec<&str> = builtin.map(|builtin| builtin.models().collect()).unwrap_or_default();
    let agents: Vec<&str> = builtin.map(|builtin| builtin.agents().collect()).unwrap_or_default();
    let mut steps: Vec<&onward_flow::document::Step> = flow.steps.iter().collect();
    let mut missing = Vec::new();
    while let Some(step) = steps.pop() {
        steps.extend(step.parallel.iter().flat_map(|branches| branches.values()).flatten());
        let asks_model = step.prompt.is_some() && step.agent.is_none();
        match (step.model.as_ref().or(args.model.as_ref()).filter(|_| asks_model), &step.agent) {
            (Some(model), _) if !models.contains(&model.as_str()) => missing.push(format!("model `{model}`")),
            (_, Some(agent)) if !agents.contains(&agent.as_str()) => missing.push(format!("agent `{agent}`")),
            _ => {}
        }
    }
    missing.sort();
    missing.dedup();
    if !missing.is_empty() {
        print_stderr(&format!("warning: the settings define no {}", missing.join(", no ")));
    }
}
