//! Large payloads, stored by content hash apart from the rows they belong to.
//!
//! Owns the stubs that replace large payloads in rows; each store decides where the bytes go. Must never replace a stub by data
//! with another hash.
//!
//! A stub is a payload whose content type begins with U+0000. A user's payload that looks like a stub is treated as large, so
//! stubs cannot be forged.

use onward_core::codec::{DecodeError, Field, Reader, put_varint};
use onward_core::run::{NewRun, OutboxMessage, Wait};
use onward_core::task::Task;
use onward_core::{Event, Hash, Payload};

use super::seal::damaged;
use crate::{INLINE_BYTES_MAX, StoreError};

/// A value that contains payloads.
pub trait HasPayloads {
    /// Calls `visit` with each payload, in a fixed order; stops at the first error.
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError>;
}

pub type Visit<'v> = dyn FnMut(&mut Payload) -> Result<(), StoreError> + 'v;

/// The large payloads that were taken out of a row.
#[derive(Debug, Clone, Default)]
pub struct Blobs {
    pub blobs: Vec<(Hash, bytes::Bytes)>,
}

impl Blobs {
    /// Replaces large payloads by stubs and returns them.
    pub fn take(carrier: &mut impl HasPayloads) -> Blobs {
        let mut blobs = Blobs::default();
        let taken = carrier.payloads(&mut |payload| {
            if payload.data().len() > INLINE_BYTES_MAX || is_stub(payload) {
                let hash = Hash::of_parts(&[payload.data()]);
                let content_type = format!("\0{}", payload.content_type());
                let data = std::mem::replace(payload, Payload::null()).data().clone();
                *payload = Payload::binary(&content_type, stub(&hash.0, data.len()));
                blobs.blobs.push((hash, data));
            }
            Ok(())
        });
        debug_assert!(taken.is_ok(), "nothing here can fail");
        blobs
    }
}

/// Looks up the bytes stored under a hash.
pub type Find<'f> = dyn FnMut(&[u8; 16]) -> Result<Option<Vec<u8>>, StoreError> + 'f;

/// Replaces stubs by their payloads; fails if one is missing or has another hash.
pub fn restore(carrier: &mut impl HasPayloads, find: &mut Find<'_>) -> Result<(), StoreError> {
    carrier.payloads(&mut |payload| {
        if !is_stub(payload) {
            return Ok(());
        }
        let (hash, length) = read_stub(payload.data()).ok_or_else(|| damaged("a stub", "not readable"))?;
        let data = find(&hash)?.filter(|data| data.len() == length && Hash::of_parts(&[data]).0 == hash);
        let data = data.ok_or_else(|| damaged("a large payload", format!("{} is missing or changed", Hash(hash))))?;
        *payload = Payload::binary(&payload.content_type()[1..], data);
        Ok(())
    })
}

/// Returns the hashes of the stubs in `carrier`.
pub fn wanted(carrier: &mut impl HasPayloads) -> Vec<[u8; 16]> {
    let mut hashes = Vec::new();
    let visited = carrier.payloads(&mut |payload| {
        hashes.extend(is_stub(payload).then(|| read_stub(payload.data())).flatten().map(|(hash, _)| hash));
        Ok(())
    });
    debug_assert!(visited.is_ok(), "nothing here can fail");
    hashes
}

fn is_stub(payload: &Payload) -> bool {
    payload.content_type().starts_with('\0')
}

/// Encodes the hash and the length of a payload as the data of its stub.
fn stub(hash: &[u8; 16], length: usize) -> Vec<u8> {
    let mut bytes = hash.to_vec();
    put_varint(length as u64, &mut bytes);
    bytes
}

fn read_stub(bytes: &[u8]) -> Option<([u8; 16], usize)> {
    let (hash, length) = bytes.split_first_chunk::<16>()?;
    let length: Result<u64, DecodeError> = Reader::new(length).varint();
    Some((*hash, usize::try_from(length.ok()?).ok()?))
}

impl HasPayloads for Vec<Event> {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.iter_mut().try_for_each(|event| event.payloads(visit))
    }
}

impl HasPayloads for Event {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        visit_fields(self, visit)
    }
}

/// Visits the payloads of a value that the macros of the log declare; stops at the first error.
fn visit_fields(value: &mut impl Field, visit: &mut Visit<'_>) -> Result<(), StoreError> {
    let mut visited = Ok(());
    value.visit_payloads_mut(&mut |payload| {
        if visited.is_ok() {
            visited = visit(payload);
        }
    });
    visited
}

impl HasPayloads for Task {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        visit(&mut self.input)?;
        visit_fields(&mut self.last_failure, visit)?;
        self.progress.iter_mut().try_for_each(visit)
    }
}

impl HasPayloads for Wait {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.show.iter_mut().chain(&mut self.answer_schema).try_for_each(visit)
    }
}

impl HasPayloads for NewRun {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        visit_fields(&mut self.started, visit)?;
        self.signal.iter_mut().try_for_each(|signal| signal.event.payloads(visit))
    }
}

impl HasPayloads for OutboxMessage {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        match self {
            OutboxMessage::Start(run) | OutboxMessage::StartFromTemplate { run, .. } => run.payloads(visit),
            OutboxMessage::Input { input, .. } => input.event.payloads(visit),
        }
    }
}
