//! Wakes whoever keeps house when there is something to do earlier than expected.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onward_core::Timestamp;
use tokio::sync::Notify;

pub(crate) struct Alarm {
    /// The earliest due time told since somebody last looked; `u64::MAX` when none was.
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

    /// A worker has joined: it wants a session.
    pub fn joined(&self) {
        self.joined.notify_one();
    }

    pub async fn someone_joined(&self) {
        self.joined.notified().await;
    }

    /// What was told since the last look.
    pub fn take(&self) -> (Option<Timestamp>, bool) {
        let due = self.due.swap(u64::MAX, Ordering::SeqCst);
        ((due != u64::MAX).then_some(Timestamp(due)), self.news.swap(false, Ordering::SeqCst))
    }

    /// Waits until something was told; a call that came before counts.
    pub async fn rung(&self) {
        self.rung.notified().await;
    }
}
