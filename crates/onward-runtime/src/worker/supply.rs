//! Work that was claimed for one worker, and the decision when to claim more.
//!
//! A separate task claims more and puts the result here: a caller may stop waiting at any time without losing what the store
//! has already leased to the worker. Claims are made only after a notification or after the fallback.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use onward_store::sync::lock;

pub(crate) struct Supply<T> {
    ready: Mutex<VecDeque<T>>,
    /// There may be more in the store.
    wanted: AtomicBool,
    claiming: AtomicBool,
    woken: Notify,
}

impl<T> Default for Supply<T> {
    fn default() -> Supply<T> {
        // The store was not read yet, so there may be something.
        let (wanted, claiming) = (AtomicBool::new(true), AtomicBool::new(false));
        Supply { ready: Mutex::default(), wanted, claiming, woken: Notify::new() }
    }
}

impl<T> Supply<T> {
    pub fn put(&self, items: impl IntoIterator<Item = T>) {
        lock(&self.ready).extend(items);
        self.woken.notify_one();
    }

    /// Marks that there may be more in the store.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        self.woken.notify_one();
    }

    /// Wakes the waiter if a claim was wanted but not possible.
    pub fn wake_if_wanted(&self) {
        if self.wanted.load(Ordering::SeqCst) {
            self.woken.notify_one();
        }
    }

    pub fn drain(&self) -> Vec<T> {
        lock(&self.ready).drain(..).collect()
    }

    /// Waits for up to `limit` items. Calls `claim` when it is time to claim more, after `fallback` at the latest; neither may
    /// block.
    pub async fn next(&self, limit: usize, fallback: impl Fn() -> Duration, claim: impl Fn()) -> Vec<T> {
        loop {
            if self.wanted.load(Ordering::SeqCst) && !self.claiming.load(Ordering::SeqCst) {
                claim();
            }
            let taken: Vec<T> = {
                let mut ready = lock(&self.ready);
                let count = ready.len().min(limit.max(1));
                ready.drain(..count).collect()
            };
            if !taken.is_empty() {
                return taken;
            }
            if tokio::time::timeout(fallback(), self.woken.notified()).await.is_err() {
                self.wanted.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Begins a claim; `None` if one is in progress.
    pub fn begin_claim(self: &Arc<Supply<T>>) -> Option<ClaimInProgress<T>> {
        if self.claiming.swap(true, Ordering::SeqCst) {
            return None;
        }
        self.wanted.store(false, Ordering::SeqCst);
        Some(ClaimInProgress { supply: self.clone() })
    }
}

/// A claim in progress. If it is dropped without a result, the next one waits for the fallback.
pub(crate) struct ClaimInProgress<T> {
    supply: Arc<Supply<T>>,
}

impl<T> ClaimInProgress<T> {
    /// Ends without a claim because none was possible; the supply is woken when one is.
    pub fn postpone(self) {
        self.supply.wanted.store(true, Ordering::SeqCst);
    }

    /// Ends with the claimed `items`; with `more` there may be others.
    pub fn found(self, items: Vec<T>, more: bool) {
        let supply = self.supply.clone();
        if more {
            supply.wanted.store(true, Ordering::SeqCst);
        }
        drop(self);
        supply.put(items);
    }
}

impl<T> Drop for ClaimInProgress<T> {
    fn drop(&mut self) {
        self.supply.claiming.store(false, Ordering::SeqCst);
    }
}
