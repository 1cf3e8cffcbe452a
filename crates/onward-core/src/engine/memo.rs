//! Memos of steps and tasks: a call that first looks for the result of an equal call of another run (see [`crate::run::memo`]).
//!
//! The step or task has the call id of the memo. It begins when the cell makes the call its owner; a hit answers the call
//! instead. The result of an owner is recorded for the cell when it is delivered.

use super::call::{Call, CallDetails, CallState, StepPhase};
use super::{Engine, Wake};
use crate::log::event::{MemoAnswered, MemoReleased, MemoRequested, MemoStored};
use crate::run::memo::{MEMO_KEY_BYTES_MAX, MemoCallType, MemoScope, derived_key};
use crate::task::EffectClass;
use crate::{CallId, Event, Hash, Index, Name, Payload, RunId};

/// A memo that the code requests for a call.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoOptions {
    pub scope: MemoScope,
    pub key: String,
    /// See [`MemoRequested::is_derived`].
    pub is_derived: bool,
    pub ttl_ms: u64,
}

/// The memo of an open call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallMemo {
    /// Waits for the answer of the cell. A task is scheduled by this event if it becomes the owner.
    Asked { task: Option<Box<Event>> },
    /// The call computes for this cell.
    Owner { cell: RunId },
}

impl Engine {
    /// Gives the step or task at `call_id` a memo, before anything is awaited after the call. A call that was refused has none.
    pub fn set_memo(&mut self, call_id: &CallId, memo: MemoOptions) {
        if memo.key.is_empty() || memo.key.len() > MEMO_KEY_BYTES_MAX {
            return self.misuse(format!("the key of a memo has 1 to {MEMO_KEY_BYTES_MAX} bytes, not {}", memo.key.len()));
        }
        if memo.scope == MemoScope::Promise {
            return self.misuse("a memo has the scope `namespace` or `tree`".to_owned());
        }
        let Some(call) = self.calls.get(call_id) else { return };
        if call.memo.is_some() {
            return self.misuse("a call can have only one memo");
        }
        let MemoOptions { scope, key, is_derived, ttl_ms } = memo;
        let (sealed_key, at) = (None, call_id.clone());
        let requested = |of_type, name| MemoRequested { call_id: at, of_type, name, scope, key, ttl_ms, is_derived, sealed_key };
        match &call.what {
            CallDetails::Step { identity, phase: StepPhase::Idle { .. }, .. } => {
                let requested = requested(MemoCallType::Step, identity.name.clone());
                self.out.push(requested.into());
                self.ask(call_id, None);
            }
            CallDetails::Task { kind } => {
                let requested = requested(MemoCallType::Task, kind.clone());
                let mut task = None;
                self.configure(call_id, &mut |event| task = Some(Box::new(std::mem::replace(event, requested.clone().into()))));
                if task.is_some() {
                    self.ask(call_id, task);
                    self.check_memo_class(call_id);
                }
            }
            _ => self.misuse("a memo must be set before the call is awaited"),
        }
    }

    /// Returns false for a call that was refused: its memo is of no use.
    pub fn may_have_memo(&self, call_id: &CallId) -> bool {
        self.calls.get(call_id).is_some_and(|call| !matches!(call.answer, CallState::Ready { .. }))
    }

    /// Returns a key for the call at `call_id` that equal calls have, in this run and in others; `None` for a step without an
    /// input.
    pub fn derive_memo_key(&mut self, call_id: &CallId) -> Option<String> {
        match &self.calls.get(call_id)?.what {
            CallDetails::Step { identity, .. } => {
                let input = identity.input_hash?;
                let (kind, version) = (self.kind.as_ref()?.as_str(), self.version.as_ref().map_or("", Name::as_str));
                let hash = Hash::of_parts(&[b"step", version.as_bytes(), &input.0]);
                Some(derived_key(&format!("{kind}/{}", identity.name), hash))
            }
            CallDetails::Task { kind } => {
                let (kind, mut input) = (kind.clone(), None);
                self.configure(call_id, &mut |event| {
                    if let Event::TaskScheduled(task) = event {
                        input = Some(task.input_hash);
                    }
                });
                Some(derived_key(kind.as_str(), Hash::of_parts(&[b"task", &input?.0])))
            }
            _ => None,
        }
    }

    fn ask(&mut self, call_id: &CallId, task: Option<Box<Event>>) {
        if let Some(call) = self.calls.get_mut(call_id) {
            if let CallDetails::Step { phase, .. } = &mut call.what {
                *phase = StepPhase::Asks;
            }
            call.memo = Some(CallMemo::Asked { task });
        }
    }

    /// Returns the event that schedules a task which waits for its memo.
    pub(super) fn held_task(&mut self, call_id: &CallId) -> Option<&mut Event> {
        match &mut self.calls.get_mut(call_id)?.memo {
            Some(CallMemo::Asked { task }) => task.as_deref_mut(),
            _ => None,
        }
    }

    /// Refuses a memo of a task that may not run again (MM5).
    pub(super) fn check_memo_class(&mut self, call_id: &CallId) {
        if let Some(Event::TaskScheduled(task)) = self.held_task(call_id)
            && task.options.class == Some(EffectClass::AtMostOnce)
        {
            let kind = task.kind.clone();
            self.misuse(format!(
                "task `{kind}` runs at most once, so its result cannot be memoized; remove the memo or the class"
            ));
        }
    }

    pub(super) fn memo_answered(&mut self, index: Index, event: MemoAnswered) -> Option<Wake> {
        let MemoAnswered { call_id, cell, hit, grant } = event;
        let call = self.calls.get_mut(&call_id).filter(|call| matches!(call.answer, CallState::Open))?;
        let Some(CallMemo::Asked { task }) = call.memo.take_if(|memo| matches!(memo, CallMemo::Asked { .. })) else {
            return None;
        };
        if let Some(hit) = hit {
            return self.answer(&call_id, index, Ok(hit.output)); // MM7
        }
        call.memo = grant.map(|_| CallMemo::Owner { cell });
        match task {
            Some(task) => {
                self.out.push(*task);
                None
            }
            None => self.step_due(&call_id),
        }
    }

    /// Records the result of a call for its cell; a failure is returned by the head of the run.
    pub(super) fn memo_ended(&mut self, call_id: &CallId, output: Option<&Payload>) {
        let origin = self.origin_of(call_id);
        let Some(call) = self.calls.get_mut(call_id).filter(|call| matches!(call.answer, CallState::Open)) else { return };
        let Some(CallMemo::Owner { cell }) = call.memo.take_if(|memo| matches!(memo, CallMemo::Owner { .. })) else { return };
        let call_id = call_id.clone();
        match output {
            Some(output) => self.out.push(MemoStored { call_id, cell, output: output.clone() }.into()),
            // The head does not know that the call has taken over another one.
            None if origin != call_id => self.out.push(MemoReleased { call_id }.into()),
            None => {}
        }
    }
}

impl Call {
    /// Takes the memo of a call that the code gives up.
    pub(super) fn release_memo(&mut self, call_id: &CallId) -> Option<Event> {
        if matches!(self.answer, CallState::Ready { .. }) {
            return None;
        }
        self.memo.take().map(|_| MemoReleased { call_id: call_id.clone() }.into())
    }
}
