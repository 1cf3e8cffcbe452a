//! `onward run events`: prints the log of a run, once or as it grows.

use anyhow::Result;
use clap::Args;
use onward_core::{Event, Index, Record, RunKey, Timestamp};

use crate::args::Global;
use crate::connection::Connection;
use crate::output::{Cell, EventFormatter, Style, TextTable, print, print_json, print_stderr, time};

/// Page size of records.
const PAGE: usize = 1_000;

/// Width of the longest common event names, so that followed lines align.
const NAME_WIDTH: usize = 18;

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Run id
    id: String,
    /// Start at this event
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    from: u64,
    /// Print the log of this generation; 0 is the first [default: the latest]
    #[arg(long, value_name = "NUMBER")]
    generation: Option<u32>,
    /// Print the logs of all generations, the first one first
    #[arg(long, conflicts_with = "generation")]
    all_generations: bool,
    /// Follow the log until the run has ended
    #[arg(long, short)]
    follow: bool,
}

/// Arguments of `onward run attach`, which is `onward run events --follow`.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Run id
    id: String,
    /// Start at this event
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    from: u64,
}

pub async fn attach(args: AttachArgs, global: &Global) -> Result<()> {
    execute(EventsArgs { id: args.id, from: args.from, generation: None, all_generations: false, follow: true }, global).await
}

pub async fn execute(args: EventsArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let key = connection.key(&args.id)?;
    let head = connection.read_head(key.clone()).await?;
    // Subscribes before the first read, so that no change in between is missed.
    let mut watch = connection.watch(&key).await?;
    let generation = args.generation.unwrap_or(if args.all_generations { 0 } else { head.generation });
    if generation > 0 && args.generation.is_none() {
        print_stderr(&earlier_generations(generation));
    }
    let first = connection.read_log(key.clone(), Some(generation), Index(0), 1).await?;
    let start = first.first().map_or(head.created_at, |record| record.at);
    let mut log = LogReader { connection, key, generation, next: Index(args.from), last: None };
    let mut printer = Printer::new(global.json, start);
    loop {
        let page = log.next_page().await?;
        if page.is_empty() {
            if !args.follow || !log.goes_on() || (head.external.is_some() && log.is_closed().await?) {
                return Ok(());
            }
            watch.changed().await?;
        }
        printer.print(&page, Index(args.from))?;
        if (args.follow || args.all_generations) && log.turn_over() {
            print_stderr(&format!("continued as generation {}", log.generation));
        }
    }
}

/// Describes how to print the generations before the latest one.
fn earlier_generations(latest: u32) -> String {
    let numbers = if latest == 1 { "0".to_owned() } else { format!("0 to {}", latest - 1) };
    format!("generation {latest}; earlier ones: `--generation` with {numbers}, or `--all-generations`")
}

struct LogReader {
    connection: Connection,
    key: RunKey,
    generation: u32,
    next: Index,
    /// Last event that was read.
    last: Option<Event>,
}

impl LogReader {
    async fn next_page(&mut self) -> Result<Vec<Record>> {
        let page = self.connection.read_log(self.key.clone(), Some(self.generation), self.next, PAGE).await?;
        if let Some(record) = page.last() {
            self.next = record.next_index();
            self.last = record.events.last().cloned();
        }
        Ok(page)
    }

    /// Returns whether this log may still grow.
    fn goes_on(&self) -> bool {
        !self.last.as_ref().is_some_and(Event::ends_log)
    }

    /// Returns whether an external run is closed and its log was read completely.
    async fn is_closed(&self) -> Result<bool> {
        let head = self.connection.read_head(self.key.clone()).await?;
        Ok(head.status.is_closed() && self.next >= head.next_index)
    }

    /// Moves to the next generation if this one ended with `run_continued`.
    fn turn_over(&mut self) -> bool {
        let continued = matches!(self.last, Some(Event::RunContinued(_)));
        if continued {
            self.generation += 1;
            self.next = Index(0);
            self.last = None;
        }
        continued
    }
}

struct Printer {
    json: bool,
    start: Timestamp,
    event_formatter: EventFormatter,
    table: TextTable,
}

impl Printer {
    fn new(json: bool, start: Timestamp) -> Printer {
        let pad = |text: &str, width: usize| format!("{text:<width$}");
        let table = TextTable::new(&["#  ", "AFTER   ", &pad("EVENT", NAME_WIDTH), "WHAT"]);
        Printer { json, start, event_formatter: EventFormatter::default(), table }
    }

    fn print(&mut self, records: &[Record], from: Index) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        if self.json {
            return records.iter().try_for_each(print_json);
        }
        for record in records {
            for (index, event) in record.indexed() {
                let what = self.event_formatter.format(record.at, event);
                if index >= from {
                    self.add(index, record.at, event, what);
                }
            }
        }
        Ok(print(&self.table.take())?)
    }

    fn add(&mut self, index: Index, at: Timestamp, event: &Event, what: String) {
        let after = time::offset(at, self.start);
        // Inputs are colored, because they show what made the run continue.
        let name = if event.is_input() { Cell::new(event.name()).paint(Style::cyan) } else { Cell::new(event.name()) };
        let row = vec![index.0.to_string().into(), Cell::new(after).paint(Style::dim), name, what.into()];
        self.table.row(row);
    }
}
