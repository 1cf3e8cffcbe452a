//! Approvals: a question to a person with exactly one decision.

use std::time::Duration;

use onward_core::Event;
use onward_core::engine::Decision;
use onward_core::event::ApprovalRequested;
use serde::Serialize;

use super::call::{PendingCall, durable_call};
use super::{Ctx, name_or_misuse, payload_or_misuse, small};

impl Ctx {
    /// Requests an approval from a person. Dropping the future withdraws it.
    pub fn approval(&self, name: &str, title: impl Into<String>) -> Approval {
        let name = name_or_misuse(&self.cell, "approval", name);
        let call_id = self.cell.call("approval").engine.request_approval(name, title.into());
        Approval { call: PendingCall::new(self.cell.clone(), "approval", call_id) }
    }
}

/// A requested approval, and the future of its decision.
#[must_use = "the decision is received when the future is awaited"]
pub struct Approval {
    call: PendingCall<Decision>,
}

durable_call!(Approval => Decision);

impl Approval {
    fn option(self, set: impl Fn(&mut ApprovalRequested)) -> Self {
        self.call.configure(|event| {
            if let Event::ApprovalRequested(event) = event {
                set(event);
            }
        });
        self
    }

    /// Sets a longer description for the decider.
    pub fn describe(self, description: impl Into<String>) -> Self {
        let description = description.into();
        self.option(|event| event.description = Some(description.clone()))
    }

    /// Attaches data that the decider sees. If it is too large, no approval is requested, and awaiting it fails with
    /// `payload_too_large`.
    pub fn show(self, value: &impl Serialize) -> Self {
        let cell = self.call.cell();
        let value = payload_or_misuse(cell, "approval", value);
        match small(cell.shared.payload_bytes_max, "what an approval shows", value) {
            Ok(value) => self.option(|event| event.show = Some(value.clone())),
            Err(failure) => {
                cell.lock().engine.withdraw_call(self.call.call_id(), failure);
                self
            }
        }
    }

    /// Binds the decision to a hash that is not shown. With another hash the approval is requested again.
    #[cfg(feature = "agents")]
    pub(crate) fn bound_to(self, hash: onward_core::Hash) -> Self {
        self.option(|event| event.bound_to = Some(hash))
    }

    /// Restricts who may decide; default everyone.
    pub fn deciders<S: Into<String>>(self, deciders: impl IntoIterator<Item = S>) -> Self {
        let deciders: Vec<String> = deciders.into_iter().map(Into::into).collect();
        self.option(|event| event.deciders = deciders.clone())
    }

    /// Excludes the identity that started the run, or the run above it, from deciding. Identities are names of API keys; without
    /// keys they are what callers claim.
    pub fn not_by_requester(self) -> Self {
        self.option(|event| event.not_by_requester = true)
    }

    /// Sets how long the question stays open. Afterwards the decision is not approved, with `expired` set.
    pub fn within(self, span: Duration) -> Self {
        let deadline = self.call.cell().lock().engine.now().after(span);
        self.option(|event| event.deadline = Some(deadline))
    }

    /// Returns the id under which it is decided from outside.
    pub fn id(&self) -> String {
        self.call.id()
    }
}
