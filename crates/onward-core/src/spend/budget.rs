//! Budgets: limits on what a run and its children may spend.
//!
//! Owns the arithmetic: what is left of a budget, when it is exhausted, what a child gets and what it returns. Stores are not
//! involved: the budget is part of the run's head, which follows the log. Must never read a clock; the time is that of the
//! record.
//!
//! Invariants:
//! - BG1: no attempt of a task with a cost begins once a limit is reached. A budget is exceeded at most by attempts that were
//!   under way when it ran out.
//! - BG2: a child's slice is deducted from the parent's budget by the commit that starts the child. The input that reports its
//!   use returns the unspent rest to the parent; a later retry of the child does not get it back. A child without a requested
//!   share of a limit gets half of what is left.
//! - BG3: a slice whose use will not be reported counts as spent: slices of children when the parent continues as new (except for
//!   spawned children, which outlive a generation), is retried, or ends.
//! - BG4: a budget set by the code is a ceiling: it lowers every higher limit, except for limits granted by an operator
//!   ([`BudgetHead::granted`]). A start, a parent or a fork can lower a limit and cannot raise it.
//! - BG5: the budget that the code observes is that of its position in the log, the same in every replay.
//! - BG6: a fork has what was left of the budget at its point, including time; later spending of the original does not count.
//! - BG8 (CB3): a copy continues with the lower one of each of its limits and its requester's ceiling; the use up to its point
//!   counts against both.
//! - BG7: if cost is limited, an unpriced model does not count as free: the next attempt pauses the run, once.

use std::time::Duration;

use serde::Deserialize;

use crate::log::event::{ChildAgain, ChildStarted, PauseReason, RunResumed, RunStarted};
use crate::spend::{self, PicoDollars, SpendTotals};
use crate::{CallId, Event, RunHead, RunId, Timestamp, message};

/// The name of the reached limit if cost is limited and a model has no price (BG7).
pub const UNPRICED: &str = "price";

message! {
    /// Limits on spending. An absent limit is unlimited.
    #[derive(Copy, Default, Eq)]
    pub struct Budget {
        /// Input and output tokens, of all models.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        1 => tokens: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => cost: Option<PicoDollars>,
        /// Checkpoints of an agent; those of its children do not count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => turns: Option<u64>,
        /// Seconds since the run was started or first limited, waiting time included.
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

    fn limits(&self) -> [(&'static str, Option<u64>); 4] {
        let cost = self.cost.map(|cost| cost.0);
        [("tokens", self.tokens), ("cost", cost), ("turns", self.turns), ("seconds", self.seconds)]
    }

    /// Returns the name of the first limit that is zero; `self` is what is left of a budget.
    pub fn nothing_of(&self) -> Option<&'static str> {
        self.limits().into_iter().find_map(|(name, left)| (left == Some(0)).then_some(name))
    }

    fn as_use(&self) -> BudgetUse {
        BudgetUse { tokens: self.tokens.unwrap_or_default(), cost: self.cost.unwrap_or_default() }
    }

    /// Combines the limits of each kind.
    fn combined(self, other: Budget, each: impl Fn(Option<u64>, Option<u64>) -> Option<u64>) -> Budget {
        Budget {
            tokens: each(self.tokens, other.tokens),
            cost: each(self.cost.map(|cost| cost.0), other.cost.map(|cost| cost.0)).map(PicoDollars),
            turns: each(self.turns, other.turns),
            seconds: each(self.seconds, other.seconds),
        }
    }

    /// Returns these limits, replaced by those that `other` has.
    pub fn changed_by(self, other: Budget) -> Budget {
        self.combined(other, |own, other| other.or(own))
    }

    /// Returns the lower one of both limits, of each kind.
    pub fn lowered_by(self, other: Budget) -> Budget {
        self.combined(other, |own, other| own.into_iter().chain(other).min())
    }

    /// Returns these limits without those that `other` has as well.
    fn without(self, other: Budget) -> Budget {
        self.combined(other, |own, other| own.filter(|_| other.is_none()))
    }

    /// Returns the first limit that is higher than that of `ceiling`.
    pub fn exceeds(&self, ceiling: &Budget) -> Option<&'static str> {
        let is_higher = |own: Option<u64>, ceiling: Option<u64>| own.zip(ceiling).is_some_and(|(own, ceiling)| own > ceiling);
        let mut both = self.limits().into_iter().zip(ceiling.limits());
        both.find_map(|((name, own), (_, ceiling))| is_higher(own, ceiling).then_some(name))
    }

    /// Parses one limit: `tokens=50000`, `cost=2.50`, `turns=20`, `seconds=3600`.
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

/// A budget in a request or in settings. Unknown fields are rejected: a misspelled limit would be no limit.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenBudget {
    tokens: Option<u64>,
    cost: Option<PicoDollars>,
    turns: Option<u64>,
    seconds: Option<u64>,
}

impl From<WrittenBudget> for Budget {
    fn from(written: WrittenBudget) -> Budget {
        let WrittenBudget { tokens, cost, turns, seconds } = written;
        Budget { tokens, cost, turns, seconds }
    }
}

impl std::fmt::Display for Budget {
    /// Formats the limits as [`Budget::set`] reads them, separated by spaces.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = |name: &str, number: Option<u64>| number.map(|number| format!("{name}={number}"));
        let cost = self.cost.map(|cost| format!("cost={cost}"));
        let parts = [number("tokens", self.tokens), cost, number("turns", self.turns), number("seconds", self.seconds)];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// The budget that a run is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowance {
    pub limit: Budget,
    /// The limits that the code of the run cannot lower (BG4).
    pub granted: Budget,
}

impl Allowance {
    /// Returns limits of a caller that may raise those set by the code.
    pub fn granted(limit: Budget) -> Allowance {
        Allowance { limit, granted: limit }
    }
}

message! {
    /// Tokens and money that were spent.
    #[derive(Copy, Default, Eq)]
    pub struct BudgetUse { 1 => tokens: u64, 2 => cost: PicoDollars }
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
    /// The share of an open child in its parent's budget.
    pub struct Slice {
        1 => child: RunId,
        /// The call id at which it was started.
        2 => call_id: CallId,
        3 => given: Budget,
        /// The child belongs to the run and not to one of its generations.
        4 => is_spawned: bool,
    }

    /// The current budget of a run.
    #[derive(Default)]
    pub struct BudgetHead {
        1 => limit: Budget,
        /// The start of the time limit: the start of the run's first generation, or the time at which it was first limited.
        2 => since: Option<Timestamp>,
        /// The number of turns: segments that ended with a checkpoint and had an attempt with a cost.
        3 => turns: u64,
        /// The use of ended children, including their descendants.
        4 => children: BudgetUse,
        /// The slices of open children.
        5 => lent: Vec<Slice>,
        /// The run is a child, and this budget is a slice of its parent's.
        6 => is_slice: bool,
        /// The number of attempts when the generation began; a turn has made more.
        8 => attempts_before: u64,
        /// The run has already paused because it used an unpriced model; resuming it accepts that.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        9 => paused_unpriced: bool,
        /// The run is a copy of one that used an unpriced model.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        10 => began_unpriced: bool,
        /// The limits granted by an operator, which the code cannot lower (BG4).
        #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
        11 => granted: Budget,
    }
}

impl From<Allowance> for BudgetHead {
    fn from(Allowance { limit, granted }: Allowance) -> BudgetHead {
        BudgetHead { granted, ..BudgetHead::of(limit) }
    }
}

message! {
    /// The use of a budget at a point of the log, without the slices of open children.
    #[derive(Copy, Default, Eq)]
    pub struct BudgetGone {
        1 => spent: BudgetUse,
        2 => turns: u64,
        3 => seconds: u64,
        /// An unpriced model was used, and the run has not paused for it yet (BG7).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        4 => is_unpriced: bool,
    }
}

impl BudgetHead {
    pub fn of(limit: Budget) -> BudgetHead {
        BudgetHead { limit, ..BudgetHead::default() }
    }

    /// Returns the limits after the code has set `budget` (BG4).
    pub(crate) fn limited_by(&self, budget: Budget) -> Budget {
        self.limit.lowered_by(budget.without(self.granted))
    }

    fn lent(&self) -> BudgetUse {
        in_all(&self.lent)
    }

    /// Returns the use of the run, its ended children and the slices of open ones: the amount that its parent receives when it
    /// ends (BG3).
    pub fn used(&self, own: Option<&SpendTotals>) -> BudgetUse {
        BudgetUse::of(own).plus(self.children).plus(self.lent())
    }

    /// Returns what is left at `at`; absent limits stay absent.
    pub fn left(&self, own: Option<&SpendTotals>, at: Timestamp) -> Budget {
        let gone = self.used(own);
        let passed = self.since.map_or(0, |since| at.since(since).as_secs());
        Budget {
            tokens: self.limit.tokens.map(|limit| limit.saturating_sub(gone.tokens)),
            cost: self.limit.cost.map(|limit| PicoDollars(limit.0.saturating_sub(gone.cost.0))),
            turns: self.limit.turns.map(|limit| limit.saturating_sub(self.turns)),
            seconds: self.limit.seconds.map(|limit| limit.saturating_sub(passed)),
        }
    }

    /// Returns the exhausted limits, doubled: at least twice what the run has used, because the last attempt may exceed a limit.
    fn doubled(&self, own: Option<&SpendTotals>, at: Timestamp) -> Budget {
        let (limit, left, used) = (self.limit, self.left(own, at), self.used(own));
        let passed = self.since.map_or(0, |since| at.since(since).as_secs());
        let double = |limit: Option<u64>, left: Option<u64>, used: u64| {
            limit.filter(|_| left == Some(0)).map(|limit| limit.max(used).saturating_mul(2).max(1))
        };
        Budget {
            tokens: double(limit.tokens, left.tokens, used.tokens),
            cost: double(limit.cost.map(|cost| cost.0), left.cost.map(|cost| cost.0), used.cost.0).map(PicoDollars),
            turns: double(limit.turns, left.turns, self.turns),
            seconds: double(limit.seconds, left.seconds, passed),
        }
    }

    /// Returns the name of the reached limit, if any (BG1).
    pub fn exhausted(&self, own: Option<&SpendTotals>, at: Timestamp) -> Option<&'static str> {
        let is_unpriced = self.limit.cost.is_some() && self.is_unpriced(own);
        self.left(own, at).nothing_of().or(is_unpriced.then_some(UNPRICED))
    }

    /// Returns true if an unpriced model was used and the run has not paused for it yet.
    fn is_unpriced(&self, own: Option<&SpendTotals>) -> bool {
        !self.paused_unpriced && (self.began_unpriced || own.is_some_and(|own| own.unpriced > 0))
    }

    /// Returns the budget of the next generation.
    pub fn carried(&self, own: Option<&SpendTotals>, is_checkpoint: bool) -> BudgetHead {
        let (lent, left): (Vec<Slice>, Vec<Slice>) = self.lent.iter().cloned().partition(|slice| slice.is_spawned);
        let is_turn = is_checkpoint && attempts(own) > self.attempts_before;
        let (turns, children) = (self.turns.saturating_add(u64::from(is_turn)), self.children.plus(in_all(&left))); // BG3
        BudgetHead { turns, children, lent, ..self.clone() }
    }

    /// Continues from a copy of the run's own log; results of earlier children will not arrive (BG3).
    pub(crate) fn retried(&mut self, own: Option<&SpendTotals>) {
        self.attempts_before = attempts(own);
        (self.children, self.lent) = (self.children.plus(self.lent()), Vec::new());
        if self.is_slice {
            // The unspent rest was returned to the parent (BG2).
            let used = self.used(own);
            self.limit.tokens = self.limit.tokens.map(|limit| limit.min(used.tokens));
            self.limit.cost = self.limit.cost.map(|limit| limit.min(used.cost));
        }
    }

    /// Returns the use that a fork of the log at `at` begins with.
    pub(crate) fn gone(&self, own: Option<&SpendTotals>, at: Timestamp) -> BudgetGone {
        let seconds = self.since.map_or(0, |since| at.since(since).as_secs());
        BudgetGone {
            spent: BudgetUse::of(own).plus(self.children),
            turns: self.turns,
            seconds,
            is_unpriced: self.is_unpriced(own),
        }
    }

    /// Continues as a fork of another run, whose ledger has the copied costs; the fork has what was left then (BG6).
    pub(crate) fn forked(&mut self, gone: BudgetGone, at: Timestamp) {
        let BudgetGone { spent: children, turns, seconds, is_unpriced } = gone;
        let (limit, granted, since) = (self.limit, self.granted, Some(at.before(Duration::from_secs(seconds))));
        let lent = std::mem::take(&mut self.lent);
        *self = BudgetHead { since, turns, children, lent, began_unpriced: is_unpriced, granted, ..BudgetHead::of(limit) };
    }

    /// Lowers the limits to those of a ceiling (BG8).
    pub(crate) fn lower(&mut self, ceiling: Budget) {
        self.limit = self.limit.lowered_by(ceiling);
    }

    /// Deducts the slice of a child that is started now; returns `None` if it is unlimited.
    fn give(&mut self, child: &ChildStarted, own: Option<&SpendTotals>, at: Timestamp) -> Option<Budget> {
        let (requested, left) = (child.budget.unwrap_or_default(), self.left(own, at));
        let given = Budget {
            tokens: lesser(requested.tokens, left.tokens),
            cost: lesser(requested.cost.map(|cost| cost.0), left.cost.map(|cost| cost.0)).map(PicoDollars),
            turns: requested.turns,
            seconds: [requested.seconds, left.seconds].into_iter().flatten().min(),
        };
        let given = (!given.is_unlimited()).then_some(given)?;
        let (child, call_id, is_spawned) = (child.child.clone(), child.call_id.clone(), child.is_spawned);
        self.lent.push(Slice { child, call_id, given, is_spawned });
        Some(given)
    }

    /// Deducts the slices of restarted children and returns them for the log; `open` has the children as the code started them.
    pub(crate) fn give_again<'a>(
        &mut self,
        open: impl Iterator<Item = (&'a ChildStarted, RunId)>,
        own: Option<&SpendTotals>,
        at: Timestamp,
    ) -> Vec<ChildAgain> {
        let open: Vec<_> = open.collect();
        self.lent.retain(|slice| open.iter().all(|(child, _)| slice.call_id != child.call_id || slice.is_spawned));
        let again = |(started, child): (&ChildStarted, RunId)| {
            let budget = self.give(&ChildStarted { child: child.clone(), ..started.clone() }, own, at);
            ChildAgain { call_id: started.call_id.clone(), child, budget }
        };
        open.into_iter().map(again).collect()
    }

    /// Repeats [`BudgetHead::give_again`] from the log.
    fn lend_again(&mut self, children: &[ChildAgain]) {
        for again in children {
            self.lent.retain(|slice| slice.call_id != again.call_id || slice.is_spawned);
            let (child, call_id) = (again.child.clone(), again.call_id.clone());
            self.lent.extend(again.budget.map(|given| Slice { child, call_id, given, is_spawned: false }));
        }
    }

    /// Takes back the slice of an ended child: of the spawned `child`, or of the one started at `call_id`. A slice is returned once.
    fn take_back(&mut self, call_id: Option<&CallId>, child: Option<&RunId>, spent: Option<BudgetUse>) {
        let is_its = |slice: &Slice| match child {
            Some(child) => slice.is_spawned && slice.child == *child,
            None => !slice.is_spawned && call_id == Some(&slice.call_id),
        };
        if let Some(position) = self.lent.iter().position(is_its) {
            let slice = self.lent.remove(position);
            self.children = self.children.plus(spent.unwrap_or(slice.given.as_use())); // BG3
        }
    }
}

/// Returns the budget and the cost with which a generation begins.
pub(crate) fn begin(started: &RunStarted, at: Timestamp) -> SpendState {
    let (spend, attempts_before) = (started.spend.clone(), attempts(started.spend.as_deref()));
    let begun = |budget: Box<BudgetHead>| BudgetHead { since: budget.since.or(Some(at)), attempts_before, ..*budget };
    SpendState { spend, budget: started.budget.clone().map(|budget| Box::new(begun(budget))) }
}

/// Returns the options with which `onward run resume` doubles the exhausted limits of a run; each begins with a space.
pub fn resume_options(head: &RunHead, at: Timestamp) -> String {
    let doubled = head.budget.as_ref().map(|budget| budget.doubled(head.spend.as_deref(), at)).unwrap_or_default();
    doubled.to_string().split_whitespace().map(|limit| format!(" --budget {limit}")).collect()
}

/// Returns the budget after the events of a commit.
pub(crate) fn after(head: &RunHead, events: &[Event], at: Timestamp) -> Option<Box<BudgetHead>> {
    let mut spend_state = SpendState { spend: head.spend.clone(), budget: head.budget.clone() };
    events.iter().for_each(|event| spend_state.follow(event, at));
    spend_state.budget
}

/// Updates cost and budget by an event of the run's log.
pub(crate) fn follow(spend: &mut Option<Box<SpendTotals>>, budget: &mut Option<Box<BudgetHead>>, event: &Event, at: Timestamp) {
    match event {
        // From here on the copy is a run of its own; the original has the copied costs.
        Event::RunForked(_) => *spend = None,
        Event::RetryRequested(event) => *spend = event.spend.clone(),
        // BG4
        Event::BudgetSet(event) => match budget {
            Some(budget) => budget.limit = budget.limited_by(event.budget),
            None => *budget = Some(Box::new(BudgetHead { since: Some(at), ..BudgetHead::of(event.budget) })),
        },
        Event::RunResumed(RunResumed { budget: Some(change) }) => {
            let budget = budget.get_or_insert_with(|| Box::new(BudgetHead { since: Some(at), ..BudgetHead::default() }));
            budget.limit = budget.limit.changed_by(*change);
            budget.granted = budget.granted.changed_by(*change);
        }
        event if event.is_quiet() => {
            for charge in spend::charges(event) {
                let totals = spend.get_or_insert_default();
                **totals = totals.charged(&charge);
            }
        }
        _ => {}
    }
    let ceiling = match event {
        Event::RunForked(event) => event.budget_max,
        Event::RetryRequested(event) => event.budget_max,
        _ => None,
    };
    if ceiling.is_some() {
        budget.get_or_insert_with(|| Box::new(BudgetHead { since: Some(at), ..BudgetHead::default() })); // BG8
    }
    let Some(budget) = budget else { return };
    match event {
        // DS5
        Event::RunBegun(begun) => {
            let waited = begun.waited_ms.map(Duration::from_millis);
            budget.since = budget.since.map(|since| waited.map_or(at, |waited| since.after(waited)));
        }
        Event::RunPaused(pause) if pause.reason == PauseReason::BudgetExhausted => {
            budget.paused_unpriced |= budget.exhausted(spend.as_deref(), at) == Some(UNPRICED);
        }
        Event::RunForked(forked) => {
            budget.forked(forked.gone.unwrap_or_default(), at);
            budget.lower(forked.budget_max.unwrap_or_default());
            budget.lend_again(&forked.children);
        }
        Event::RetryRequested(retry) => {
            budget.retried(spend.as_deref());
            budget.lower(retry.budget_max.unwrap_or_default());
            budget.lend_again(&retry.children);
        }
        Event::ChildStarted(child) => drop(budget.give(child, spend.as_deref(), at)), // BG2
        Event::ChildCompleted(ended) => budget.take_back(Some(&ended.call_id), ended.child.as_ref(), ended.spent),
        Event::ChildFailed(ended) => budget.take_back(Some(&ended.call_id), ended.child.as_ref(), ended.spent),
        Event::ChildSettled(settled) => budget.take_back(None, Some(&settled.child), Some(settled.spent)),
        _ => {}
    }
}

/// Cost and budget of a run at a position in its log, the same in every replay.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpendState {
    pub spend: Option<Box<SpendTotals>>,
    pub budget: Option<Box<BudgetHead>>,
}

impl SpendState {
    pub fn follow(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::RunStarted(started) => *self = begin(started, at),
            event => follow(&mut self.spend, &mut self.budget, event, at),
        }
    }

    /// Returns the use of the run and its ended children.
    pub fn spent(&self) -> BudgetUse {
        let children = self.budget.as_ref().map_or(BudgetUse::default(), |budget| budget.children);
        BudgetUse::of(self.spend.as_deref()).plus(children)
    }

    pub fn left(&self, at: Timestamp) -> Budget {
        self.budget.as_ref().map_or(Budget::default(), |budget| budget.left(self.spend.as_deref(), at))
    }
}

fn attempts(own: Option<&SpendTotals>) -> u64 {
    own.map_or(0, |own| own.attempts)
}

fn in_all(slices: &[Slice]) -> BudgetUse {
    slices.iter().fold(BudgetUse::default(), |sum, slice| sum.plus(slice.given.as_use()))
}

/// Returns at most what is left, and half of it if nothing was requested.
fn lesser(requested: Option<u64>, left: Option<u64>) -> Option<u64> {
    left.map_or(requested, |left| Some(requested.map_or(left.div_ceil(2), |requested| requested.min(left))))
}

/// Returns the budget of a child started as `id`: its slice, or the requested budget if the parent is unlimited.
pub(crate) fn of_child(parent: Option<&BudgetHead>, started: &ChildStarted, id: &RunId) -> Option<Box<BudgetHead>> {
    let is_its = |slice: &&Slice| slice.child == *id && slice.call_id == started.call_id;
    let limit = match parent {
        Some(parent) => parent.lent.iter().rev().find(is_its).map(|slice| slice.given),
        None => started.budget,
    };
    let limit = limit.filter(|limit| !limit.is_unlimited())?;
    Some(Box::new(BudgetHead { is_slice: parent.is_some(), ..BudgetHead::of(limit) }))
}

#[cfg(test)]
mod tests;
