//! Admission of an input, decided before anything is changed; shared by all stores.
//!
//! The run's head decides about the input itself. The caller has loaded the idempotency records and the wait that the input
//! answers.

use onward_core::event::TaskAttemptEnded;
use onward_core::run::{Admitted, IdempotencyRecord, Input, Wait};
use onward_core::{CallId, Index, RunHead, Status, Timestamp};

use crate::unit_of_work::Table;
use crate::{Appended, StoreError};

/// The idempotency record of an input that was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenSlot {
    pub token: String,
    pub index: Index,
    pub at: Timestamp,
}

pub enum Admission {
    Repeated(Appended),
    /// `slots` are the idempotency records to write.
    Taken {
        head: Box<RunHead>,
        admitted: Admitted,
        slots: Vec<IdempotencyRecord>,
        woke: bool,
    },
}

impl Admission {
    pub fn answer(&self) -> Appended {
        match self {
            Admission::Repeated(appended) => *appended,
            Admission::Taken { admitted, woke, .. } => {
                Appended { index: admitted.record.index, at: admitted.record.at, repeated: false, woke: *woke }
            }
        }
    }
}

/// Decides about an input: first its idempotency record, so that a late repeat stays a repeat (L11), then the run, then the wait
/// that it answers.
///
/// `cost` is the cost of the attempt whose outcome the input is; both become one record. The idempotency records of both and the
/// wait that the input answers must be known.
pub fn admit(
    before: &RunHead,
    mut input: Input,
    cost: Option<TaskAttemptEnded>,
    now: Timestamp,
    known_slots: &Table<String, TakenSlot>,
    known_waits: &Table<CallId, Wait>,
) -> Result<Admission, StoreError> {
    let key = &before.key;
    if let Some(once) = &input.once
        && let Some(slot) = known_slots.get(&once.key)
    {
        StoreError::of_slot(key, once, &slot.token, slot.index)?;
        return Ok(Admission::Repeated(Appended { index: slot.index, at: slot.at, repeated: true, woke: false }));
    }
    // A malformed cost is dropped; the outcome is still recorded.
    let mut cost = cost.filter(|cost| cost.malformed().is_none());
    if let Some(counted) = cost.as_ref().map(|cost| cost.once())
        && known_slots.get(&counted.key).is_some()
    {
        cost = None; // LG1
    }
    let slots = cost.as_ref().map(|cost| cost.once()).into_iter().chain(input.once.take()).collect();
    let (call_id, generation) = (input.needs_wait().cloned(), input.generation);
    let mut head = Box::new(before.clone());
    let admitted = head.admit_input(input, cost, now)?;
    if let Some(call_id) = call_id
        && known_waits.get(&call_id).is_none_or(|own| generation.is_some_and(|requested| requested != own.generation))
    {
        return Err(StoreError::WaitNotFound { key: key.clone(), call_id: call_id.to_string() });
    }
    let woke = before.status == Status::Waiting && head.status == Status::Pending;
    Ok(Admission::Taken { head, admitted, slots, woke })
}
