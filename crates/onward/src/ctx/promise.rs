//! Promises: an id to hand out that accepts one result from outside.

use std::time::Duration;

use onward_core::Event;
use onward_core::memo::MEMO_KEY_BYTES_MAX;

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

    /// Sets a key of 1 to 1,024 bytes, under which callers find the promise without its id (see [`crate::Onward::find_promise`]).
    /// It is unique among the open promises of the namespace: if another one has it, this one fails with `promise_key_taken`. It
    /// is stored in plain text, also if payloads are encrypted.
    pub fn key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        if key.is_empty() || key.len() > MEMO_KEY_BYTES_MAX {
            let why = format!("the key of a promise has 1 to {MEMO_KEY_BYTES_MAX} bytes, not {}", key.len());
            self.call.cell().lock().engine.misuse(why);
            return self;
        }
        self.call.configure(|event| {
            if let Event::PromiseCreated(event) = event {
                event.key = Some(key.clone());
            }
        });
        self
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
