//! `onward run watch`: prints a run as it happens.

use anyhow::Result;
use clap::Args;
use onward_core::api::WatchRequest;
use onward_core::live::{ActiveCall, LiveContent, LiveFrame, RunUnderWay};
use onward_core::{Index, Name, Timestamp};

use crate::args::Global;
use crate::connection::Connection;
use crate::output::{Cell, EventFormatter, Style, TextTable, format_failure, preview, print, print_json, shown, time};

/// Width of the longest common names, so that lines align.
const NAME_WIDTH: usize = 19;

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Run id
    id: String,
    /// Start at this event
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    from: u64,
    /// Start in this generation
    #[arg(long, value_name = "N")]
    generation: Option<u32>,
    /// Print new events only
    #[arg(long, conflicts_with_all = ["from", "generation"])]
    new: bool,
}

pub async fn execute(args: WatchArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let run = connection.key(&args.id)?;
    let start = connection.read_head(run.clone()).await?.created_at;
    let request = WatchRequest { generation: args.generation, from: Index(args.from), from_end: args.new, ..run.into() };
    let mut updates = connection.watch_updates(request).await?;
    let mut printer = Printer::new(start);
    while let Some(frame) = updates.next().await? {
        match global.json {
            true => print_json(&frame)?,
            false => printer.print(&frame)?,
        }
    }
    Ok(())
}

struct Printer {
    start: Timestamp,
    event_formatter: EventFormatter,
    table: TextTable,
}

impl Printer {
    fn new(start: Timestamp) -> Printer {
        let name = format!("{:<NAME_WIDTH$}", "EVENT");
        Printer { start, event_formatter: EventFormatter::default(), table: TextTable::new(&["#  ", "AFTER   ", &name, "WHAT"]) }
    }

    fn print(&mut self, LiveFrame { at, content }: &LiveFrame) -> Result<()> {
        if let LiveContent::Log(log) = content {
            for (index, event) in log.record.indexed() {
                let what = self.event_formatter.format(log.record.at, event);
                let name = Cell::new(event.name());
                let name = if event.is_input() { name.paint(Style::cyan) } else { name };
                self.add(Some(index), log.record.at, name, what);
            }
        } else {
            let Some((name, what)) = notice(content) else { return Ok(()) };
            self.add(None, *at, Cell::new(name).paint(Style::dim), what);
        }
        Ok(print(&self.table.take())?)
    }

    fn add(&mut self, index: Option<Index>, at: Timestamp, name: Cell, what: String) {
        let after = Cell::new(time::offset(at, self.start)).paint(Style::dim);
        let index = index.map(|index| index.0.to_string()).unwrap_or_default();
        self.table.row(vec![index.into(), after, name, what.into()]);
    }
}

/// Formats what is not in the log; `None` for what derives from it.
fn notice(content: &LiveContent) -> Option<(&'static str, String)> {
    let attempt = |name: &Name, attempt: u32| format!("{}, attempt {attempt}", shown(name.as_str()));
    Some(match content {
        LiveContent::Snapshot(snapshot) => ("now", format_snapshot(snapshot)),
        LiveContent::StepStarted(started) => ("step_started", attempt(&started.step.name, started.step.attempt)),
        LiveContent::TaskStarted(started) => {
            let worker = started.worker.as_ref().map(|worker| format!(" by {}", shown(worker.as_str()))).unwrap_or_default();
            ("task_started", attempt(&started.name, started.attempt) + &worker)
        }
        LiveContent::TaskProgress(progress) => {
            ("task_progress", format!("{}: {}", shown(progress.name.as_str()), preview(&progress.progress)))
        }
        LiveContent::Emitted(emitted) => ("emitted", format!("{} {}", shown(&emitted.name), preview(&emitted.value))),
        LiveContent::Blocked(blocked) => ("now", shown(&blocked.doing)),
        LiveContent::End(end) => {
            let why = end.outcome.as_ref().and_then(|outcome| outcome.as_ref().err()).map(format_failure);
            ("end", why.map_or_else(|| end.status.to_string(), |why| format!("{}: {why}", end.status)))
        }
        LiveContent::Dropped(dropped) => {
            let (generation, from) = dropped.cursor.map_or((0, 0), |cursor| (cursor.generation, cursor.index.0 + 1));
            ("dropped", format!("too slow; continue with `--generation {generation} --from {from}`"))
        }
        LiveContent::Log(_) | LiveContent::StepAttemptFailed(_) | LiveContent::StateChanged(_) => return None,
    })
}

fn format_snapshot(snapshot: &RunUnderWay) -> String {
    let name = |call: &ActiveCall| format!("{} {}", call.of_type, shown(call.name.as_str()));
    let active: Vec<String> = snapshot.active.iter().map(name).collect();
    let under_way = if active.is_empty() { String::new() } else { format!("; under way: {}", active.join(", ")) };
    format!("{}: {}{under_way}", snapshot.status, shown(&snapshot.doing))
}
