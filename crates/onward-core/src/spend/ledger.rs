//! The ledger: what runs have cost, by run, tree, model and day.
//!
//! A *row* is the sum of what the logs of one run say of one model on one day. Owns which row an event changes and how, and how rows are
//! put together to answer a question. Stores keep the rows and write them together with the event ([`Effect::Charge`](crate::run::Effect)). Must never
//! be more than the log: a row is made again from it as long as it is there.
//!
//! Invariants:
//! - LG3: the rows of a run are what the events of its logs say, so that their sum is what its head says. What was copied from another
//!   log is in that one's rows (R12).
//! - LG4: rows outlive their logs. Another run that gets the id of one that was deleted has rows of its own: they are told apart by the
//!   life of the first log.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::run::root::family;
use crate::spend::{Charge, SpendTotals, day_of};
use crate::{Namespace, RunHead, RunId, RunKey, Timestamp, message, numbered};

/// Which row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerKey {
    pub run: RunKey,
    /// Of the first log that it counts: 0, but for later generations that do not know how their run began.
    pub generation: u32,
    /// Of that log; 0 if nobody knows.
    pub life: u64,
    /// Days since 1970, UTC.
    pub day: u32,
    pub model: String,
}

impl LedgerKey {
    /// The row that a charge of the run that `head` is of goes to.
    pub fn of(head: &RunHead, charge: &Charge) -> LedgerKey {
        let (generation, life) = match head.origin_life() {
            Some(life) => (0, life),
            None => (head.generation, head.life.unwrap_or_default()),
        };
        LedgerKey { run: head.key.clone(), generation, life, day: charge.day, model: charge.model.clone() }
    }

    /// The tree of runs that it belongs to, by the name of the family.
    pub fn tree(&self) -> &str {
        family(&self.run.id)
    }
}

message! {
    /// What a row says.
    #[derive(Copy, Default, Eq)]
    pub struct LedgerSum {
        1 => lines: SpendTotals,
        /// How many attempts that stood as unknown no longer do: an attempt may begin in one log of a run and say what it cost in the next.
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

    /// What that comes to; of all rows of a run, what its head says.
    pub fn totals(&self) -> SpendTotals {
        SpendTotals {
            attempts: self.lines.attempts.saturating_sub(self.settled),
            unknown: self.lines.unknown.saturating_sub(self.settled),
            ..self.lines
        }
    }
}

/// What several logs of a run say together.
pub fn add_rows(rows: &mut BTreeMap<LedgerKey, LedgerSum>, others: BTreeMap<LedgerKey, LedgerSum>) {
    for (row, sum) in others {
        let known = rows.entry(row).or_default();
        *known = known.plus(&sum);
    }
}

numbered! {
    /// By what a question about the ledger is answered.
    pub enum SpendBy {
        0 => Model,
        1 => Day,
        2 => Run,
        /// A run, its children, their children, and what was forked from them.
        3 => Tree,
    }
}

impl SpendBy {
    pub fn as_str(self) -> &'static str {
        match self {
            SpendBy::Model => "model",
            SpendBy::Day => "day",
            SpendBy::Run => "run",
            SpendBy::Tree => "tree",
        }
    }

    pub fn parse(text: &str) -> Option<SpendBy> {
        SpendBy::ALL.iter().copied().find(|by| by.as_str() == text)
    }
}

/// A question about the ledger of one namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct SpendQuery {
    pub namespace: Namespace,
    pub by: SpendBy,
    /// Attempts that began on the day of this moment or later, in UTC.
    pub from: Option<Timestamp>,
    /// Attempts that began before this moment, or later on its day: the ledger knows whole days. Midnight is not part of the day.
    pub until: Option<Timestamp>,
    /// Only the tree that this run is of.
    pub tree: Option<RunId>,
    /// 0 means the store's default page.
    pub limit: usize,
}

impl SpendQuery {
    /// About everything in the default namespace.
    pub fn by(by: SpendBy) -> SpendQuery {
        SpendQuery { namespace: Namespace::default(), by, from: None, until: None, tree: None, limit: 0 }
    }

    /// The first and the last day that count; nothing if none does.
    pub fn days(&self) -> Option<(u32, u32)> {
        let first = self.from.map_or(0, day_of);
        let last = match self.until {
            None => u32::MAX,
            Some(until) => day_of(Timestamp(until.0.checked_sub(1)?)),
        };
        (first <= last).then_some((first, last))
    }

    pub fn tree_name(&self) -> Option<&str> {
        self.tree.as_ref().map(family)
    }

    /// Whether a row counts.
    pub fn matches(&self, row: &LedgerKey) -> bool {
        row.run.namespace == self.namespace
            && self.days().is_some_and(|(first, last)| (first..=last).contains(&row.day))
            && self.tree_name().is_none_or(|tree| tree == row.tree())
    }
}

message! {
    /// The sum of what belongs to one model, day, run or tree.
    #[derive(Eq)]
    pub struct SpendRow {
        /// The model, the day (`2026-11-16`), or the id of the run or of the first run of the tree.
        1 => name: String,
        2 => totals: SpendTotals,
    }
}

/// Puts rows together, however they come.
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

    /// The first `limit` of them: the newest day, or else what cost most.
    pub fn finish(self, limit: usize) -> Vec<SpendRow> {
        let rows = self.sums.into_iter().map(|(name, sum)| SpendRow { name, totals: sum.totals() });
        in_order(self.by, rows.filter(|row| !row.totals.is_empty()).collect(), limit)
    }
}

/// Puts answers of several stores together, each of which has all rows of the runs it has.
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

/// A day as people write it.
fn day_text(day: u32) -> String {
    let midnight = Timestamp(u64::from(day) * 24 * 60 * 60 * 1_000).to_string();
    midnight.split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::event::RunStarted;
    use crate::spend::{PicoDollars, Spend, Tokens};

    const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

    fn row(id: &str, generation: u32, day: u32, model: &str) -> LedgerKey {
        let run = RunKey::new(Namespace::default(), RunId::new(id).unwrap());
        LedgerKey { run, generation, life: 1, day, model: model.to_owned() }
    }

    fn sum(cost: u64) -> LedgerSum {
        let tokens = Tokens { input: cost, ..Tokens::default() };
        LedgerSum { lines: SpendTotals::of(&Spend::on("m").tokens(tokens).cost(PicoDollars(cost))), settled: 0 }
    }

    /// LG3, LG4: however often a run continues it has one row for a model and a day, and no other run has it.
    #[test]
    fn the_generations_of_a_run_share_their_rows() {
        let key = row("r", 0, 0, "m").run;
        let charge = Charge { day: 3, model: "m".to_owned(), line: None, is_settled: true };
        let of = |started: RunStarted| LedgerKey::of(&RunHead::start(key.clone(), started, Timestamp(0)).0, &charge);
        let start = |seed| RunStarted::new(crate::Name::new("k").unwrap(), crate::Payload::null(), seed);
        let later = |seed, generation, first_seed| of(RunStarted { generation, first_seed, ..start(seed) });
        let first = of(start(7));
        assert_eq!((first.generation, first.life), (0, 7));
        assert_eq!(later(8, 1, start(7).origin_seed()), first);
        assert_eq!(later(9, 2, Some(7)), first);
        assert_ne!(of(start(9)), first, "another run of that id");
        let unknown = later(8, 1, None);
        assert_eq!((unknown.generation, unknown.life), (1, 8), "a log that does not say how its run began");
    }

    fn costs(by: SpendBy, rows: &[(LedgerKey, LedgerSum)], limit: usize) -> Vec<(String, u64)> {
        let mut tally = SpendTally::new(by);
        rows.iter().for_each(|(key, sum)| tally.add(key, sum));
        tally.finish(limit).into_iter().map(|row| (row.name, row.totals.cost.0)).collect()
    }

    #[test]
    fn every_way_of_asking_gives_the_same_sum() {
        let rows = [
            (row("a", 0, 1, "small"), sum(1)),
            (row("a/0", 0, 1, "large"), sum(10)),
            (row("a", 1, 2, "small"), sum(100)),
            (row("b", 0, 2, "small"), sum(1_000)),
        ];
        for by in SpendBy::ALL.iter().copied() {
            assert_eq!(costs(by, &rows, 10).iter().map(|(_, cost)| cost).sum::<u64>(), 1_111, "{}", by.as_str());
        }
        let named = |rows: &[(&str, u64)]| rows.iter().map(|(name, cost)| ((*name).to_owned(), *cost)).collect::<Vec<_>>();
        assert_eq!(costs(SpendBy::Tree, &rows, 10), named(&[("b", 1_000), ("a", 111)]));
        assert_eq!(costs(SpendBy::Day, &rows, 1), named(&[("1970-01-03", 1_100)]), "the newest");
        assert_eq!(costs(SpendBy::Run, &rows, 2), named(&[("b", 1_000), ("a", 101)]), "the dearest");
    }

    #[test]
    fn an_attempt_that_is_settled_in_another_log_counts_once() {
        let begun = LedgerSum { lines: SpendTotals::of(&Spend::unknown("")), settled: 0 };
        let ended = LedgerSum { settled: 1, ..sum(5) };
        let totals = begun.plus(&ended).totals();
        assert_eq!((totals.attempts, totals.unknown, totals.cost.0), (1, 0, 5));
    }

    #[test]
    fn a_question_is_about_whole_days() {
        let mut query = SpendQuery::by(SpendBy::Model);
        assert_eq!(query.days(), Some((0, u32::MAX)));
        query.from = Some(Timestamp(3 * DAY_MS + 5));
        query.until = Some(Timestamp(5 * DAY_MS));
        assert_eq!(query.days(), Some((3, 4)), "midnight is the day after");
        query.until = Some(Timestamp(5 * DAY_MS + 1));
        assert_eq!(query.days(), Some((3, 5)));
        query.until = Some(Timestamp(3 * DAY_MS));
        assert_eq!(query.days(), None);
        query.until = Some(Timestamp(0));
        assert_eq!(query.days(), None);
    }
}
