//! What a namespace uses, for people and for callers that plan.

use crate::queue::QueueStarts;
use crate::spend::PicoDollars;
use crate::{Timestamp, message};

message! {
    /// What a store counts of a namespace.
    #[derive(Default, Eq)]
    pub struct QuotaUse {
        1 => runs_open: u64,
        2 => tasks_running: u64,
        /// The cost of attempts that began on the current UTC day.
        3 => spent_today: PicoDollars,
        /// The starts that may count for the start rate, if there is one.
        4 => starts: Option<QueueStarts>,
    }

    /// What a namespace uses of its quota.
    #[derive(Eq)]
    pub struct QuotaUsage {
        1 => runs_open: u64,
        /// Runs that callers and schedules started in the period of `start_rate`; 0 without one.
        2 => starts: u64,
        /// When the start rate permits another start; `null` if it does now.
        3 => starts_open_at: Option<Timestamp>,
        /// Tasks that workers have, of all queues.
        4 => tasks_running: u64,
        /// The recorded cost of attempts that began on the current UTC day, in dollars.
        5 => spent_today: PicoDollars,
        6 => day_ends_at: Timestamp,
    }
}

impl QuotaUse {
    /// Adds what another database counts.
    pub fn add(&mut self, other: QuotaUse) {
        self.runs_open += other.runs_open;
        self.tasks_running += other.tasks_running;
        self.spent_today = self.spent_today.plus(other.spent_today);
        match (&mut self.starts, other.starts) {
            (Some(own), Some(other)) => own.begun.extend(other.begun),
            (own, other) => *own = own.take().or(other),
        }
    }
}
