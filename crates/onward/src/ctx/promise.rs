//! Promises: an id to hand out, and one answer from whoever got it.

use std::time::Duration;

use onward_core::Event;

use super::call::{Call, durable_call};
use super::{Ctx, name_or_misuse};

impl Ctx {
    /// Makes a promise. Hand [`Promise::id`] to whoever shall answer; the first answer counts. Dropping the future withdraws the
    /// promise: an answer that comes later is refused.
    ///
    /// The promise exists once this activation is committed: a step that hands the id out starts after that.
    pub fn promise<T>(&self, name: &str) -> Promise<T> {
        let name = name_or_misuse(&self.cell, "promise", name);
        let place = self.cell.call("promise").engine.create_promise(name);
        Promise { call: Call::new(self.cell.clone(), "promise", place) }
    }
}

/// A promise that was made, and the future of its answer.
#[must_use = "the answer comes when the future is awaited"]
pub struct Promise<T> {
    call: Call<T>,
}

durable_call!(Promise<T>);

impl<T> Promise<T> {
    /// The id by which it is resolved from outside.
    pub fn id(&self) -> String {
        let state = self.call.cell().lock();
        state.engine.call_id(self.call.place())
    }

    /// How long to wait; then it fails as `timed_out`.
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
