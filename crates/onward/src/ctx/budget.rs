//! Budgets: what the run may spend, seen from its code.

use onward_core::budget::{Budget, BudgetUse};

use super::Ctx;

impl Ctx {
    /// Limits what this run may spend, its children included. A ceiling: limits that the run was started with, or got from its parent, are
    /// lowered to these, and only an operator grants more, with the start or when the run is resumed. Where a limit is reached, the run pauses before the next attempt that costs something, as `budget_exhausted`.
    pub fn set_budget(&self, budget: Budget) {
        self.cell.call("set_budget").engine.set_budget(budget);
    }

    /// What this run has spent so far, with its children that have ended: the same on every replay. Children are counted where this run has
    /// a budget and they have one, too.
    pub fn spent(&self) -> BudgetUse {
        self.cell.call("spent").engine.spent()
    }

    /// What is left of the run's budget, without what its open children may spend: the same on every replay. What has no limit is `None`.
    pub fn budget_left(&self) -> Budget {
        self.cell.call("budget_left").engine.budget_left()
    }
}
