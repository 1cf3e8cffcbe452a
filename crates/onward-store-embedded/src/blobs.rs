//! Large payloads, kept once by content.
//!
//! Owns the tables `blobs` (reference counts) and `payloads` (bytes, apart so that counting does not move them), and the stubs that stand for large payloads in rows. Whoever writes a row with
//! stubs lists their hashes in the row's `blobs` column and counts them; whoever removes the row counts them down. Must never
//! return data whose hash is not the one asked for.
//!
//! A stub is a payload whose content type begins with U+0000. A user's payload that looks like one is treated as large, so
//! stubs cannot be forged.

use onward_core::event::{CarriedSignal, RunStarted};
use onward_core::run::{Delivery, NewRun, Wait};
use onward_core::task::Task;
use onward_core::{Event, Failure, Hash, Payload};
use onward_store::{INLINE_BYTES_MAX, StoreError};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{damaged, leave_damaged, read_error};
use crate::row::{hashes, read_stub, seal_bytes, stub};

/// Something with payloads in it.
pub(crate) trait Carrier {
    /// Calls `visit` with each payload, in a fixed order; stops at the first error.
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError>;
}

pub(crate) type Visit<'v> = dyn FnMut(&mut Payload) -> Result<(), StoreError> + 'v;

/// The large payloads that were taken out of a row.
#[derive(Default)]
pub(crate) struct Stash {
    blobs: Vec<(Hash, bytes::Bytes)>,
}

impl Stash {
    /// Puts stubs in the place of large payloads.
    pub fn take(carrier: &mut impl Carrier) -> Stash {
        let mut stash = Stash::default();
        let taken = carrier.payloads(&mut |payload| {
            if payload.data().len() > INLINE_BYTES_MAX || is_stub(payload) {
                let hash = Hash::of_parts(&[payload.data()]);
                let content_type = format!("\0{}", payload.content_type());
                let data = std::mem::replace(payload, Payload::null()).data().clone();
                *payload = Payload::binary(&content_type, stub(&hash.0, data.len()));
                stash.blobs.push((hash, data));
            }
            Ok(())
        });
        debug_assert!(taken.is_ok(), "nothing here can fail");
        stash
    }

    /// What goes into the row's `blobs` column.
    pub fn column(&self) -> Option<Vec<u8>> {
        (!self.blobs.is_empty()).then(|| seal_bytes(self.blobs.iter().flat_map(|(hash, _)| hash.0).collect()))
    }

    /// Writes the blobs, or counts them up where they are there already.
    pub fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        for (hash, data) in &self.blobs {
            // A count that is damaged stays so, and its blob is never counted down to nothing.
            let mut known = db.prepare_cached(
                "UPDATE blobs SET refs = refs + 1, crc = row_crc(hash, refs + 1) WHERE hash = ?1 AND crc = row_crc(hash, refs)",
            )?;
            if known.execute(params![&hash.0])? == 0 {
                let made = db
                    .prepare_cached(
                        "INSERT INTO blobs(hash, refs, crc) VALUES (?1, 1, row_crc(?1, 1)) ON CONFLICT(hash) DO NOTHING RETURNING seq",
                    )?
                    .query_row(params![&hash.0], |row| row.get::<_, i64>(0))
                    .optional()?;
                if let Some(seq) = made {
                    db.prepare_cached("INSERT INTO payloads(seq, data) VALUES (?1, ?2)")?.execute(params![seq, &data[..]])?;
                }
            }
        }
        Ok(())
    }
}

/// The `blobs` column of a row that is going, which is the first one asked for. One of another type names nothing.
pub(crate) fn read_column(row: &Row<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
    Ok(row.get_ref(0)?.as_blob_or_null().ok().flatten().map(<[u8]>::to_vec))
}

/// Counts down what a removed row referred to.
pub(crate) fn drop_references(db: &Connection, column: Option<&[u8]>) -> rusqlite::Result<()> {
    for hash in hashes(column) {
        let left = db
            .prepare_cached(
                "UPDATE blobs SET refs = refs - 1, crc = row_crc(hash, refs - 1) WHERE hash = ?1 AND crc = row_crc(hash, refs)
                 RETURNING seq, refs",
            )?
            .query_row(params![&hash], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
            .optional()?;
        if let Some((seq, _)) = left.filter(|(_, left)| *left <= 0) {
            db.prepare_cached("DELETE FROM blobs WHERE seq = ?1")?.execute(params![seq])?;
            leave_damaged(db.prepare_cached("DELETE FROM payloads WHERE seq = ?1")?.execute(params![seq]))?;
        }
    }
    Ok(())
}

/// Puts large payloads back in the place of their stubs.
pub(crate) fn restore(db: &Connection, carrier: &mut impl Carrier) -> Result<(), StoreError> {
    carrier.payloads(&mut |payload| {
        if !is_stub(payload) {
            return Ok(());
        }
        let (hash, length) = read_stub(payload.data()).ok_or_else(|| damaged("a stub", "not readable"))?;
        let found: Option<Vec<u8>> = db
            .prepare_cached("SELECT data FROM blobs JOIN payloads USING (seq) WHERE hash = ?1")
            .and_then(|mut statement| statement.query_row(params![&hash], |row| row.get(0)).optional())
            .map_err(read_error)?;
        let data = found.filter(|data| data.len() == length && Hash::of_parts(&[data]).0 == hash);
        let data = data.ok_or_else(|| damaged("a large payload", format!("{} is missing or changed", Hash(hash))))?;
        *payload = Payload::binary(&payload.content_type()[1..], data);
        Ok(())
    })
}

fn is_stub(payload: &Payload) -> bool {
    payload.content_type().starts_with('\0')
}

impl Carrier for Vec<Event> {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.iter_mut().try_for_each(|event| event.payloads(visit))
    }
}

impl Carrier for Event {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        match self {
            Event::RunStarted(event) => event.payloads(visit),
            Event::SignalReceived(event) => visit(&mut event.payload),
            Event::PromiseResolved(event) => event.result.payloads(visit),
            Event::UpdateReceived(event) => visit(&mut event.payload),
            Event::TaskCompleted(event) => visit(&mut event.output),
            Event::TaskFailed(event) => event.failure.payloads(visit),
            Event::ChildCompleted(event) => visit(&mut event.output),
            Event::ChildFailed(event) => event.failure.payloads(visit),
            Event::StepCompleted(event) => visit(&mut event.output),
            Event::StepFailed(event) => event.failure.payloads(visit),
            Event::TaskScheduled(event) => visit(&mut event.input),
            Event::ApprovalRequested(event) => event.show.iter_mut().try_for_each(visit),
            Event::StateSet(event) => visit(&mut event.value),
            Event::ChildStarted(event) => visit(&mut event.input),
            Event::SignalSent(event) => visit(&mut event.payload),
            Event::UpdateAnswered(event) => event.result.payloads(visit),
            Event::RunCompleted(event) => visit(&mut event.output),
            Event::RunFailed(event) => event.failure.payloads(visit),
            Event::RunCanceled(event) => event.failure.payloads(visit),
            Event::RunContinued(event) => visit(&mut event.input),
            Event::ExternalAppended(event) => {
                event.events.iter_mut().chain(event.state.iter_mut().map(|state| &mut state.data)).try_for_each(visit)
            }
            // What is not named here stays inside its row, whatever its size: right, only not shared.
            _ => Ok(()),
        }
    }
}

impl Carrier for RunStarted {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        visit(&mut self.input)?;
        self.mailbox.iter_mut().try_for_each(|signal: &mut CarriedSignal| visit(&mut signal.payload))?;
        self.updates.iter_mut().try_for_each(|update| visit(&mut update.payload))
    }
}

impl Carrier for Failure {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.details.as_deref_mut().into_iter().try_for_each(visit)
    }
}

impl Carrier for Result<Payload, Failure> {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        match self {
            Ok(payload) => visit(payload),
            Err(failure) => failure.payloads(visit),
        }
    }
}

impl Carrier for Task {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        visit(&mut self.input)?;
        self.last_failure.iter_mut().try_for_each(|failure| failure.payloads(visit))?;
        self.progress.iter_mut().try_for_each(visit)
    }
}

impl Carrier for Wait {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.show.iter_mut().try_for_each(visit)
    }
}

impl Carrier for NewRun {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.started.payloads(visit)?;
        self.signal.iter_mut().try_for_each(|signal| signal.event.payloads(visit))
    }
}

impl Carrier for Delivery {
    fn payloads(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        match self {
            Delivery::Start(run) => run.payloads(visit),
            Delivery::Input { input, .. } => input.event.payloads(visit),
        }
    }
}
