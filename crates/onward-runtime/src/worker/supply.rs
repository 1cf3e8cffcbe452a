//! What waits to be taken by one worker, and when to look for more.
//!
//! Looking for more happens in a task of its own, which puts what it found here: whoever waits may give up at any time without
//! losing what a store has leased to the worker already. Must never look more often than it is told to, or than the fallback.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::by_run::lock;

pub(crate) struct Supply<T> {
    ready: Mutex<VecDeque<T>>,
    /// There may be more in the store.
    wanted: AtomicBool,
    looking: AtomicBool,
    woken: Notify,
}

impl<T> Default for Supply<T> {
    fn default() -> Supply<T> {
        // Nobody has looked yet, so there may be something.
        let (wanted, looking) = (AtomicBool::new(true), AtomicBool::new(false));
        Supply { ready: Mutex::default(), wanted, looking, woken: Notify::new() }
    }
}

impl<T> Supply<T> {
    pub fn put(&self, items: impl IntoIterator<Item = T>) {
        lock(&self.ready).extend(items);
        self.woken.notify_one();
    }

    /// There may be more in the store.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        self.woken.notify_one();
    }

    /// Looks again soon, if somebody had wanted to and could not.
    pub fn wake_if_wanted(&self) {
        if self.wanted.load(Ordering::SeqCst) {
            self.woken.notify_one();
        }
    }

    pub fn drain(&self) -> Vec<T> {
        lock(&self.ready).drain(..).collect()
    }

    /// Waits for up to `limit` items. `look` is called whenever it is time to look for more, after `fallback` at the latest; neither must
    /// block.
    pub async fn next(&self, limit: usize, fallback: impl Fn() -> Duration, look: impl Fn()) -> Vec<T> {
        loop {
            if self.wanted.load(Ordering::SeqCst) && !self.looking.load(Ordering::SeqCst) {
                look();
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

    /// Says that somebody looks; `None` when somebody does already.
    pub fn begin_look(self: &Arc<Supply<T>>) -> Option<Looking<T>> {
        if self.looking.swap(true, Ordering::SeqCst) {
            return None;
        }
        self.wanted.store(false, Ordering::SeqCst);
        Some(Looking { supply: self.clone() })
    }
}

/// Somebody looks for more. Dropped without an answer, the next look waits for the fallback.
pub(crate) struct Looking<T> {
    supply: Arc<Supply<T>>,
}

impl<T> Looking<T> {
    /// Could not look now; whoever makes that possible wakes the supply.
    pub fn put_off(self) {
        self.supply.wanted.store(true, Ordering::SeqCst);
    }

    /// Found `items`; with `more` there may be others.
    pub fn found(self, items: Vec<T>, more: bool) {
        let supply = self.supply.clone();
        if more {
            supply.wanted.store(true, Ordering::SeqCst);
        }
        drop(self);
        supply.put(items);
    }
}

impl<T> Drop for Looking<T> {
    fn drop(&mut self) {
        self.supply.looking.store(false, Ordering::SeqCst);
    }
}
