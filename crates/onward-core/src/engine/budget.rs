//! Budgets: what the code is told of what it may spend, and what it sets where nobody else has.

use super::Engine;
use crate::log::event::{BudgetSet, Event};
use crate::spend::budget::{Budget, BudgetUse};
use crate::{Index, Timestamp};

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

    /// Brings what is known of the budget up to this event of the log, once.
    pub(super) fn follow_budget(&mut self, index: Index, event: &Event, at: Timestamp) {
        if self.purse_at.is_none_or(|followed| followed < index) {
            self.purse.follow(event, at);
            self.purse_at = Some(index);
        }
    }

    /// Brings what is known of the budget up to a signal that the code takes: the code may take it before it is delivered, and what stands
    /// before it in the log, such as a larger budget, has happened before it.
    pub(super) fn follow_budget_up_to(&mut self, index: Index) {
        let batch = std::mem::take(&mut self.batch);
        for delivery in batch.iter().take_while(|delivery| delivery.index <= index) {
            self.follow_budget(delivery.index, &delivery.event, delivery.at);
        }
        self.batch = batch;
    }
}
