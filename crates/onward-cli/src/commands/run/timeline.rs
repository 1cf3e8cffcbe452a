//! `onward run timeline`: the calls of a run as a waterfall of text. `onward run counts`: numbers of runs by status.

use anyhow::Result;
use clap::Args;
use onward_core::api::{CountQuery, StatusCounts, Timeline, TimelineRequest};
use onward_core::timeline::{CallStatus, TimelineCall};
use onward_core::{Name, Timestamp};
use onward_runtime::RuntimeError;

use super::filter::wanted;
use crate::args::Global;
use crate::connection::Connection;
use crate::output::{Cell, Style, TextTable, cells, print_stderr, time, width};

/// Page size: the maximum of a server.
const PAGE: usize = 5_000;

/// Width of the bars, and the part of a terminal that they take.
const BAR: usize = 40;
const BAR_SHARE: usize = 3;

#[derive(Debug, Args)]
pub struct TimelineArgs {
    /// Run id
    id: String,
    /// Show this generation; 0 is the first [default: the latest]
    #[arg(long, value_name = "NUMBER")]
    generation: Option<u32>,
}

#[derive(Debug, Args)]
pub struct CountsArgs {
    /// Count runs of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Count runs with this attribute value (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    attr: Vec<String>,
}

pub async fn timeline(args: TimelineArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let mut request = TimelineRequest { run: connection.key(&args.id)?, generation: args.generation, limit: PAGE, cursor: None };
    let mut timeline = connection.read_timeline(request.clone()).await?;
    request.generation = Some(timeline.generation);
    while let Some(next) = timeline.next.take() {
        request.cursor = Some(next);
        let page = connection.read_timeline(request.clone()).await?;
        timeline.calls.extend(page.calls);
        timeline.next = page.next;
    }
    let mut table = TextTable::new(&["CALL", "TYPE", "NAME", "STATUS", "START", "TOOK", "TRIES", "TIMELINE"]);
    let bar = width().map_or(BAR, |width| width / BAR_SHARE);
    timeline.calls.iter().for_each(|call| table.row(row(&timeline, call, bar)));
    global.show_table(&timeline, table, "no calls")?;
    if timeline.generations > 1 && !global.json {
        let (generation, last) = (timeline.generation, timeline.generations - 1);
        print_stderr(&format!("generation {generation} of 0 to {last}; select another one with `--generation`"));
    }
    Ok(())
}

fn row(timeline: &Timeline, call: &TimelineCall, width: usize) -> Vec<Cell> {
    let (from, until) = (begin(timeline, call), call.ended_at.unwrap_or(timeline.ended_at.unwrap_or(timeline.now)));
    let name = call.name.as_ref().map_or("", |name| name.as_str());
    let name = call.child.as_ref().map_or_else(|| name.to_owned(), |child| format!("{name} ({child})"));
    let name = call.memo_from.as_ref().map_or(name.clone(), |from| format!("{name} (from run {from})"));
    let tries = call.attempts.last().map(|attempt| attempt.attempt.to_string()).unwrap_or_default();
    let status = Cell::new(call.status.as_str());
    let status = match call.status {
        CallStatus::Completed => status.paint(Style::green),
        CallStatus::Failed => status.paint(Style::red),
        CallStatus::Canceled | CallStatus::Abandoned => status.paint(Style::dim),
        _ => status.paint(Style::yellow),
    };
    let (start, took) = (time::offset(from, timeline.started_at), time::span(until.since(from)));
    cells![call.call_id, call.r#type, name, status, start, took, tries, bar(timeline, call, until, width)]
}

fn begin(timeline: &Timeline, call: &TimelineCall) -> Timestamp {
    call.queued_at.or(call.started_at).unwrap_or(timeline.started_at)
}

/// Draws a call in the time of the whole run: `·` while it is queued, `█` while it runs, `░` while it waits for something outside.
fn bar(timeline: &Timeline, call: &TimelineCall, until: Timestamp, width: usize) -> String {
    let end = timeline.ended_at.unwrap_or(timeline.now);
    let whole = end.since(timeline.started_at).as_millis().max(1);
    let column = |at: Timestamp| {
        let column = at.since(timeline.started_at).as_millis() * width as u128 / whole;
        usize::try_from(column).unwrap_or(width).min(width)
    };
    let first = column(begin(timeline, call)).min(width.saturating_sub(1));
    let started = call.started_at.map_or(width, &column).max(first);
    let last = column(until).max(first + 1);
    let is_wait = call.attempts.is_empty() && call.queued_at.is_none();
    let mark = |at: usize| match at {
        at if at < first => ' ',
        at if at < started && at + 1 < last => '·',
        _ if is_wait => '░',
        _ if call.started_at.is_none() => '·',
        _ => '█',
    };
    (0..last).map(mark).collect()
}

pub async fn counts(args: CountsArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let (kind, namespace) = (args.kind.map(Name::new).transpose().map_err(RuntimeError::from)?, connection.namespace.clone());
    let attributes = args.attr.iter().map(|text| wanted(text)).collect::<Result<_, _>>().map_err(RuntimeError::from)?;
    let kinds = kind.into_iter().collect();
    let reply = connection.count_runs(CountQuery { namespace, kinds, attributes, ..CountQuery::default() }).await?;
    let StatusCounts { pending, running, waiting, paused, completed, failed, canceled, terminated } = reply.counts;
    let mut table = TextTable::new(&["STATUS", "RUNS"]);
    let rows = [
        ("pending", pending),
        ("running", running),
        ("waiting", waiting),
        ("paused", paused),
        ("completed", completed),
        ("failed", failed),
        ("canceled", canceled),
        ("terminated", terminated),
    ];
    rows.iter().for_each(|(status, count)| table.row(cells![status, count]));
    global.show_table(&reply, table, "no runs")?;
    if !reply.complete {
        print_stderr(&format!("only {} runs were counted", reply.scanned));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
