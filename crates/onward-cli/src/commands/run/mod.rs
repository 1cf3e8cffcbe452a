//! `onward run …`: look at runs and act on them.

mod act;
mod append;
mod ask;
mod branch;
mod bulk;
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

pub use act::{answer, budget};
pub use filter::FilterArgs;
pub use list::Pages;
pub use payload::read_payload;
pub use show::tell_pause;

use crate::args::Global;

#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Start a run, or find the one of this id
    Start(start::StartArgs),
    /// List runs, newest first
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Show one run: status, what it waits for, state, outcome
    #[command(visible_alias = "get")]
    Show(show::ShowArgs),
    /// Print a run's log
    Events(events::EventsArgs),
    /// Print the conversation of an agent
    Entries(entries::EntriesArgs),
    /// Follow a run's log until the run has ended
    Attach(events::AttachArgs),
    /// Wait until a run has ended and print its result
    Wait(wait::WaitArgs),
    /// Put a signal into a run's mailbox
    Signal(signal::SignalArgs),
    /// Say something to an agent
    Message(message::MessageArgs),
    /// Append an entry to the conversation of an agent
    Append(append::AppendArgs),
    /// Go on from an earlier entry of the conversation of an agent
    Branch(branch::BranchArgs),
    /// Ask a run for a change and print its recorded answer
    Update(ask::UpdateArgs),
    /// Ask a run's code something; nothing is recorded
    Query(ask::QueryArgs),
    /// Ask a run to stop; its code may compensate first
    Cancel(act::ReasonArgs),
    /// End a run at once; its code is not asked
    Terminate(act::ReasonArgs),
    /// Let a run stand still, timers included
    Pause(act::ReasonArgs),
    /// Let a paused run go on
    Resume(act::ResumeArgs),
    /// Let a failed run go on: what it failed over is done again
    Retry(reopen::RetryArgs),
    /// Begin a run that goes on from a point of another one
    Fork(reopen::ForkArgs),
    /// Like a fork, and end the original
    Reset(reopen::ResetArgs),
    /// Delete closed runs with everything they left
    #[command(visible_alias = "rm")]
    Delete(delete::DeleteArgs),
    /// Do one verb for all runs that a filter finds
    Bulk(bulk::BulkArgs),
    /// List runs that were deleted by hand, and why
    Deleted(deleted::DeletedArgs),
}

pub async fn execute(command: RunCommand, global: &Global) -> Result<ExitCode> {
    match command {
        RunCommand::Start(args) => start::execute(args, global).await,
        RunCommand::List(args) => list::execute(args, global).await,
        RunCommand::Show(args) => show::execute(args, global).await,
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
