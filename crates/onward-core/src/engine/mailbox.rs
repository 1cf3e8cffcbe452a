//! Unconsumed signals, and the calls that wait for one.
//!
//! Invariants:
//! - M1: signals of one name are consumed in index order.
//! - M2: a signal is in the mailbox, reserved for one call, or consumed; never two of these.
//! - M3: a reserved signal goes to the call that began to wait first.
//! - M4: signals of abandoned children are held back, unless the code takes the child over again.

use std::collections::{BTreeMap, VecDeque};

use super::Pattern;
use crate::agent::conversation::ENTRY_SIGNAL;
use crate::{CallId, Index, Name, Payload, RunKey};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Signal {
    pub index: Index,
    pub name: Name,
    pub payload: Payload,
    pub sender: Option<RunKey>,
}

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    unread: BTreeMap<Name, VecDeque<Signal>>,
    /// In the order in which they began to wait.
    waiters: BTreeMap<u64, (CallId, Pattern)>,
    next_waiter: u64,
    /// The calls that signals are reserved for.
    pub reserved: BTreeMap<Index, Vec<CallId>>,
    /// Signals of abandoned children (M4).
    held: Vec<Signal>,
}

/// The polls of the mailbox by the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PollState {
    /// No poll yet.
    #[default]
    Never,
    /// Polled since the last commit.
    Open,
    /// A commit covers the last poll, and nothing was delivered since: another poll observes the same.
    Durable,
    Outdated,
}

impl PollState {
    pub fn commit(&mut self) {
        if *self == PollState::Open {
            *self = PollState::Durable;
        }
    }

    /// Handles the rejection of the commit.
    pub fn reopen(&mut self) {
        if *self == PollState::Durable {
            *self = PollState::Open;
        }
    }

    pub fn outdate(&mut self) {
        if *self == PollState::Durable {
            *self = PollState::Outdated;
        }
    }
}

impl Mailbox {
    pub fn put(&mut self, signal: Signal) {
        let queue = self.unread.entry(signal.name.clone()).or_default();
        let position = queue.partition_point(|other| other.index <= signal.index);
        queue.insert(position, signal);
    }

    /// Holds back a signal, so that no call receives it.
    pub fn hold(&mut self, signal: Signal) {
        self.held.push(signal);
    }

    /// Releases the held signals of this sender, oldest first.
    pub fn release(&mut self, sender: &RunKey) -> Vec<Signal> {
        self.held.extract_if(.., |signal| signal.sender.as_ref() == Some(sender)).collect()
    }

    pub fn count(&self, pattern: &Pattern) -> usize {
        match pattern {
            Pattern::Exactly(name) => self.unread.get(name).map_or(0, VecDeque::len),
            Pattern::Like(_) => self.unread.iter().filter(|(name, _)| pattern.matches(name)).map(|(_, queue)| queue.len()).sum(),
        }
    }

    pub fn first(&self, pattern: &Pattern) -> Option<&Signal> {
        match pattern {
            Pattern::Exactly(name) => self.unread.get(name)?.front(),
            Pattern::Like(_) => {
                let matching = self.unread.iter().filter(|(name, _)| pattern.matches(name));
                matching.filter_map(|(_, queue)| queue.front()).min_by_key(|signal| signal.index)
            }
        }
    }

    pub fn pop(&mut self, pattern: &Pattern) -> Option<Signal> {
        let name = self.first(pattern)?.name.clone();
        let queue = self.unread.get_mut(&name)?;
        let signal = queue.pop_front();
        if queue.is_empty() {
            self.unread.remove(&name);
        }
        signal
    }

    /// Returns the oldest entry from outside.
    pub fn first_entry(&self) -> Option<&Signal> {
        self.unread.iter().find(|(name, _)| name.as_str() == ENTRY_SIGNAL)?.1.front()
    }

    pub fn pop_entry(&mut self) -> Option<Signal> {
        let name = self.first_entry()?.name.clone();
        self.pop(&Pattern::Exactly(name))
    }

    pub fn wait(&mut self, call_id: CallId, pattern: Pattern) {
        self.waiters.insert(self.next_waiter, (call_id, pattern));
        self.next_waiter += 1;
    }

    pub fn stop_waiting(&mut self, call_id: &CallId) {
        self.waiters.retain(|_, (waiter, _)| waiter != call_id);
    }

    /// Removes and returns the call that has waited longest for such a signal (M3).
    pub fn longest_waiting(&mut self, name: &Name) -> Option<CallId> {
        let order = *self.waiters.iter().find(|(_, (_, pattern))| pattern.matches(name))?.0;
        self.waiters.remove(&order).map(|(call_id, _)| call_id)
    }

    /// Returns the number of signals and waiting calls.
    pub fn entries(&self) -> usize {
        self.unread.values().map(VecDeque::len).sum::<usize>() + self.waiters.len() + self.reserved.len() + self.held.len()
    }

    /// Returns all unconsumed signals.
    pub fn drain_all(&self) -> Vec<Signal> {
        self.unread.values().flatten().chain(&self.held).cloned().collect()
    }
}
