//! Budgets on the command line: the limits of `--budget`, and the command that resumes a run with an exhausted budget.

use onward_core::budget::{Budget, BudgetHead};
use onward_core::spend::{PicoDollars, SpendTotals};
use onward_core::{RunHead, Timestamp};

use crate::directory::shell_word;
use crate::error::Mistake;
use crate::output::escape;

/// Parses `--budget` limits; `None` without limits.
pub fn parse(limits: &[String]) -> Result<Option<Budget>, Mistake> {
    let mut budget = Budget::default();
    for limit in limits {
        let wrong = |why: String| {
            Mistake::usage(
                "usage",
                format!("`--budget {limit}`: {why}"),
                "use for example `--budget tokens=50000 --budget cost=2.50`",
            )
        };
        budget.set(limit).map_err(wrong)?;
    }
    Ok((!budget.is_unlimited()).then_some(budget))
}

/// Returns the command that resumes the run with twice the limits that are exhausted.
pub fn resume_command(head: &RunHead, now: Timestamp) -> String {
    let raised = head.budget.as_ref().map(|budget| raised(budget, head.spend.as_deref(), now)).unwrap_or_default();
    let limits: String = raised.to_string().split_whitespace().map(|limit| format!(" --budget {limit}")).collect();
    format!("onward run resume {}{limits}", shell_word(&escape::text(head.key.id.as_str())))
}

/// Returns the exhausted limits, doubled: at least twice what the run has used, because the last attempt may exceed a limit.
fn raised(budget: &BudgetHead, own: Option<&SpendTotals>, now: Timestamp) -> Budget {
    let (limit, left, used) = (budget.limit, budget.left(own, now), budget.used(own));
    let passed = budget.since.map_or(0, |since| now.since(since).as_secs());
    let double = |limit: Option<u64>, left: Option<u64>, used: u64| {
        limit.filter(|_| left == Some(0)).map(|limit| limit.max(used).saturating_mul(2).max(1))
    };
    Budget {
        tokens: double(limit.tokens, left.tokens, used.tokens),
        cost: double(limit.cost.map(|cost| cost.0), left.cost.map(|cost| cost.0), used.cost.0).map(PicoDollars),
        turns: double(limit.turns, left.turns, budget.turns),
        seconds: double(limit.seconds, left.seconds, passed),
    }
}

#[cfg(test)]
mod tests;
