//! What happens because time passes or because nobody else does it: timers, timeouts, silent workers, news, heartbeats, retention.
//!
//! Everything here is done by [`Runtime::tick`], in passes of bounded size, so that ten thousand timers that became due while the
//! process was down neither hold the store up nor overtake each other (F26): the oldest go first, others get a turn between passes.
//! Must never decide what is due: the store's clock does.

use std::time::Duration;

use onward_core::Timestamp;
use onward_store::{Delete, StoreError};

use crate::Runtime;

/// How much of each kind one pass does.
const EXPIRE_PASS: usize = 256;

/// How many runs one pass of retention deletes.
const RETENTION_PASS: usize = 256;

/// How often closed runs are looked through.
const RETENTION_PACE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct House {
    retention_at: Timestamp,
}

/// What one tick did.
#[derive(Debug, Default)]
pub struct Tick {
    /// When there is something to do again, by the store's clock.
    pub next_due: Option<Timestamp>,
    pub did: Did,
    /// What went wrong first. The rest was done as far as it could be; the next tick tries again.
    pub error: Option<StoreError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Did {
    pub timers_fired: u64,
    pub tasks_expired: u64,
    pub workers_lost: u64,
    pub news_delivered: u64,
    /// News that their receiver could not take any more, or that had none.
    pub news_undeliverable: u64,
    pub runs_deleted: u64,
}

impl Runtime {
    /// Does everything that is due. Ticks of one runtime take turns; several runtimes over one store may tick at the same time.
    ///
    /// May be dropped at any time: what is left is done by the next tick.
    pub async fn tick(&self) -> Tick {
        let mut house = self.shared.house.lock().await;
        let mut tick = Tick::default();
        let next_beat = self.beat_sessions().await;
        let next_due = self.expire(&mut tick).await;
        self.retain(&mut house, &mut tick).await;
        self.hub().streams.sweep_at(self.clock().now());
        tick.next_due = [next_beat, next_due, Some(house.retention_at)].into_iter().flatten().min();
        tick
    }

    /// Passes of timers, timeouts and news, until nothing is left to do now.
    async fn expire(&self, tick: &mut Tick) -> Option<Timestamp> {
        loop {
            // Whatever is told from here on is left for the next look.
            self.hub().alarm.take();
            let expired = self.store().expire(EXPIRE_PASS).await.map_err(|error| tick.fail(error)).unwrap_or_default();
            tick.did.timers_fired += expired.timers_fired;
            tick.did.tasks_expired += expired.tasks_expired;
            tick.did.workers_lost += expired.workers_lost;
            let more_news = self.carry_news(&mut tick.did).await.map_err(|error| tick.fail(error)).unwrap_or_default();
            if !(expired.more || more_news) {
                return expired.next_due;
            }
            self.beat_sessions().await;
            tokio::task::yield_now().await;
        }
    }

    /// Deletes runs whose time is over: a few at once, the rest soon after, and then nothing for a while (L20).
    async fn retain(&self, house: &mut House, tick: &mut Tick) {
        let now = self.clock().now();
        if now < house.retention_at {
            return;
        }
        let delete = Delete::Expired { retention: self.options().retention.clone(), limit: RETENTION_PASS };
        let deleted = self.store().delete_runs(delete).await.map_err(|error| tick.fail(error)).unwrap_or_default();
        tick.did.runs_deleted += deleted;
        let pause = if deleted == RETENTION_PASS as u64 { self.options().fallback } else { RETENTION_PACE };
        house.retention_at = now.after(pause);
    }
}

impl Tick {
    fn fail(&mut self, error: StoreError) {
        self.error.get_or_insert(error);
    }
}
