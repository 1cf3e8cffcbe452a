//! Workers that a run has lost, one after the other: executing it may be what kills them (F23).
//!
//! Decides when a lost worker counts and when the run is paused. Stores report each lease that ends because its worker is gone,
//! and each release that comes after that. Must never count a worker that only had the run in memory.
//!
//! Invariants:
//! - CW1: a run that loses a number of workers in a row, without a commit in between, is paused as `worker_crashed` until it is
//!   resumed; resuming it, and pausing it for another reason, forgets them.
//! - CW2: only a worker that may have executed the code counts. The run is pending: there is something that the code has not seen,
//!   or its last commit does not wait. A run that waits or is paused loses its lease and counts nothing, so a worker with hundreds
//!   of idle runs in memory casts no suspicion on them.
//! - CW3: a worker that releases its claim after all is alive, so its loss does not count: the connection or the servers failed.
//! - CW4 (L16): the count belongs to the lease, like the epoch. It is not in the log, no commit writes it, and a head rebuilt from
//!   the log has lost none. The pause is in the log and names the workers.
//! - CW5: a claim is lost at most once.

use super::{Input, RunHead, Status};
use crate::log::event::{LostWorker, LostWorkers, PauseReason, RunPaused};
use crate::{Epoch, Index, Timestamp, WorkerId};

/// The number of workers that a run loses in a row before it is paused, unless configured otherwise.
pub const PAUSE_AFTER_LOST_WORKERS: u32 = 3;

/// The number of lost workers that are named.
const NAMED_MAX: usize = 10;

impl RunHead {
    /// Counts a worker whose claim ended without a release. Returns the pause to append if it was the last one that the run may
    /// lose; 0 is no limit.
    pub fn lose_worker(&mut self, worker: &WorkerId, epoch: Epoch, at: Timestamp, pause_after: u32) -> Option<Input> {
        if self.status != Status::Pending || pause_after == 0 {
            return None; // CW2
        }
        let (next_commit, last_index) = (self.next_commit, Index(self.next_index.0 - 1));
        let none = || Box::new(LostWorkers { count: 0, next_commit, last_index, latest: Vec::new() });
        // A commit since the last loss is progress, and it did not write the head (CW4).
        let lost = self.lost_workers.take().filter(|lost| lost.next_commit == next_commit);
        let lost = self.lost_workers.insert(lost.unwrap_or_else(none));
        if lost.latest.iter().any(|known| known.epoch == epoch) {
            return None; // CW5
        }
        lost.count = lost.count.saturating_add(1);
        lost.last_index = last_index;
        lost.latest.push(LostWorker { worker: worker.chosen_name(), epoch, at });
        lost.latest.drain(..lost.latest.len().saturating_sub(NAMED_MAX));
        (lost.count >= pause_after).then(|| Input::new(lost.pause())) // CW1
    }

    /// Takes back the loss of a claim whose worker is alive (CW3). Returns false if that claim was not lost. A run that is paused
    /// stays so.
    pub fn find_worker(&mut self, epoch: Epoch) -> bool {
        let Some(lost) = self.lost_workers.as_mut().filter(|_| self.status != Status::Paused) else { return false };
        let before = lost.latest.len();
        lost.latest.retain(|lost| lost.epoch != epoch);
        let is_found = lost.latest.len() < before;
        lost.count -= u32::from(is_found);
        if lost.count == 0 {
            self.lost_workers = None;
        }
        is_found
    }

    /// Returns the workers that the run lost in a row, if it is paused because of them.
    pub fn crashed(&self) -> Option<&LostWorkers> {
        self.lost_workers.as_deref().filter(|_| self.status == Status::Paused)
    }

    /// Returns the head without what belongs to its lease: the part that its log defines (L16, CW4).
    pub fn without_lease(mut self) -> RunHead {
        self.epoch = Epoch(0);
        self.lost_workers.take_if(|_| self.status != Status::Paused);
        if self.status == Status::Running && self.external.is_none() {
            self.status = Status::Pending;
        }
        self
    }
}

impl LostWorkers {
    fn pause(&self) -> RunPaused {
        let (count, last) = (self.count, self.last_index);
        let message = format!("{count} workers were lost in a row after event {last} without making a commit");
        RunPaused { lost_workers: Some(self.clone()), ..RunPaused::because(PauseReason::WorkerCrashed, message) }
    }
}

#[cfg(test)]
mod tests;
