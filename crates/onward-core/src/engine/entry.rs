//! The conversation of an agent: entries that name their parent, so that one hash names all of it.
//!
//! Most of what is said has been heard before, as a signal or as the result of a task: such an entry quotes the input instead of
//! repeating it, and a conversation is stored once. What many calls have in common (a system prompt, the schemas of tools) is kept beside
//! the conversation once, and found by its id ever after. Entries from outside are signals in the mailbox until the code takes them in.

use std::collections::BTreeMap;

use super::{Engine, Pattern};
use crate::agent::conversation::{OutsideEntry, entry_id, quotable};
use crate::log::event::{Checkpoint, EntryAppended, EntryKey, Kept, Quote, RunStarted, Tally};
use crate::{Event, Hash, Index, Name, Payload, RunId};

/// A quote is not worth it for less.
const QUOTED_BYTES_MIN: usize = 32;

/// How many things that were kept a run remembers; one that has been forgotten is kept once more.
const KEPT_MAX: usize = 32;

/// How many keys of entries a run remembers; an entry under one that has been forgotten is appended once more.
pub const ENTRY_KEYS_MAX: usize = 128;

/// How many children that were left behind a run remembers.
const LEFT_MAX: usize = 128;

/// The key belongs to an entry that says something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyTaken {
    pub id: Hash,
}

#[derive(Default)]
pub(super) struct Conversation {
    input: Option<Payload>,
    checkpoint: Option<Box<Checkpoint>>,
    leaf: Option<Hash>,
    depth: u64,
    /// The entries of the open segment, with their contents.
    entries: Vec<EntryAppended>,
    kept: Vec<Kept>,
    /// Latest use last.
    keys: Vec<EntryKey>,
    heard: BTreeMap<Hash, (Quote, Payload)>,
    /// Children that earlier segments have left behind.
    left: Vec<RunId>,
    tally: Tally,
}

impl Conversation {
    /// Which children were left behind: known before what they said arrives.
    pub fn begin_left(&mut self, started: &RunStarted) {
        self.left = started.checkpoint.as_ref().map(|checkpoint| checkpoint.left.clone()).unwrap_or_default();
    }

    pub fn has_left(&self, child: &RunId) -> bool {
        self.left.contains(child)
    }

    /// What the run was started with.
    pub fn input(&self) -> Payload {
        self.input.clone().unwrap_or_else(Payload::null)
    }
}

impl Engine {
    pub(super) fn begin_conversation(&mut self, started: &RunStarted) {
        let checkpoint = started.checkpoint.as_deref();
        let leaf = checkpoint.and_then(|checkpoint| checkpoint.leaf);
        self.segment.begin(leaf);
        self.agent = Conversation {
            input: Some(started.input.clone()),
            leaf,
            depth: checkpoint.map_or(0, |checkpoint| checkpoint.depth),
            entries: Vec::new(),
            kept: checkpoint.map(|checkpoint| checkpoint.kept.clone()).unwrap_or_default(),
            keys: checkpoint.map(|checkpoint| checkpoint.keys.clone()).unwrap_or_default(),
            checkpoint: started.checkpoint.clone(),
            heard: std::mem::take(&mut self.agent.heard),
            left: std::mem::take(&mut self.agent.left),
            tally: checkpoint.and_then(|checkpoint| checkpoint.tally).unwrap_or_default(),
        };
    }

    pub(super) fn close_conversation(&self, state: Payload, prelude: Option<u32>, awaits: Option<Name>) -> Checkpoint {
        let kept = self.agent.kept[self.agent.kept.len().saturating_sub(KEPT_MAX)..].to_vec();
        let keys = self.agent.keys[self.agent.keys.len().saturating_sub(ENTRY_KEYS_MAX)..].to_vec();
        let mut left = self.agent.left.clone();
        left.extend(self.segment.left_children());
        let left = left.split_off(left.len().saturating_sub(LEFT_MAX));
        let tally = Some(self.agent.tally).filter(|tally| *tally != Tally::default());
        Checkpoint { state, prelude, awaits, leaf: self.leaf(), depth: self.depth(), kept, keys, left, handoff: None, tally }
    }

    /// What agents of any kind have done with the conversation since anybody was heard.
    pub fn tally(&self) -> Tally {
        self.agent.tally
    }

    /// Somebody has said something: what is counted from one word to the next begins anew.
    pub(super) fn tally_anew(&mut self) {
        self.agent.tally = Tally::default();
    }

    /// The conversation is handed over behind so many turns; whoever does not count them passes on what was counted.
    pub(super) fn tally_handoff(&mut self, turns: Option<u32>) {
        let Tally { handoffs, turns: before } = self.agent.tally;
        self.agent.tally = Tally { handoffs: handoffs.saturating_add(1), turns: turns.unwrap_or(before) };
    }

    /// What the segment began with, if it is not the first.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        // Whoever took the conversation over has none of its own yet.
        self.agent.checkpoint.as_deref().filter(|checkpoint| checkpoint.handoff.is_none())
    }

    /// What whoever had the conversation before has left for who takes it over; nothing once that one has taken a checkpoint.
    pub fn handed_over(&self) -> Option<&Payload> {
        self.agent.checkpoint.as_deref().filter(|checkpoint| checkpoint.handoff.is_some()).map(|checkpoint| &checkpoint.state)
    }

    /// The last entry of the conversation, as of what the code has done so far.
    pub fn leaf(&self) -> Option<Hash> {
        self.agent.leaf
    }

    /// How many entries the conversation has, as of what the code has done so far.
    pub fn depth(&self) -> u64 {
        self.agent.depth
    }

    /// The entries that the code has appended since the checkpoint, oldest first, with their contents.
    pub fn segment_entries(&self) -> &[EntryAppended] {
        &self.agent.entries
    }

    /// Goes on behind an earlier entry, which is the `depth`th of its conversation.
    pub fn branch(&mut self, from: Hash, depth: u64) {
        self.agent.leaf = Some(from);
        self.agent.depth = depth;
    }

    /// Goes on behind any entry, or from the beginning.
    pub(super) fn go_on_behind(&mut self, from: Option<Hash>, depth: u64) {
        (self.agent.leaf, self.agent.depth) = (from, depth);
    }

    /// Takes note of what the code may say again.
    pub(super) fn hear_quotable(&mut self, index: Index, event: &Event) {
        if !self.is_agent() {
            return;
        }
        for (item, payload) in quotable(event).into_iter().enumerate() {
            if payload.data().len() >= QUOTED_BYTES_MIN {
                let quote = Quote { index, item: item as u32 };
                self.agent.heard.entry(Hash::of(&payload)).or_insert_with(|| (quote, payload.into_owned()));
            }
        }
    }

    /// Puts an entry behind the last one; it leaves with the commit.
    pub fn append_entry(&mut self, role: Name, content: Payload) -> Hash {
        self.append_under(None, role, content)
    }

    /// Puts an entry behind the last one, unless there is one under this key: then it is that one.
    pub fn append_entry_once(&mut self, key: &str, role: Name, content: Payload) -> Result<Hash, KeyTaken> {
        let Some(position) = self.agent.keys.iter().position(|known| known.key == key) else {
            return Ok(self.append_under(Some(key.to_owned()), role, content));
        };
        let known = self.agent.keys.remove(position);
        let (id, is_same) = (known.id, known.is(&role, &content));
        self.agent.keys.push(known);
        if is_same { Ok(id) } else { Err(KeyTaken { id }) }
    }

    /// Takes in the entries from outside that came before the turn began: before what it waited for, or before what was delivered last.
    /// No look into the mailbox (N1): what came by then is the same on every replay.
    pub fn take_in_entries(&mut self, awaited: Option<&Pattern>) -> Vec<Hash> {
        let until = self.delivered.max(awaited.and_then(|pattern| self.signal_ready_at(pattern)));
        self.take_in_until(until)
    }

    /// Takes in the entries from outside that are there, as of the horizon.
    pub fn look_for_entries(&mut self) -> Vec<Hash> {
        self.look();
        self.take_in_until(Some(self.horizon))
    }

    fn take_in_until(&mut self, until: Option<Index>) -> Vec<Hash> {
        let mut ids = Vec::new();
        while self.mailbox.first_entry().is_some_and(|signal| Some(signal.index) <= until) {
            let place = self.next_place();
            let Some(signal) = self.mailbox.pop_entry() else { break };
            self.consumed(&place, &signal);
            ids.push(self.take_in(OutsideEntry::of_signal(&signal.name, &signal.payload), signal.payload));
        }
        ids
    }

    fn take_in(&mut self, entry: Option<OutsideEntry>, payload: Payload) -> Hash {
        // Nobody can send such a signal that says something else; if there is one all the same, it is not lost.
        let Some(OutsideEntry { role, content, idempotency_key }) = entry else {
            return self.append_entry(Name::new("user").expect("it is a name"), payload);
        };
        let Some(key) = idempotency_key else { return self.append_entry(role, content) };
        match self.append_entry_once(&key, role.clone(), content.clone()) {
            Ok(id) => id,
            // The code came first with this key and says something else: whoever appended this was told that it was taken.
            Err(KeyTaken { .. }) => self.append_entry(role, content),
        }
    }

    fn append_under(&mut self, idempotency_key: Option<String>, role: Name, content: Payload) -> Hash {
        let (place, parent) = (self.next_place(), self.agent.leaf);
        let id = entry_id(parent, &role, &content);
        if let Some(key) = idempotency_key.clone() {
            self.agent.keys.push(EntryKey { key, id, parent });
        }
        let entry = EntryAppended { place, id, parent, role, content, quote: None, is_aside: false, idempotency_key };
        let entry = self.write_entry(entry);
        self.agent.leaf = Some(id);
        self.agent.depth += 1;
        self.agent.entries.push(entry);
        id
    }

    /// Keeps something beside the conversation, unless it is there already, and says where.
    pub fn keep_aside(&mut self, role: Name, content: Payload) -> Kept {
        let id = entry_id(None, &role, &content);
        let position = self.agent.kept.iter().position(|kept| kept.id == id);
        let kept = match position {
            Some(position) => self.agent.kept.remove(position),
            None => {
                let place = self.next_place();
                let kept =
                    EntryAppended { place, id, parent: None, role, content, quote: None, is_aside: true, idempotency_key: None };
                self.write_entry(kept);
                Kept { id, generation: self.generation() }
            }
        };
        self.agent.kept.push(kept);
        kept
    }

    /// Records an entry, with a quote where the log has its content, and returns it whole.
    fn write_entry(&mut self, entry: EntryAppended) -> EntryAppended {
        let mut written = entry.clone();
        if let Some((quote, heard)) = self.agent.heard.get(&Hash::of(&entry.content))
            // What is equal as JSON need not be the same text.
            && *heard == entry.content
        {
            (written.content, written.quote) = (Payload::null(), Some(*quote));
        }
        self.out.push(written.into());
        entry
    }
}
