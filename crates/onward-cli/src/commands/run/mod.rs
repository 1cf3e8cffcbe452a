//! `onward run …`: starts, inspects and controls runs.

mod act;
mod append;
mod ask;
mod branch;
mod bulk;
mod children;
mod delete;
mod deleted;
mod entries;
mod events;
mod filter;
mod list;
mod message;
mod payload;
mod reopen;
mod show;
mod signal;
mod start;
mod wait;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub use act::answer;
pub use filter::FilterArgs;
pub use list::Pages;
pub use payload::read_payload;
pub use show::format_pause;

use crate::args::Global;

#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Start a run, or return the existing one with this id
    Start(start::StartArgs),
    /// List runs, newest first
    #[command(visible_alias = "ls")]
    List(list::RunListArgs),
    /// Show status, waits, state and outcome of a run
    #[command(visible_alias = "get")]
    Show(show::ShowArgs),
    /// List the children of a run, newest first
    Children(children::ChildrenArgs),
    /// Print the log of a run
    Events(events::EventsArgs),
    /// Print the conversation of an agent
    Entries(entries::EntriesArgs),
    /// Follow the log of a run until it has ended
    Attach(events::AttachArgs),
    /// Wait until a run has ended and print its result
    Wait(wait::WaitArgs),
    /// Send a signal to a run
    Signal(signal::SignalArgs),
    /// Send a message to an agent
    Message(message::MessageArgs),
    /// Append an entry to the conversation of an agent
    Append(append::AppendArgs),
    /// Continue the conversation of an agent from an earlier entry
    Branch(branch::BranchArgs),
    /// Send an update to a run and print its recorded answer
    Update(ask::UpdateArgs),
    /// Query the code of a run; nothing is recorded
    Query(ask::QueryArgs),
    /// Cancel a run; its code may compensate first
    Cancel(act::ReasonArgs),
    /// Terminate a run at once, without running its code
    Terminate(act::ReasonArgs),
    /// Pause a run and its timers
    Pause(act::ReasonArgs),
    /// Resume a paused run
    Resume(act::ResumeArgs),
    /// Retry a failed run from its failure
    Retry(reopen::RetryArgs),
    /// Start a run that continues from a copy of another run's log
    Fork(reopen::ForkArgs),
    /// Fork a run and end the original
    Reset(reopen::ResetArgs),
    /// Delete closed runs with their logs
    #[command(visible_alias = "rm")]
    Delete(delete::DeleteArgs),
    /// Apply one action to all runs that match a filter
    Bulk(bulk::BulkArgs),
    /// List runs that were deleted on request, with their reasons
    Deleted(deleted::DeletedArgs),
}

pub async fn execute(command: RunCommand, global: &Global) -> Result<ExitCode> {
    match command {
        RunCommand::Start(args) => start::execute(args, global).await,
        RunCommand::List(args) => list::execute(args, global).await,
        RunCommand::Show(args) => show::execute(args, global).await,
        RunCommand::Children(args) => children::execute(args, global).await,
        RunCommand::Events(args) => events::execute(args, global).await,
        RunCommand::Entries(args) => entries::execute(args, global).await,
        RunCommand::Attach(args) => events::attach(args, global).await,
        RunCommand::Wait(args) => wait::execute(args, global).await,
        RunCommand::Signal(args) => signal::execute(args, global).await,
        RunCommand::Message(args) => message::execute(args, global).await,
        RunCommand::Append(args) => append::execute(args, global).await,
        RunCommand::Branch(args) => branch::execute(args, global).await,
        RunCommand::Update(args) => ask::update(args, global).await,
        RunCommand::Query(args) => ask::query(args, global).await,
        RunCommand::Cancel(args) => act::cancel(args, global).await,
        RunCommand::Terminate(args) => act::terminate(args, global).await,
        RunCommand::Pause(args) => act::pause(args, global).await,
        RunCommand::Resume(args) => act::resume(args, global).await,
        RunCommand::Retry(args) => reopen::retry(args, global).await,
        RunCommand::Fork(args) => reopen::fork(args, global).await,
        RunCommand::Reset(args) => reopen::reset(args, global).await,
        RunCommand::Delete(args) => delete::execute(args, global).await,
        RunCommand::Bulk(args) => bulk::execute(args, global).await,
        RunCommand::Deleted(args) => deleted::execute(args, global).await,
    }
}
