//! Budgets: what the code is told of what it may spend, and what it sets where nobody else has.

use super::Engine;
use crate::budget::{Budget, BudgetUse};
use crate::event::BudgetSet;

impl Engine {
    /// Lowers the limits of the run to these (BG4). Asks for nothing where that changes nothing.
    pub fn set_budget(&mut self, budget: Budget) {
        let place = self.next_place();
        let lowers = match &self.purse.budget {
            Some(own) => own.limited_by(budget) != own.limit,
            None => !budget.is_unlimited(),
        };
        if lowers {
            self.out.push(BudgetSet { place, budget }.into());
        }
    }

    /// What the run has spent, with its children that have ended, as of what the code has seen (BG5).
    pub fn spent(&self) -> BudgetUse {
        self.purse.spent()
    }

    /// What is left of the run's budget, as of what the code has seen (BG5); what has no limit is not said.
    pub fn budget_left(&self) -> Budget {
        self.purse.left(self.now)
    }
}
