//! The commands, one file or folder each.

mod api;
mod approval;
mod chat;
mod check;
mod completions;
mod config;
mod demo;
mod dev;
mod doctor;
mod flow;
mod key;
mod kind;
mod memo;
mod promise;
mod queue;
mod quota;
mod replay;
mod run;
mod schedule;
mod server;
mod spend;
mod transfer;
mod webhook;
mod worker;

use anyhow::Result;
use clap::Subcommand;

use crate::args::Cli;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch an order survive kill -9 twice; `demo agent` is a chat that survives it
    Demo(demo::DemoArgs),
    /// Run a development server on a local directory
    Dev(dev::DevArgs),
    /// Run a server on a directory or on PostgreSQL
    Server(server::ServerArgs),
    /// Chat with an agent
    Chat(chat::ChatArgs),
    /// Start, inspect and control runs
    #[command(subcommand)]
    Run(run::RunCommand),
    /// Check, draw and run flows: workflows as documents
    #[command(subcommand)]
    Flow(flow::FlowCommand),
    /// Start runs by the clock: define, show, pause and trigger schedules
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Export runs with their complete logs as JSON lines
    Export(transfer::ExportArgs),
    /// Import exported runs
    Import(transfer::ImportArgs),
    /// List and decide approvals
    #[command(subcommand)]
    Approval(approval::ApprovalCommand),
    /// Resolve or reject promises
    #[command(subcommand)]
    Promise(promise::PromiseCommand),
    /// Replay open runs with a new program before you deploy it
    Check(check::CheckArgs),
    /// Step through the log of a run, forward and back
    Replay(replay::ReplayArgs),
    /// Show the cost of model calls
    Spend(spend::SpendArgs),
    /// Show and change defaults of kinds: retries, timeouts, queues, deadlines
    #[command(subcommand)]
    Kind(kind::KindCommand),
    /// Show task queues, retry quarantined tasks, reopen rate-limited keys
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Show, change and remove the quota of a namespace
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    /// Invalidate recorded results of calls
    #[command(subcommand)]
    Memo(memo::MemoCommand),
    /// List connected workers
    #[command(subcommand)]
    Worker(worker::WorkerCommand),
    /// Manage the API keys of a server
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Manage the webhooks of a server
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    /// Send a request to any route of the HTTP API
    Api(api::ApiArgs),
    /// Check a directory or a server and suggest fixes
    Doctor(doctor::DoctorArgs),
    /// Show settings and their origin
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print a shell completion script
    Completions(completions::CompletionsArgs),
    /// Run the demo's workflow; started and killed by `onward demo`
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
}

impl Command {
    /// Returns whether the command handles SIGINT itself.
    pub fn ends_by_itself(&self) -> bool {
        matches!(self, Command::Dev(_) | Command::Server(_) | Command::Chat(_))
            || matches!(self, Command::Demo(args) if args.is_agent())
            || matches!(self, Command::Flow(command) if command.ends_by_itself())
    }
}

pub async fn execute(cli: Cli) -> Result<()> {
    let Cli { command, global } = cli;
    let global = global.resolve()?;
    match command {
        Command::Demo(args) => demo::execute(args, &global).await,
        Command::Dev(args) => dev::execute(args, &global).await,
        Command::Server(args) => server::execute(args, &global).await,
        Command::Chat(args) => chat::execute(args, &global).await,
        Command::Run(command) => run::execute(command, &global).await,
        Command::Flow(command) => flow::execute(command, &global).await,
        Command::Schedule(command) => schedule::execute(command, &global).await,
        Command::Export(args) => transfer::export(args, &global).await,
        Command::Import(args) => transfer::import(args, &global).await,
        Command::Approval(command) => approval::execute(command, &global).await,
        Command::Promise(command) => promise::execute(command, &global).await,
        Command::Check(args) => check::execute(args, &global).await,
        Command::Replay(args) => replay::execute(args, &global).await,
        Command::Memo(command) => memo::execute(command, &global).await,
        Command::Worker(command) => worker::execute(command, &global).await,
        Command::Kind(command) => kind::execute(command, &global).await,
        Command::Queue(command) => queue::execute(command, &global).await,
        Command::Quota(command) => quota::execute(command, &global).await,
        Command::Spend(args) => spend::execute(args, &global).await,
        Command::Api(args) => api::execute(args, &global).await,
        Command::Doctor(args) => doctor::execute(args, &global).await,
        Command::Key(command) => key::execute(command, &global),
        Command::Webhook(command) => webhook::execute(command, &global),
        Command::Config(command) => config::execute(command, &global),
        Command::Completions(args) => completions::execute(&args),
        Command::DemoWorker(args) => demo::work(args, &global).await,
    }
}
