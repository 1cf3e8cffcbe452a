//! Children: runs that this run starts and awaits.

use onward_core::budget::Budget;
use onward_core::engine::CancelOutcome;
use onward_core::event::{ChildStarted, OnParentClose};
use onward_core::run::RunQueue;
use onward_core::{Event, Name, RunId};
use serde::Serialize;

use super::call::{PendingCall, durable_call};
use super::{Ctx, name_or_misuse, payload_or_misuse, small};
use crate::Result;
use crate::names::WorkflowName;

impl Ctx {
    /// Starts a child run; await the future for its result. `kind` is a name or a typed [`crate::Workflow`].
    pub fn child<T>(&self, kind: impl WorkflowName<T>, input: &(impl Serialize + ?Sized)) -> Child<T> {
        let kind = name_or_misuse(&self.cell, "child", kind.workflow_name());
        let input = payload_or_misuse(&self.cell, "child input", input);
        let input = small(self.cell.shared.payload_bytes_max, format_args!("the input of child `{kind}`"), input);
        let mut state = self.cell.call("child");
        let call_id = match input {
            Ok(input) => state.engine.start_child(kind, input),
            Err(failure) => state.engine.refuse_child(kind, failure),
        };
        drop(state);
        Child { ctx: self.clone(), call: PendingCall::new(self.cell.clone(), "child", call_id) }
    }
}

/// A started child, and the future of its result.
#[must_use = "await it, or keep it to signal or cancel it"]
pub struct Child<T> {
    ctx: Ctx,
    call: PendingCall<T>,
}

durable_call!(Child<T> => T);

impl<T> Child<T> {
    fn option(self, set: impl Fn(&mut ChildStarted)) -> Self {
        self.call.configure(|event| {
            if let Event::ChildStarted(event) = event {
                set(event);
            }
        });
        self
    }

    /// Sets the child's run id; default an id derived from the parent's.
    pub fn id(self, id: &str) -> Self {
        let mut state = self.call.cell().lock();
        match RunId::new(id) {
            Ok(id) => state.engine.set_child_id(self.call.call_id(), id),
            Err(error) => state.engine.misuse(format!("child: {error}")),
        }
        drop(state);
        self
    }

    /// Pins the child to a version of its code.
    pub fn version(self, version: &str) -> Self {
        let version: Name = name_or_misuse(self.call.cell(), "child version", version);
        self.option(|event| event.version = Some(version.clone()))
    }

    /// Sets what happens to the child when this run ends first; default it is canceled.
    pub fn on_parent_close(self, what: OnParentClose) -> Self {
        self.option(|event| event.on_parent_close = what)
    }

    /// Sets the part of this run's budget that the child may spend. It gets at most what is left when it starts; what it does not
    /// spend returns when it ends. By default, a child of a run with limited tokens or money may spend half of what is left of
    /// them.
    pub fn budget(self, budget: Budget) -> Self {
        self.option(|event| event.budget = Some(budget))
    }

    /// Begins the child when this queue lets it in; without it, when the queue of its kind does, if that has one. The child holds a
    /// slot until it ends.
    pub fn queue(self, queue: &str) -> Self {
        let queue: Name = name_or_misuse(self.call.cell(), "child queue", queue);
        self.option(|event| event.queue = Some(Box::new(RunQueue::new(queue.clone()))))
    }

    /// Sets the key whose limits and share of the queue apply to the child; set the queue before.
    pub fn key(self, key: &str) -> Self {
        let key: Name = name_or_misuse(self.call.cell(), "child key", key);
        self.place("key", |queue| queue.key = Some(key.clone()))
    }

    /// Sets the priority in the queue: higher begins first; default 0. Set the queue before.
    pub fn priority(self, priority: i32) -> Self {
        self.place("priority", |queue| queue.priority = priority)
    }

    fn place(self, what: &str, set: impl Fn(&mut RunQueue)) -> Self {
        let has_queue = std::cell::Cell::new(true);
        let child = self.option(|event| match &mut event.queue {
            Some(queue) => set(queue),
            None => has_queue.set(false),
        });
        if !has_queue.get() {
            child.call.cell().lock().engine.misuse(format!("child: a {what} without a queue; set the queue first"));
        }
        child
    }

    pub fn run_id(&self) -> Option<RunId> {
        self.call.cell().lock().engine.child_of(self.call.call_id())
    }

    /// Sends a signal to the child, or does nothing if the child has ended.
    ///
    /// # Errors
    /// Fails if the payload is too large.
    pub fn signal(&self, name: &str, payload: &(impl Serialize + ?Sized)) -> Result<()> {
        self.run_id().map_or(Ok(()), |child| self.ctx.send_signal(child.as_str(), name, payload))
    }

    /// Cancels the child. Awaiting it then fails with `canceled` at once.
    pub fn cancel(&self) -> CancelOutcome {
        self.call.cancel()
    }
}
