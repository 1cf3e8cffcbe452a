//! `onward schedule …`: schedules of a server or directory.

mod create;
mod problem;
mod show;
mod slots;
pub mod spec;

use anyhow::Result;
use clap::{Args, Subcommand};
use onward_core::api::{
    BackfillScheduleRequest, PauseScheduleRequest, ScheduleQuery, ScheduleRequest, ScheduleView, TriggerOutcome,
    TriggerScheduleRequest,
};
use onward_core::schedule::Overlap;
use onward_core::{Name, Timestamp};
use onward_runtime::RuntimeError;
use serde_json::json;

use crate::args::{Global, one_of};
use crate::connection::Connection;
use crate::output::document::{Schedule, Schedules, TriggeredRun};
use crate::output::{TextTable, cells, count, escape, print_json, print_stderr, time};

#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Create a schedule, or replace the definition of an existing one
    Create(Box<create::CreateArgs>),
    /// List schedules
    #[command(visible_alias = "ls")]
    List,
    /// Show a schedule: its definition, its next slots and its last runs
    Show {
        /// Id of the schedule
        id: String,
    },
    /// Pause a schedule: its slots are skipped until it is resumed
    Pause(NoteArgs),
    /// Resume a paused schedule
    Resume(NoteArgs),
    /// Start a run at once
    Trigger(TriggerArgs),
    /// Start the slots of a past range that have no run yet
    Backfill(BackfillArgs),
    /// Delete a schedule; runs that it started continue
    Delete {
        /// Id of the schedule
        id: String,
    },
    /// List the next slots of a schedule, or of one that is not stored
    Next(Box<slots::NextArgs>),
}

#[derive(Debug, Args)]
pub struct NoteArgs {
    /// Id of the schedule
    id: String,
    /// Reason, for other people
    #[arg(long, default_value = "")]
    note: String,
}

#[derive(Debug, Args)]
pub struct TriggerArgs {
    /// Id of the schedule
    id: String,
    /// Policy if a run is running [default: that of the schedule]
    #[arg(long, value_name = "POLICY", value_parser = one_of(Overlap::ALL, Overlap::as_str))]
    overlap: Option<Overlap>,
    /// Idempotency key, and the end of the id of the run [default: random]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

#[derive(Debug, Args)]
pub struct BackfillArgs {
    /// Id of the schedule
    id: String,
    /// First time that can be a slot: 2026-11-20T00:00:00Z or with an offset such as +01:00
    #[arg(long, value_name = "TIME", value_parser = spec::parse_time)]
    from: Timestamp,
    /// Slots are before this time
    #[arg(long, value_name = "TIME", value_parser = spec::parse_time)]
    until: Timestamp,
    /// Policy if a run is running
    #[arg(long, value_name = "POLICY", default_value = "buffer_all", value_parser = one_of(Overlap::ALL, Overlap::as_str))]
    overlap: Overlap,
    /// Idempotency key [default: random]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

pub async fn execute(command: ScheduleCommand, global: &Global) -> Result<()> {
    match command {
        ScheduleCommand::Create(args) => create::execute(*args, global).await,
        ScheduleCommand::List => list(global).await,
        ScheduleCommand::Show { id } => show::execute(&id, global).await,
        ScheduleCommand::Pause(args) => pause(args, global).await,
        ScheduleCommand::Resume(args) => resume(args, global).await,
        ScheduleCommand::Trigger(args) => trigger(args, global).await,
        ScheduleCommand::Backfill(args) => backfill(args, global).await,
        ScheduleCommand::Delete { id } => delete(&id, global).await,
        ScheduleCommand::Next(args) => slots::execute(*args, global).await,
    }
}

/// Parses the name of a kind, schedule or request.
fn name(text: &str) -> Result<Name, RuntimeError> {
    Name::new(text).map_err(RuntimeError::from)
}

async fn list(global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let (mut views, mut cursor) = (Vec::new(), None);
    loop {
        let query = ScheduleQuery { namespace: connection.namespace.clone(), limit: 0, cursor };
        let page = connection.list_schedules(query).await?;
        views.extend(page.schedules);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let mut table = TextTable::new(&["SCHEDULE", "KIND", "STATE", "NEXT", "STARTED", "FAILED", "SKIPPED", "TIMES"]);
    let now = time::now();
    for view in &views {
        let next = view.next.first().map_or("-".to_owned(), |next| time::until(next.due_at, now));
        let state = show::state(view);
        let (totals, times) = (&view.totals, show::times(&view.definition.spec));
        table.row(cells![
            view.schedule,
            view.definition.target.kind,
            state,
            next,
            totals.started,
            totals.failed,
            totals.skipped,
            times
        ]);
    }
    let document = Schedules { schedules: views.iter().map(Schedule::from).collect(), next: None };
    global.show_table(&document, table, "no schedules: create one with `onward schedule create`")
}

async fn pause(args: NoteArgs, global: &Global) -> Result<()> {
    let (schedule, connection) = (name(&args.id)?, Connection::to_write(global).await?);
    let request = PauseScheduleRequest { namespace: connection.namespace.clone(), schedule, note: args.note };
    let view = connection.pause_schedule(request).await?;
    changed(&view, "is paused: its slots are skipped until it is resumed", global)
}

async fn resume(args: NoteArgs, global: &Global) -> Result<()> {
    let (schedule, connection) = (name(&args.id)?, Connection::to_write(global).await?);
    let request = PauseScheduleRequest { namespace: connection.namespace.clone(), schedule, note: args.note };
    let view = connection.resume_schedule(request).await?;
    changed(&view, "is active", global)?;
    slots::print_next(&view, global)
}

/// Reports a change: on stderr, or the schedule with `--json`.
fn changed(view: &ScheduleView, what: &str, global: &Global) -> Result<()> {
    if global.json {
        return print_json(&Schedule::from(view));
    }
    print_stderr(&format!("schedule {} {what}", escape::text(view.schedule.as_str())));
    Ok(())
}

async fn trigger(args: TriggerArgs, global: &Global) -> Result<()> {
    let (schedule, request_id) = (name(&args.id)?, args.request_id.as_deref().map(name).transpose()?);
    let connection = Connection::to_write(global).await?;
    let namespace = connection.namespace.clone();
    let request = TriggerScheduleRequest { namespace, schedule, request_id, overlap: args.overlap };
    let reply = connection.trigger_schedule(request).await?;
    let what = match reply.outcome {
        TriggerOutcome::Started => "started",
        TriggerOutcome::Buffered => "starts when the run before it has ended",
        TriggerOutcome::Skipped => "not started: another run of the schedule is running",
        TriggerOutcome::Existed => "existed before; nothing started",
    };
    let document = TriggeredRun { run: &reply.run, outcome: reply.outcome };
    global.show(&document, || format!("{}: {what}", escape::text(reply.run.as_str())))
}

async fn backfill(args: BackfillArgs, global: &Global) -> Result<()> {
    let (schedule, request_id) = (name(&args.id)?, args.request_id.as_deref().map(name).transpose()?);
    let connection = Connection::to_write(global).await?;
    let (namespace, overlap) = (connection.namespace.clone(), Some(args.overlap));
    let request = BackfillScheduleRequest { namespace, schedule, request_id, from: args.from, until: args.until, overlap };
    let view = connection.backfill_schedule(request).await?;
    let (running, waiting) = (count(view.running.len() as u64, "run"), view.buffered.len());
    changed(&view, &format!("backfills: {running} running, {waiting} waiting; see `onward schedule show`"), global)
}

async fn delete(id: &str, global: &Global) -> Result<()> {
    let (schedule, connection) = (name(id)?, Connection::to_write(global).await?);
    connection.delete_schedule(ScheduleRequest { namespace: connection.namespace.clone(), schedule }).await?;
    if global.json {
        return print_json(&json!({"deleted": id}));
    }
    print_stderr(&format!("schedule {} is deleted; runs that it started continue", escape::text(id)));
    Ok(())
}
