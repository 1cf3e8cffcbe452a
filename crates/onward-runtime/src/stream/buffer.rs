//! The buffer of one stream: the latest frames of one run, for readers that come and go.
//!
//! Defines the order of a stream, what is dropped from it, and where a reader continues. It never waits, and uses only the
//! times that callers pass in.
//!
//! Invariants:
//! - SB1: a reader that returns with the offset of a frame gets the following frames, each once. If they are gone, it gets a
//!   reset instead, and no frame older than that.
//! - SB2: the buffer takes at most [`BYTES_MAX`], and after an addition or a read no frame in it is older than [`AGE_MAX`].
//! - SB3 (SY1, SY2): of each task only the latest claim adds frames, and only until the task has ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use onward_core::stream::{
    AttemptFailed, AttemptReset, BranchReset, SequencedFrame, StreamContent, StreamFrame, TaskFrame, TaskFrames, contents_of,
};
use onward_core::task::TaskId;
use onward_core::{CallId, Event, Hash, Index, Record, RunKey, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Memory bound of a stream.
pub(crate) const BYTES_MAX: usize = 1024 * 1024;

/// Maximum age of a frame.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(15 * 60);

/// Number of tasks that a stream remembers; ended ones are forgotten first.
const TASKS_MAX: usize = 1_024;

/// The position of a reader: which buffer it read, and how many frames of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    pub incarnation: u64,
    /// The next frame to read.
    pub next: u64,
}

impl Offset {
    pub fn parse(text: &str) -> Option<Offset> {
        let (incarnation, next) = text.split_once('-')?;
        let (incarnation, next) = (u64::from_str_radix(incarnation, 16).ok()?, next.parse().ok()?);
        Some(Offset { incarnation, next })
    }
}

impl std::fmt::Display for Offset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{}", self.incarnation, self.next)
    }
}

struct Kept {
    at: Timestamp,
    bytes: usize,
    content: StreamContent,
}

/// A task that has emitted frames.
struct OutputState {
    claim: u64,
    next_seq: u64,
    is_over: bool,
    has_failed: bool,
    /// The stream has frames of this or an earlier attempt that were not reset.
    has_frames: bool,
    /// The attempt runs at this server, which therefore has all its frames; of other attempts it has only what was forwarded.
    is_here: bool,
}

impl OutputState {
    /// A task that has ended without frames here.
    const ENDED: OutputState =
        OutputState { claim: 0, next_seq: 0, is_over: true, has_failed: false, has_frames: false, is_here: false };
}

/// The part of the open log that the stream knows.
#[derive(Default)]
struct KnownLog {
    generation: u32,
    /// The first event that the stream has received, and the first that it has not.
    from: Index,
    next: Index,
    /// The end of the conversation before this log, if known.
    base: Option<Hash>,
    entries: Vec<(Index, Hash)>,
    /// The conversation continued from an earlier entry, and readers were notified.
    is_branched: bool,
}

pub(crate) struct Buffer {
    incarnation: u64,
    frames: VecDeque<Kept>,
    /// The number of the first frame in the buffer.
    first: u64,
    bytes: usize,
    /// The first frame after the last entry that became final: everything before is in the log.
    open_from: u64,
    outputs: BTreeMap<(u32, CallId), OutputState>,
    /// Tasks were forgotten because there were too many: an unknown task may have emitted frames.
    has_forgotten: bool,
    known: Option<KnownLog>,
    has_ended: bool,
    pub written_at: Timestamp,
    pub read_at: Timestamp,
    pub readers: usize,
    pub born_at: Instant,
    changed: Arc<Notify>,
}

impl Buffer {
    pub fn new(incarnation: u64, now: Timestamp) -> Buffer {
        Buffer {
            incarnation,
            frames: VecDeque::new(),
            first: 0,
            bytes: 0,
            open_from: 0,
            outputs: BTreeMap::new(),
            has_forgotten: false,
            known: None,
            has_ended: false,
            written_at: now,
            read_at: Timestamp(0),
            readers: 0,
            born_at: Instant::now(),
            changed: Arc::default(),
        }
    }

    pub fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the generation and the first event of the log that the stream has not received; `None` if it knows no log.
    pub fn position(&self) -> Option<(u32, Index)> {
        self.known.as_ref().map(|known| (known.generation, known.next))
    }

    /// Adds frames of an attempt, at this server or (`is_here` is false) forwarded by another. Returns true if any of them is
    /// new.
    pub fn push_frames(&mut self, task_frames: TaskFrames, now: Timestamp, is_here: bool) -> bool {
        let TaskFrames { task, claim, attempt, frames } = task_frames;
        let (generation, call_id) = (task.generation, task.call_id);
        if self.known.as_ref().is_some_and(|known| known.generation > generation) {
            return false; // SB3: the run has continued without it
        }
        self.limit_outputs();
        let key = (generation, call_id.clone());
        let begins = match self.outputs.get(&key) {
            Some(output) if output.is_over || output.claim > claim => return false, // SB3
            Some(output) => output.claim < claim && output.has_frames,
            // A task may start with a later claim if it was restored, or copied with its run. Frames that it emitted at another
            // server, or before this server was restarted, are discarded by the reset that readers get when they connect here.
            None => claim > 1 && self.has_forgotten,
        };
        let next_seq = match self.outputs.get(&key) {
            Some(output) if output.claim == claim => output.next_seq,
            _ => 0,
        };
        let mut new = frames.into_iter().filter(|frame| frame.seq >= next_seq).peekable();
        if new.peek().is_none() {
            return false;
        }
        if begins {
            self.push(StreamContent::AttemptReset(AttemptReset { generation, task: call_id.clone(), attempt }), now); // SY1
        }
        let mut last = next_seq;
        for frame in new {
            last = last.max(frame.seq + 1);
            let task_frame = TaskFrame { generation, task: call_id.clone(), attempt, seq: frame.seq, frame: frame.frame };
            self.push(StreamContent::TaskFrame(task_frame), now);
        }
        self.outputs
            .insert(key, OutputState { claim, next_seq: last, is_over: false, has_failed: false, has_frames: true, is_here });
        true
    }

    /// Returns true if the frames continue an attempt whose beginning is missing here.
    pub fn lacks_beginning(&self, task_frames: &TaskFrames) -> bool {
        let output = self.outputs.get(&(task_frames.task.generation, task_frames.task.call_id.clone()));
        let is_known = output.is_some_and(|output| output.claim >= task_frames.claim);
        !is_known && task_frames.frames.first().is_some_and(|frame| frame.seq > 0)
    }

    /// Returns the frames of the attempts that are in progress at this server. Forwarded frames are left to the server that has
    /// them all: a receiver would take an incomplete copy for the beginning.
    pub fn open_attempts(&self, run: &RunKey) -> Vec<TaskFrames> {
        let mut open: BTreeMap<(u32, CallId), TaskFrames> = BTreeMap::new();
        for kept in &self.frames {
            match &kept.content {
                StreamContent::AttemptReset(reset) => drop(open.remove(&(reset.generation, reset.task.clone()))),
                StreamContent::TaskFrame(task_frame) => {
                    let key = (task_frame.generation, task_frame.task.clone());
                    let Some(output) = self.outputs.get(&key).filter(|output| !output.is_over && output.is_here) else {
                        continue;
                    };
                    let task = TaskId {
                        run: run.clone(),
                        generation: task_frame.generation,
                        call_id: task_frame.task.clone(),
                        incarnation: None,
                    };
                    let (claim, attempt) = (output.claim, task_frame.attempt);
                    let task_frames = open.entry(key).or_insert(TaskFrames { task, claim, attempt, frames: Vec::new() });
                    task_frames.frames.push(SequencedFrame { seq: task_frame.seq, frame: task_frame.frame.clone() });
                }
                _ => {}
            }
        }
        open.into_values().collect()
    }

    /// Reports the failure of an attempt, once.
    pub fn fail(&mut self, claim: u64, failed: AttemptFailed, now: Timestamp) {
        self.limit_outputs();
        let key = (failed.generation, failed.task.clone());
        let initial = OutputState { claim, next_seq: 0, is_over: false, has_failed: false, has_frames: false, is_here: false };
        let output = self.outputs.entry(key).or_insert(initial);
        if output.is_over || output.claim > claim || (output.claim == claim && output.has_failed) {
            return;
        }
        if output.claim < claim {
            // The attempt failed before it emitted a frame.
            let OutputState { has_frames, is_here, .. } = *output;
            *output = OutputState { claim, next_seq: 0, is_over: false, has_failed: true, has_frames, is_here };
        }
        output.has_failed = true;
        self.push(StreamContent::AttemptFailed(failed), now);
    }

    fn limit_outputs(&mut self) {
        if self.outputs.len() >= TASKS_MAX {
            self.outputs.retain(|_, output| !output.is_over);
        }
        while self.outputs.len() >= TASKS_MAX {
            self.outputs.pop_first();
            self.has_forgotten = true;
        }
    }

    /// Adds the next record of the run's log. Returns false if there is a gap before it, which the caller has to read.
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
        for content in contents_of(generation, record) {
            self.add(content, record.at);
        }
        if let Some(known) = &mut self.known {
            known.next = record.next_index();
        }
        true
    }

    fn begin_log(&mut self, generation: u32, record: &Record) {
        if self.known.as_ref().is_none_or(|known| known.generation != generation) {
            let base = record.started().and_then(|started| started.checkpoint.as_ref()?.leaf);
            self.known = Some(KnownLog {
                generation,
                from: record.index,
                next: record.index,
                base,
                entries: Vec::new(),
                is_branched: false,
            });
            self.outputs.retain(|(of, _), _| *of >= generation);
        }
        if let Some(Event::BranchRequested(event)) = record.events.first()
            && let Some(known) = &mut self.known
        {
            (known.entries, known.base, known.is_branched) = (Vec::new(), event.from, true);
            self.push(StreamContent::BranchReset(BranchReset { generation, leaf: event.from }), record.at);
        }
        if let Some(Event::SegmentAbandoned(event)) = record.events.first()
            && let Some(known) = &mut self.known
            && !known.is_branched
        {
            known.entries.retain(|(index, _)| *index < event.from);
            let leaf = known.entries.last().map(|(_, id)| *id).or(known.base);
            self.push(StreamContent::BranchReset(BranchReset { generation, leaf }), record.at);
        }
    }

    /// Adds a frame that derives from the log.
    fn add(&mut self, content: StreamContent, at: Timestamp) {
        match &content {
            StreamContent::TaskEnd(end) => {
                let key = (end.generation, end.task.clone());
                let Some(output) = self.outputs.get_mut(&key) else {
                    // Readers do not need the end of a task without frames. It is remembered, because forwarded frames may
                    // arrive after the end was read from the log, and have to be dropped (SB3).
                    self.limit_outputs();
                    self.outputs.insert(key, OutputState::ENDED);
                    return;
                };
                if std::mem::replace(&mut output.is_over, true) {
                    return;
                }
            }
            StreamContent::Entry(entry) => {
                if let Some(known) = &mut self.known {
                    known.entries.push((entry.index, entry.id));
                }
            }
            StreamContent::End(_) => self.has_ended = true,
            _ => {}
        }
        let is_entry = matches!(content, StreamContent::Entry(_));
        self.push(content, at);
        if is_entry {
            self.open_from = self.next();
        }
    }

    /// Adds what a reader found in the log: its position, and the entries of its open part. Known positions stay as they are,
    /// because readers may wait for what follows them.
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
                self.known = Some(KnownLog { generation, from: Index(0), next: behind, base, entries, is_branched });
            }
            Some(known) if known.generation == generation && known.from > Index(0) && known.from <= behind => {
                let before = on_path.filter(|(index, _)| *index < known.from);
                known.entries = before.chain(std::mem::take(&mut known.entries)).collect();
                (known.from, known.base) = (Index(0), base);
            }
            Some(_) => {}
        }
    }

    /// Adds the end of the run, once.
    pub fn end(&mut self, content: StreamContent, now: Timestamp) {
        if !self.has_ended {
            self.add(content, now);
        }
    }

    /// Appends a frame and wakes the readers.
    pub fn push(&mut self, content: StreamContent, at: Timestamp) {
        let bytes = content.memory_size();
        self.frames.push_back(Kept { at, bytes, content });
        self.bytes += bytes;
        self.written_at = self.written_at.max(at);
        self.trim(at);
        self.changed.notify_waiters();
    }

    /// Drops frames that are too old or exceed the memory bound (SB2).
    pub fn trim(&mut self, now: Timestamp) {
        while let Some(oldest) = self.frames.front()
            && (self.bytes > BYTES_MAX || oldest.at.after(AGE_MAX) < now)
        {
            self.bytes -= oldest.bytes;
            self.frames.pop_front();
            self.first += 1;
        }
    }

    /// Returns the number after the last frame.
    fn next(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    pub fn has(&self, offset: Offset) -> bool {
        offset.incarnation == self.incarnation && (self.first..=self.next()).contains(&offset.next)
    }

    /// Returns the offset for a reader that has everything that is final, and nothing else.
    pub fn beginning(&self) -> Offset {
        Offset { incarnation: self.incarnation, next: self.open_from.max(self.first) }
    }

    /// Returns up to `limit` frames after `offset`, which must be in the buffer.
    pub fn read(&self, offset: Offset, limit: usize) -> Vec<StreamFrame> {
        let skipped = usize::try_from(offset.next - self.first).unwrap_or(usize::MAX);
        let numbered = self.frames.iter().skip(skipped).take(limit).zip(offset.next + 1..);
        let frame = |(kept, next): (&Kept, u64)| {
            let offset = Offset { incarnation: self.incarnation, next };
            StreamFrame { offset: offset.to_string(), at: kept.at, content: kept.content.clone() }
        };
        numbered.map(frame).collect()
    }
}

/// Wakes the readers of this buffer, so that they look for a new one.
impl Drop for Buffer {
    fn drop(&mut self) {
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
