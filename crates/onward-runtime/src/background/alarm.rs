//! Wakes the background jobs when something is due earlier than expected.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onward_core::Timestamp;
use tokio::sync::Notify;

pub(crate) struct Alarm {
    /// The earliest due time since the last `take`; `u64::MAX` if there is none.
    due: AtomicU64,
    news: AtomicBool,
    rung: Notify,
    joined: Notify,
}

impl Default for Alarm {
    fn default() -> Alarm {
        Alarm { due: AtomicU64::new(u64::MAX), news: AtomicBool::new(false), rung: Notify::new(), joined: Notify::new() }
    }
}

impl Alarm {
    pub fn due_at(&self, at: Timestamp) {
        if self.due.fetch_min(at.0, Ordering::SeqCst) > at.0 {
            self.rung.notify_one();
        }
    }

    pub fn news(&self) {
        if !self.news.swap(true, Ordering::SeqCst) {
            self.rung.notify_one();
        }
    }

    /// Wakes the heartbeat task: a worker has joined and needs a session.
    pub fn joined(&self) {
        self.joined.notify_one();
    }

    pub async fn someone_joined(&self) {
        self.joined.notified().await;
    }

    /// Returns and clears the earliest due time, and whether the outbox has messages.
    pub fn take(&self) -> (Option<Timestamp>, bool) {
        let due = self.due.swap(u64::MAX, Ordering::SeqCst);
        ((due != u64::MAX).then_some(Timestamp(due)), self.news.swap(false, Ordering::SeqCst))
    }

    /// Waits for a notification; one that came before the call counts.
    pub async fn rung(&self) {
        self.rung.notified().await;
    }
}
