//! Tests of the parent module.

use super::*;
use crate::log::event::RunStarted;
use crate::spend::{PicoDollars, Spend, Tokens};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

fn row(id: &str, generation: u32, day: u32, model: &str) -> LedgerKey {
    let run = RunKey::new(Namespace::default(), RunId::new(id).unwrap());
    LedgerKey { run, generation, incarnation: 1, day, model: model.to_owned() }
}

fn sum(cost: u64) -> LedgerSum {
    let tokens = Tokens { input: cost, ..Tokens::default() };
    LedgerSum { lines: SpendTotals::of(&Spend::on("m").tokens(tokens).cost(PicoDollars(cost))), settled: 0 }
}

/// LG3, LG4: all generations of a run share one row per model and day, and no other run uses it.
#[test]
fn the_generations_of_a_run_share_their_rows() {
    let key = row("r", 0, 0, "m").run;
    let charge = Charge { day: 3, model: "m".to_owned(), line: None, is_settled: true };
    let of = |started: RunStarted| LedgerKey::of(&RunHead::start(key.clone(), started, Timestamp(0)).0, &charge);
    let start = |seed| RunStarted::new(crate::Name::new("k").unwrap(), crate::Payload::null(), seed);
    let later = |seed, generation, first_seed| of(RunStarted { generation, first_seed, ..start(seed) });
    let first = of(start(7));
    assert_eq!((first.generation, first.incarnation), (0, 7));
    assert_eq!(later(8, 1, start(7).origin_seed()), first);
    assert_eq!(later(9, 2, Some(7)), first);
    assert_ne!(of(start(9)), first, "another incarnation");
    let unknown = later(8, 1, None);
    assert_eq!((unknown.generation, unknown.incarnation), (1, 8), "a log without the start of its run");
}

fn costs(by: SpendBy, rows: &[(LedgerKey, LedgerSum)], limit: usize) -> Vec<(String, u64)> {
    let mut tally = SpendTally::new(by);
    rows.iter().for_each(|(key, sum)| tally.add(key, sum));
    tally.finish(limit).into_iter().map(|row| (row.name, row.totals.cost.0)).collect()
}

#[test]
fn every_query_gives_the_same_sum() {
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
    assert_eq!(costs(SpendBy::Run, &rows, 2), named(&[("b", 1_000), ("a", 101)]), "the most expensive");
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
