//! What tasks here say, for those who read the stream of their run at another server.
//!
//! It is sent while somebody there has said that they read; who begins to read is sent what is being said from its beginning. What there
//! is no room for is not said, and shows as a gap in what its attempt says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use onward_core::RunKey;
use onward_core::stream::{AttemptFailed, Speech};
use tokio::time::Instant;

use super::{LISTENING_MAX, LISTENING_PACE, Letter, Post, SpokenElsewhere};
use crate::Runtime;
use crate::by_run::lock;
use crate::cluster::listener::Hub;

/// How much may wait to be sent.
const SPOKEN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How much is said in one letter.
const LETTER_BYTES: usize = 256 * 1024;

#[derive(Default)]
pub(crate) struct Readers {
    /// Whose streams are read elsewhere, by which runtimes, and until when that counts.
    wanted: Mutex<HashMap<RunKey, HashMap<u64, Instant>>>,
    wanted_count: AtomicUsize,
    spoken: Mutex<(Vec<SpokenElsewhere>, usize)>,
    /// Which streams are read here that the others know of, and since when.
    announced: Mutex<HashMap<RunKey, Instant>>,
    has_new: AtomicBool,
    /// Held while something is said, and while a new reader is sent what was said: nothing is in neither.
    whole: Mutex<()>,
    /// Held while something is sent: what was said first is heard first.
    sending: tokio::sync::Mutex<()>,
}

impl Readers {
    /// Somebody elsewhere reads; returns whether that is new.
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

    /// Whether the others should be told who reads here.
    pub fn is_time(&self, is_time: bool) -> bool {
        self.has_new.swap(false, Ordering::SeqCst) || is_time
    }

    fn keep(&self, spoken: SpokenElsewhere) {
        let mut waiting = lock(&self.spoken);
        let bytes = weigh(&spoken);
        if waiting.1 + bytes <= SPOKEN_BYTES_MAX {
            waiting.0.push(spoken);
            waiting.1 += bytes;
        }
    }

    /// As much as goes into a letter.
    fn take(&self) -> Vec<SpokenElsewhere> {
        let mut waiting = lock(&self.spoken);
        let (mut count, mut bytes) = (0, 0);
        while count < waiting.0.len() && (count == 0 || bytes < LETTER_BYTES) {
            bytes += weigh(&waiting.0[count]);
            count += 1;
        }
        waiting.1 -= bytes;
        waiting.0.drain(..count).collect()
    }
}

fn weigh(spoken: &SpokenElsewhere) -> usize {
    let frames = spoken.speech.iter().flat_map(|speech| &speech.frames);
    128 + frames.map(|frame| frame.frame.data().len() + 32).sum::<usize>()
}

impl Post {
    /// Somebody here reads the stream of a run.
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
        self.rung.notify_one();
    }

    /// Until it is dropped nothing is said, or nobody begins to read, as far as others do it under this guard.
    pub fn keep_whole(&self) -> MutexGuard<'_, ()> {
        lock(&self.readers.whole)
    }

    pub fn has_readers(&self) -> bool {
        self.readers.wanted_count.load(Ordering::SeqCst) > 0
    }

    /// Passes on what an attempt says, if anybody elsewhere reads it.
    pub fn spoken(&self, speech: &Speech) {
        if self.readers.wants(&speech.task.run) {
            self.say_again(vec![speech.clone()]);
        }
    }

    pub fn failed(&self, run: &RunKey, claim: u64, failed: &AttemptFailed) {
        if self.readers.wants(run) {
            self.readers.keep(SpokenElsewhere { run: run.clone(), claim, speech: None, failed: Some(failed.clone()) });
            self.rung.notify_one();
        }
    }

    pub(super) fn say_again(&self, speeches: Vec<Speech>) {
        for speech in speeches {
            let (run, claim) = (speech.task.run.clone(), speech.claim);
            self.readers.keep(SpokenElsewhere { run, claim, speech: Some(speech), failed: None });
        }
        self.rung.notify_one();
    }
}

impl Hub {
    /// Takes what a task at another server says. Where nobody reads it any more, nobody keeps it.
    pub(super) fn heard(&self, spoken: SpokenElsewhere) {
        let SpokenElsewhere { run, claim, speech, failed } = spoken;
        if let Some(speech) = speech.filter(|speech| speech.task.run == run) {
            self.streams.speak_if_open(speech);
        }
        if let Some(failed) = failed {
            self.streams.fail_if_open(&run, claim, failed);
        }
    }
}

impl Runtime {
    pub(super) fn read_here(&self) -> Vec<RunKey> {
        self.hub().streams.read_runs(self.clock().now())
    }

    /// Sends what was said here to those who read elsewhere. Returns when everything that was said before is on its way.
    pub(crate) async fn send_spoken(&self) {
        let post = &self.hub().post;
        if !post.has_readers() {
            return;
        }
        let _first = post.readers.sending.lock().await;
        loop {
            let spoken = post.readers.take();
            if spoken.is_empty() {
                return;
            }
            self.tell_others(Letter { spoken, ..post.letter() }).await;
        }
    }
}
