//! Stream frames of local tasks, for readers of the stream at another server.
//!
//! Frames are sent while the other server announces a reader. A new reader gets the open attempts from their first frame.
//! Frames that exceed the buffer are dropped and show as a gap in the sequence of their attempt.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use onward_core::RunKey;
use onward_core::stream::{AttemptFailed, TaskFrames};
use onward_store::sync::lock;
use tokio::time::Instant;

use super::{Broadcast, BroadcastMessage, ForwardedFrames, LISTENING_MAX, LISTENING_PACE};
use crate::Runtime;
use crate::cluster::Hub;

/// Bound on the bytes that wait to be sent.
const SPOKEN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Size of one message.
const LETTER_BYTES: usize = 256 * 1024;

#[derive(Default)]
pub(crate) struct Readers {
    /// Runs whose streams are read elsewhere, by which runtimes, and until when that counts.
    wanted: Mutex<HashMap<RunKey, HashMap<u64, Instant>>>,
    wanted_count: AtomicUsize,
    forwarded: Mutex<(Vec<ForwardedFrames>, usize)>,
    /// Streams read here that were announced to the others, and when.
    announced: Mutex<HashMap<RunKey, Instant>>,
    has_new: AtomicBool,
    /// Held while a frame is added and while earlier frames are queued for a new reader, so that no frame is missing in both.
    whole: Mutex<()>,
    /// Held during a send, so that frames arrive in order.
    sending: tokio::sync::Mutex<()>,
}

impl Readers {
    /// Registers a reader at another runtime; returns true if it is new.
    pub fn want(&self, run: &RunKey, reader: u64) -> bool {
        let mut wanted = lock(&self.wanted);
        let now = Instant::now();
        wanted.retain(|_, readers| {
            readers.retain(|_, until| *until > now);
            !readers.is_empty()
        });
        let is_new = wanted.entry(run.clone()).or_default().insert(reader, now + LISTENING_MAX).is_none();
        self.wanted_count.store(wanted.len(), Ordering::SeqCst);
        is_new
    }

    fn wants(&self, run: &RunKey) -> bool {
        if self.wanted_count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let now = Instant::now();
        lock(&self.wanted).get(run).is_some_and(|readers| readers.values().any(|until| *until > now))
    }

    /// Returns true if the local readers should be announced.
    pub fn is_time(&self, is_time: bool) -> bool {
        self.has_new.swap(false, Ordering::SeqCst) || is_time
    }

    fn keep(&self, forwarded: ForwardedFrames) {
        let mut waiting = lock(&self.forwarded);
        let bytes = payload_bytes(&forwarded);
        if waiting.1 + bytes <= SPOKEN_BYTES_MAX {
            waiting.0.push(forwarded);
            waiting.1 += bytes;
        }
    }

    /// Takes as much as fits into one message.
    fn take(&self) -> Vec<ForwardedFrames> {
        let mut waiting = lock(&self.forwarded);
        let (mut count, mut bytes) = (0, 0);
        while count < waiting.0.len() && (count == 0 || bytes < LETTER_BYTES) {
            bytes += payload_bytes(&waiting.0[count]);
            count += 1;
        }
        waiting.1 -= bytes;
        waiting.0.drain(..count).collect()
    }
}

fn payload_bytes(forwarded: &ForwardedFrames) -> usize {
    let frames = forwarded.task_frames.iter().flat_map(|task_frames| &task_frames.frames);
    128 + frames.map(|frame| frame.frame.data().len() + 32).sum::<usize>()
}

impl Broadcast {
    /// Announces a local reader of a run's stream.
    pub fn reading(&self, run: &RunKey) {
        let mut announced = lock(&self.readers.announced);
        let now = Instant::now();
        if announced.get(run).is_some_and(|at| now.duration_since(*at) < LISTENING_PACE) {
            return;
        }
        announced.retain(|_, at| now.duration_since(*at) < LISTENING_PACE);
        announced.insert(run.clone(), now);
        drop(announced);
        self.readers.has_new.store(true, Ordering::SeqCst);
        self.wakeup.notify_one();
    }

    /// Locks out new frames and new readers, as far as they take this guard, until it is dropped.
    pub fn keep_whole(&self) -> MutexGuard<'_, ()> {
        lock(&self.readers.whole)
    }

    pub fn has_readers(&self) -> bool {
        self.readers.wanted_count.load(Ordering::SeqCst) > 0
    }

    /// Forwards the frames of an attempt if the stream is read elsewhere.
    pub fn forward(&self, task_frames: &TaskFrames) {
        if self.readers.wants(&task_frames.task.run) {
            self.forward_all(vec![task_frames.clone()]);
        }
    }

    pub fn failed(&self, run: &RunKey, claim: u64, failed: &AttemptFailed) {
        if self.readers.wants(run) {
            self.readers.keep(ForwardedFrames { run: run.clone(), claim, task_frames: None, failed: Some(failed.clone()) });
            self.wakeup.notify_one();
        }
    }

    pub(super) fn forward_all(&self, attempts: Vec<TaskFrames>) {
        for task_frames in attempts {
            let (run, claim) = (task_frames.task.run.clone(), task_frames.claim);
            self.readers.keep(ForwardedFrames { run, claim, task_frames: Some(task_frames), failed: None });
        }
        self.wakeup.notify_one();
    }
}

impl Hub {
    /// Adds frames of a task at another server. They are dropped if the stream is not open here.
    pub(super) fn receive_output(&self, forwarded: ForwardedFrames) {
        let ForwardedFrames { run, claim, task_frames, failed } = forwarded;
        if let Some(task_frames) = task_frames.filter(|task_frames| task_frames.task.run == run) {
            self.streams.push_frames_if_open(task_frames);
        }
        if let Some(failed) = failed {
            self.streams.fail_if_open(&run, claim, failed);
        }
    }
}

impl Runtime {
    /// Sends the waiting frames to the readers elsewhere. Returns when all frames that were added before are sent.
    pub(crate) async fn send_forwarded(&self) {
        let broadcast = &self.hub().broadcast;
        if !broadcast.has_readers() {
            return;
        }
        let _first = broadcast.readers.sending.lock().await;
        loop {
            let forwarded = broadcast.readers.take();
            if forwarded.is_empty() {
                return;
            }
            self.broadcast(BroadcastMessage { forwarded, ..broadcast.message() }).await;
        }
    }
}
