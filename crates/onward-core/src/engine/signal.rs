//! Signals: waiting for one, and polling for one.

use std::fmt;

use super::call::{CallDetails, CallState};
use super::mailbox::{PollState, Signal};
use super::{Engine, POLLS_MAX, Wake};
use crate::agent::conversation::ENTRY_SIGNAL;
use crate::log::event::{SignalAwaited, SignalConsumed, SignalSent, WaitCanceled};
use crate::{CallId, Index, Name, Payload, RunId, RunKey, Timestamp};

/// The signals that a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// This exact name, byte for byte.
    Exactly(Name),
    /// Any matching name; `*` stands for any text.
    Like(Name),
}

impl Pattern {
    pub fn matches(&self, name: &Name) -> bool {
        match self {
            Pattern::Exactly(own) => own == name,
            // Entries from outside are not matched by patterns.
            Pattern::Like(pattern) => name.as_str() != ENTRY_SIGNAL && fits(pattern.as_str(), name.as_str()),
        }
    }

    fn name(&self) -> &Name {
        match self {
            Pattern::Exactly(name) | Pattern::Like(name) => name,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// Matches greedily from the left: each literal part at its first occurrence, the last one at the end.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        let Some(position) = text.find(part) else { return false };
        text = &text[position + part.len()..];
    }
    true
}

impl Engine {
    /// Handles a signal of the batch: reserves it for a waiting call, or puts it into the mailbox.
    pub(super) fn signal_arrives(&mut self, signal: Signal) {
        if signal.sender.as_ref().is_some_and(|sender| self.has_abandoned(sender)) {
            return self.mailbox.hold(signal); // M4
        }
        match self.mailbox.longest_waiting(&signal.name) {
            Some(call_id) => self.reserve(call_id, signal),
            None => self.mailbox.put(signal),
        }
    }

    fn reserve(&mut self, call_id: CallId, signal: Signal) {
        let delivered = self.delivered.is_some_and(|delivered| delivered >= signal.index);
        let Some(call) = self.calls.get_mut(&call_id) else { return self.mailbox.put(signal) };
        if delivered {
            let (index, result) = (signal.index, Ok(signal.payload.clone()));
            call.answer = CallState::Ready { index, result, signal: Some(signal) };
            self.wakes.push_back(Wake::Call(call_id));
            return;
        }
        self.mailbox.reserved.entry(signal.index).or_default().push(call_id);
        call.answer = CallState::Reserved(signal);
    }

    /// Delivers a signal to the call that it is reserved for.
    pub(super) fn signal_delivered(&mut self, index: Index) -> Option<Wake> {
        let Some(call_ids) = self.mailbox.reserved.remove(&index) else { return self.wake_polling() };
        for call_id in call_ids {
            let Some(call) = self.calls.get_mut(&call_id) else { continue };
            if let CallState::Reserved(signal) = &call.answer {
                let (result, signal) = (Ok(signal.payload.clone()), Some(signal.clone()));
                call.answer = CallState::Ready { index, result, signal };
                self.wakes.push_back(Wake::Call(call_id));
            }
        }
        self.wakes.pop_front()
    }

    /// Waits for a signal. Returns it at once if there is one.
    pub fn await_signal(&mut self, call_id: &CallId, pattern: &Pattern, deadline: Option<Timestamp>) -> Option<(Name, Payload)> {
        if self.cancel_is_due() {
            self.open(call_id.clone(), CallDetails::Signal { pattern: pattern.clone() }, None);
            return None;
        }
        if let Some(signal) = self.mailbox.pop(pattern) {
            self.consumed(call_id, &signal);
            return Some((signal.name, signal.payload));
        }
        let is_pattern = matches!(pattern, Pattern::Like(_));
        let event = SignalAwaited { call_id: call_id.clone(), name: pattern.name().clone(), deadline, is_pattern };
        self.open(call_id.clone(), CallDetails::Signal { pattern: pattern.clone() }, Some(event.into()));
        self.mailbox.wait(call_id.clone(), pattern.clone());
        None
    }

    /// Returns the name of the signal that answered the call at `call_id`.
    pub fn signal_name(&self, call_id: &CallId) -> Option<Name> {
        match &self.calls.get(call_id)?.answer {
            CallState::Ready { signal: Some(signal), .. } => Some(signal.name.clone()),
            _ => None,
        }
    }

    /// Returns the index of the signal that `await_signal` would return at once.
    pub fn signal_ready_at(&self, pattern: &Pattern) -> Option<Index> {
        self.mailbox.first(pattern).map(|signal| signal.index)
    }

    pub(super) fn consumed(&mut self, call_id: &CallId, signal: &Signal) {
        let event = SignalConsumed { call_id: call_id.clone(), name: signal.name.clone(), index: signal.index };
        self.out.push(event.into());
        self.follow_budget_up_to(signal.index); // BG5
        // An entry from outside is not a message to the agent.
        if signal.name.as_str() != ENTRY_SIGNAL {
            self.reset_tally();
        }
        self.finished(call_id, CallDetails::Signal { pattern: Pattern::Exactly(signal.name.clone()) }, signal.index);
    }

    /// Returns the number of matching signals up to the horizon.
    pub fn count_signals(&mut self, pattern: &Pattern) -> usize {
        self.count_poll();
        self.mailbox.count(pattern)
    }

    /// Returns the payload of the next matching signal up to the horizon, without consuming it.
    pub fn peek_signal(&mut self, pattern: &Pattern) -> Option<Payload> {
        self.count_poll();
        self.mailbox.first(pattern).map(|signal| signal.payload.clone())
    }

    /// Consumes the next matching signal up to the horizon, if there is one.
    pub fn try_signal(&mut self, pattern: &Pattern) -> Option<(Name, Payload)> {
        self.try_signal_from(pattern).map(|(name, payload, _)| (name, payload))
    }

    /// Consumes a signal like [`Engine::try_signal`], and also returns its sender.
    pub fn try_signal_from(&mut self, pattern: &Pattern) -> Option<(Name, Payload, Option<RunKey>)> {
        self.count_poll();
        let call_id = self.next_call_id();
        let signal = self.mailbox.pop(pattern)?;
        self.polls = 0; // a mailbox is finite
        self.consumed(&call_id, &signal);
        Some((signal.name, signal.payload, signal.sender))
    }

    /// Returns true if the code polls for signals in an endless loop. The worker has to stop it.
    pub fn is_spinning(&self) -> bool {
        self.polls >= POLLS_MAX
    }

    /// Wakes code that polls the mailbox. Without a wake it would see the signal only when another event polls it, which replay
    /// could not reproduce.
    fn wake_polling(&self) -> Option<Wake> {
        (self.poll_state != PollState::Never).then_some(Wake::All)
    }

    /// Records that the code continues because no signal was there. Dropping an unanswered `recv` observes an empty mailbox, so
    /// it counts as a poll.
    pub fn note_poll(&mut self) {
        if self.poll_state != PollState::Durable {
            self.poll_state = PollState::Open;
            self.polled = true;
        }
    }

    pub(super) fn count_poll(&mut self) {
        self.note_poll();
        self.polls += 1;
        if self.polls == POLLS_MAX {
            self.misuse(format!(
                "the code polled for signals {POLLS_MAX} times without awaiting anything: nothing new can arrive meanwhile; \
                 await `recv()` or a `sleep` in the loop"
            ));
        }
    }

    /// Drops a `recv`: a signal reserved for it goes back to the mailbox (rule 4, CE9).
    pub(super) fn drop_signal(&mut self, call_id: &CallId) {
        self.mailbox.stop_waiting(call_id);
        let Some(call) = self.calls.remove(call_id) else { return };
        if call.is_requested_in(self.out_batch) {
            self.note_poll(); // no other wait in between
        }
        let signal = match call.answer {
            CallState::Reserved(signal) => {
                if let Some(call_ids) = self.mailbox.reserved.get_mut(&signal.index) {
                    call_ids.retain(|other| other != call_id);
                }
                Some(signal)
            }
            CallState::Ready { signal, .. } => signal,
            CallState::Open => None,
        };
        self.out.push(WaitCanceled { call_id: call_id.clone() }.into());
        if let Some(signal) = signal {
            self.put_back(signal);
        }
    }

    pub(super) fn put_back(&mut self, signal: Signal) {
        match self.mailbox.longest_waiting(&signal.name) {
            Some(call_id) => self.reserve(call_id, signal),
            None => {
                self.mailbox.put(signal);
                self.wakes.extend(self.wake_polling());
            }
        }
    }

    /// Sends a signal to another run; it is durable with the next commit.
    pub fn send_signal(&mut self, to: RunId, name: Name, payload: Payload) {
        let call_id = self.next_call_id();
        self.out.push(SignalSent { call_id, to, name, payload }.into());
    }
}

#[cfg(test)]
mod tests;
