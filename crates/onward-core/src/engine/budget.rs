//! Budgets: what the code observes of its budget, and the limits that it sets.

use super::Engine;
use crate::log::event::{BudgetSet, Event};
use crate::spend::budget::{Budget, BudgetUse};
use crate::{Index, Timestamp};

impl Engine {
    /// Lowers the limits of the run (BG4). Records nothing if that changes nothing.
    pub fn set_budget(&mut self, budget: Budget) {
        let call_id = self.next_call_id();
        let lowers = match &self.spend_state.budget {
            Some(own) => own.limited_by(budget) != own.limit,
            None => !budget.is_unlimited(),
        };
        if lowers {
            self.out.push(BudgetSet { call_id, budget }.into());
        }
    }

    /// Returns the use of the run and its ended children, at the code's position in the log (BG5).
    pub fn spent(&self) -> BudgetUse {
        self.spend_state.spent()
    }

    /// Returns what is left of the run's budget, at the code's position in the log (BG5); absent limits stay absent.
    pub fn budget_left(&self) -> Budget {
        self.spend_state.left(self.now)
    }

    /// Updates the budget by this event of the log, once.
    pub(super) fn follow_budget(&mut self, index: Index, event: &Event, at: Timestamp) {
        if self.spend_state_at.is_none_or(|followed| followed < index) {
            self.spend_state.follow(event, at);
            self.spend_state_at = Some(index);
        }
    }

    /// Updates the budget up to a signal that the code consumes: the code may consume it before it is delivered, and earlier
    /// events, such as a larger budget, have happened before it.
    pub(super) fn follow_budget_up_to(&mut self, index: Index) {
        let batch = std::mem::take(&mut self.batch);
        for delivery in batch.iter().take_while(|delivery| delivery.index <= index) {
            self.follow_budget(delivery.index, &delivery.event, delivery.at);
        }
        self.batch = batch;
    }
}
