//! `onward schedule create`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::ErrorCode;
use onward_core::api::{PutScheduleReply, PutScheduleRequest, ScheduleRequest};
use onward_core::schedule::{Overlap, ScheduleDefinition, ScheduleOptions, ScheduleTarget};
use onward_core::time::millis;
use onward_runtime::RuntimeError;
use serde::Serialize;

use super::slots::print_next;
use super::spec::SpecArgs;
use crate::args::{Global, one_of, read_optional_payload};
use crate::commands::run::attribute;
use crate::connection::Connection;
use crate::output::document::Schedule;
use crate::output::{escape, print_json, print_stderr};
use crate::{budget, span};

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Id of the schedule; the ids of its runs begin with it
    id: String,
    /// Kind of the runs
    #[arg(long)]
    kind: String,
    /// Input of the runs: JSON, @FILE, or - for stdin [default: null]
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// Render the texts of the input for each slot: '{"day": "{{ slot.date }}"}'
    #[arg(long)]
    template: bool,
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    options: OptionArgs,
    #[command(flatten)]
    runs: RunArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
struct OptionArgs {
    /// What happens to a slot while a run of the schedule is running
    #[arg(long, value_name = "POLICY", default_value = "skip", value_parser = one_of(Overlap::ALL, Overlap::as_str))]
    overlap: Overlap,
    /// Start slots late if they were due at most this long ago [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    catch_up: Option<Duration>,
    /// Pause the schedule when a run fails
    #[arg(long)]
    pause_on_failure: bool,
    /// Maximum number of waiting slots with `--overlap buffer_all` [default: 100]
    #[arg(long, value_name = "COUNT")]
    buffer_max: Option<u32>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Runs")]
struct RunArgs {
    /// Cancel a run after this time, pauses not counted
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    deadline: Option<Duration>,
    /// Code version to pin the runs to [default: the current one at each start]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Set an attribute of the runs (repeatable)
    #[arg(long, alias = "attribute", value_name = "NAME=VALUE")]
    attr: Vec<String>,
    /// Budget of each run: tokens=N, cost=DOLLARS, turns=N or seconds=N (repeatable)
    #[arg(long, value_name = "LIMIT")]
    budget: Vec<String>,
    /// Also if no worker is known to have the kind
    #[arg(long)]
    force: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct CreatedDocument<'a> {
    created: bool,
    schedule: Schedule<'a>,
}

pub async fn execute(args: CreateArgs, global: &Global) -> Result<()> {
    let CreateArgs { id, kind, input, template, spec, options, runs } = args;
    let OptionArgs { overlap, catch_up, pause_on_failure, buffer_max } = options;
    let attributes = runs.attr.iter().map(|text| attribute(text)).collect::<Result<_, _>>().map_err(RuntimeError::from)?;
    let target = ScheduleTarget {
        kind: super::name(&kind)?,
        input: read_optional_payload(input.as_deref())?,
        is_template: template,
        version: runs.version.as_deref().map(super::name).transpose()?,
        attributes,
        deadline_ms: runs.deadline.map(millis),
    };
    let options = ScheduleOptions { overlap, catch_up_ms: catch_up.map(millis), pause_on_failure, buffer_max };
    let spec = spec.into_spec(global.json)?;
    let definition = ScheduleDefinition { target, spec, options, requester: None, granted: None };
    let (schedule, budget) = (super::name(&id)?, budget::parse(&runs.budget)?);
    let connection = Connection::to_write(global).await?;
    let namespace = connection.namespace.clone();
    let read = ScheduleRequest { namespace: namespace.clone(), schedule: schedule.clone() };
    let before = match connection.read_schedule(read).await {
        Ok(view) => Some(view.revision),
        Err(error) if error.code() == ErrorCode::ScheduleNotFound.as_str() => None,
        Err(error) => return Err(error.into()),
    };
    let put = PutScheduleRequest { namespace, schedule, definition, budget, force: runs.force };
    report(&connection.put_schedule(put).await?, before, global)
}

/// Reports what was stored, and the next slots.
fn report(reply: &PutScheduleReply, before: Option<u32>, global: &Global) -> Result<()> {
    let PutScheduleReply { schedule: view, created } = reply;
    if global.json {
        return print_json(&CreatedDocument { created: *created, schedule: Schedule::from(view) });
    }
    let id = escape::text(view.schedule.as_str());
    print_stderr(&match (created, before) {
        (true, _) => format!("schedule {id} is created"),
        (false, Some(revision)) if revision == view.revision => format!("schedule {id} had this definition already"),
        (false, _) => format!("schedule {id} existed: its definition is replaced (revision {})", view.revision),
    });
    if view.paused.is_some() {
        print_stderr(&format!("it is paused: resume it with `onward schedule resume {id}`"));
    }
    print_next(view, global)
}
