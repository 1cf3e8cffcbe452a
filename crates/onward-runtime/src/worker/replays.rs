//! Counts the replays that agreed with their log.
//!
//! A worker that claims a run with commits replays them before it can make the next one, so the first commit of such a claim
//! proves that the replay agreed. Divergences are in the logs themselves. The results in the log that such a replay was given are
//! effects that it did not repeat; a worker gets the log with its claim or reads it. Nothing depends on these counts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use onward_core::{Epoch, Event, Index, Record, RunHead, RunKey};

use onward_store::sync::lock;

#[derive(Default)]
pub(crate) struct Replays {
    /// Claims of runs with commits that have not made their own first commit yet.
    open: Mutex<HashMap<RunKey, OpenReplay>>,
    /// Number of open claims, so that most commits read only this counter.
    open_count: AtomicUsize,
    agreed: AtomicU64,
    results: AtomicU64,
}

struct OpenReplay {
    epoch: Epoch,
    generation: u32,
    /// Range of the log of which no results were counted yet; it ends where the log ended at the claim.
    rest: std::ops::Range<Index>,
    results: u64,
}

impl OpenReplay {
    fn add(&mut self, records: &[Record]) {
        for record in records {
            for (event, at) in record.events.iter().zip(record.index.0..) {
                if self.rest.contains(&Index(at)) {
                    self.rest.start = Index(at + 1);
                    self.results += u64::from(is_result(event));
                }
            }
        }
    }
}

/// Returns true for the result of an effect.
fn is_result(event: &Event) -> bool {
    matches!(
        event,
        Event::StepCompleted(_)
            | Event::StepFailed(_)
            | Event::TaskCompleted(_)
            | Event::TaskFailed(_)
            | Event::ChildCompleted(_)
            | Event::ChildFailed(_)
    )
}

impl Replays {
    /// Begins the replay of a claimed run, with its log if the worker gets it with the claim.
    pub fn claimed(&self, head: &RunHead, records: Option<&[Record]>) {
        if head.next_commit > 0 {
            let rest = Index(0)..head.next_index;
            let mut replay = OpenReplay { epoch: head.epoch, generation: head.generation, rest, results: 0 };
            replay.add(records.unwrap_or_default());
            self.change(|open| {
                open.insert(head.key.clone(), replay);
            });
        }
    }

    /// Counts the results in records that a worker read.
    pub fn read(&self, key: &RunKey, generation: Option<u32>, records: &[Record]) {
        if self.open_count.load(Ordering::SeqCst) > 0
            && let Some(replay) = lock(&self.open).get_mut(key)
            && generation.is_none_or(|generation| generation == replay.generation)
        {
            replay.add(records);
        }
    }

    /// Returns true if the next commit of this claim proves that a replay agreed.
    pub fn is_open(&self, key: &RunKey, epoch: Epoch) -> bool {
        self.open_count.load(Ordering::SeqCst) > 0 && lock(&self.open).get(key).is_some_and(|replay| replay.epoch == epoch)
    }

    pub fn agreed(&self, key: &RunKey, epoch: Epoch) {
        if let Some(replay) = self.end(key, epoch) {
            self.agreed.fetch_add(1, Ordering::Relaxed);
            self.results.fetch_add(replay.results, Ordering::Relaxed);
        }
    }

    /// Ends the claim; returns its replay if that was not counted.
    fn end(&self, key: &RunKey, epoch: Epoch) -> Option<OpenReplay> {
        if !self.is_open(key, epoch) {
            return None;
        }
        let mut ended = None;
        self.change(|open| {
            if open.get(key).is_some_and(|replay| replay.epoch == epoch) {
                ended = open.remove(key);
            }
        });
        ended
    }

    /// Ends the claim without a commit.
    pub fn abandoned(&self, key: &RunKey, epoch: Epoch) {
        let _ = self.end(key, epoch);
    }

    /// Returns the number of results that the counted replays took from their logs.
    pub fn results(&self) -> u64 {
        self.results.load(Ordering::Relaxed)
    }

    pub fn count(&self) -> u64 {
        self.agreed.load(Ordering::Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<RunKey, OpenReplay>)) {
        let mut open = lock(&self.open);
        change(&mut open);
        self.open_count.store(open.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
