//! Reads of a stream: from an offset, or from the part that is not final yet.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::conversation::leaf_of;
use onward_core::stream::{StreamContent, StreamEnd, StreamFrame, StreamReset};
use onward_core::{Event, Record, RunHead, RunKey, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Streams;
use super::buffer::{Buffer, Offset};
use crate::api::client::read_records;
use crate::{Runtime, RuntimeError, StreamPage};

/// Maximum number of frames in a page.
const PAGE: usize = 1_000;

/// Page size of log reads, in records.
const RECORDS: usize = 256;

/// Bound on the attempts to read log and stream at the same position, and the pause between two of them.
const READS_MAX: u32 = 50;
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// Counts as a reader while it exists.
struct Reading<'a> {
    streams: &'a Streams,
    run: &'a RunKey,
    changed: Arc<Notify>,
}

impl<'a> Reading<'a> {
    fn new(streams: &'a Streams, run: &'a RunKey, changed: &Arc<Notify>) -> Reading<'a> {
        streams.update(run, |buffer| buffer.readers += 1);
        Reading { streams, run, changed: changed.clone() }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // The stream may have been replaced by a new one with its own readers.
        self.streams.update(self.run, |buffer| {
            if Arc::ptr_eq(buffer.changed(), &self.changed) {
                buffer.readers -= 1;
            }
        });
    }
}

/// The result of a read of a buffer.
enum BufferLookup {
    Frames(StreamPage),
    /// No frame yet; the `Notify` reports the next one.
    Nothing(Arc<Notify>),
    /// The offset is unknown here, or frames after it are gone.
    Unknown,
}

impl Streams {
    fn find(&self, run: &RunKey, from: Offset, now: Timestamp) -> BufferLookup {
        let found = self.update(run, |buffer| {
            buffer.read_at = now;
            buffer.trim(now);
            if !buffer.has(from) {
                return BufferLookup::Unknown;
            }
            let frames = buffer.read(from, PAGE);
            match frames.last() {
                Some(last) => BufferLookup::Frames(StreamPage { next: last.offset.clone(), frames }),
                None => BufferLookup::Nothing(buffer.changed().clone()),
            }
        });
        found.unwrap_or(BufferLookup::Unknown)
    }
}

impl Runtime {
    /// Reads the frames after `from`, or the part that is not final yet; waits up to `wait` for the first one. If frames after
    /// `from` are gone, the page starts with a stream reset.
    ///
    /// Cancel-safe.
    pub async fn read_stream(&self, run: &RunKey, from: Option<&str>, wait: Duration) -> Result<StreamPage, RuntimeError> {
        let until = Instant::now() + wait;
        let streams = &self.hub().streams;
        let Some(from) = from.and_then(Offset::parse) else { return self.begin_stream(run).await };
        loop {
            let changed = match streams.find(run, from, self.clock().now()) {
                BufferLookup::Frames(page) => return Ok(page),
                BufferLookup::Unknown => return self.begin_stream(run).await,
                BufferLookup::Nothing(changed) => changed,
            };
            let mut notified = pin!(changed.notified());
            // Enable the notification before checking the buffer, so that no frame is missed in between.
            notified.as_mut().enable();
            let _reading = Reading::new(streams, run, &changed);
            if !matches!(streams.find(run, from, self.clock().now()), BufferLookup::Nothing(_)) {
                continue;
            }
            self.hub().broadcast.reading(run);
            if tokio::time::timeout_at(until, notified).await.is_err() {
                self.check_for_end(run).await?;
                return Ok(match streams.find(run, from, self.clock().now()) {
                    BufferLookup::Frames(page) => page,
                    _ => StreamPage { frames: Vec::new(), next: from.to_string() },
                });
            }
        }
    }

    /// Reads the part of the stream that is not final yet, after a reset frame that refers to the log for the rest.
    async fn begin_stream(&self, run: &RunKey) -> Result<StreamPage, RuntimeError> {
        let now = self.clock().now();
        self.read_head(run).await?; // fails if the run does not exist
        let streams = &self.hub().streams;
        // From here on the stream receives appends.
        streams.edit(run, now, |buffer| buffer.read_at = now);
        self.hub().broadcast.reading(run);
        let mut reads = 0;
        loop {
            reads += 1;
            let head = self.read_head(run).await?;
            let records = read_records(self, &head).await?;
            if self.store().is_shared() {
                self.follow_stream(run).await?;
            }
            let begun = streams.edit(run, now, |buffer| {
                buffer.learn(head.generation, &records);
                // Log and stream must be at the same position. Otherwise an entry would be in both or in neither.
                let behind = records.last().map(|record| (head.generation, record.next_index()));
                let is_one_moment = buffer.position() == behind;
                (is_one_moment || reads == READS_MAX).then(|| begin(buffer, &head, &records, now))
            });
            match begun {
                Some(page) => return Ok(page),
                None => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Checks the head after a long silence: the reader may have missed the end, which another server wrote.
    async fn check_for_end(&self, run: &RunKey) -> Result<(), RuntimeError> {
        let now = self.clock().now();
        let head = self.read_head(run).await?;
        if head.status.is_closed() {
            self.follow_stream(run).await?;
            self.hub().streams.update(run, |buffer| end_if_closed(buffer, &head, now));
        }
        Ok(())
    }

    /// Reads what others appended to the log of a run that has a stream here.
    pub(crate) async fn follow_stream(&self, run: &RunKey) -> Result<(), RuntimeError> {
        let streams = &self.hub().streams;
        loop {
            let Some(Some((generation, from))) = streams.update(run, |buffer| buffer.position()) else { return Ok(()) };
            let records = self.read_log(run, Some(generation), from, RECORDS).await?;
            // A record that starts before `from` is known, because records are appended whole.
            records.iter().filter(|record| record.index >= from).for_each(|record| {
                streams.append(run, generation, record);
            });
            match records.last() {
                None => {
                    // After the end of a log, look for the next generation.
                    let next = self.store().read_run(run.clone(), Some(generation + 1)).await?;
                    let Some(next) = next else { return Ok(()) };
                    let first = self.read_log(run, Some(next.generation), onward_core::Index(0), 1).await?;
                    let Some(first) = first.first().filter(|first| is_first(first)) else { return Ok(()) };
                    streams.append(run, next.generation, first);
                }
                Some(_) => continue,
            }
        }
    }
}

/// Returns the frames that are not final yet, after a reset frame that refers to the log for the rest.
fn begin(buffer: &mut Buffer, head: &RunHead, records: &[Record], now: Timestamp) -> StreamPage {
    end_if_closed(buffer, head, now);
    let from = buffer.beginning();
    let content = StreamContent::StreamReset(StreamReset { generation: head.generation, leaf: leaf_of(records) });
    let first = StreamFrame { offset: from.to_string(), at: now, content };
    let frames: Vec<StreamFrame> = [first].into_iter().chain(buffer.read(from, PAGE)).collect();
    let next = frames.last().map(|last| last.offset.clone()).unwrap_or_default();
    StreamPage { frames, next }
}

fn is_first(record: &Record) -> bool {
    matches!(record.events.first(), Some(Event::RunStarted(_)))
}

fn end_if_closed(buffer: &mut Buffer, head: &RunHead, now: Timestamp) {
    if head.status.is_closed() {
        buffer.end(StreamContent::End(StreamEnd { status: head.status }), now);
    }
}
