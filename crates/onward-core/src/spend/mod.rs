//! The cost of attempts: tokens and money, and the totals made of them.
//!
//! A *line* is the cost of one attempt for one model. Owns how a line changes totals, the same for a run, a tree, a model and a
//! day, so that every total is a sum of the same lines. Must never read a clock or a price list: the worker that made the call
//! reports the cost.
//!
//! Invariants:
//! - LG1: an attempt is in the totals once, from the time a worker gets it: as unknown until its cost is reported, then with that
//!   cost. Its key (generation, call id, claim and start) is unique in its run: by an idempotency record, or by the record with
//!   the result.
//! - LG2: all values are integers, and sums saturate.

pub mod budget;
pub mod ledger;

use std::fmt;

use crate::log::event::{TaskAttemptEnded, TaskAttempted};
use crate::run::IdempotencyRecord;
use crate::task::TaskReport;
use crate::{Event, Timestamp, message};

/// The maximum number of models per attempt.
pub const LINES_MAX: usize = 32;
/// The maximum length of a model's or provider's name, in bytes.
pub const NAME_BYTES_MAX: usize = 200;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

message! {
    /// Token counts; each token is in one of them, except for `reasoning`.
    #[derive(Copy, Default, Eq)]
    pub struct Tokens {
        /// Input tokens that were neither read from a cache nor written to one.
        1 => input: u64,
        /// Input tokens read from the provider's cache.
        2 => cached_read: u64,
        /// Input tokens written to the provider's cache.
        3 => cached_write: u64,
        /// Output tokens, including reasoning.
        4 => output: u64,
        /// The part of `output` that was reasoning, if reported.
        5 => reasoning: u64,
    }
}

impl Tokens {
    /// Returns input plus output; reasoning is part of the output.
    pub fn total(&self) -> u64 {
        [self.cached_read, self.cached_write, self.output].into_iter().fold(self.input, u64::saturating_add)
    }

    pub fn plus(&self, other: &Tokens) -> Tokens {
        Tokens {
            input: self.input.saturating_add(other.input),
            cached_read: self.cached_read.saturating_add(other.cached_read),
            cached_write: self.cached_write.saturating_add(other.cached_write),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

/// Money in millionths of a millionth of a dollar. The text and JSON forms are dollars: `"0.00081"`.
///
/// The largest amount is 18 million dollars; sums saturate there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PicoDollars(pub u64);

impl PicoDollars {
    const UNIT: u64 = 1_000_000_000_000;

    pub fn plus(self, other: PicoDollars) -> PicoDollars {
        PicoDollars(self.0.saturating_add(other.0))
    }

    /// Parses dollars: `2.50`. Fails for more than twelve decimal places.
    pub fn parse(text: &str) -> Option<PicoDollars> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 12 {
            return None;
        }
        let (whole, part): (u64, u64) = (whole.parse().ok()?, format!("{part:0<12}").parse().ok()?);
        whole.checked_mul(PicoDollars::UNIT)?.checked_add(part).map(PicoDollars)
    }
}

impl fmt::Display for PicoDollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = format!("{:012}", self.0 % PicoDollars::UNIT);
        let part = part.trim_end_matches('0');
        write!(f, "{}{}{part}", self.0 / PicoDollars::UNIT, if part.is_empty() { "" } else { "." })
    }
}

message! {
    /// A line of the ledger: the cost of one attempt for one model.
    #[derive(Eq)]
    pub struct Spend {
        1 => model: String,
        2 => provider: String,
        3 => tokens: Tokens,
        /// `None` if the price is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => cost: Option<PicoDollars>,
        /// The final cost is unknown: `tokens` are those that were reported.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        5 => is_unknown: bool,
    }
}

impl Spend {
    /// Returns a line for `model` without any cost.
    pub fn on(model: impl Into<String>) -> Spend {
        Spend { model: model.into(), provider: String::new(), tokens: Tokens::default(), cost: None, is_unknown: false }
    }

    /// Returns a line with an unknown cost.
    pub fn unknown(model: impl Into<String>) -> Spend {
        Spend { is_unknown: true, ..Spend::on(model) }
    }

    pub fn by(self, provider: impl Into<String>) -> Spend {
        Spend { provider: provider.into(), ..self }
    }

    pub fn tokens(self, tokens: Tokens) -> Spend {
        Spend { tokens, ..self }
    }

    pub fn cost(self, cost: PicoDollars) -> Spend {
        Spend { cost: Some(cost), ..self }
    }

    /// Returns the reason if the line, which comes from outside, is invalid.
    fn malformed(&self) -> Option<&'static str> {
        let is_name = |name: &str| name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        let is_sound = !self.model.is_empty() && is_name(&self.model) && is_name(&self.provider);
        (!is_sound).then_some("the name of the model or provider is missing or invalid")
    }
}

message! {
    /// The cost of an attempt, reported with its result.
    #[derive(Eq)]
    pub struct AttemptSpend {
        1 => attempt: u32,
        /// The time at which the worker got the attempt.
        2 => began_at: Timestamp,
        /// The ledger name under which the log counts it as unknown; `None` if the log does not count it.
        3 => ledger_name: Option<String>,
        /// One line per model.
        4 => lines: Vec<Spend>,
    }
}

impl AttemptSpend {
    /// Adds a cost of nothing to the report of an attempt that was not begun, if it counted as unknown.
    pub fn of_unbegun(self, report: TaskReport) -> TaskReport {
        match self.ledger_name {
            None => report,
            Some(_) => {
                TaskReport::Spent { report: Box::new(report), spend: Box::new(AttemptSpend { lines: Vec::new(), ..self }) }
            }
        }
    }
}

message! {
    /// The sum of several lines.
    #[derive(Copy, Default, Eq)]
    pub struct SpendTotals {
        /// The number of lines: an attempt counts once per model.
        1 => attempts: u64,
        /// The number of lines with an unknown cost.
        2 => unknown: u64,
        3 => tokens: Tokens,
        4 => cost: PicoDollars,
        /// The number of lines that have tokens and no price; they are not in `cost`.
        5 => unpriced: u64,
    }
}

impl SpendTotals {
    pub fn is_empty(&self) -> bool {
        *self == SpendTotals::default()
    }

    pub fn of(line: &Spend) -> SpendTotals {
        let is_unpriced = line.cost.is_none() && line.tokens.total() > 0;
        SpendTotals {
            attempts: 1,
            unknown: u64::from(line.is_unknown),
            tokens: line.tokens,
            cost: line.cost.unwrap_or_default(),
            unpriced: u64::from(is_unpriced),
        }
    }

    pub fn plus(&self, other: &SpendTotals) -> SpendTotals {
        SpendTotals {
            attempts: self.attempts.saturating_add(other.attempts),
            unknown: self.unknown.saturating_add(other.unknown),
            tokens: self.tokens.plus(&other.tokens),
            cost: self.cost.plus(other.cost),
            unpriced: self.unpriced.saturating_add(other.unpriced),
        }
    }

    /// Returns the totals with one more charge.
    pub fn charged(&self, charge: &Charge) -> SpendTotals {
        let mut totals = *self;
        if charge.is_settled {
            totals.attempts = totals.attempts.saturating_sub(1);
            totals.unknown = totals.unknown.saturating_sub(1);
        }
        charge.line.map_or(totals, |line| totals.plus(&line))
    }
}

/// The change of the totals of one model on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The day on which the attempt began: days since 1970, UTC.
    pub day: u32,
    pub model: String,
    /// An attempt that counted as unknown no longer does.
    pub is_settled: bool,
    pub line: Option<SpendTotals>,
}

/// Returns the day of a time: days since 1970, UTC.
pub fn day_of(at: Timestamp) -> u32 {
    u32::try_from(at.0 / DAY_MS).unwrap_or(u32::MAX)
}

/// Returns the charges of an event; none for most events.
pub fn charges(event: &Event) -> Vec<Charge> {
    match event {
        Event::TaskAttempted(TaskAttempted { ledger_name: Some(model), began_at: Some(began_at), .. }) => {
            let line = Some(SpendTotals::of(&Spend::unknown("")));
            vec![Charge { day: day_of(*began_at), model: model.clone(), is_settled: false, line }]
        }
        Event::TaskAttemptEnded(event) => {
            let day = day_of(event.began_at);
            let settled = event.ledger_name.iter().map(|model| (model, true, None));
            let lines = event.spend.iter().map(|line| (&line.model, false, Some(SpendTotals::of(line))));
            let charge = |(model, is_settled, line): (&String, _, _)| Charge { day, model: model.clone(), is_settled, line };
            settled.chain(lines).map(charge).collect()
        }
        _ => Vec::new(),
    }
}

impl TaskAttemptEnded {
    /// Returns the idempotency record by which the attempt is counted once (LG1).
    pub fn once(&self) -> IdempotencyRecord {
        let TaskAttemptEnded { generation, call_id, claim, began_at, .. } = self;
        IdempotencyRecord::new(format!("spend:{generation}:{call_id}:{claim}:{}", began_at.0))
    }

    /// Returns the reason if the event, which comes from outside, is invalid.
    pub fn malformed(&self) -> Option<&'static str> {
        let is_nothing = self.spend.is_empty() && self.ledger_name.is_none();
        if is_nothing || self.spend.len() > LINES_MAX {
            return Some("the attempt reports no model or too many");
        }
        // It becomes part of a ledger key, like a model name.
        let unknown = self.ledger_name.as_ref().map(|name| Spend::on(name.as_str()));
        self.spend.iter().chain(&unknown).find_map(Spend::malformed)
    }
}

#[cfg(test)]
mod tests;
