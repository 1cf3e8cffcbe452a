//! The streams of runs: what their tasks emit, and which parts have become final.
//!
//! A run has a stream from the moment that a task of it emits a frame or a client reads it; other runs cost one read of a
//! counter. Streams are not recorded, do not wait for readers, and expire when they are not read. The log is the source of
//! truth about a run: a reader that has missed frames is referred to it.
//!
//! Invariants:
//! - ST1: all streams together take at most [`BYTES_MAX_OF_ALL`], apart from frames added since the last check.
//! - ST2: frames of a local task reach the streams of other servers on the store if they have readers; changes of logs reach
//!   each server through the store (ADR 0015).

mod buffer;
pub(crate) mod emits;
pub(crate) mod feed;
pub(crate) mod live;
mod read;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use onward_core::stream::{AttemptFailed, TaskFrames};
use onward_core::task::TaskId;
use onward_core::{Failure, Record, RunHead, RunKey, Timestamp};

use crate::Runtime;
use crate::by_run::ByRun;
use crate::worker::running_tasks::HeldTasks;
use buffer::{AGE_MAX, Buffer};

/// Memory bound of all streams of a process; the least recently written streams are dropped first.
const BYTES_MAX_OF_ALL: usize = 128 * 1024 * 1024;

/// How long a reader counts as present between two reads.
const READER_GRACE: Duration = Duration::from_secs(20);

/// How long a new stream waits for other servers to send earlier frames.
const BEGINNING_MAX: Duration = Duration::from_secs(5);

/// Interval between two sweeps of unused streams.
const SWEEP_PACE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Streams {
    buffers: ByRun<Buffer>,
    bytes: AtomicUsize,
    incarnations: AtomicU64,
    lives_of: RandomState,
    swept_at: AtomicU64,
}

impl Streams {
    /// Adds frames of an attempt. Returns true if any of them is new.
    pub fn push_frames(&self, task_frames: TaskFrames, now: Timestamp) -> bool {
        let run = task_frames.task.run.clone();
        self.edit(&run, now, |buffer| buffer.push_frames(task_frames, now, true))
    }

    /// Adds frames of an attempt at another server if the stream is open here. A new reader is sent all frames of an attempt
    /// from the first one. Frames that arrive before those are part of them and are skipped.
    pub fn push_frames_if_open(&self, task_frames: TaskFrames) {
        let run = task_frames.task.run.clone();
        self.update(&run, |buffer| {
            let is_young = buffer.born_at.elapsed() < BEGINNING_MAX;
            if !(is_young && buffer.lacks_beginning(&task_frames)) {
                buffer.push_frames(task_frames, buffer.written_at.max(buffer.read_at), false);
            }
        });
    }

    pub fn fail_if_open(&self, run: &RunKey, claim: u64, failed: AttemptFailed) {
        self.update(run, |buffer| buffer.fail(claim, failed, buffer.written_at.max(buffer.read_at)));
    }

    /// Reports the failure of an attempt if the run has a stream.
    pub fn fail(&self, run: &RunKey, claim: u64, failed: AttemptFailed, now: Timestamp) {
        self.update(run, |buffer| buffer.fail(claim, failed, now));
    }

    pub fn appended(&self, head: &RunHead, record: &Record) {
        // A gap is filled by `follow_stream`.
        self.append(&head.key, head.generation, record);
    }

    /// Returns true if the record is the next one or already known, or if the run has no stream.
    fn append(&self, run: &RunKey, generation: u32, record: &Record) -> bool {
        self.update(run, |buffer| buffer.append(generation, record)).unwrap_or(true)
    }

    fn update<T>(&self, run: &RunKey, change: impl FnOnce(&mut Buffer) -> T) -> Option<T> {
        self.buffers.update(run, |buffer| {
            let before = buffer.bytes();
            let answer = change(buffer);
            self.count(before, buffer.bytes());
            answer
        })
    }

    /// Changes a stream like `update`, and creates one if there is none.
    fn edit<T>(&self, run: &RunKey, now: Timestamp, change: impl FnOnce(&mut Buffer) -> T) -> T {
        let answer = self.buffers.edit(run, |buffer| {
            let buffer = buffer.get_or_insert_with(|| Buffer::new(self.new_life(), now));
            let before = buffer.bytes();
            let answer = change(buffer);
            self.count(before, buffer.bytes());
            answer
        });
        if self.bytes.load(Ordering::SeqCst) > BYTES_MAX_OF_ALL {
            self.sweep(now);
        }
        answer
    }

    fn count(&self, before: usize, after: usize) {
        self.bytes.fetch_add(after, Ordering::SeqCst);
        self.bytes.fetch_sub(before, Ordering::SeqCst);
    }

    /// Returns an id that no other stream has, in this process or another.
    fn new_life(&self) -> u64 {
        self.lives_of.hash_one(self.incarnations.fetch_add(1, Ordering::SeqCst))
    }

    /// Sweeps the streams if the interval has passed.
    pub fn sweep_at(&self, now: Timestamp) {
        if !self.buffers.is_empty() && Timestamp(self.swept_at.load(Ordering::Relaxed)).after(SWEEP_PACE) <= now {
            self.sweep(now);
        }
    }

    /// Drops old streams without readers, then the least recently written ones while the total is too large (ST1).
    fn sweep(&self, now: Timestamp) {
        self.swept_at.store(now.0, Ordering::Relaxed);
        let old = now.before(AGE_MAX);
        self.drop_where(|buffer| buffer.readers == 0 && buffer.written_at < old && buffer.read_at < old);
        if self.bytes.load(Ordering::SeqCst) <= BYTES_MAX_OF_ALL {
            return;
        }
        let mut ages = Vec::new();
        self.buffers.each(|_, buffer| ages.push((buffer.written_at, buffer.bytes())));
        ages.sort_unstable();
        let (mut remaining, mut until) = (self.bytes.load(Ordering::SeqCst), Timestamp(0));
        for (written_at, bytes) in ages {
            if remaining <= BYTES_MAX_OF_ALL / 4 * 3 {
                break;
            }
            (remaining, until) = (remaining.saturating_sub(bytes), written_at);
        }
        // Readers of these get a stream reset and continue with later frames.
        self.drop_where(|buffer| buffer.written_at <= until);
    }

    fn drop_where(&self, chosen: impl FnMut(&Buffer) -> bool) {
        let gone = self.buffers.take_all(chosen);
        let bytes: usize = gone.iter().map(|(_, buffer)| buffer.bytes()).sum();
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Returns the runs whose stream is read here.
    pub fn read_runs(&self, now: Timestamp) -> Vec<RunKey> {
        let mut runs = Vec::new();
        if !self.buffers.is_empty() {
            let since = now.before(READER_GRACE);
            self.buffers.each(|run, buffer| {
                if buffer.readers > 0 || buffer.read_at >= since {
                    runs.push(run.clone());
                }
            });
        }
        runs
    }

    /// Returns the frames of the attempts that are in progress here.
    pub fn open_attempts(&self, run: &RunKey) -> Vec<TaskFrames> {
        self.update(run, |buffer| buffer.open_attempts(run)).unwrap_or_default()
    }

    /// Returns the runs that have a stream here.
    pub fn runs(&self) -> Vec<RunKey> {
        let mut runs = Vec::new();
        if !self.buffers.is_empty() {
            self.buffers.each(|run, _| runs.push(run.clone()));
        }
        runs
    }
}

impl Runtime {
    /// Adds frames of a task attempt to the stream of its run. Not recorded.
    pub(crate) fn push_frames(&self, task_frames: TaskFrames) {
        let (hub, now) = (self.hub(), self.clock().now());
        let _whole = hub.broadcast.keep_whole();
        hub.broadcast.forward(&task_frames);
        hub.streams.push_frames(task_frames, now);
    }

    /// Reports a failed attempt to the stream of its run, if any stream exists.
    pub(crate) fn publish_failed_attempt(&self, id: &TaskId, claim: u64, held: &HeldTasks, failure: &Failure) {
        let hub = self.hub();
        if hub.streams.buffers.is_empty() && !hub.broadcast.has_readers() {
            return;
        }
        let Some((attempt, uncounted, retry)) = held.attempt(id, claim) else { return };
        let now = self.clock().now();
        let next = retry.next_attempt(attempt.saturating_sub(uncounted).max(1), failure, now);
        let (generation, task, failure) = (id.generation, id.call_id.clone(), failure.clone());
        // The maximum grows by the attempts that do not count.
        let attempts_max = if retry.attempts_max == 0 { 0 } else { retry.attempts_max.saturating_add(uncounted) };
        let next_delay_ms = next.map(|next| next.0.saturating_sub(now.0));
        let failed = AttemptFailed { generation, task, attempt, attempts_max, failure, next_delay_ms };
        hub.broadcast.failed(&id.run, claim, &failed);
        hub.streams.fail(&id.run, claim, failed, now);
    }
}

#[cfg(test)]
mod tests;
