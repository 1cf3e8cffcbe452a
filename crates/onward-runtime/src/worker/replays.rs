//! Counts the replays that agreed with their log.
//!
//! A worker that claims a run with commits replays them before it can make the next one, so the first commit of such a claim
//! proves that the replay agreed. Divergences are in the logs themselves. Nothing depends on these counts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use onward_core::{Epoch, RunHead, RunKey};

use onward_store::sync::lock;

#[derive(Default)]
pub(crate) struct Replays {
    /// Claims of runs with commits that have not made their own first commit yet.
    open: Mutex<HashMap<RunKey, Epoch>>,
    /// Number of open claims, so that most commits read only this counter.
    open_count: AtomicUsize,
    agreed: AtomicU64,
}

impl Replays {
    pub fn claimed(&self, head: &RunHead) {
        if head.next_commit > 0 {
            self.change(|open| {
                open.insert(head.key.clone(), head.epoch);
            });
        }
    }

    /// Returns true if the next commit of this claim proves that a replay agreed.
    pub fn is_open(&self, key: &RunKey, epoch: Epoch) -> bool {
        self.open_count.load(Ordering::SeqCst) > 0 && lock(&self.open).get(key) == Some(&epoch)
    }

    pub fn agreed(&self, key: &RunKey, epoch: Epoch) {
        if self.end(key, epoch) {
            self.agreed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the claim; returns true if its replay was not counted.
    pub fn end(&self, key: &RunKey, epoch: Epoch) -> bool {
        if !self.is_open(key, epoch) {
            return false;
        }
        let mut ended = false;
        self.change(|open| {
            ended = open.get(key) == Some(&epoch);
            if ended {
                open.remove(key);
            }
        });
        ended
    }

    pub fn count(&self) -> u64 {
        self.agreed.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<RunKey, Epoch>)) {
        let mut open = lock(&self.open);
        change(&mut open);
        self.open_count.store(open.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
