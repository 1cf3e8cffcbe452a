//! What was said last about one run, for readers that come and go.
//!
//! Owns the order of a stream, what falls out of it, and where a reader goes on. Must never wait, and decides by the times that it is given.
//!
//! Invariants:
//! - SB1: a reader that comes back with the offset of a frame gets what followed that frame, each frame once; if that is not known any
//!   more it is told so, and gets nothing that is older than what it is told.
//! - SB2: what is kept takes no more than [`BYTES_MAX`], and nothing in it is older than [`AGE_MAX`] when something is added or read.
//! - SB3 (SY1, SY2): of each task only the latest claim speaks, and only until the task is over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use onward_core::stream::{
    AttemptFailed, AttemptReset, BranchReset, Speech, Spoken, SpokenFrame, StreamFrame, StreamSaid, said_by,
};
use onward_core::task::TaskId;
use onward_core::{Event, Hash, Index, Place, Record, RunKey, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How much of a stream is kept.
pub(crate) const BYTES_MAX: usize = 1024 * 1024;

/// How long it is kept.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(15 * 60);

/// How many tasks a stream remembers to have spoken; those that are over are forgotten first.
const TASKS_MAX: usize = 1_024;

/// Where a reader is: which buffer it read, and how many frames of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    pub life: u64,
    /// The next frame to read.
    pub next: u64,
}

impl Offset {
    pub fn parse(text: &str) -> Option<Offset> {
        let (life, next) = text.split_once('-')?;
        let (life, next) = (u64::from_str_radix(life, 16).ok()?, next.parse().ok()?);
        Some(Offset { life, next })
    }
}

impl std::fmt::Display for Offset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{}", self.life, self.next)
    }
}

struct Kept {
    at: Timestamp,
    bytes: usize,
    said: StreamSaid,
}

/// A task that has spoken.
struct Speaker {
    claim: u64,
    next_seq: u64,
    is_over: bool,
    has_failed: bool,
    /// Words of it, or of an earlier attempt, were said here and not taken back.
    has_words: bool,
    /// It speaks to this server, which therefore knows all that it has said; of others only what was passed on is known.
    is_here: bool,
}

impl Speaker {
    /// A task that is over and has said nothing here.
    const SILENT: Speaker = Speaker { claim: 0, next_seq: 0, is_over: true, has_failed: false, has_words: false, is_here: false };
}

/// What of the open log the stream knows.
#[derive(Default)]
struct Known {
    generation: u32,
    /// The first event that the stream has heard of, and the first that it has not.
    from: Index,
    next: Index,
    /// The end of the conversation before this log, as far as anybody has said.
    base: Option<Hash>,
    entries: Vec<(Index, Hash)>,
    /// Somebody has gone on from an earlier entry, and readers know.
    is_branched: bool,
}

pub(crate) struct Buffer {
    life: u64,
    frames: VecDeque<Kept>,
    /// The number of the first frame that is kept.
    first: u64,
    bytes: usize,
    /// The first frame behind the last entry that became final: what comes before is read elsewhere.
    open_from: u64,
    speakers: BTreeMap<(u32, Place), Speaker>,
    /// There were too many of them: of one that is not known any more words may have been said.
    has_forgotten: bool,
    known: Option<Known>,
    has_ended: bool,
    pub said_at: Timestamp,
    pub read_at: Timestamp,
    pub readers: usize,
    pub born_at: Instant,
    news: Arc<Notify>,
}

impl Buffer {
    pub fn new(life: u64, now: Timestamp) -> Buffer {
        Buffer {
            life,
            frames: VecDeque::new(),
            first: 0,
            bytes: 0,
            open_from: 0,
            speakers: BTreeMap::new(),
            has_forgotten: false,
            known: None,
            has_ended: false,
            said_at: now,
            read_at: Timestamp(0),
            readers: 0,
            born_at: Instant::now(),
            news: Arc::default(),
        }
    }

    pub fn news(&self) -> &Arc<Notify> {
        &self.news
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The generation and the first event of the log that the stream has not heard of; `None` if it knows nothing of any log.
    pub fn position(&self) -> Option<(u32, Index)> {
        self.known.as_ref().map(|known| (known.generation, known.next))
    }

    /// Takes what an attempt says here. Returns whether anything of it was new.
    pub fn speak(&mut self, speech: Speech, now: Timestamp) -> bool {
        self.take(speech, now, true)
    }

    /// The same, passed on by the server that it speaks to.
    pub fn hear(&mut self, speech: Speech, now: Timestamp) -> bool {
        self.take(speech, now, false)
    }

    fn take(&mut self, speech: Speech, now: Timestamp, is_here: bool) -> bool {
        let Speech { task, claim, attempt, frames } = speech;
        let (generation, place) = (task.generation, task.place);
        if self.known.as_ref().is_some_and(|known| known.generation > generation) {
            return false; // SB3: its run has gone on without it
        }
        self.forget_speakers();
        let key = (generation, place.clone());
        let begins = match self.speakers.get(&key) {
            Some(speaker) if speaker.is_over || speaker.claim > claim => return false, // SB3
            Some(speaker) => speaker.claim < claim && speaker.has_words,
            // A task may begin with a later claim: it was restored, or copied with its run. What it said at another server, or before this
            // one was started anew, readers of this stream are told to forget when they come here.
            None => claim > 1 && self.has_forgotten,
        };
        let next_seq = match self.speakers.get(&key) {
            Some(speaker) if speaker.claim == claim => speaker.next_seq,
            _ => 0,
        };
        let mut new = frames.into_iter().filter(|frame| frame.seq >= next_seq).peekable();
        if new.peek().is_none() {
            return false;
        }
        if begins {
            self.push(StreamSaid::AttemptReset(AttemptReset { generation, task: place.clone(), attempt }), now); // SY1
        }
        let mut last = next_seq;
        for frame in new {
            last = last.max(frame.seq + 1);
            let spoken = Spoken { generation, task: place.clone(), attempt, seq: frame.seq, frame: frame.frame };
            self.push(StreamSaid::Spoken(spoken), now);
        }
        self.speakers.insert(key, Speaker { claim, next_seq: last, is_over: false, has_failed: false, has_words: true, is_here });
        true
    }

    /// Whether it goes on with something whose beginning is not known here.
    pub fn lacks_beginning(&self, speech: &Speech) -> bool {
        let speaker = self.speakers.get(&(speech.task.generation, speech.task.place.clone()));
        let is_known = speaker.is_some_and(|speaker| speaker.claim >= speech.claim);
        !is_known && speech.frames.first().is_some_and(|frame| frame.seq > 0)
    }

    /// What those attempts have said that speak here at this moment, as far as it is kept. What others passed on is theirs to say again: who
    /// got an older part of it from here would take it for the beginning of what comes from there.
    pub fn open_speech(&self, run: &RunKey) -> Vec<Speech> {
        let mut open: BTreeMap<(u32, Place), Speech> = BTreeMap::new();
        for kept in &self.frames {
            match &kept.said {
                StreamSaid::AttemptReset(reset) => drop(open.remove(&(reset.generation, reset.task.clone()))),
                StreamSaid::Spoken(spoken) => {
                    let key = (spoken.generation, spoken.task.clone());
                    let Some(speaker) = self.speakers.get(&key).filter(|speaker| !speaker.is_over && speaker.is_here) else {
                        continue;
                    };
                    let task = TaskId { run: run.clone(), generation: spoken.generation, place: spoken.task.clone(), life: None };
                    let (claim, attempt) = (speaker.claim, spoken.attempt);
                    let speech = open.entry(key).or_insert(Speech { task, claim, attempt, frames: Vec::new() });
                    speech.frames.push(SpokenFrame { seq: spoken.seq, frame: spoken.frame.clone() });
                }
                _ => {}
            }
        }
        open.into_values().collect()
    }

    /// Says that an attempt has failed, once.
    pub fn fail(&mut self, claim: u64, failed: AttemptFailed, now: Timestamp) {
        self.forget_speakers();
        let key = (failed.generation, failed.task.clone());
        let unheard = Speaker { claim, next_seq: 0, is_over: false, has_failed: false, has_words: false, is_here: false };
        let speaker = self.speakers.entry(key).or_insert(unheard);
        if speaker.is_over || speaker.claim > claim || (speaker.claim == claim && speaker.has_failed) {
            return;
        }
        if speaker.claim < claim {
            // It failed before it said anything.
            let Speaker { has_words, is_here, .. } = *speaker;
            *speaker = Speaker { claim, next_seq: 0, is_over: false, has_failed: true, has_words, is_here };
        }
        speaker.has_failed = true;
        self.push(StreamSaid::AttemptFailed(failed), now);
    }

    fn forget_speakers(&mut self) {
        if self.speakers.len() >= TASKS_MAX {
            self.speakers.retain(|_, speaker| !speaker.is_over);
        }
        while self.speakers.len() >= TASKS_MAX {
            self.speakers.pop_first();
            self.has_forgotten = true;
        }
    }

    /// Takes the next record of the run's log. Returns whether it was the next one: if not, somebody has to read what lies between.
    pub fn append(&mut self, generation: u32, record: &Record) -> bool {
        if let Some(known) = &self.known {
            let here = (generation, record.index);
            if here < (known.generation, known.next) {
                return true;
            }
            let is_next_log = generation > known.generation && record.index == Index(0);
            if !is_next_log && here != (known.generation, known.next) {
                return false;
            }
        }
        self.begin_log(generation, record);
        for said in said_by(generation, record) {
            self.say(said, record.at);
        }
        if let Some(known) = &mut self.known {
            known.next = record.next_index();
        }
        true
    }

    fn begin_log(&mut self, generation: u32, record: &Record) {
        if self.known.as_ref().is_none_or(|known| known.generation != generation) {
            let base = record.started().and_then(|started| started.checkpoint.as_ref()?.leaf);
            self.known =
                Some(Known { generation, from: record.index, next: record.index, base, entries: Vec::new(), is_branched: false });
            self.speakers.retain(|(of, _), _| *of >= generation);
        }
        if let Some(Event::BranchRequested(event)) = record.events.first()
            && let Some(known) = &mut self.known
        {
            (known.entries, known.base, known.is_branched) = (Vec::new(), event.from, true);
            self.push(StreamSaid::BranchReset(BranchReset { generation, leaf: event.from }), record.at);
        }
        if let Some(Event::SegmentAbandoned(event)) = record.events.first()
            && let Some(known) = &mut self.known
            && !known.is_branched
        {
            known.entries.retain(|(index, _)| *index < event.from);
            let leaf = known.entries.last().map(|(_, id)| *id).or(known.base);
            self.push(StreamSaid::BranchReset(BranchReset { generation, leaf }), record.at);
        }
    }

    /// Says what a log says, or what somebody knows who has read it.
    fn say(&mut self, said: StreamSaid, at: Timestamp) {
        match &said {
            StreamSaid::TaskEnd(end) => {
                let key = (end.generation, end.task.clone());
                let Some(speaker) = self.speakers.get_mut(&key) else {
                    // Of a task that has said nothing, no reader needs its end. But words that another server passes on may come after the
                    // end, which is read from the log: they are dropped (SB3).
                    self.forget_speakers();
                    self.speakers.insert(key, Speaker::SILENT);
                    return;
                };
                if std::mem::replace(&mut speaker.is_over, true) {
                    return;
                }
            }
            StreamSaid::Entry(entry) => {
                if let Some(known) = &mut self.known {
                    known.entries.push((entry.index, entry.id));
                }
            }
            StreamSaid::End(_) => self.has_ended = true,
            _ => {}
        }
        let is_entry = matches!(said, StreamSaid::Entry(_));
        self.push(said, at);
        if is_entry {
            self.open_from = self.next();
        }
    }

    /// Takes what a reader has found out: where the log is, and the entries of its open part. What the stream has heard of itself stays:
    /// somebody may be waiting for what comes next of it.
    pub fn learn(&mut self, generation: u32, records: &[Record]) {
        let behind = records.last().map_or(Index(0), Record::next_index);
        let base = records.first().and_then(|record| record.started()?.checkpoint.as_ref()?.leaf);
        let entries = onward_core::conversation::entries_of(generation, records);
        let on_path = entries.iter().filter(|entry| !entry.is_abandoned && !entry.is_aside);
        let on_path = on_path.map(|entry| (entry.index, entry.id));
        match &mut self.known {
            None => {
                let entries = on_path.collect();
                let is_branched = records.iter().any(|record| matches!(record.events.first(), Some(Event::BranchRequested(_))));
                self.known = Some(Known { generation, from: Index(0), next: behind, base, entries, is_branched });
            }
            Some(known) if known.generation == generation && known.from > Index(0) && known.from <= behind => {
                let before = on_path.filter(|(index, _)| *index < known.from);
                known.entries = before.chain(std::mem::take(&mut known.entries)).collect();
                (known.from, known.base) = (Index(0), base);
            }
            Some(_) => {}
        }
    }

    /// Says that the run is closed, unless that was said.
    pub fn end(&mut self, said: StreamSaid, now: Timestamp) {
        if !self.has_ended {
            self.say(said, now);
        }
    }

    /// Says something as it is.
    pub fn push(&mut self, said: StreamSaid, at: Timestamp) {
        let bytes = said.weigh();
        self.frames.push_back(Kept { at, bytes, said });
        self.bytes += bytes;
        self.said_at = self.said_at.max(at);
        self.trim(at);
        self.news.notify_waiters();
    }

    /// Lets go of what is too old or too much (SB2).
    pub fn trim(&mut self, now: Timestamp) {
        while let Some(oldest) = self.frames.front()
            && (self.bytes > BYTES_MAX || oldest.at.after(AGE_MAX) < now)
        {
            self.bytes -= oldest.bytes;
            self.frames.pop_front();
            self.first += 1;
        }
    }

    /// The number behind the last frame.
    fn next(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    pub fn has(&self, offset: Offset) -> bool {
        offset.life == self.life && (self.first..=self.next()).contains(&offset.next)
    }

    /// Where somebody begins who knows everything that is final, and nothing else.
    pub fn beginning(&self) -> Offset {
        Offset { life: self.life, next: self.open_from.max(self.first) }
    }

    /// What follows `offset`, `limit` frames at most. The caller has asked whether the buffer has it.
    pub fn read(&self, offset: Offset, limit: usize) -> Vec<StreamFrame> {
        let skipped = usize::try_from(offset.next - self.first).unwrap_or(usize::MAX);
        let numbered = self.frames.iter().skip(skipped).take(limit).zip(offset.next + 1..);
        let frame = |(kept, next): (&Kept, u64)| {
            let offset = Offset { life: self.life, next };
            StreamFrame { offset: offset.to_string(), at: kept.at, said: kept.said.clone() }
        };
        numbered.map(frame).collect()
    }
}

/// Whoever waits for this buffer has to look for another one.
impl Drop for Buffer {
    fn drop(&mut self) {
        self.news.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
