//! The order of writes when some of them are large.
//!
//! Owns two lanes: small writes share a batch, a large write gets its own, and the lanes alternate. A small write therefore waits
//! for at most one large write. Must never look at what a write does.
//!
//! Invariants:
//! - LN1: writes that concern the same run leave in the order in which they arrived.
//! - LN2: neither lane starves: all waiting small writes get their batches between two large writes, and a waiting large write
//!   goes between two batches of small ones.

use std::collections::{HashMap, VecDeque};

use onward_core::RunKey;

/// Size in bytes from which a write is large.
pub const LARGE_WRITE_BYTES: usize = 256 * 1024;

/// Maximum number of waiting writes. Beyond it the disk or the database is not keeping up, and further writes are refused at once
/// (F20).
pub const WAITING_MAX: usize = 65_536;

/// A write that waits for its batch.
pub trait Waits {
    /// Returns the runs that it concerns; empty for a write that selects its runs itself.
    fn runs(&self) -> Vec<&RunKey>;

    /// Returns the approximate number of bytes it writes.
    fn bytes(&self) -> usize;
}

/// Queue of waiting writes.
#[derive(Debug)]
pub struct Lanes<T> {
    small: VecDeque<T>,
    large: VecDeque<T>,
    /// Number of writes in the large lane per run.
    held: HashMap<RunKey, usize>,
    /// True if the last batch came from the large lane.
    was_large: bool,
}

impl<T> Default for Lanes<T> {
    fn default() -> Lanes<T> {
        Lanes { small: VecDeque::new(), large: VecDeque::new(), held: HashMap::new(), was_large: false }
    }
}

impl<T: Waits> Lanes<T> {
    pub fn push(&mut self, item: T) {
        let is_behind = |run: &&RunKey| self.held.contains_key(*run);
        if item.bytes() < LARGE_WRITE_BYTES && (self.held.is_empty() || !item.runs().iter().any(is_behind)) {
            return self.small.push_back(item);
        }
        for run in item.runs() {
            *self.held.entry(run.clone()).or_default() += 1;
        }
        self.large.push_back(item); // LN1
    }

    /// Puts small writes that were taken but not started back in front.
    pub fn put_back(&mut self, items: impl DoubleEndedIterator<Item = T>) {
        items.rev().for_each(|item| self.small.push_front(item));
    }

    pub fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next batch: small writes while `fits` returns true, at least one and at most `max`, or the oldest of the large
    /// lane.
    pub fn take(&mut self, max: usize, mut fits: impl FnMut(&T) -> bool) -> Vec<T> {
        self.was_large = !self.large.is_empty() && (self.small.is_empty() || !self.was_large); // LN2
        if !self.was_large {
            let count = self.small.iter().take(max).take_while(|item| fits(item)).count();
            return self.small.drain(..count.max(1).min(self.small.len())).collect();
        }
        let item = self.large.pop_front();
        for run in item.iter().flat_map(Waits::runs) {
            if let Some(count) = self.held.get_mut(run) {
                *count -= 1;
                if *count == 0 {
                    self.held.remove(run);
                }
            }
        }
        item.into_iter().collect()
    }

    /// Takes all waiting writes.
    pub fn drain(&mut self) -> Vec<T> {
        self.held.clear();
        self.small.drain(..).chain(self.large.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests;
