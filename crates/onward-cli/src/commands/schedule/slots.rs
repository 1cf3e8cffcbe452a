//! `onward schedule next`: the next slots, in UTC and in local time.

use anyhow::Result;
use clap::Args;
use onward_core::api::{ScheduleRequest, ScheduleView, SlotsRequest, UpcomingSlot, upcoming};
use onward_core::schedule::local_time;
use onward_core::{ErrorCode, Timestamp};

use super::spec::{SpecArgs, parse_time};
use crate::args::Global;
use crate::connection::Connection;
use crate::error::Mistake;
use crate::output::document::ScheduleSlots;
use crate::output::{TextTable, cells, print, time};

#[derive(Debug, Args)]
pub struct NextArgs {
    /// Id of the schedule; without one, give the times
    id: Option<String>,
    /// Number of slots
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// List the slots after this time [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    after: Option<Timestamp>,
    #[command(flatten)]
    spec: SpecArgs,
}

pub async fn execute(args: NextArgs, global: &Global) -> Result<()> {
    let NextArgs { id, limit, after, spec } = args;
    let (slots, zone) = match (id, spec.is_given()) {
        (Some(id), false) => {
            let (schedule, connection) = (super::name(&id)?, Connection::to_read(global).await?);
            let namespace = connection.namespace.clone();
            let read = ScheduleRequest { namespace: namespace.clone(), schedule: schedule.clone() };
            let zone = connection.read_schedule(read).await?.definition.spec.time_zone;
            let request = SlotsRequest { namespace, schedule: Some(schedule), spec: None, after, limit };
            (connection.list_slots(request).await?.slots, zone)
        }
        (None, true) => {
            let spec = spec.into_spec(global.json)?;
            let slots = upcoming(&spec, "-", after.unwrap_or_else(time::now), limit);
            let hint = "see `onward schedule next --help`";
            (slots.map_err(|error| Mistake::usage(ErrorCode::ScheduleInvalid, error.to_string(), hint))?, spec.time_zone)
        }
        _ => {
            let message = "give either the id of a schedule or times";
            let hint = "`onward schedule next nightly`, or `onward schedule next --cron \"0 9 * * MON-FRI\"`";
            return Err(Mistake::usage(ErrorCode::Usage, message, hint).into());
        }
    };
    global.show_table(&ScheduleSlots { slots: &slots }, table(&slots, zone.as_deref()), "no slots are left")
}

/// Prints the next slots of a schedule, unless it is a document.
pub fn print_next(view: &ScheduleView, global: &Global) -> Result<()> {
    if global.json || view.next.is_empty() {
        return Ok(());
    }
    Ok(print(&table(&view.next, view.definition.spec.time_zone.as_deref()).take())?)
}

/// Builds the table of slots; a slot with jitter also has the time at which it is due.
fn table(slots: &[UpcomingSlot], zone: Option<&str>) -> TextTable {
    let has_jitter = slots.iter().any(|slot| slot.due_at != slot.slot);
    let local = zone.unwrap_or("UTC");
    let heads = ["SLOT", local, "DUE"];
    let mut table = TextTable::new(if has_jitter { &heads[..] } else { &heads[..2] });
    for UpcomingSlot { slot, due_at } in slots {
        let (utc, local) = (short(*slot), local_text(*slot, zone));
        match has_jitter {
            true => table.row(cells![utc, local, due_at]),
            false => table.row(cells![utc, local]),
        }
    }
    table
}

/// Formats a time in UTC, without milliseconds that are 0.
pub fn short(at: Timestamp) -> String {
    let text = at.to_string();
    text.strip_suffix(".000Z").map_or(text.clone(), |whole| format!("{whole}Z"))
}

/// Formats a time in a zone: `Fri 2026-11-20 02:00:00 +01:00`.
pub fn local_text(at: Timestamp, zone: Option<&str>) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // 1970-01-01 was a Thursday
    let local = local_time(at, zone);
    let days = Timestamp::parse(&format!("{}T00:00:00Z", local.date)).map_or(0, |midnight| midnight.0 / 86_400_000);
    let weekday = WEEKDAYS[usize::try_from(days % 7).unwrap_or_default()];
    let offset = &local.text[local.text.len().saturating_sub(6)..];
    format!("{weekday} {} {} {offset}", local.date, local.time)
}
