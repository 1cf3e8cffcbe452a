//! `onward spend`: cost of model calls by model, day, run or tree.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::RunId;
use onward_core::ledger::{SpendBy, SpendQuery, SpendRow};
use onward_core::spend::SpendTotals;

use crate::args::{Global, one_of};
use crate::connection::Connection;
use crate::output::document::Spend;
use crate::output::{TextTable, count, print_stderr, time};
use crate::span;

#[derive(Debug, Args)]
pub struct SpendArgs {
    /// Group by model, day, run or tree; a tree is a run with its children and forks
    #[arg(long, value_name = "WHAT", default_value = "model", value_parser = one_of(SpendBy::ALL, SpendBy::as_str))]
    by: SpendBy,
    /// Include only this time, like 7d, in whole UTC days
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    since: Option<Duration>,
    /// Include only the tree of this run
    #[arg(long, value_name = "RUN")]
    tree: Option<String>,
    /// Maximum number of rows
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
}

pub async fn execute(args: SpendArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let query = SpendQuery {
        namespace: connection.namespace.clone(),
        from: args.since.map(|since| time::now().before(since)),
        tree: args.tree.as_deref().map(RunId::new).transpose()?,
        limit: args.limit,
        ..SpendQuery::by(args.by)
    };
    let rows = connection.read_spend(query).await?.rows;
    global.show_table(&Spend::new(args.by, &rows, args.limit), table(args.by, &rows), "no spend recorded")?;
    if !global.json && !rows.is_empty() && rows.len() == args.limit {
        print_stderr(&format!("the list is limited to {}; raise `--limit` for more", count(rows.len() as u64, "row")));
    }
    Ok(())
}

fn table(by: SpendBy, rows: &[SpendRow]) -> TextTable {
    let name = by.as_str().to_uppercase();
    let mut table =
        TextTable::new(&[name.as_str(), "DOLLARS", "TOKENS", "INPUT", "CACHED", "OUTPUT", "ATTEMPTS", "UNKNOWN", "UNPRICED"]);
    let mut add = |name: &str, totals: &SpendTotals| {
        let SpendTotals { attempts, unknown, tokens, cost, unpriced } = totals;
        let cached = tokens.cached_read.saturating_add(tokens.cached_write);
        let numbers = [tokens.total(), tokens.input, cached, tokens.output, *attempts, *unknown, *unpriced];
        let first = [name.into(), cost.to_string().into()];
        table.row(first.into_iter().chain(numbers.map(|number| number.to_string().into())).collect());
    };
    rows.iter().for_each(|row| add(&row.name, &row.totals));
    if rows.len() > 1 {
        add("total", &rows.iter().fold(SpendTotals::default(), |sum, row| sum.plus(&row.totals)));
    }
    table
}

/// Formats totals in one line.
pub fn line(totals: &SpendTotals) -> String {
    let mut parts =
        vec![format!("{} dollars", totals.cost), count(totals.tokens.total(), "token"), count(totals.attempts, "attempt")];
    for (number, what) in [(totals.unknown, "of unknown cost"), (totals.unpriced, "without a price")] {
        if number > 0 {
            parts.push(format!("{number} {what}"));
        }
    }
    parts.join(", ")
}
