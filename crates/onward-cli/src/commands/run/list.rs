//! `onward run list`, `children` and `deleted`: lists of runs, newest first, one page or all.

use anyhow::Result;
use clap::Args;
use onward_core::api::{ChildrenQuery, DeletedQuery, DeletedReply, RunList, RunQuery};
use onward_core::{RunHead, Status};

use super::filter::FilterArgs;
use crate::args::{Global, one_of};
use crate::connection::Connection;
use crate::output::document::{DeletedRuns, Partly, Run, Runs};
use crate::output::{Cell, Progress, Style, TextTable, cells, json_line, print, print_missing_databases, print_stderr, time};

/// Page size: the maximum of a server.
const PAGE: usize = 1_000;

#[derive(Debug, Args)]
pub struct RunListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Maximum number of runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with = "all")]
    limit: u32,
    /// Continue after this cursor of the previous page
    #[arg(long, conflicts_with = "all")]
    cursor: Option<String>,
    /// List all runs
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub struct ChildrenArgs {
    /// Run id
    id: String,
    /// Select runs with this status (repeatable)
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = one_of(Status::ALL, Status::as_str))]
    status: Vec<Status>,
    /// Maximum number of runs
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Continue after this cursor of the previous page
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
pub struct DeletedArgs {
    /// Show only runs with this id
    id: Option<String>,
    /// Maximum number of runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub async fn list(args: RunListArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let limit = if args.all { PAGE } else { args.limit as usize };
    let filter = args.filter.query(connection.namespace.clone(), limit)?;
    let query = RunQuery { cursor: args.cursor, partly: true, ..filter };
    let missing = match (args.all, global.json) {
        (true, true) => print_all_json(&connection, query).await?,
        (true, false) => print_all(&connection, query).await?,
        (false, _) => return show_page(&page(&connection, query).await?, ", or --all", global),
    };
    print_missing_databases(&missing);
    Ok(())
}

pub async fn children(args: ChildrenArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let (statuses, limit, cursor) = (args.status, args.limit as usize, args.cursor);
    let query = ChildrenQuery { statuses, limit, cursor, partly: true, ..connection.key(&args.id)?.into() };
    show_page(&connection.list_children(query).await?, "", global)
}

/// Lists runs that were deleted on request, with their reasons.
pub async fn deleted(args: DeletedArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let run = args.id.as_deref().map(|id| connection.key(id)).transpose()?;
    let query = DeletedQuery { namespace: connection.namespace.clone(), run, limit: args.limit as usize, partly: true };
    let DeletedReply { runs, missing } = connection.list_deleted(query).await?;
    print_missing_databases(&missing);
    let mut table = TextTable::new(&["ID", "KIND", "DELETED", "REASON"]);
    for run in &runs {
        table.row(cells![run.key.id, run.kind, time::ago(run.deleted_at, time::now()), run.reason]);
    }
    global.show_table(&Partly::new(DeletedRuns::from(&*runs), missing), table, "no deleted runs")
}

/// Reads pages until the limit of the query is reached.
async fn page(connection: &Connection, query: RunQuery) -> Result<RunList> {
    let limit = query.limit;
    let mut all = RunList { runs: Vec::new(), next: query.cursor.clone(), missing: Vec::new() };
    loop {
        let page_query = RunQuery { limit: (limit - all.runs.len()).min(PAGE), cursor: all.next.take(), ..query.clone() };
        let page = connection.list_runs(page_query).await?;
        all.runs.extend(page.runs);
        all.next = page.next;
        add_missing(&mut all.missing, page.missing);
        if all.next.is_none() || all.runs.len() >= limit {
            return Ok(all);
        }
    }
}

/// Adds the names of databases that are not in the list yet.
fn add_missing(all: &mut Vec<String>, page: Vec<String>) {
    all.extend(page);
    all.sort();
    all.dedup();
}

fn table() -> TextTable {
    TextTable::new(&["ID", "KIND", "STATUS", "EVENTS", "CREATED", "CHANGED"])
}

fn add(table: &mut TextTable, head: &RunHead) {
    let now = time::now();
    let (created, changed) = (time::ago(head.created_at, now), time::ago(head.updated_at, now));
    table.row(cells![head.key.id, head.kind, status_cell(head.status), head.next_index.0, created, changed]);
}

pub fn status_cell(status: Status) -> Cell {
    let cell = Cell::new(status.as_str());
    match status {
        Status::Completed => cell.paint(Style::green),
        Status::Failed | Status::Terminated => cell.paint(Style::red),
        Status::Paused | Status::Canceled => cell.paint(Style::yellow),
        Status::Pending | Status::Running | Status::Waiting => cell,
    }
}

/// Prints a page. `others` names other ways to see more runs.
fn show_page(page: &RunList, others: &str, global: &Global) -> Result<()> {
    let mut table = table();
    page.runs.iter().for_each(|head| add(&mut table, head));
    let runs = Runs { runs: page.runs.iter().map(Run::from).collect(), next: page.next.as_deref() };
    global.show_table(&Partly::new(runs, page.missing.clone()), table, "no runs")?;
    if let Some(next) = page.next.as_ref().filter(|_| !global.json && !page.runs.is_empty()) {
        print_stderr(&format!("for more runs: --cursor {next}{others}"));
    }
    print_missing_databases(&page.missing);
    Ok(())
}

async fn print_all(connection: &Connection, query: RunQuery) -> Result<Vec<String>> {
    let (mut table, mut count) = (table(), 0);
    let mut progress = Progress::new("runs", true);
    let mut pages = Pages::new(query);
    while let Some(runs) = pages.next(connection).await? {
        runs.iter().for_each(|head| add(&mut table, head));
        count += runs.len() as u64;
        progress.at(count);
        if !runs.is_empty() {
            print(&table.take())?;
        }
    }
    if count == 0 {
        print_stderr("no runs");
    }
    Ok(pages.missing)
}

/// Prints one JSON document while it reads the pages.
async fn print_all_json(connection: &Connection, query: RunQuery) -> Result<Vec<String>> {
    let mut count = 0;
    let mut progress = Progress::new("runs", true);
    let mut pages = Pages::new(query);
    print("{\"runs\":[")?;
    while let Some(runs) = pages.next(connection).await? {
        let mut text = String::new();
        for head in &runs {
            text.push_str(if count == 0 { "" } else { "," });
            text.push_str(&json_line(&Run::from(head))?);
            text.push('\n');
            count += 1;
        }
        print(&text)?;
        progress.at(count);
    }
    let missing = match pages.missing.is_empty() {
        true => String::new(),
        false => format!(",\"missing_databases\":{}", json_line(&pages.missing)?.trim_end()),
    };
    print(&format!("],\"next\":null{missing}}}"))?;
    Ok(pages.missing)
}

/// Iterator over the pages of a query.
pub struct Pages {
    query: RunQuery,
    over: bool,
    /// The databases whose runs are missing.
    missing: Vec<String>,
}

impl Pages {
    pub fn new(query: RunQuery) -> Pages {
        Pages { query, over: false, missing: Vec::new() }
    }

    pub async fn next(&mut self, connection: &Connection) -> Result<Option<Vec<RunHead>>> {
        if self.over {
            return Ok(None);
        }
        let page = connection.list_runs(self.query.clone()).await?;
        self.over = page.next.is_none();
        self.query.cursor = page.next;
        add_missing(&mut self.missing, page.missing);
        Ok(Some(page.runs))
    }
}
