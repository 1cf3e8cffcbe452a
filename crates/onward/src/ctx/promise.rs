//! Promises: an id to hand out that accepts one result from outside.

use std::time::Duration;

use onward_core::Event;

use super::call::{PendingCall, durable_call};
use super::{Ctx, name_or_misuse};

impl Ctx {
    /// Creates a promise. Pass [`Promise::id`] to the system that resolves it; the first result counts. Dropping the future
    /// withdraws the promise, and later results are rejected.
    ///
    /// The promise exists once this activation is committed. Steps that pass the id on start after that.
    pub fn promise<T>(&self, name: &str) -> Promise<T> {
        let name = name_or_misuse(&self.cell, "promise", name);
        let call_id = self.cell.call("promise").engine.create_promise(name);
        Promise { call: PendingCall::new(self.cell.clone(), "promise", call_id) }
    }
}

/// A created promise, and the future of its result.
#[must_use = "the result is received when the future is awaited"]
pub struct Promise<T> {
    call: PendingCall<T>,
}

durable_call!(Promise<T> => T);

impl<T> Promise<T> {
    /// Returns the id under which it is resolved from outside.
    pub fn id(&self) -> String {
        self.call.id()
    }

    /// Sets a deadline, after which the promise fails with `timed_out`.
    pub fn within(self, span: Duration) -> Self {
        let deadline = self.call.cell().lock().engine.now().after(span);
        self.call.configure(|event| {
            if let Event::PromiseCreated(event) = event {
                event.deadline = Some(deadline);
            }
        });
        self
    }
}
