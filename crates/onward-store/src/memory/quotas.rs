//! Quotas: their settings, and what counts for them.

use onward_core::quota::{QuotaSettings, QuotaUse, counts};
use onward_core::spend::{PicoDollars, day_of};
use onward_core::task::TaskState;
use onward_core::{Namespace, Timestamp};

use super::state::MemoryState;
use crate::durable::limits::is_quota;
use crate::unit_of_work::quotas::starts_of;

impl MemoryState {
    pub fn quota_of(&self, namespace: &Namespace) -> Option<&QuotaSettings> {
        self.kinds.iter().find(|row| row.namespace == *namespace && is_quota(row))?.quota.as_deref()
    }

    pub fn count_open_runs(&self, namespace: &Namespace) -> u64 {
        self.open_heads().filter(|head| head.key.namespace == *namespace && counts(&head.kind)).count() as u64
    }

    pub fn count_leases(&self, namespace: &Namespace) -> u64 {
        let of_namespace = self.open_tasks().filter(|queued| queued.task.id.run.namespace == *namespace);
        of_namespace.filter(|queued| queued.task.state == TaskState::Leased).count() as u64
    }

    pub fn spent_on(&self, namespace: &Namespace, day: u32) -> PicoDollars {
        let of_day = self.ledger.iter().filter(|(row, _)| row.run.namespace == *namespace && row.day == day);
        of_day.fold(PicoDollars::default(), |spent, (_, sum)| spent.plus(sum.lines.cost))
    }

    pub fn quota_use(&self, namespace: &Namespace, now: Timestamp) -> QuotaUse {
        let starts = starts_of(namespace).and_then(|of| self.starts.get(&(of.name(), None))).cloned();
        QuotaUse {
            runs_open: self.count_open_runs(namespace),
            tasks_running: self.count_leases(namespace),
            spent_today: self.spent_on(namespace, day_of(now)),
            starts,
        }
    }
}
