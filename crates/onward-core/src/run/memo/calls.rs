//! The calls of a run that wait for a cell or compute for one.
//!
//! The head of the run keeps them, so that the end of a call, of its segment or of the run returns what it owns (MM2), whatever
//! the code does.

use crate::log::event::{MemoAsked, MemoRequested, MemoReturned, MemoSettled};
use crate::run::memo::{KEY_TAKEN, MemoCaller, MemoScope};
use crate::run::{Effect, Input, OutboxMessage, RunHead};
use crate::{CallId, Event, Index, Payload, RunKey, Timestamp, message};

message! {
    /// A call that waits for a cell, or owns it.
    pub struct OpenMemo {
        1 => requested: MemoRequested,
        2 => at: Index,
        /// The incarnation of the cell that the call owns.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::log::text_number")]
        3 => grant: Option<u64>,
    }
}

/// What an event does to the open memos of its run.
enum MemoChange<'a> {
    Open(MemoRequested),
    /// The call is the owner of this incarnation of the cell.
    Own(&'a CallId, u64),
    /// The call is answered, or computes for itself.
    Answered(&'a CallId),
    /// The result of the owner.
    Store(&'a CallId, &'a Payload),
    /// The call has ended without a result.
    Return(&'a CallId),
    /// The wait for the call has ended: a promise releases its key.
    ReturnKey(&'a CallId),
    /// All calls from this event on are abandoned.
    ReturnFrom(Index),
    /// The log continues from a copy: its calls own nothing (MM7).
    Disown,
    Nothing,
}

fn change(event: &Event) -> MemoChange<'_> {
    match event {
        Event::MemoRequested(_) | Event::PromiseCreated(_) => {
            MemoRequested::of(event).map_or(MemoChange::Nothing, MemoChange::Open)
        }
        Event::PromiseResolved(event) if event.resolution_id == KEY_TAKEN => MemoChange::Answered(&event.call_id),
        Event::PromiseResolved(event) => MemoChange::ReturnKey(&event.call_id),
        Event::WaitCanceled(event) => MemoChange::ReturnKey(&event.call_id),
        Event::TimerFired(event) => MemoChange::ReturnKey(&event.call_id),
        Event::MemoAnswered(event) => match event.grant.filter(|_| event.hit.is_none()) {
            Some(grant) => MemoChange::Own(&event.call_id, grant),
            None => MemoChange::Answered(&event.call_id),
        },
        Event::MemoStored(event) => MemoChange::Store(&event.call_id, &event.output),
        Event::MemoReleased(event) => MemoChange::Return(&event.call_id),
        Event::TaskFailed(event) => MemoChange::Return(&event.call_id),
        Event::TaskCanceled(event) => MemoChange::Return(&event.call_id),
        Event::StepFailed(event) if event.retry_at.is_none() => MemoChange::Return(&event.call_id),
        Event::SegmentAbandoned(event) => MemoChange::ReturnFrom(event.from),
        Event::RetryRequested(_) | Event::RunForked(_) => MemoChange::Disown,
        event if event.ends_log() => MemoChange::ReturnFrom(Index(0)),
        _ => MemoChange::Nothing,
    }
}

/// Updates the open memos by an event; passes each one that is settled or returned to `done`, with its value.
fn follow(memos: &mut Vec<OpenMemo>, index: Index, event: &Event, mut done: impl FnMut(OpenMemo, Option<&Payload>)) {
    let position = |memos: &[OpenMemo], call_id: &CallId| memos.iter().position(|memo| memo.requested.call_id == *call_id);
    match change(event) {
        MemoChange::Open(requested) => memos.push(OpenMemo { requested, at: index, grant: None }),
        MemoChange::Own(call_id, grant) => {
            if let Some(position) = position(memos, call_id) {
                memos[position].grant = Some(grant);
            }
        }
        MemoChange::Answered(call_id) => memos.retain(|memo| memo.requested.call_id != *call_id),
        MemoChange::Store(call_id, output) => {
            if let Some(position) = position(memos, call_id) {
                done(memos.remove(position), Some(output));
            }
        }
        MemoChange::Return(call_id) => {
            if let Some(position) = position(memos, call_id) {
                done(memos.remove(position), None);
            }
        }
        MemoChange::ReturnKey(call_id) => {
            if let Some(position) = position(memos, call_id).filter(|position| memos[*position].requested.is_promise()) {
                done(memos.remove(position), None);
            }
        }
        MemoChange::ReturnFrom(from) => {
            let (kept, returned) = std::mem::take(memos).into_iter().partition(|memo| memo.at < from);
            *memos = kept;
            Vec::into_iter(returned).for_each(|memo| done(memo, None));
        }
        // The key of a promise leads to the original.
        MemoChange::Disown => memos.retain(|memo| memo.grant.is_none() && !memo.requested.is_promise()),
        MemoChange::Nothing => {}
    }
}

impl RunHead {
    /// Returns the messages to cells that follow from the events from `first` on; `self` is the head before them.
    pub(in crate::run) fn memo_effects(&self, first: Index, events: &[Event], at: Timestamp) -> Vec<Effect> {
        let requests = |event: &Event| MemoRequested::of(event).is_some();
        if self.memos.is_empty() && !events.iter().any(requests) {
            return Vec::new();
        }
        let (mut memos, mut messages) = (self.memos.clone(), Vec::new());
        for (offset, event) in events.iter().enumerate() {
            if let Some(requested) = MemoRequested::of(event) {
                messages.push(self.ask_memo(&requested));
            }
            follow(&mut memos, first.plus(offset as u64), event, |memo, output| messages.push(self.end_memo(&memo, output, at)));
        }
        messages.into_iter().map(|message| Effect::Send(Box::new(message))).collect()
    }

    /// Updates the open memos by a record of the log.
    pub(in crate::run) fn follow_memos(&mut self, first: Index, events: &[Event]) {
        for (offset, event) in events.iter().enumerate() {
            follow(&mut self.memos, first.plus(offset as u64), event, |_, _| {});
        }
    }

    /// Returns the requests of calls that were not answered: a log that continues from a copy sends them again (MM7).
    pub fn memo_requests(&self) -> impl Iterator<Item = OutboxMessage> {
        self.memos.iter().filter(|memo| memo.grant.is_none()).map(|memo| self.ask_memo(&memo.requested))
    }

    /// Returns true if the call at `call_id` waits for a cell.
    pub(in crate::run) fn asks_memo(&self, call_id: &CallId) -> bool {
        self.memos.iter().any(|memo| memo.requested.call_id == *call_id && memo.grant.is_none())
    }

    /// Returns the memos that these next events of the code request or fill, each with its call. Admission does not know
    /// the worker, so the server compares the memos with its rights (MM8).
    pub fn used_memos<'a>(&'a self, events: &'a [Event]) -> impl Iterator<Item = (&'a CallId, MemoScope)> {
        events.iter().filter_map(|event| match event {
            Event::MemoRequested(requested) => Some((&requested.call_id, requested.scope)),
            Event::PromiseCreated(promise) => promise.key.as_ref().map(|_| (&promise.call_id, MemoScope::Promise)),
            Event::MemoStored(stored) => {
                let memo = self.memos.iter().find(|memo| memo.requested.call_id == stored.call_id)?;
                Some((&stored.call_id, memo.requested.scope))
            }
            _ => None,
        })
    }

    fn memo_caller(&self, call_id: &CallId) -> MemoCaller {
        let (run, generation, incarnation) = (self.key.clone(), self.generation, self.incarnation);
        MemoCaller { run, generation, call_id: call_id.clone(), incarnation }
    }

    fn to_cell(&self, requested: &MemoRequested, input: Input) -> OutboxMessage {
        let to = RunKey::new(self.key.namespace.clone(), requested.memo(&self.key.id).id());
        OutboxMessage::Input { to, input }
    }

    fn ask_memo(&self, requested: &MemoRequested) -> OutboxMessage {
        let (by, cell) = (self.memo_caller(&requested.call_id), requested.memo(&self.key.id));
        self.to_cell(requested, MemoAsked { by, cell, ttl_ms: requested.ttl_ms, waited_for: None }.into_input())
    }

    /// Returns the message about the end of a call: its value, or the return of what it owns or waits for.
    fn end_memo(&self, memo: &OpenMemo, output: Option<&Payload>, computed_at: Timestamp) -> OutboxMessage {
        let by = self.memo_caller(&memo.requested.call_id);
        let (ttl_ms, incarnation) = (memo.requested.ttl_ms, memo.grant);
        let nothing = Payload::null();
        // A key leads to its promise after the end, too (PK2).
        let output = if memo.requested.is_promise() { Some(&nothing) } else { output };
        let event: Event = match (output, incarnation) {
            (Some(output), Some(_)) => MemoSettled { by, ttl_ms, output: Some(output.clone()), computed_at }.into(),
            _ => MemoReturned { by }.into(),
        };
        self.to_cell(&memo.requested, Input { incarnation, ..Input::new(event) })
    }
}
