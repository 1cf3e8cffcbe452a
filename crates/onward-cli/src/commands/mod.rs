//! The commands, one file per verb.

mod api;
mod approval;
mod chat;
mod check;
mod completions;
mod config;
mod demo;
mod dev;
mod doctor;
mod key;
mod promise;
mod queue;
mod replay;
mod run;
mod server;
mod spend;
mod webhook;
// For crash tests: not part of a release.
#[cfg(debug_assertions)]
mod torture;
mod transfer;
mod worker;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::args::Cli;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch an order survive kill -9, twice; or talk with an agent that does, `demo agent`
    Demo(demo::DemoArgs),
    /// Serve a directory on this machine, for trying out and developing
    Dev(dev::DevArgs),
    /// Serve a store
    Server(server::ServerArgs),
    /// Talk with an agent
    Chat(chat::ChatArgs),
    /// Look at runs and act on them
    #[command(subcommand)]
    Run(run::RunCommand),
    /// Write runs with all their records, as lines of JSON
    Export(transfer::ExportArgs),
    /// Take runs in that were exported
    Import(transfer::ImportArgs),
    /// Questions that wait for a person
    #[command(subcommand)]
    Approval(approval::ApprovalCommand),
    /// Answers that somebody outside owes a run
    #[command(subcommand)]
    Promise(promise::PromiseCommand),
    /// Replay open runs against a new program, before it is deployed
    Check(check::CheckArgs),
    /// Step through what a run recorded, forward and back
    Replay(replay::ReplayArgs),
    /// What was spent on models, and on what
    Spend(spend::SpendArgs),
    /// What waits for workers
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Who works for a server
    #[command(subcommand)]
    Worker(worker::WorkerCommand),
    /// The keys a server asks for
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Signed webhooks that a server takes in
    #[command(subcommand)]
    Hook(webhook::WebhookCommand),
    /// Ask any route of a server
    Api(api::ApiArgs),
    /// Find out what is wrong, and what to do about it
    Doctor(doctor::DoctorArgs),
    /// What can be set, and where it is set
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print what your shell needs to complete this command
    Completions(completions::CompletionsArgs),
    /// The process that works on the demo's order, to be killed
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
    /// The process that works on the crash test's load, to be killed
    #[cfg(debug_assertions)]
    #[command(hide = true)]
    TortureWorker(torture::TortureArgs),
}

impl Command {
    /// Whether the command ends in its own way when it is interrupted.
    pub fn ends_by_itself(&self) -> bool {
        matches!(self, Command::Dev(_) | Command::Server(_) | Command::Chat(_))
            || matches!(self, Command::Demo(args) if args.is_agent())
    }
}

pub async fn execute(cli: Cli) -> Result<ExitCode> {
    let Cli { command, global } = cli;
    let global = global.resolve()?;
    match command {
        Command::Demo(args) => demo::execute(args, &global).await,
        Command::Dev(args) => dev::execute(args, &global).await,
        Command::Server(args) => server::execute(args, &global).await,
        Command::Chat(args) => chat::execute(args, &global).await,
        Command::Run(command) => run::execute(command, &global).await,
        Command::Export(args) => transfer::export(args, &global).await,
        Command::Import(args) => transfer::import(args, &global).await,
        Command::Approval(command) => approval::execute(command, &global).await,
        Command::Promise(command) => promise::execute(command, &global).await,
        Command::Check(args) => check::execute(args, &global).await,
        Command::Replay(args) => replay::execute(args, &global).await,
        Command::Worker(command) => worker::execute(command, &global).await,
        Command::Queue(command) => queue::execute(command, &global).await,
        Command::Spend(args) => spend::execute(args, &global).await,
        Command::Api(args) => api::execute(args, &global).await,
        Command::Doctor(args) => doctor::execute(args, &global).await,
        Command::Key(command) => key::execute(command, &global),
        Command::Hook(command) => webhook::execute(command, &global),
        Command::Config(command) => config::execute(command, &global),
        Command::Completions(args) => completions::execute(&args),
        Command::DemoWorker(args) => demo::work(args, &global).await,
        #[cfg(debug_assertions)]
        Command::TortureWorker(args) => torture::work(args, &global).await,
    }
}
