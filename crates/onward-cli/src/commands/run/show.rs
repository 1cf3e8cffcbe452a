//! `onward run show`: one run as text.

use anyhow::Result;
use clap::Args;
use onward_core::api::{Moment, MomentRequest};
use onward_core::event::{PauseReason, RunPaused};
use onward_core::ledger::{SpendBy, SpendQuery};
use onward_core::spend::SpendTotals;
use onward_core::view::{Awaited, AwaitedKind, RunView};
use onward_core::{Failure, Index, Name, Payload, Status, Timestamp};
use onward_runtime::BlockReason;

use super::list::status_cell;
use crate::args::Global;
use crate::blocked_on;
use crate::budget;
use crate::commands::spend;
use crate::connection::Connection;
use crate::directory::shell_word;
use crate::output::document::{BlockedView, RunAt};
use crate::output::{Cell, EventFormatter, Style, TextTable, cells, count, escape, preview, print, print_json, stop_text, time};

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Run id
    id: String,
    /// Show the run as of this event of its log
    #[arg(long, value_name = "INDEX")]
    at: Option<u64>,
    /// With --at: use the log of this generation; 0 is the first [default: the latest]
    #[arg(long, value_name = "NUMBER", requires = "at")]
    generation: Option<u32>,
}

pub async fn execute(args: ShowArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let key = connection.key(&args.id)?;
    if let Some(index) = args.at {
        let request = MomentRequest { run: key, generation: args.generation, index: Index(index) };
        let moment = connection.read_at(request).await?;
        return global.show(&RunAt::from(&moment), || format_moment(&moment));
    }
    let view = connection.read_run(key.clone()).await?;
    let blocked_on = blocked_on::of(&connection, &key).await;
    if global.json {
        let active = match connection.read_active(key.clone()).await {
            Ok(reply) => Some(reply.active),
            Err(error) if error.code() == "not_allowed" => None, // the key is for other kinds
            Err(error) => return Err(error.into()),
        };
        return print_json(&BlockedView::new(&view, &blocked_on, active.as_deref()));
    }
    let (of_run, of_tasks): (Vec<_>, Vec<_>) = blocked_on.into_iter().partition(|blocker| blocker.task.is_none());
    let why = of_run.first().map(|blocker| blocker.why);
    let blocked = blocked_on::sentences(&connection, &of_tasks).await;
    Ok(print(&format_run(&view, tree_of(&connection, &view).await?.as_ref(), why, &blocked, time::now()))?)
}

/// Reads the spend of the run's tree.
async fn tree_of(connection: &Connection, view: &RunView) -> Result<Option<SpendTotals>> {
    let tree = Some(view.head.key.id.clone());
    let query = SpendQuery { namespace: connection.namespace.clone(), tree, limit: 1, ..SpendQuery::by(SpendBy::Tree) };
    Ok(connection.read_spend(query).await?.rows.pop().map(|row| row.totals))
}

fn format_run(
    view: &RunView,
    tree: Option<&SpendTotals>,
    why: Option<BlockReason>,
    blocked: &[String],
    now: Timestamp,
) -> String {
    let mut out = format_head(view, tree, why, now);
    if let Some(pause) = &view.pause {
        section(&mut out, "paused", &format_pause(pause));
        if pause.reason == PauseReason::BudgetExhausted {
            out.push_str(&format!("  resume with: {}\n", budget::resume_command(&view.head, now)));
        }
    }
    if !view.awaiting.is_empty() {
        section(&mut out, "awaiting", &format_awaiting(&view.awaiting, now));
        out.push_str(&format_decisions(&view.awaiting));
        blocked.iter().for_each(|sentence| out.push_str(&format!("  {}\n", escape::text(sentence))));
    }
    if !view.state.is_empty() {
        section(&mut out, "state", &format_state(view.state.iter()));
    }
    if !view.undelivered.is_empty() {
        section(&mut out, "never consumed", &format_undelivered(view));
    }
    if let Some(outcome) = &view.outcome {
        section(&mut out, "outcome", &format_outcome(outcome));
    }
    out
}

/// Formats a run as of an event.
fn format_moment(moment: &Moment) -> String {
    let mut table = TextTable::bare(2).wraps();
    let mut add = |name: &str, value: Cell| table.row(vec![Cell::new(name).paint(Style::dim), value]);
    add("run", Cell::new(moment.run.as_str()).paint(Style::bold));
    add("event", format!("{} of generation {}, {}", moment.index, moment.generation, moment.at).into());
    let event = EventFormatter::default().format(moment.at, &moment.event);
    add("", format!("{} {event}", moment.event.name()).into());
    add("status", status_cell(moment.status));
    if let Some(reason) = &moment.cancel_reason {
        add("cancel", format!("requested: {reason}").into());
    }
    if let Some(leaf) = moment.leaf {
        add("entries", format!("{} up to {leaf}", moment.entries).into());
    }
    let mut out = table.take();
    if let Some(pause) = &moment.pause {
        section(&mut out, "paused", &format_pause(pause));
    }
    if !moment.awaiting.is_empty() {
        section(&mut out, "awaiting", &format_awaiting(&moment.awaiting, moment.at));
    }
    if !moment.state.is_empty() {
        section(&mut out, "state", &format_state(moment.state.iter().map(|value| (&value.name, &value.value))));
    }
    if let Some(outcome) = &moment.outcome {
        section(&mut out, "outcome", &format_outcome(outcome));
    }
    out
}

fn section(out: &mut String, title: &str, text: &str) {
    out.push_str(&format!("\n{}\n{text}", Style::stdout().bold(title)));
}

fn format_head(view: &RunView, tree: Option<&SpendTotals>, why: Option<BlockReason>, now: Timestamp) -> String {
    let head = &view.head;
    let mut table = TextTable::bare(2).wraps();
    let mut add = |name: &str, value: Cell| table.row(vec![Cell::new(name).paint(Style::dim), value]);
    add("run", Cell::new(head.key.id.as_str()).paint(Style::bold));
    let version = head.version.as_ref().map(|version| format!(", version {version}")).unwrap_or_default();
    add("kind", format!("{}{version}", head.kind).into());
    add("status", status_cell(head.status));
    if head.status == Status::Pending {
        let worker = format!("a worker that serves `{}`{version}", head.kind);
        add("waits for", if why == Some(BlockReason::Queued) { "a worker with free capacity".into() } else { worker.into() });
    }
    if let Some(stop) = view.agent_stop() {
        add("stopped", stop_text(stop).into());
    }
    if head.generation > 0 {
        add("generation", format!("{} (the first is 0)", head.generation).into());
    }
    if let Some(parent) = &head.parent {
        add("parent", parent.run.to_string().into());
    }
    if let Some(external) = head.external {
        add("external", format!("run of another engine; next event {}", external.next_index).into());
    }
    add("created", time::moment(head.created_at, now).into());
    if let Some(queue) = &head.queue {
        let key = queue.key.as_ref().map(|key| format!(", key {key}")).unwrap_or_default();
        let what = if head.is_in_queue() { "waits in" } else { "holds a slot of" };
        add("queue", format!("{what} {}{key}", queue.name).into());
    }
    if let Some(starts_at) = head.starts_at {
        add("begins", time::moment(starts_at, now).into());
    }
    match head.ended_at {
        Some(ended) => add("ended", format!("{ended} (after {})", time::span(ended.since(head.created_at))).into()),
        None => add("changed", time::moment(head.updated_at, now).into()),
    }
    if let Some(reason) = &view.cancel_reason {
        add("cancel", format!("requested: {reason}").into());
    }
    if head.external.is_none() {
        add("input", preview(&view.input).into());
    }
    if let Some(own) = &head.spend {
        add("spent", spend::line(own).into());
    }
    if let Some(tree) = tree.filter(|tree| Some(*tree) != head.spend.as_deref()) {
        add("tree", format!("spent {}", spend::line(tree)).into());
    }
    if let Some(budget) = &head.budget {
        let left = budget.left(head.spend.as_deref(), head.ended_at.unwrap_or(now));
        add("budget", format!("{}; left: {left}", budget.limit).into());
    }
    add("log", format_counts(view).into());
    table.take()
}

fn format_counts(view: &RunView) -> String {
    let counts = &view.counts;
    let mut parts = vec![count(view.head.next_index.0, "event"), count(counts.steps_completed, "step")];
    for (number, noun) in
        [(counts.step_attempts_failed, "failed attempt"), (counts.tasks_scheduled, "task"), (counts.signals_received, "signal")]
    {
        if number > 0 {
            parts.push(count(number, noun));
        }
    }
    if counts.children_started > 0 {
        parts.push(format!("{} child runs", counts.children_started));
    }
    parts.join(", ")
}

fn format_awaiting(awaiting: &[Awaited], now: Timestamp) -> String {
    let mut table = TextTable::new(&["KIND", "NAME", "SINCE", "DEADLINE", "ID"]).indent("  ");
    for awaited in awaiting {
        let child = awaited.child.as_ref().map(|child| format!(" ({child})")).unwrap_or_default();
        let name = awaited.name.as_ref().map_or("", |name| name.as_str());
        let deadline = awaited.deadline.map(|deadline| time::until(deadline, now)).unwrap_or_default();
        table.row(cells![
            awaited_word(awaited.kind),
            format!("{name}{child}"),
            time::ago(awaited.since, now),
            deadline,
            awaited.id
        ]);
    }
    table.take()
}

/// Formats the commands that decide the approvals.
fn format_decisions(awaiting: &[Awaited]) -> String {
    let mut out = String::new();
    for approval in awaiting.iter().filter(|awaited| awaited.kind == AwaitedKind::Approval) {
        let id = shell_word(&escape::text(&approval.id));
        out.push_str(&format!("  decide with: onward approval decide {id} --approve\n"));
    }
    out
}

/// Returns the word for what is awaited.
pub fn awaited_word(kind: AwaitedKind) -> String {
    format!("{kind:?}").to_lowercase()
}

fn format_state<'a>(state: impl Iterator<Item = (&'a Name, &'a Payload)>) -> String {
    let mut table = TextTable::bare(2).indent("  ").wraps();
    for (key, value) in state {
        table.row(cells![key, preview(value)]);
    }
    table.take()
}

fn format_undelivered(view: &RunView) -> String {
    let mut table = TextTable::new(&["EVENT", "SIGNAL", "PAYLOAD"]).indent("  ");
    for signal in &view.undelivered {
        table.row(cells![signal.index, signal.name, preview(&signal.payload)]);
    }
    table.take()
}

fn format_outcome(outcome: &Result<Payload, Failure>) -> String {
    let mut table = TextTable::bare(2).indent("  ").wraps();
    match outcome {
        Ok(output) => table.row(cells!["output", format!("{output:?}")]),
        Err(failure) => {
            table.row(cells!["code", failure.code]);
            table.row(cells!["message", failure.message]);
            failure.causes.iter().for_each(|cause| table.row(cells!["cause", cause]));
            failure.diagnosis.iter().for_each(|diagnosis| table.row(cells!["diagnosis", diagnosis]));
            failure.details.iter().for_each(|details| table.row(cells!["details", format!("{details:?}")]));
        }
    }
    table.take()
}

/// Formats why the run is paused. A divergence shows the recorded and the attempted call.
pub fn format_pause(pause: &RunPaused) -> String {
    let mut table = TextTable::bare(2).indent("  ").wraps();
    table.row(cells!["why", reason(pause)]);
    // The message of a divergence only summarizes its report.
    if !pause.message.is_empty() && pause.divergence.is_none() {
        table.row(cells!["message", pause.message]);
    }
    for lost in pause.lost_workers.iter().flat_map(|lost| &lost.latest) {
        table.row(cells!["lost worker", format!("{} at {}", lost.worker, lost.at)]);
    }
    if let Some(report) = &pause.divergence {
        table.row(cells!["at event", report.index]);
        table.row(cells!["recorded", Cell::new(&report.recorded).paint(Style::green)]);
        table.row(cells!["attempted", Cell::new(&report.attempted).paint(Style::red)]);
        report.nearest.iter().for_each(|nearest| table.row(cells!["last match", nearest]));
        table.row(cells!["hint", report.hint]);
    }
    table.take()
}

fn reason(pause: &RunPaused) -> &'static str {
    match pause.reason {
        PauseReason::Requested => "requested",
        PauseReason::Diverged => "the code diverged from the log",
        PauseReason::ActivationFailed => "the code could not run",
        PauseReason::VersionTooOld => "the code no longer supports the version of the run",
        PauseReason::UnstableSegment => "the code abandoned its calls too often since the last checkpoint",
        PauseReason::BudgetExhausted => "the budget is exhausted",
        PauseReason::ApprovalNeeded => "the run continues from a copy, and its approvals must be decided again",
        PauseReason::SegmentTooLong => "too many events were recorded without a checkpoint",
        PauseReason::WorkerCrashed => "its workers were lost one after the other while they executed it",
        PauseReason::EffectAbandoned => "the code abandoned a call that may have had an effect, or an approval that was decided",
    }
}
