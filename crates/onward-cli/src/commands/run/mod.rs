//! `onward run …`: starts, inspects and controls runs.

mod ask;
mod bulk;
mod delete;
mod entries;
mod events;
mod filter;
mod input;
mod list;
mod policy;
mod reopen;
mod show;
mod start;
mod timeline;
mod watch;

use anyhow::Result;
use clap::Subcommand;

pub use filter::{FilterArgs, attribute};
pub use input::answer;
pub use list::Pages;
pub use show::{awaited_word, format_pause};

use crate::args::Global;
use input::ReasonInput;

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
    Children(list::ChildrenArgs),
    /// Show the calls of a run with their times, as a waterfall
    Timeline(timeline::TimelineArgs),
    /// Count runs by status
    Counts(timeline::CountsArgs),
    /// Print the log of a run
    Events(events::EventsArgs),
    /// Print the conversation of an agent
    Entries(entries::EntriesArgs),
    /// Follow the log of a run until it has ended
    Attach(events::AttachArgs),
    /// Watch a run: its log, and steps, tasks and emitted values as they happen
    Watch(watch::WatchArgs),
    /// Wait until a run has ended and print its result
    Wait(start::WaitArgs),
    /// Send a signal to a run
    Signal(input::SignalArgs),
    /// Send a message to an agent
    Message(input::MessageArgs),
    /// Append an entry to the conversation of an agent
    Append(input::AppendArgs),
    /// Continue the conversation of an agent from an earlier entry
    Branch(input::BranchArgs),
    /// Send an update to a run and print its recorded answer
    Update(ask::UpdateArgs),
    /// Query the code of a run; nothing is recorded
    Query(ask::QueryArgs),
    /// Cancel a run; its code may compensate first
    Cancel(input::ReasonArgs),
    /// Terminate a run at once, without running its code
    Terminate(input::ReasonArgs),
    /// Pause a run and its timers
    Pause(input::ReasonArgs),
    /// Resume a paused run
    Resume(input::ResumeArgs),
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
    Deleted(list::DeletedArgs),
}

pub async fn execute(command: RunCommand, global: &Global) -> Result<()> {
    match command {
        RunCommand::Start(args) => start::start(args, global).await,
        RunCommand::List(args) => list::list(args, global).await,
        RunCommand::Show(args) => show::execute(args, global).await,
        RunCommand::Children(args) => list::children(args, global).await,
        RunCommand::Timeline(args) => timeline::timeline(args, global).await,
        RunCommand::Counts(args) => timeline::counts(args, global).await,
        RunCommand::Events(args) => events::execute(args, global).await,
        RunCommand::Entries(args) => entries::execute(args, global).await,
        RunCommand::Attach(args) => events::attach(args, global).await,
        RunCommand::Watch(args) => watch::execute(args, global).await,
        RunCommand::Wait(args) => start::wait(args, global).await,
        RunCommand::Signal(args) => input::signal(args, global).await,
        RunCommand::Message(args) => input::message(args, global).await,
        RunCommand::Append(args) => input::append(args, global).await,
        RunCommand::Branch(args) => input::branch(args, global).await,
        RunCommand::Update(args) => ask::update(args, global).await,
        RunCommand::Query(args) => ask::query(args, global).await,
        RunCommand::Cancel(args) => input::with_reason(ReasonInput::Cancel, args, global).await,
        RunCommand::Terminate(args) => input::with_reason(ReasonInput::Terminate, args, global).await,
        RunCommand::Pause(args) => input::with_reason(ReasonInput::Pause, args, global).await,
        RunCommand::Resume(args) => input::resume(args, global).await,
        RunCommand::Retry(args) => reopen::retry(args, global).await,
        RunCommand::Fork(args) => reopen::fork(args, global).await,
        RunCommand::Reset(args) => reopen::reset(args, global).await,
        RunCommand::Delete(args) => delete::execute(args, global).await,
        RunCommand::Bulk(args) => bulk::execute(args, global).await,
        RunCommand::Deleted(args) => list::deleted(args, global).await,
    }
}
