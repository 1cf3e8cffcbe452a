//! The encoded body of a record, built on the caller's thread.
//!
//! Must not need what only the writer thread knows: a body contains neither index nor time.

use onward_core::log::CommitHeader;
use onward_core::{Event, Index, Record, Timestamp};

use super::large::Blobs;
use crate::INLINE_BYTES_MAX;

#[derive(Debug, Clone, Default)]
pub struct Body {
    pub bytes: Vec<u8>,
    pub blobs: Blobs,
}

impl Body {
    /// Returns the number of bytes written for it.
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.blobs.blobs.iter().map(|(_, data)| data.len()).sum::<usize>()
    }

    pub fn of_record(record: &Record) -> Body {
        Body::encode(record.commit, &mut record.events.clone())
    }

    /// Encodes `events`, which are moved into a record and back unchanged.
    pub fn encode(commit: Option<CommitHeader>, events: &mut Vec<Event>) -> Body {
        let mut record = Record { index: Index(0), at: Timestamp(0), commit, events: std::mem::take(events) };
        let mut bytes = Vec::with_capacity(320);
        record.encode_body(&mut bytes);
        let mut body = Body { bytes, blobs: Blobs::default() };
        if body.bytes.len() > INLINE_BYTES_MAX {
            let kept = record.events.clone();
            body.blobs = Blobs::take(&mut record.events);
            body.bytes.clear();
            record.encode_body(&mut body.bytes);
            record.events = kept;
        }
        *events = record.events;
        body
    }
}
