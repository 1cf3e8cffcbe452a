//! Children: runs that this run starts and whose end is an input here.

use super::Engine;
use super::call::CallDetails;
use crate::log::event::{ChildAwaited, ChildCanceled, ChildStarted, OnParentClose};
use crate::spend::budget::Budget;
use crate::{CallId, Event, Failure, Hash, Name, Payload, RunId, RunKey};

impl Engine {
    /// Starts a child. By default its id is derived from the parent's id and the call id: unique, and the same on replay.
    pub fn start_child(&mut self, kind: Name, input: Payload) -> CallId {
        let call_id = self.next_call_id();
        let child = self.child_id(&call_id);
        let event = child_started(call_id.clone(), child.clone(), kind.clone(), input);
        // Here and not with the commit: the code may read the id of its child at once.
        if let Some((child, adopted)) = self.adopt_child(&event) {
            self.open(call_id.clone(), CallDetails::Child { child, kind }, Some(adopted.into()));
            return call_id;
        }
        self.open(call_id.clone(), CallDetails::Child { child, kind }, Some(event.into()));
        call_id
    }

    /// Starts a child that belongs to the run and not to this generation: it outlives the generation, and is canceled when the
    /// run ends. No call waits for it; [`Engine::await_child`] does, in any generation.
    pub fn spawn_child(&mut self, kind: Name, input: Payload, budget: Option<Budget>) -> RunId {
        let call_id = self.next_call_id();
        let child = crate::run::reopen::spawned_id(&self.key().id, self.generation(), &call_id, self.seed());
        let event = ChildStarted { is_spawned: true, budget, ..child_started(call_id, child.clone(), kind, input) };
        if let Some((child, adopted)) = self.adopt_child(&event) {
            self.out.push(adopted.into());
            return child;
        }
        self.out.push(event.into());
        child
    }

    /// Waits for the end of a child that was spawned here or in an earlier generation; it may have ended already.
    pub fn await_child(&mut self, child: RunId) -> CallId {
        let call_id = self.next_call_id();
        let event = ChildAwaited { call_id: call_id.clone(), child: child.clone() };
        self.open(call_id.clone(), CallDetails::ChildResult { child }, Some(event.into()));
        call_id
    }

    /// Cancels a spawned child.
    pub fn cancel_child(&mut self, child: RunId) {
        let call_id = self.next_call_id();
        self.out.push(ChildCanceled { call_id, child }.into());
    }

    /// Returns the parent of this run.
    pub fn parent(&self) -> Option<&RunKey> {
        self.parent.as_ref()
    }

    /// Returns true if a call of another run waits for the end of this one.
    pub fn is_called(&self) -> bool {
        self.is_called
    }

    /// Returns the number of ancestors; a fork keeps the number.
    pub fn nesting(&self) -> u32 {
        self.nesting
    }

    /// Returns true if the run is an abandoned child of this segment or an earlier one.
    pub(super) fn has_abandoned(&self, run: &RunKey) -> bool {
        run.namespace == self.key.namespace && (self.agent.has_abandoned(&run.id) || self.segment.has_abandoned(&run.id))
    }

    /// Cancels abandoned spawned children that were not taken over; they end with the segment.
    pub(super) fn cancel_abandoned_children(&mut self) {
        for child in self.segment.abandoned_spawned() {
            self.cancel_child(child);
        }
    }

    /// Opens a call for a child that cannot be started: it fails with `failure`, and nothing is recorded.
    pub fn refuse_child(&mut self, kind: Name, failure: Failure) -> CallId {
        let call_id = self.next_call_id();
        let child = self.child_id(&call_id);
        self.open_refused(call_id.clone(), CallDetails::Child { child, kind }, failure);
        call_id
    }

    /// Sets an id chosen by the code for the child at `call_id`.
    pub fn set_child_id(&mut self, call_id: &CallId, id: RunId) {
        self.rename_child(call_id, id.clone());
        self.configure(call_id, &mut |event| {
            if let Event::ChildStarted(event) = event {
                event.child = id.clone();
            }
        });
    }

    /// Returns the run id of the child at `call_id` while it is open; `None` if no child was started.
    pub fn child_of(&self, call_id: &CallId) -> Option<RunId> {
        let call = self.calls.get(call_id)?;
        match &call.what {
            CallDetails::Child { child, .. } if call.is_requested() => Some(child.clone()),
            _ => None,
        }
    }

    fn child_id(&self, call_id: &CallId) -> RunId {
        crate::run::reopen::child_id(&self.key().id, self.generation(), call_id)
    }

    /// Replaces the ids of children that are restarted.
    pub(super) fn children_again(&mut self, children: Vec<crate::log::event::ChildAgain>) {
        for again in children {
            self.rename_child(&again.call_id, again.child);
        }
    }

    fn rename_child(&mut self, call_id: &CallId, id: RunId) {
        if let Some(super::call::Call { what: CallDetails::Child { child, .. }, .. }) = self.calls.get_mut(call_id) {
            *child = id;
        }
    }
}

fn child_started(call_id: CallId, child: RunId, kind: Name, input: Payload) -> ChildStarted {
    let (version, input_hash, on_parent_close) = (None, Hash::of(&input), OnParentClose::Cancel);
    ChildStarted {
        call_id,
        child,
        kind,
        version,
        input_hash,
        input,
        on_parent_close,
        is_spawned: false,
        budget: None,
        queue: None,
    }
}
