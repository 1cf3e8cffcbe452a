//! What a run may spend, its children included.
//!
//! Owns the arithmetic: what is left of a budget, when it is exhausted, what a child gets of it and what comes back. Stores ask nothing of
//! it: a budget is in the head of its run, which moves on with the log. Must never look at a clock; the time is that of the record.
//!
//! Invariants:
//! - BG1: no attempt of a task that costs something begins once a limit is reached. So a budget is exceeded by no more than the attempts
//!   that were under way when it ran out.
//! - BG2: what a child may spend is its parent's no more, from the commit that starts it until the input that says how it ended; with that,
//!   what it has not spent is the parent's again. A child of a run whose tokens or money are limited has none of them but what it is given.
//! - BG3: what nobody hears of any more counts as spent: what was lent to children when their parent continued as new or was retried, but
//!   for spawned ones, which outlive a generation.

use crate::event::ChildStarted;
use crate::spend::{PicoDollars, SpendTotals};
use crate::{Event, Place, Record, RunId, Timestamp, message};

message! {
    /// What may be spent. What is not said has no limit.
    #[derive(Copy, Default, Eq)]
    pub struct Budget {
        /// Read and written, of all models.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        1 => tokens: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => cost: Option<PicoDollars>,
        /// Checkpoints of an agent; its children have their own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => turns: Option<u64>,
        /// Since the run was started, whatever it waited for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => seconds: Option<u64>,
    }
}

impl Budget {
    pub fn tokens(self, tokens: u64) -> Budget {
        Budget { tokens: Some(tokens), ..self }
    }

    pub fn cost(self, cost: PicoDollars) -> Budget {
        Budget { cost: Some(cost), ..self }
    }

    pub fn turns(self, turns: u64) -> Budget {
        Budget { turns: Some(turns), ..self }
    }

    pub fn seconds(self, seconds: u64) -> Budget {
        Budget { seconds: Some(seconds), ..self }
    }

    pub fn is_unlimited(&self) -> bool {
        *self == Budget::default()
    }

    /// With the limits that `other` has in the place of these.
    pub fn changed_by(self, other: Budget) -> Budget {
        Budget {
            tokens: other.tokens.or(self.tokens),
            cost: other.cost.or(self.cost),
            turns: other.turns.or(self.turns),
            seconds: other.seconds.or(self.seconds),
        }
    }

    /// Sets one limit as people write it: `tokens=50000`, `cost=2.50`, `turns=20`, `seconds=3600`.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let number = || value.parse().map_err(|_| format!("`{name}` is a whole number, not `{value}`"));
        match name {
            "tokens" => self.tokens = Some(number()?),
            "turns" => self.turns = Some(number()?),
            "seconds" => self.seconds = Some(number()?),
            "cost" => {
                let wrong = || format!("`cost` is in dollars, like 2.50, and not `{value}`");
                self.cost = Some(PicoDollars::parse(value).ok_or_else(wrong)?);
            }
            _ => return Err(format!("`{name}` is none of tokens, cost, turns, seconds")),
        }
        Ok(())
    }
}

message! {
    /// Tokens and money that were spent.
    #[derive(Copy, Default, Eq)]
    pub struct BudgetUse {
        1 => tokens: u64,
        2 => cost: PicoDollars,
    }
}

impl BudgetUse {
    fn of(totals: Option<&SpendTotals>) -> BudgetUse {
        totals.map_or(BudgetUse::default(), |totals| BudgetUse { tokens: totals.tokens.total(), cost: totals.cost })
    }

    fn plus(self, other: BudgetUse) -> BudgetUse {
        BudgetUse { tokens: self.tokens.saturating_add(other.tokens), cost: self.cost.plus(other.cost) }
    }
}

message! {
    /// What an open child was given.
    pub struct Slice {
        1 => child: RunId,
        /// Where its end is told.
        2 => place: Place,
        3 => lent: BudgetUse,
        /// It belongs to the run and not to one of its generations.
        4 => is_spawned: bool,
    }
}

message! {
    /// The budget of a run as it stands.
    #[derive(Default)]
    pub struct BudgetHead {
        1 => limit: Budget,
        /// When the run was started, in its first generation.
        2 => since: Option<Timestamp>,
        /// Checkpoints so far.
        3 => turns: u64,
        /// What children have spent that have ended, with theirs.
        4 => children: BudgetUse,
        /// What open children may spend.
        5 => lent: Vec<Slice>,
    }
}

impl BudgetHead {
    pub fn of(limit: Budget) -> BudgetHead {
        BudgetHead { limit, ..BudgetHead::default() }
    }

    fn lent(&self) -> BudgetUse {
        self.lent.iter().fold(BudgetUse::default(), |sum, slice| sum.plus(slice.lent))
    }

    /// What the run has spent, its children included, as its parent hears it.
    pub fn used(&self, own: Option<&SpendTotals>) -> BudgetUse {
        BudgetUse::of(own).plus(self.children)
    }

    /// What is left at `at`; what has no limit is not said.
    pub fn left(&self, own: Option<&SpendTotals>, at: Timestamp) -> Budget {
        let gone = self.used(own).plus(self.lent());
        let passed = self.since.map_or(0, |since| at.since(since).as_secs());
        Budget {
            tokens: self.limit.tokens.map(|limit| limit.saturating_sub(gone.tokens)),
            cost: self.limit.cost.map(|limit| PicoDollars(limit.0.saturating_sub(gone.cost.0))),
            turns: self.limit.turns.map(|limit| limit.saturating_sub(self.turns)),
            seconds: self.limit.seconds.map(|limit| limit.saturating_sub(passed)),
        }
    }

    /// Which limit is reached, if one is (BG1).
    pub fn exhausted(&self, own: Option<&SpendTotals>, at: Timestamp) -> Option<&'static str> {
        let left = self.left(own, at);
        let limits = [
            ("tokens", left.tokens == Some(0)),
            ("cost", left.cost == Some(PicoDollars(0))),
            ("turns", left.turns == Some(0)),
            ("seconds", left.seconds == Some(0)),
        ];
        limits.into_iter().find_map(|(name, is_reached)| is_reached.then_some(name))
    }

    /// What the next generation begins with.
    pub fn carried(&self, is_checkpoint: bool) -> BudgetHead {
        BudgetHead {
            turns: self.turns.saturating_add(u64::from(is_checkpoint)),
            children: self.lent.iter().filter(|slice| !slice.is_spawned).fold(self.children, |sum, slice| sum.plus(slice.lent)), // BG3
            lent: self.lent.iter().filter(|slice| slice.is_spawned).cloned().collect(),
            ..self.clone()
        }
    }

    /// The run goes on from a copy of its log: children that are open are started again, and nobody hears of those before (BG3).
    pub(crate) fn retried(&mut self) {
        self.children = self.children.plus(self.lent());
    }

    /// The run is a copy of another one, which has spent what it has: only what its open children get is gone.
    pub(crate) fn forked(&mut self, at: Timestamp) {
        (self.since, self.turns, self.children) = (Some(at), 0, BudgetUse::default());
    }

    fn give(&mut self, child: &ChildStarted, own: Option<&SpendTotals>, at: Timestamp) -> Budget {
        let (asked, left) = (child.budget.unwrap_or_default(), self.left(own, at));
        let slice = Budget {
            tokens: left.tokens.map_or(asked.tokens, |left| Some(asked.tokens.unwrap_or(0).min(left))),
            cost: left.cost.map_or(asked.cost, |left| Some(asked.cost.unwrap_or_default().min(left))),
            turns: asked.turns,
            seconds: [asked.seconds, left.seconds].into_iter().flatten().min(),
        };
        let lent = BudgetUse {
            tokens: left.tokens.and(slice.tokens).unwrap_or_default(),
            cost: left.cost.and(slice.cost).unwrap_or_default(),
        };
        if lent != BudgetUse::default() {
            let (child, place, is_spawned) = (child.child.clone(), child.place.clone(), child.is_spawned);
            self.lent.push(Slice { child, place, lent, is_spawned });
        }
        slice
    }

    /// What a child gets that is started again: what it was given, or as if it were started now.
    fn give_again(&self, child: &ChildStarted, own: Option<&SpendTotals>, at: Timestamp) -> Budget {
        let mut anew = self.clone();
        anew.lent.retain(|slice| slice.place != child.place);
        match self.lent.iter().find(|slice| slice.place == child.place) {
            None => anew.give(child, own, at),
            Some(Slice { lent, .. }) => Budget {
                tokens: self.limit.tokens.map(|_| lent.tokens),
                cost: self.limit.cost.map(|_| lent.cost),
                ..anew.give(child, own, at)
            },
        }
    }

    fn take_back(&mut self, place: &Place, spent: Option<BudgetUse>) {
        let before = self.lent.len();
        self.lent.retain(|slice| slice.place != *place);
        // Who was given nothing has spent nothing of ours, and nobody gives back twice.
        if self.lent.len() < before {
            self.children = self.children.plus(spent.unwrap_or_default());
        }
    }

    /// Moves on with a record of the run's log (BG2).
    pub(crate) fn follow(&mut self, record: &Record, own: Option<&SpendTotals>) {
        for event in &record.events {
            match event {
                Event::ChildStarted(child) => drop(self.give(child, own, record.at)),
                Event::ChildAwaited(asked) => {
                    let slices = self.lent.iter_mut().filter(|slice| slice.child == asked.child);
                    slices.for_each(|slice| slice.place = asked.place.clone());
                }
                Event::ChildCompleted(ended) => self.take_back(&ended.place, ended.spent),
                Event::ChildFailed(ended) => self.take_back(&ended.place, ended.spent),
                _ => {}
            }
        }
    }
}

/// What a child may spend that starts now; `parent` has it no more.
pub(crate) fn give(
    parent: Option<&mut BudgetHead>,
    child: &ChildStarted,
    own: Option<&SpendTotals>,
    at: Timestamp,
) -> Option<Box<BudgetHead>> {
    let slice = match parent {
        Some(parent) => parent.give(child, own, at),
        None => child.budget.unwrap_or_default(),
    };
    (!slice.is_unlimited()).then(|| Box::new(BudgetHead::of(slice)))
}

/// What a child may spend that is started again after its parent has gone on from a copy of its log.
pub(crate) fn give_again(
    parent: Option<&BudgetHead>,
    child: &ChildStarted,
    own: Option<&SpendTotals>,
    at: Timestamp,
) -> Option<Box<BudgetHead>> {
    let slice = match parent {
        Some(parent) => parent.give_again(child, own, at),
        None => child.budget.unwrap_or_default(),
    };
    (!slice.is_unlimited()).then(|| Box::new(BudgetHead::of(slice)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spend::{Spend, Tokens};
    use crate::{Hash, Name, Payload};

    fn spent(tokens: u64) -> SpendTotals {
        SpendTotals::of(&Spend::on("m").tokens(Tokens { input: tokens, ..Tokens::default() }).cost(PicoDollars(tokens)))
    }

    fn child(ordinal: u32, budget: Option<Budget>) -> ChildStarted {
        ChildStarted {
            place: Place::root(ordinal),
            child: RunId::new("c").unwrap(),
            kind: Name::new("k").unwrap(),
            version: None,
            input_hash: Hash::of(&Payload::null()),
            input: Payload::null(),
            on_parent_close: crate::event::OnParentClose::Cancel,
            is_spawned: false,
            budget,
        }
    }

    #[test]
    fn a_limit_that_is_reached_is_named() {
        let budget = BudgetHead { since: Some(Timestamp(1_000)), ..BudgetHead::of(Budget::default().tokens(10).seconds(60)) };
        assert_eq!(budget.exhausted(Some(&spent(9)), Timestamp(60_999)), None);
        assert_eq!(budget.exhausted(Some(&spent(10)), Timestamp(2_000)), Some("tokens"));
        assert_eq!(budget.exhausted(None, Timestamp(61_000)), Some("seconds"));
        assert_eq!(BudgetHead::of(Budget::default().cost(PicoDollars(3))).exhausted(Some(&spent(3)), Timestamp(0)), Some("cost"));
        let turns = BudgetHead::of(Budget::default().turns(1));
        assert_eq!(turns.carried(false).exhausted(None, Timestamp(0)), None);
        assert_eq!(turns.carried(true).exhausted(None, Timestamp(0)), Some("turns"));
    }

    #[test]
    fn a_slice_is_gone_until_its_child_has_ended_and_then_what_was_spent() {
        let mut parent = BudgetHead::of(Budget::default().tokens(100));
        let (own, at) = (spent(10), Timestamp(0));
        let given = parent.give(&child(0, Some(Budget::default().tokens(60))), Some(&own), at);
        assert_eq!((given.tokens, parent.left(Some(&own), at).tokens), (Some(60), Some(30)));
        // No more than there is, and nothing for who is given nothing.
        let rest = parent.give(&child(1, Some(Budget::default().tokens(60))), Some(&own), at);
        assert_eq!((rest.tokens, parent.left(Some(&own), at).tokens), (Some(30), Some(0)));
        assert_eq!(parent.give(&child(2, None), Some(&own), at).tokens, Some(0));
        parent.take_back(&Place::root(0), Some(BudgetUse { tokens: 20, cost: PicoDollars(0) }));
        assert_eq!(parent.left(Some(&own), at).tokens, Some(40), "BG2");
        assert_eq!(parent.carried(false).left(Some(&own), at).tokens, Some(40), "BG3: the other slice counts as spent");
        assert_eq!(parent.carried(false).left(Some(&own), at).cost, None);
    }

    #[test]
    fn without_a_budget_a_child_has_what_it_is_given() {
        assert_eq!(give(None, &child(0, None), None, Timestamp(0)), None);
        let own = give(None, &child(0, Some(Budget::default().turns(3))), None, Timestamp(0)).unwrap();
        assert_eq!(own.limit, Budget::default().turns(3));
    }

    #[test]
    fn budgets_are_read_as_people_write_them() {
        let mut budget = Budget::default();
        for text in ["tokens=5", "cost=2.50", "turns=3", "seconds=60"] {
            budget.set(text).unwrap();
        }
        assert_eq!(budget, Budget::default().tokens(5).cost(PicoDollars(2_500_000_000_000)).turns(3).seconds(60));
        for text in ["tokens", "tokens=-1", "cost=$2", "dollars=2", ""] {
            assert!(budget.set(text).is_err(), "{text}");
        }
    }
}
