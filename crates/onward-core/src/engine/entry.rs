//! The conversation of an agent: entries with a reference to their parent, so that one hash identifies all of it.
//!
//! Most contents of entries are in the log already, as a signal or the result of a task: such an entry quotes the input instead
//! of repeating it, and a conversation is stored once. Content that many calls share (a system prompt, the schemas of tools) is
//! stored once beside the conversation and referenced by its id. Entries from outside are signals in the mailbox until the code
//! consumes them.

use std::collections::BTreeMap;

use super::{Engine, Pattern};
use crate::agent::conversation::{OutsideEntry, entry_id, quotable};
use crate::log::event::{Checkpoint, EntryAppended, EntryKey, EntryLocation, Quote, RunStarted, Tally};
use crate::{Event, Hash, Index, Name, Payload, RunId};

/// The minimum size of a quoted content.
const QUOTED_BYTES_MIN: usize = 32;

/// The maximum number of remembered entries beside the conversation; a forgotten one is stored again.
const KEPT_MAX: usize = 32;

/// The maximum number of remembered idempotency keys of entries; an entry under a forgotten one is appended again.
pub const ENTRY_KEYS_MAX: usize = 128;

/// The maximum number of remembered abandoned children.
const ABANDONED_CHILDREN_MAX: usize = 128;

/// The key belongs to an entry with different content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyTaken {
    pub id: Hash,
}

#[derive(Default)]
pub(super) struct ConversationState {
    input: Option<Payload>,
    checkpoint: Option<Box<Checkpoint>>,
    leaf: Option<Hash>,
    depth: u64,
    /// The entries of the open segment, with their contents.
    entries: Vec<EntryAppended>,
    kept: Vec<EntryLocation>,
    /// Latest use last.
    keys: Vec<EntryKey>,
    quotes: BTreeMap<Hash, (Quote, Payload)>,
    /// Children that earlier segments have abandoned.
    abandoned_children: Vec<RunId>,
    tally: Tally,
}

impl ConversationState {
    /// Sets the abandoned children, before their signals arrive.
    pub fn begin_abandoned_children(&mut self, started: &RunStarted) {
        self.abandoned_children =
            started.checkpoint.as_ref().map(|checkpoint| checkpoint.abandoned_children.clone()).unwrap_or_default();
    }

    pub fn has_abandoned(&self, child: &RunId) -> bool {
        self.abandoned_children.contains(child)
    }

    /// Returns the input of the run.
    pub fn input(&self) -> Payload {
        self.input.clone().unwrap_or_else(Payload::null)
    }
}

impl Engine {
    pub(super) fn begin_conversation(&mut self, started: &RunStarted) {
        let checkpoint = started.checkpoint.as_deref();
        let leaf = checkpoint.and_then(|checkpoint| checkpoint.leaf);
        self.segment.begin(leaf);
        self.agent = ConversationState {
            input: Some(started.input.clone()),
            leaf,
            depth: checkpoint.map_or(0, |checkpoint| checkpoint.depth),
            entries: Vec::new(),
            kept: checkpoint.map(|checkpoint| checkpoint.kept.clone()).unwrap_or_default(),
            keys: checkpoint.map(|checkpoint| checkpoint.keys.clone()).unwrap_or_default(),
            checkpoint: started.checkpoint.clone(),
            quotes: std::mem::take(&mut self.agent.quotes),
            abandoned_children: std::mem::take(&mut self.agent.abandoned_children),
            tally: checkpoint.and_then(|checkpoint| checkpoint.tally).unwrap_or_default(),
        };
    }

    pub(super) fn close_conversation(&self, state: Payload, prelude: Option<u32>, awaits: Option<Name>) -> Checkpoint {
        let kept = self.agent.kept[self.agent.kept.len().saturating_sub(KEPT_MAX)..].to_vec();
        let keys = self.agent.keys[self.agent.keys.len().saturating_sub(ENTRY_KEYS_MAX)..].to_vec();
        let mut abandoned_children = self.agent.abandoned_children.clone();
        abandoned_children.extend(self.segment.abandoned_children());
        let abandoned_children = abandoned_children.split_off(abandoned_children.len().saturating_sub(ABANDONED_CHILDREN_MAX));
        let tally = Some(self.agent.tally).filter(|tally| *tally != Tally::default());
        Checkpoint {
            state,
            prelude,
            awaits,
            leaf: self.leaf(),
            depth: self.depth(),
            kept,
            keys,
            abandoned_children,
            handoff: None,
            tally,
        }
    }

    /// Returns the counters of the conversation since the last received signal.
    pub fn tally(&self) -> Tally {
        self.agent.tally
    }

    /// Resets the counters: a signal was received.
    pub(super) fn reset_tally(&mut self) {
        self.agent.tally = Tally::default();
    }

    /// Counts a handoff after so many turns; `None` keeps the number of turns.
    pub(super) fn tally_handoff(&mut self, turns: Option<u32>) {
        let Tally { handoffs, turns: before } = self.agent.tally;
        self.agent.tally = Tally { handoffs: handoffs.saturating_add(1), turns: turns.unwrap_or(before) };
    }

    /// Returns the checkpoint that the segment began with, if it is not the first.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        // After a handoff the new agent has no checkpoint of its own yet.
        self.agent.checkpoint.as_deref().filter(|checkpoint| checkpoint.handoff.is_none())
    }

    /// Returns the state that the previous agent passed on at a handoff; `None` once the new agent has taken a checkpoint.
    pub fn handed_over(&self) -> Option<&Payload> {
        self.agent.checkpoint.as_deref().filter(|checkpoint| checkpoint.handoff.is_some()).map(|checkpoint| &checkpoint.state)
    }

    /// Returns the last entry of the conversation, including those that the code has appended so far.
    pub fn leaf(&self) -> Option<Hash> {
        self.agent.leaf
    }

    /// Returns the number of entries in the conversation, including those that the code has appended so far.
    pub fn depth(&self) -> u64 {
        self.agent.depth
    }

    /// Returns the entries that the code has appended since the checkpoint, oldest first, with their contents.
    pub fn segment_entries(&self) -> &[EntryAppended] {
        &self.agent.entries
    }

    /// Continues after an earlier entry, which is the `depth`th of its conversation, or from the beginning.
    pub fn branch(&mut self, from: Option<Hash>, depth: u64) {
        (self.agent.leaf, self.agent.depth) = (from, depth);
    }

    /// Remembers the payloads that entries may quote.
    pub(super) fn note_quotable(&mut self, index: Index, event: &Event) {
        if !self.is_agent() {
            return;
        }
        for (item, payload) in quotable(event).into_iter().enumerate() {
            if payload.data().len() >= QUOTED_BYTES_MIN {
                let quote = Quote { index, item: item as u32 };
                self.agent.quotes.entry(Hash::of(&payload)).or_insert_with(|| (quote, payload.into_owned()));
            }
        }
    }

    /// Appends an entry to the conversation; it is durable with the next commit.
    pub fn append_entry(&mut self, role: Name, content: Payload) -> Hash {
        self.append_under(None, role, content)
    }

    /// Appends an entry under a key. A repeat returns the first entry; different content under the key is an error.
    pub fn append_entry_once(&mut self, key: &str, role: Name, content: Payload) -> Result<Hash, KeyTaken> {
        let Some(position) = self.agent.keys.iter().position(|known| known.key == key) else {
            return Ok(self.append_under(Some(key.to_owned()), role, content));
        };
        let known = self.agent.keys.remove(position);
        let (id, is_same) = (known.id, known.is(&role, &content));
        self.agent.keys.push(known);
        if is_same { Ok(id) } else { Err(KeyTaken { id }) }
    }

    /// Consumes the entries from outside that came before the turn began: before the awaited signal, or before the last delivered
    /// event. Not a poll of the mailbox (N1): the result is the same on every replay.
    pub fn take_in_entries(&mut self, awaited: Option<&Pattern>) -> Vec<Hash> {
        let until = self.delivered.max(awaited.and_then(|pattern| self.signal_ready_at(pattern)));
        self.take_in_until(until)
    }

    /// Consumes the entries from outside up to the horizon. Counts as a poll.
    pub fn look_for_entries(&mut self) -> Vec<Hash> {
        self.count_poll();
        self.take_in_until(Some(self.horizon))
    }

    fn take_in_until(&mut self, until: Option<Index>) -> Vec<Hash> {
        let mut ids = Vec::new();
        while self.mailbox.first_entry().is_some_and(|signal| Some(signal.index) <= until) {
            let call_id = self.next_call_id();
            let Some(signal) = self.mailbox.pop_entry() else { break };
            self.consumed(&call_id, &signal);
            ids.push(self.take_in(OutsideEntry::of_signal(&signal.name, &signal.payload), signal.payload));
        }
        ids
    }

    fn take_in(&mut self, entry: Option<OutsideEntry>, payload: Payload) -> Hash {
        // No caller can send such a signal with other content; if there is one, it is not lost.
        let Some(OutsideEntry { role, content, idempotency_key }) = entry else {
            return self.append_entry(Name::new("user").expect("it is a name"), payload);
        };
        let Some(key) = idempotency_key else { return self.append_entry(role, content) };
        match self.append_entry_once(&key, role.clone(), content.clone()) {
            Ok(id) => id,
            // The code has used this key for different content; the sender's append was accepted, so the entry is appended
            // without the key.
            Err(KeyTaken { .. }) => self.append_entry(role, content),
        }
    }

    fn append_under(&mut self, idempotency_key: Option<String>, role: Name, content: Payload) -> Hash {
        let (call_id, parent) = (self.next_call_id(), self.agent.leaf);
        let id = entry_id(parent, &role, &content);
        if let Some(key) = idempotency_key.clone() {
            self.agent.keys.push(EntryKey { key, id, parent });
        }
        let entry = EntryAppended { call_id, id, parent, role, content, quote: None, is_aside: false, idempotency_key };
        let entry = self.write_entry(entry);
        self.agent.leaf = Some(id);
        self.agent.depth += 1;
        self.agent.entries.push(entry);
        id
    }

    /// Stores an entry beside the conversation, unless it is there already; returns its location.
    pub fn keep_aside(&mut self, role: Name, content: Payload) -> EntryLocation {
        let id = entry_id(None, &role, &content);
        let position = self.agent.kept.iter().position(|kept| kept.id == id);
        let kept = match position {
            Some(position) => self.agent.kept.remove(position),
            None => {
                let call_id = self.next_call_id();
                let kept = EntryAppended {
                    call_id,
                    id,
                    parent: None,
                    role,
                    content,
                    quote: None,
                    is_aside: true,
                    idempotency_key: None,
                };
                self.write_entry(kept);
                EntryLocation { id, generation: self.generation() }
            }
        };
        self.agent.kept.push(kept);
        kept
    }

    /// Records an entry, with a quote if the log has its content, and returns it with its content.
    fn write_entry(&mut self, entry: EntryAppended) -> EntryAppended {
        let mut written = entry.clone();
        if let Some((quote, content)) = self.agent.quotes.get(&Hash::of(&entry.content))
            // Equal JSON need not be the same text.
            && *content == entry.content
        {
            (written.content, written.quote) = (Payload::null(), Some(*quote));
        }
        self.out.push(written.into());
        entry
    }
}
