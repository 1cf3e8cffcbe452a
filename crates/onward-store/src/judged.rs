//! What an input would do to a run, decided before anything is changed; the same in every store.
//!
//! The run's head decides about the input itself; its slot and the wait that it answers are the store's to look up, and only if they
//! matter.

use onward_core::run::{Admitted, Input, Once};
use onward_core::{Index, Place, RunHead, Status, Timestamp};

use crate::{Appended, StoreError};

/// What was taken once, under the key of its slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenSlot {
    pub token: String,
    pub index: Index,
    pub at: Timestamp,
}

pub enum Judged {
    Repeated(Appended),
    Taken { head: Box<RunHead>, admitted: Admitted, once: Option<Once>, woke: bool },
}

impl Judged {
    pub fn answer(&self) -> Appended {
        match self {
            Judged::Repeated(appended) => *appended,
            Judged::Taken { admitted, woke, .. } => {
                Appended { index: admitted.record.index, at: admitted.record.at, repeated: false, woke: *woke }
            }
        }
    }
}

/// Decides about an input: its slot first, so that a late repeat stays a repeat (L11); then the run; then the wait it answers.
///
/// `slot` finds what was taken under a key, `wait` the generation in which the open wait at a place was asked for.
pub fn judge<E: From<StoreError>>(
    before: &RunHead,
    mut input: Input,
    now: Timestamp,
    slot: impl FnOnce(&str) -> Result<Option<TakenSlot>, E>,
    wait: impl FnOnce(&Place) -> Result<Option<u32>, E>,
) -> Result<Judged, E> {
    let key = &before.key;
    if let Some(once) = &input.once
        && let Some(TakenSlot { token, index, at }) = slot(&once.key)?
    {
        StoreError::of_slot(key, once, &token, index)?;
        return Ok(Judged::Repeated(Appended { index, at, repeated: true, woke: false }));
    }
    let (place, once, generation) = (input.needs_wait().cloned(), input.once.take(), input.generation);
    let mut head = Box::new(before.clone());
    let admitted = head.admit_input(input, now).map_err(StoreError::from)?;
    if let Some(place) = place
        && wait(&place)?.is_none_or(|own| generation.is_some_and(|asked| asked != own))
    {
        return Err(StoreError::WaitNotFound { key: key.clone(), place: place.to_string() }.into());
    }
    let woke = before.status == Status::Waiting && head.status == Status::Pending;
    Ok(Judged::Taken { head, admitted, once, woke })
}
