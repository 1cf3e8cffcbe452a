//! Budgets: the limits of a run's spending, for its code.

use onward_core::budget::{Budget, BudgetUse};

use super::Ctx;

impl Ctx {
    /// Limits what this run and its children may spend. The budget is a ceiling: it lowers the limits from the start or the
    /// parent and never raises them; only an operator grants more, at the start or on resume. When a limit is reached, the run
    /// pauses as `budget_exhausted` before the next attempt that costs something.
    pub fn set_budget(&self, budget: Budget) {
        self.cell.call("set_budget").engine.set_budget(budget);
    }

    /// Returns what this run and its ended children have spent; the same on every replay. A child counts only if both it and this
    /// run have a budget.
    pub fn spent(&self) -> BudgetUse {
        self.cell.call("spent").engine.spent()
    }

    /// Returns what is left of the run's budget, minus what its open children may spend; the same on every replay. `None` means
    /// no limit.
    pub fn budget_left(&self) -> Budget {
        self.cell.call("budget_left").engine.budget_left()
    }
}
