//! The open calls of a machine, with their owners.

use std::collections::BTreeMap;

use super::path::PathId;
use super::turn::{Call, CallId, CallMemo, CallRequest};

/// What an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// An item of the step of a path; a step without `each` has one.
    Item { path: PathId, item: u32, role: CallRole },
    /// The time limit of a join.
    Join { path: PathId },
    /// Compensation.
    Undo,
}

/// What a call does for an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallRole {
    /// The call of the step.
    Work,
    /// The sleep beside the call.
    Limit,
    /// The sleep before another attempt.
    Backoff,
}

#[derive(Debug, Default)]
pub struct Calls {
    made: CallId,
    /// The open calls with the bytes that they count for.
    open: BTreeMap<CallId, (Owner, usize)>,
    /// The sum of these bytes.
    bytes: usize,
    /// Calls of this turn, canceled ones included.
    calls: Vec<Call>,
    /// Calls of earlier turns that were canceled in this one.
    cancels: Vec<CallId>,
    /// The number of calls that were made before this turn.
    made_before: CallId,
}

impl Calls {
    /// Opens a call that counts for so many bytes.
    pub fn open(&mut self, owner: Owner, label: String, request: CallRequest, bytes: usize) -> CallId {
        let id = self.made;
        self.made += 1;
        self.open.insert(id, (owner, bytes));
        self.bytes += bytes;
        self.calls.push(Call { id, label, request, memo: None });
        id
    }

    /// Gives the call that was opened last a memo.
    pub fn set_memo(&mut self, memo: Option<CallMemo>) {
        if let Some(call) = self.calls.last_mut() {
            call.memo = memo;
        }
    }

    /// Closes an open call that was answered.
    pub fn close(&mut self, call: CallId) -> Option<Owner> {
        let (owner, bytes) = self.open.remove(&call)?;
        self.bytes -= bytes;
        Some(owner)
    }

    /// Cancels a call, unless it is closed already.
    pub fn cancel(&mut self, call: CallId) {
        if self.close(call).is_some() && call < self.made_before {
            self.cancels.push(call);
        }
    }

    pub fn cancel_all(&mut self) {
        let open: Vec<CallId> = self.open.keys().copied().collect();
        open.into_iter().for_each(|call| self.cancel(call));
    }

    pub fn is_open(&self, call: CallId) -> bool {
        self.open.contains_key(&call)
    }

    /// Returns the bytes of the inputs of all open calls.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns the canceled calls and the new ones that are still open.
    pub fn take(&mut self) -> (Vec<CallId>, Vec<Call>) {
        self.made_before = self.made;
        let mut calls = std::mem::take(&mut self.calls);
        calls.retain(|call| self.open.contains_key(&call.id));
        (std::mem::take(&mut self.cancels), calls)
    }
}
