//! Due times.

use std::sync::atomic::Ordering;

use onward_core::Timestamp;
use onward_store::Expired;
use onward_store::unit_of_work::{self, block_on_ready};
use rusqlite::params;

use crate::error::Outcome;
use crate::row::NEVER;
use crate::write::writer::Writer;

impl Writer<'_> {
    pub(super) fn expire(&mut self, limit: usize) -> Outcome<Expired> {
        let expired = block_on_ready(unit_of_work::expire(self, limit))?;
        let next_due = self.next_due()?;
        self.shared.announced_due.store(next_due.map_or(u64::MAX, |due| due.0), Ordering::Relaxed);
        Ok(Expired { next_due, ..expired })
    }

    fn next_due(&self) -> Outcome<Option<Timestamp>> {
        let mut statement = self.db.prepare_cached("SELECT min(due) FROM timers WHERE due < ?1")?;
        let timer: Option<i64> = statement.query_row(params![NEVER], |row| row.get(0))?;
        let timer = timer.map(|due| Timestamp(due as u64));
        let (now, steady) = (self.set.now, self.batch.steady);
        let later = |at: Timestamp| now.after(at.since(steady));
        let session = self.shared.leases.next_session_end().map(later);
        // While expiry of task leases is suspended, they are not due.
        let task = self.next_task_due()?.map(|due| due.max(later(self.clock_jumps.hold_until().max(steady))));
        Ok([timer, task, session].into_iter().flatten().min())
    }
}
