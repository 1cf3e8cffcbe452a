//! Work that is due by time: timers, timeouts, lost workers, outbox messages, heartbeats, retention.
//!
//! [`Runtime::tick`] does all of it, in passes of bounded size: ten thousand timers that became due while the process was down
//! neither block the store nor fire out of order (F26). The oldest go first, and other work runs between passes. The store's
//! clock decides what is due.

use std::time::Duration;

use onward_core::Timestamp;
use onward_store::{Delete, StoreError};

use crate::Runtime;

/// Bound of one pass, for each type of work.
const EXPIRE_PASS: usize = 256;

/// Number of runs that one pass of retention deletes.
const RETENTION_PASS: usize = 256;

/// Interval between two retention scans.
const RETENTION_PACE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct BackgroundState {
    retention_at: Timestamp,
}

/// The result of one tick.
#[derive(Debug, Default)]
pub struct Tick {
    /// When the next work is due, by the store's clock.
    pub next_due: Option<Timestamp>,
    pub counts: TickCounts,
    /// The first error. The rest was done as far as possible; the next tick tries again.
    pub error: Option<StoreError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TickCounts {
    pub timers_fired: u64,
    pub tasks_expired: u64,
    pub workers_lost: u64,
    pub messages_delivered: u64,
    /// Outbox messages without a receiver, or whose receiver no longer accepts them.
    pub messages_undeliverable: u64,
    pub runs_deleted: u64,
}

impl Runtime {
    /// Does everything that is due. Ticks of one runtime exclude each other; several runtimes over one store may tick
    /// concurrently.
    ///
    /// Cancel-safe: the next tick does the rest.
    pub async fn tick(&self) -> Tick {
        let mut background_state = self.shared.background_state.lock().await;
        let mut tick = Tick::default();
        let next_beat = self.beat_sessions().await;
        let next_due = self.expire(&mut tick).await;
        self.retain(&mut background_state, &mut tick).await;
        self.hub().streams.sweep_at(self.clock().now());
        tick.next_due = [next_beat, next_due, Some(background_state.retention_at)].into_iter().flatten().min();
        tick
    }

    /// Runs passes of timers, timeouts and outbox messages until nothing is due.
    async fn expire(&self, tick: &mut Tick) -> Option<Timestamp> {
        loop {
            // Notifications from here on are left for the next pass.
            self.hub().alarm.take();
            let expired = self.store().expire(EXPIRE_PASS).await.map_err(|error| tick.fail(error)).unwrap_or_default();
            tick.counts.timers_fired += expired.timers_fired;
            tick.counts.tasks_expired += expired.tasks_expired;
            tick.counts.workers_lost += expired.workers_lost;
            let more_messages = self.deliver_outbox(&mut tick.counts).await.map_err(|error| tick.fail(error)).unwrap_or_default();
            if !(expired.more || more_messages) {
                return expired.next_due;
            }
            self.beat_sessions().await;
            tokio::task::yield_now().await;
        }
    }

    /// Deletes runs whose retention is over: one bounded pass, with a short pause after a full pass and a long one otherwise
    /// (L20).
    async fn retain(&self, background_state: &mut BackgroundState, tick: &mut Tick) {
        let now = self.clock().now();
        if now < background_state.retention_at {
            return;
        }
        let delete = Delete::Expired { retention: self.options().retention.clone(), limit: RETENTION_PASS };
        let deleted = self.store().delete_runs(delete).await.map_err(|error| tick.fail(error)).unwrap_or_default();
        tick.counts.runs_deleted += deleted;
        let pause = if deleted == RETENTION_PASS as u64 { self.options().fallback } else { RETENTION_PACE };
        background_state.retention_at = now.after(pause);
    }
}

impl Tick {
    fn fail(&mut self, error: StoreError) {
        self.error.get_or_insert(error);
    }
}
