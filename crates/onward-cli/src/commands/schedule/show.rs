//! `onward schedule show`: one schedule as text.

use std::time::Duration;

use anyhow::Result;
use onward_core::Timestamp;
use onward_core::api::{ScheduleRequest, ScheduleView};
use onward_core::schedule::{BackfillRange, Ending, Firing, HistoryEntry, ScheduleSpec, Skipped, Totals};

use super::slots::{local_text, short};
use crate::args::Global;
use crate::connection::Connection;
use crate::output::document::Schedule;
use crate::output::{Cell, Style, TextTable, cells, count, preview, time};

pub async fn execute(id: &str, global: &Global) -> Result<()> {
    let (schedule, connection) = (super::name(id)?, Connection::to_read(global).await?);
    let view = connection.read_schedule(ScheduleRequest { namespace: connection.namespace.clone(), schedule }).await?;
    global.show(&Schedule::from(&view), || format(&view, time::now()))
}

/// Returns whether the schedule is paused, running or active.
pub fn state(view: &ScheduleView) -> &'static str {
    match (&view.paused, view.running.is_empty()) {
        (Some(_), _) => "paused",
        (None, false) => "running",
        (None, true) => "active",
    }
}

/// Returns the times of a specification: `0 9 * * MON-FRI; every 15 min (Europe/Berlin)`.
pub fn times(spec: &ScheduleSpec) -> String {
    let mut parts: Vec<String> = spec.cron.clone();
    for every in &spec.every {
        let offset = if every.offset_ms == 0 { String::new() } else { format!(" + {}", duration(every.offset_ms)) };
        parts.push(format!("every {}{offset}", duration(every.every_ms)));
    }
    match spec.at.as_slice() {
        [] => {}
        [one] => parts.push(format!("at {}", short(*one))),
        several => parts.push(format!("at {} times", several.len())),
    }
    if !spec.calendars.is_empty() {
        parts.push(count(spec.calendars.len() as u64, "calendar"));
    }
    let zone = spec.time_zone.as_ref().map(|zone| format!(" ({zone})")).unwrap_or_default();
    parts.join("; ") + &zone
}

fn format(view: &ScheduleView, now: Timestamp) -> String {
    let mut out = format_definition(view, now);
    let zone = view.definition.spec.time_zone.as_deref();
    if !view.next.is_empty() {
        out.push_str(&format!("\n{}\n", Style::stdout().bold("next")));
        let mut table = TextTable::bare(2).indent("  ");
        view.next.iter().for_each(|next| table.row(cells![local_text(next.slot, zone), time::until(next.due_at, now)]));
        out.push_str(&table.take());
    }
    if !view.history.is_empty() {
        out.push_str(&format!("\n{}\n", Style::stdout().bold("history")));
        let mut table = TextTable::new(&["SLOT", "CAUSE", "RUN", "OUTCOME", "DURATION"]).indent("  ");
        view.history.iter().rev().filter_map(|entry| line(entry, now)).for_each(|line| table.row(line));
        out.push_str(&table.take());
    }
    out
}

type Row = (&'static str, String);

fn format_definition(view: &ScheduleView, now: Timestamp) -> String {
    let mut table = TextTable::bare(2).wraps();
    let rows = [times_of(&view.definition.spec), runs_of(view), state_of(view, now)];
    let schedule = std::iter::once(("schedule", view.schedule.to_string()));
    for (name, value) in schedule.chain(rows.into_iter().flatten()) {
        table.row(vec![Cell::new(name).paint(Style::dim), Cell::new(value)]);
    }
    table.take()
}

fn duration(ms: u64) -> String {
    time::span(Duration::from_millis(ms))
}

fn times_of(spec: &ScheduleSpec) -> Vec<Row> {
    let mut rows = vec![("times", times(spec))];
    rows.extend(spec.start_at.map(|at| ("start at", short(at))));
    rows.extend(spec.end_at.map(|at| ("end at", short(at))));
    let dates: Vec<&str> = spec.except.iter().flat_map(|except| &except.dates).map(String::as_str).collect();
    match (dates.is_empty(), spec.except.len()) {
        (_, 0) => {}
        (false, _) => rows.push(("except", dates.join(", "))),
        (true, several) => rows.push(("except", count(several as u64, "calendar"))),
    }
    if spec.jitter_ms > 0 {
        rows.push(("jitter", format!("up to {}", duration(spec.jitter_ms))));
    }
    rows
}

fn runs_of(view: &ScheduleView) -> Vec<Row> {
    let (target, options) = (&view.definition.target, &view.definition.options);
    let template = if target.is_template { " (template)" } else { "" };
    let mut rows = vec![("kind", target.kind.to_string()), ("input", preview(&target.input) + template)];
    rows.extend(target.version.as_ref().map(|version| ("version", version.to_string())));
    rows.extend(target.deadline_ms.map(|ms| ("deadline", duration(ms))));
    let pauses = if options.pause_on_failure { ", paused by a failure" } else { "" };
    rows.push(("overlap", format!("{}, late up to {}{pauses}", options.overlap, duration(options.catch_up()))));
    rows
}

fn state_of(view: &ScheduleView, now: Timestamp) -> Vec<Row> {
    let mut rows = Vec::from_iter(view.definition.requester.clone().map(|key| ("defined by", key)));
    rows.push(("revision", format!("{}, {}", view.revision, time::ago(view.updated_at, now))));
    rows.push(("state", format_state(view, now)));
    let Totals { started, completed, failed, skipped, .. } = view.totals;
    rows.push(("totals", format!("{started} started, {completed} completed, {failed} failed, {skipped} skipped")));
    let backfill = |range: &BackfillRange| {
        ("backfill", format!("{}: from {} until {}", range.request_id, short(range.after), short(range.until)))
    };
    rows.extend(view.backfills.iter().map(backfill));
    rows
}

fn format_state(view: &ScheduleView, now: Timestamp) -> String {
    let (running, waiting) = (view.running.len() as u64, view.buffered.len());
    let mut text = match &view.paused {
        Some(paused) => {
            let after = paused.after.as_ref().map(|run| format!(" after run {run}")).unwrap_or_default();
            let note = if paused.note.is_empty() { String::new() } else { format!(": {}", paused.note) };
            format!("paused {}{after}{note}", time::ago(paused.at, now))
        }
        None => "active".to_owned(),
    };
    if running > 0 {
        text.push_str(&format!("; {} running", count(running, "run")));
    }
    if waiting > 0 {
        text.push_str(&format!("; {} waiting", count(waiting as u64, "start")));
    }
    text
}

/// Returns the line of a history entry.
fn line(entry: &HistoryEntry, now: Timestamp) -> Option<Vec<Cell>> {
    match (&entry.started, &entry.skipped) {
        (Some(firing), _) => Some(line_of_run(entry, firing, now)),
        (None, Some(skipped)) => Some(line_of_skipped(skipped)),
        (None, None) => None,
    }
}

fn line_of_run(entry: &HistoryEntry, firing: &Firing, now: Timestamp) -> Vec<Cell> {
    let outcome = match &entry.ended {
        None => Cell::new("running"),
        Some(ended) => {
            let code = ended.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
            let cell = Cell::new(format!("{}{code}", ended.ending));
            match ended.ending {
                Ending::Completed => cell.paint(Style::green),
                Ending::Failed => cell.paint(Style::red),
                Ending::Canceled | Ending::Terminated | Ending::Existed => cell,
            }
        }
    };
    let duration = time::span(entry.ended_at.unwrap_or(now).since(entry.at));
    cells![short(firing.slot), firing.cause, firing.run, outcome, duration]
}

fn line_of_skipped(skipped: &Skipped) -> Vec<Cell> {
    let Skipped { first, last, count, is_partial, reason, cause } = skipped;
    let slot = if first == last { short(*first) } else { format!("{} … {}", short(*first), short(*last)) };
    let more = if *is_partial { " or more" } else { "" };
    let outcome = if *count == 1 { format!("skipped: {reason}") } else { format!("{count}{more} skipped: {reason}") };
    cells![slot, cause, "-", outcome, "-"]
}
