//! `onward run children`: lists the children of a run, newest first.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::api::ChildrenQuery;

use super::list::print_page;
use crate::args::Global;
use crate::connection::Connection;
use crate::output::document::{Partly, Run, Runs};
use crate::output::{print_json, say_missing};

#[derive(Debug, Args)]
pub struct ChildrenArgs {
    /// Run id
    id: String,
    /// Maximum number of runs
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Continue after this cursor of the previous page
    #[arg(long)]
    cursor: Option<String>,
}

pub async fn execute(args: ChildrenArgs, global: &Global) -> Result<ExitCode> {
    let connection = Connection::to_read(global)?;
    let (limit, cursor) = (args.limit as usize, args.cursor);
    let query = ChildrenQuery { limit, cursor, partly: true, ..connection.key(&args.id)?.into() };
    let page = connection.list_children(query).await?;
    if global.json {
        let runs = Runs { runs: page.runs.iter().map(Run::from).collect(), next: page.next.as_deref() };
        print_json(&Partly::new(runs, page.missing.clone()))?;
    } else {
        print_page(&page, "")?;
    }
    say_missing(&page.missing);
    Ok(ExitCode::SUCCESS)
}
