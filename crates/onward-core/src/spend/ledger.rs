//! The ledger: the cost of runs, by run, tree, model and day.
//!
//! A *row* is the sum of the costs in the logs of one run for one model on one day. Owns which row an event changes and how, and
//! how rows are aggregated for a query. Stores write the rows together with the event ([`Effect::Charge`](crate::run::Effect)). A
//! row is derived from the log and can be rebuilt as long as the log exists.
//!
//! Invariants:
//! - LG3: the rows of a run follow from the events of its logs, and their sum equals the totals of its head. Copied events count
//!   in the rows of the original log (R12).
//! - LG4: rows outlive their logs. A run that reuses the id of a deleted one has rows of its own, distinguished by the
//!   incarnation of the first log.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::run::root::root_run;
use crate::spend::{Charge, SpendTotals, day_of};
use crate::{Namespace, RunHead, RunId, RunKey, Timestamp, message, numbered};

/// The key of a ledger row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerKey {
    pub run: RunKey,
    /// The generation of the first counted log: 0, except for later generations that do not know how their run began.
    pub generation: u32,
    /// The incarnation of that log; 0 if unknown.
    pub incarnation: u64,
    /// Days since 1970, UTC.
    pub day: u32,
    pub model: String,
}

impl LedgerKey {
    /// Returns the key of the row that a charge of this run belongs to.
    pub fn of(head: &RunHead, charge: &Charge) -> LedgerKey {
        let (generation, incarnation) = match head.origin_incarnation() {
            Some(incarnation) => (0, incarnation),
            None => (head.generation, head.incarnation.unwrap_or_default()),
        };
        LedgerKey { run: head.key.clone(), generation, incarnation, day: charge.day, model: charge.model.clone() }
    }

    /// Returns the id of the root run of the tree.
    pub fn tree(&self) -> &str {
        root_run(&self.run.id)
    }
}

message! {
    /// The value of a row.
    #[derive(Copy, Default, Eq)]
    pub struct LedgerSum {
        1 => lines: SpendTotals,
        /// The number of attempts that no longer count as unknown: an attempt may begin in one log of a run and report its cost
        /// in the next.
        2 => settled: u64,
    }
}

impl LedgerSum {
    pub fn of(charge: &Charge) -> LedgerSum {
        LedgerSum { lines: charge.line.unwrap_or_default(), settled: u64::from(charge.is_settled) }
    }

    pub fn plus(&self, other: &LedgerSum) -> LedgerSum {
        LedgerSum { lines: self.lines.plus(&other.lines), settled: self.settled.saturating_add(other.settled) }
    }

    /// Returns the totals; over all rows of a run they equal those of its head.
    pub fn totals(&self) -> SpendTotals {
        SpendTotals {
            attempts: self.lines.attempts.saturating_sub(self.settled),
            unknown: self.lines.unknown.saturating_sub(self.settled),
            ..self.lines
        }
    }
}

/// Adds the rows of another log of the run.
pub fn add_rows(rows: &mut BTreeMap<LedgerKey, LedgerSum>, others: BTreeMap<LedgerKey, LedgerSum>) {
    for (row, sum) in others {
        let known = rows.entry(row).or_default();
        *known = known.plus(&sum);
    }
}

numbered! {
    /// The grouping of a ledger query.
    pub enum SpendBy {
        0 => Model / "model",
        1 => Day / "day",
        2 => Run / "run",
        /// A run with all its descendants, and forks of them.
        3 => Tree / "tree",
    }
}

message! {
    /// A query of the ledger of one namespace.
    pub struct SpendQuery {
        1 => namespace: Namespace,
        2 => by: SpendBy,
        /// Attempts that began on the UTC day of this time or later.
        3 => from: Option<Timestamp>,
        /// Attempts that began before this time or on its day: the ledger has whole days. A time at midnight excludes the day
        /// that it begins.
        4 => until: Option<Timestamp>,
        /// Only the tree of this run.
        5 => tree: Option<RunId>,
        /// 0 means the store's default page.
        6 => limit: usize,
    }
}

impl SpendQuery {
    /// Returns a query of everything in the default namespace.
    pub fn by(by: SpendBy) -> SpendQuery {
        SpendQuery { namespace: Namespace::default(), by, from: None, until: None, tree: None, limit: 0 }
    }

    /// Returns the first and the last matching day; `None` if there is none.
    pub fn days(&self) -> Option<(u32, u32)> {
        let first = self.from.map_or(0, day_of);
        let last = match self.until {
            None => u32::MAX,
            Some(until) => day_of(Timestamp(until.0.checked_sub(1)?)),
        };
        (first <= last).then_some((first, last))
    }

    pub fn tree_name(&self) -> Option<&str> {
        self.tree.as_ref().map(root_run)
    }

    /// Returns true if the row matches.
    pub fn matches(&self, row: &LedgerKey) -> bool {
        row.run.namespace == self.namespace
            && self.days().is_some_and(|(first, last)| (first..=last).contains(&row.day))
            && self.tree_name().is_none_or(|tree| tree == row.tree())
    }
}

message! {
    /// The sum for one model, day, run or tree.
    #[derive(Eq)]
    pub struct SpendRow {
        /// The model, the day (`2026-11-16`), the id of the run, or that of the root run of the tree.
        1 => name: String,
        2 => totals: SpendTotals,
    }
}

/// Aggregates rows in any order.
#[derive(Debug)]
pub struct SpendTally {
    by: SpendBy,
    sums: BTreeMap<String, LedgerSum>,
}

impl SpendTally {
    pub fn new(by: SpendBy) -> SpendTally {
        SpendTally { by, sums: BTreeMap::new() }
    }

    pub fn add(&mut self, row: &LedgerKey, sum: &LedgerSum) {
        let name = match self.by {
            SpendBy::Model => row.model.clone(),
            SpendBy::Day => day_text(row.day),
            SpendBy::Run => row.run.id.as_str().to_owned(),
            SpendBy::Tree => row.tree().to_owned(),
        };
        let known = self.sums.entry(name).or_default();
        *known = known.plus(sum);
    }

    /// Returns the first `limit` sums: the newest days, or else the highest costs.
    pub fn finish(self, limit: usize) -> Vec<SpendRow> {
        let rows = self.sums.into_iter().map(|(name, sum)| SpendRow { name, totals: sum.totals() });
        in_order(self.by, rows.filter(|row| !row.totals.is_empty()).collect(), limit)
    }
}

/// Merges the results of several stores; all rows of a run are in one store.
pub fn merge(by: SpendBy, answers: impl IntoIterator<Item = SpendRow>, limit: usize) -> Vec<SpendRow> {
    let mut sums: BTreeMap<String, SpendTotals> = BTreeMap::new();
    for SpendRow { name, totals } in answers {
        let known = sums.entry(name).or_default();
        *known = known.plus(&totals);
    }
    in_order(by, sums.into_iter().map(|(name, totals)| SpendRow { name, totals }).collect(), limit)
}

fn in_order(by: SpendBy, mut rows: Vec<SpendRow>, limit: usize) -> Vec<SpendRow> {
    match by {
        SpendBy::Day => rows.reverse(),
        _ => rows.sort_by_key(|row| (Reverse(row.totals.cost), Reverse(row.totals.tokens.total()), Reverse(row.totals.attempts))),
    }
    rows.truncate(limit);
    rows
}

/// Formats a day as a date.
fn day_text(day: u32) -> String {
    let midnight = Timestamp(u64::from(day) * 24 * 60 * 60 * 1_000).to_string();
    midnight.split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
