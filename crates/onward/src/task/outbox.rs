//! The buffer of stream frames that an attempt has emitted and the worker has not sent.
//!
//! Owns its limits and the merging of frames. Must never wait.
//!
//! Invariant OB1: the frames taken out, put together, are the frames put in, in their order, except for those that were dropped,
//! which show as a gap in the sequence numbers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use onward_core::Payload;
use onward_core::stream::SequencedFrame;
use onward_store::sync::lock;
use serde_json::Value;
use tokio::sync::Notify;

/// Limits of the buffer.
const FRAMES_MAX: usize = 256;
const BYTES_MAX: usize = 256 * 1024;

/// Limits of one frame: the longest that is accepted, and the longest that merging makes.
const FRAME_BYTES_MAX: usize = 64 * 1024;
const JOINED_BYTES_MAX: usize = 8 * 1024;

#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<FrameQueue>,
    filled: Notify,
}

#[derive(Default)]
struct FrameQueue {
    frames: VecDeque<QueuedFrame>,
    bytes: usize,
    next_seq: u64,
}

struct QueuedFrame {
    seq: u64,
    bytes: usize,
    is: Is,
}

enum Is {
    Value(Value),
    /// A frame that could not be sent and was returned.
    Sealed(Payload),
}

impl Outbox {
    pub fn put(&self, frame: Value) {
        let mut waiting = self.lock();
        if !waiting.join(&frame) {
            waiting.put(frame);
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// Waits until there is something to take.
    pub async fn has_some(&self) {
        loop {
            if !self.lock().frames.is_empty() {
                return;
            }
            self.filled.notified().await;
        }
    }

    pub fn take(&self) -> Vec<SequencedFrame> {
        let mut waiting = self.lock();
        waiting.bytes = 0;
        let sequenced = |QueuedFrame { seq, is, .. }| {
            let frame = match is {
                Is::Value(value) => Payload::json(&value).ok()?,
                Is::Sealed(payload) => payload,
            };
            Some(SequencedFrame { seq, frame })
        };
        waiting.frames.drain(..).filter_map(sequenced).collect()
    }

    /// Returns frames to the buffer that could not be sent.
    pub fn put_back(&self, frames: Vec<SequencedFrame>) {
        let mut waiting = self.lock();
        for SequencedFrame { seq, frame } in frames.into_iter().rev() {
            let bytes = frame.data().len();
            waiting.bytes += bytes;
            waiting.frames.push_front(QueuedFrame { seq, bytes, is: Is::Sealed(frame) });
        }
    }

    fn lock(&self) -> MutexGuard<'_, FrameQueue> {
        lock(&self.waiting)
    }
}

impl FrameQueue {
    fn put(&mut self, frame: Value) {
        let (seq, bytes) = (self.next_seq, payload_bytes(&frame));
        self.next_seq += 1;
        let has_room = self.frames.len() < FRAMES_MAX && self.bytes + bytes <= BYTES_MAX;
        if bytes <= FRAME_BYTES_MAX && has_room {
            self.bytes += bytes;
            self.frames.push_back(QueuedFrame { seq, bytes, is: Is::Value(frame) });
        }
    }

    /// Appends a piece of text to the last frame, if both are of the same kind.
    fn join(&mut self, frame: &Value) -> bool {
        let Some(QueuedFrame { seq, bytes, is: Is::Value(last) }) = self.frames.back_mut() else { return false };
        // No merging after a dropped frame: the gap must show.
        if *seq + 1 != self.next_seq || !are_of_one_sort(last, frame) {
            return false;
        }
        if last["type"] == "usage" {
            let more = payload_bytes(frame);
            (self.bytes, *bytes) = (self.bytes - *bytes + more, more);
            *last = frame.clone();
            return true;
        }
        let (Some(Value::String(text)), Some(more)) = (last.get_mut("text"), frame["text"].as_str()) else { return false };
        if text.len() + more.len() > JOINED_BYTES_MAX || self.bytes + more.len() > BYTES_MAX {
            return false;
        }
        text.push_str(more);
        *bytes += more.len();
        self.bytes += more.len();
        true
    }
}

fn are_of_one_sort(one: &Value, other: &Value) -> bool {
    let is_joined = matches!(one["type"].as_str(), Some("text" | "reasoning" | "refusal" | "tool_call_arguments" | "usage"));
    is_joined && one["type"] == other["type"] && one.get("call") == other.get("call") && keys(one).eq(keys(other))
}

fn keys(value: &Value) -> impl Iterator<Item = &String> {
    value.as_object().into_iter().flat_map(|object| object.keys())
}

fn payload_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(values) => values.iter().map(payload_bytes).sum::<usize>() + 2,
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + payload_bytes(value) + 4).sum::<usize>() + 2,
        _ => 8,
    }
}

#[cfg(test)]
mod tests;
