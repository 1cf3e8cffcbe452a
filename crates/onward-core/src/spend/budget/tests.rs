//! Tests of the parent module.

mod trees;

use super::*;
use crate::spend::{Spend, Tokens};
use crate::{Hash, Name, Payload};

fn spent(tokens: u64) -> SpendTotals {
    SpendTotals::of(&Spend::on("m").tokens(Tokens { input: tokens, ..Tokens::default() }).cost(PicoDollars(tokens)))
}

fn child(ordinal: u32, budget: Option<Budget>) -> ChildStarted {
    ChildStarted {
        call_id: CallId::root(ordinal),
        child: RunId::new("c").unwrap(),
        kind: Name::new("k").unwrap(),
        version: None,
        input_hash: Hash::of(&Payload::null()),
        input: Payload::null(),
        on_parent_close: crate::log::event::OnParentClose::Cancel,
        is_spawned: false,
        budget,
        queue: None,
    }
}

#[test]
fn a_limit_that_is_reached_is_named() {
    let budget = BudgetHead { since: Some(Timestamp(1_000)), ..BudgetHead::of(Budget::default().tokens(10).seconds(60)) };
    assert_eq!(budget.exhausted(Some(&spent(9)), Timestamp(60_999)), None);
    assert_eq!(budget.exhausted(Some(&spent(10)), Timestamp(2_000)), Some("tokens"));
    assert_eq!(budget.exhausted(None, Timestamp(61_000)), Some("seconds"));
    assert_eq!(BudgetHead::of(Budget::default().cost(PicoDollars(3))).exhausted(Some(&spent(3)), Timestamp(0)), Some("cost"));
    let dollars = BudgetHead::of(Budget::default().cost(PicoDollars(9)));
    let unpriced = SpendTotals { unpriced: 1, ..spent(3) };
    assert_eq!(dollars.exhausted(Some(&unpriced), Timestamp(0)), Some(UNPRICED)); // BG7
    let mut fork = dollars.clone();
    fork.forked(dollars.gone(Some(&unpriced), Timestamp(0)), Timestamp(0));
    assert_eq!(fork.exhausted(None, Timestamp(0)), Some(UNPRICED), "the fork inherits the unpriced use");
    assert_eq!(BudgetHead { paused_unpriced: true, ..dollars }.exhausted(Some(&unpriced), Timestamp(0)), None);
    let turns = BudgetHead::of(Budget::default().turns(1));
    assert_eq!(turns.carried(Some(&spent(1)), false).exhausted(None, Timestamp(0)), None);
    assert_eq!(turns.carried(None, true).exhausted(None, Timestamp(0)), None, "no attempt in this turn");
    assert_eq!(turns.carried(Some(&spent(1)), true).exhausted(None, Timestamp(0)), Some("turns"));
    let later = BudgetHead { attempts_before: 1, ..turns };
    assert_eq!(later.carried(Some(&spent(1)), true).exhausted(None, Timestamp(0)), None, "the attempt was in the turn before");
}

#[test]
fn a_slice_is_gone_until_its_child_has_ended_and_then_what_was_spent() {
    let mut parent = BudgetHead::of(Budget::default().tokens(100));
    let (own, at) = (spent(10), Timestamp(0));
    let mut give = |ordinal, requested: Option<u64>| {
        let given = parent.give(&child(ordinal, requested.map(|tokens| Budget::default().tokens(tokens))), Some(&own), at);
        (given.and_then(|given| given.tokens), parent.left(Some(&own), at).tokens)
    };
    assert_eq!(give(0, Some(60)), (Some(60), Some(30)));
    assert_eq!(give(1, None), (Some(15), Some(15)), "half of what is left by default");
    assert_eq!(give(2, Some(60)), (Some(15), Some(0)), "at most what is left");
    assert_eq!(give(3, None), (Some(0), Some(0)));
    parent.take_back(Some(&CallId::root(0)), None, Some(BudgetUse { tokens: 20, cost: PicoDollars(0) }));
    assert_eq!(parent.left(Some(&own), at).tokens, Some(40), "BG2");
    assert_eq!(parent.carried(Some(&own), false).left(Some(&own), at).tokens, Some(40), "BG3: the other slices count as spent");
    assert_eq!(parent.carried(Some(&own), false).left(Some(&own), at).cost, None);
    assert_eq!(parent.used(Some(&own)).tokens, 60, "BG3: also when the run ends");
}

#[test]
fn a_spawned_child_is_not_taken_for_another_one_at_its_place_in_a_later_generation() {
    let mut parent = BudgetHead::of(Budget::default().tokens(100));
    let at = Timestamp(0);
    let spawned =
        ChildStarted { is_spawned: true, child: RunId::new("s").unwrap(), ..child(0, Some(Budget::default().tokens(40))) };
    parent.give(&spawned, None, at);
    let mut parent = parent.carried(None, true);
    parent.give(&child(0, Some(Budget::default().tokens(20))), None, at);
    parent.take_back(Some(&CallId::root(0)), None, Some(BudgetUse::default()));
    assert_eq!(parent.left(None, at).tokens, Some(60));
    for _ in 0..2 {
        parent.take_back(Some(&CallId::root(5)), Some(&spawned.child), Some(BudgetUse { tokens: 7, cost: PicoDollars(0) }));
        assert_eq!(parent.left(None, at).tokens, Some(93), "a slice is returned once");
    }
}

#[test]
fn without_a_budget_a_child_has_what_it_is_given() {
    let budget_of = |budget| of_child(None, &child(0, budget), &RunId::new("c").unwrap());
    assert_eq!(budget_of(None), None);
    let own = budget_of(Some(Budget::default().turns(3))).unwrap();
    assert_eq!((own.limit, own.is_slice), (Budget::default().turns(3), false));
}

#[test]
fn what_the_code_sets_is_a_ceiling_unless_an_operator_has_granted_more() {
    let set = |tokens: u64| {
        Event::from(crate::log::event::BudgetSet { call_id: CallId::root(0), budget: Budget::default().tokens(tokens).turns(5) })
    };
    let limits = |start: Option<Allowance>, events: &[Event]| {
        let (mut spend, mut budget) = (None, start.map(|allowance| Box::new(BudgetHead::from(allowance))));
        events.iter().for_each(|event| follow(&mut spend, &mut budget, event, Timestamp(0)));
        budget.unwrap().limit
    };
    let ceiling = Budget::default().tokens(100).turns(5);
    let start_limit = |tokens: u64| Allowance { limit: Budget::default().tokens(tokens), granted: Budget::default() };
    assert_eq!(limits(None, &[set(100)]), ceiling);
    assert_eq!(limits(Some(start_limit(1_000_000_000_000)), &[set(100)]), ceiling, "a start cannot raise a limit");
    assert_eq!(limits(Some(start_limit(7)), &[set(100)]), Budget { tokens: Some(7), ..ceiling }, "a start can lower a limit");
    let granted = Allowance::granted(Budget::default().tokens(500));
    assert_eq!(limits(Some(granted), &[set(100)]), Budget { tokens: Some(500), ..ceiling }, "only granted limits are kept");
    let resumed = Event::from(RunResumed { budget: Some(Budget::default().tokens(900)) });
    assert_eq!(limits(Some(start_limit(7)), &[set(100), resumed, set(100)]), Budget { tokens: Some(900), ..ceiling });
}

#[test]
fn budgets_are_read_as_people_write_them() {
    let mut budget = Budget::default();
    for text in ["tokens=5", "cost=2.50", "turns=3", "seconds=60"] {
        budget.set(text).unwrap();
    }
    assert_eq!(budget, Budget::default().tokens(5).cost(PicoDollars(2_500_000_000_000)).turns(3).seconds(60));
    let mut again = Budget::default();
    budget.to_string().split(' ').for_each(|text| again.set(text).unwrap());
    assert_eq!(again, budget);
    for text in ["tokens", "tokens=-1", "cost=$2", "dollars=2", ""] {
        assert!(budget.set(text).is_err(), "{text}");
    }
}

#[test]
fn an_exhausted_limit_is_doubled_and_the_others_stay() {
    let limit = Budget::default().tokens(10).turns(3).cost(PicoDollars::parse("1").unwrap());
    let mut budget = BudgetHead::of(limit);
    assert_eq!(budget.doubled(None, Timestamp(0)), Budget::default());
    budget.turns = 3;
    assert_eq!(budget.doubled(None, Timestamp(0)), Budget::default().turns(6));
    budget.children.tokens = 25;
    assert_eq!(budget.doubled(None, Timestamp(0)), Budget::default().tokens(50).turns(6));
}
