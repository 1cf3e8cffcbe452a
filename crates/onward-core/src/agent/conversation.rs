//! The conversation of an agent, derived from its logs.
//!
//! Owns the ids of entries, and the reading of a conversation backwards from any entry. Must never load anything: [`Walk`] names
//! the entry that it needs next, and receives the logs of the generations, latest first.
//!
//! Invariants:
//! - CV1: an entry's id covers its parent's, so one id identifies a whole conversation; an entry that is read has the requested
//!   id.
//! - CV2: entries are only in the log of the generation that appended them; a child is never in an earlier one than its parent.

mod attachment;
mod cursor;
mod empty;
mod outside;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::log::event::{EntryAppended, EntryKey, Quote};
use crate::{Event, Hash, Index, Name, Payload, Record, RunKey, Timestamp, message};

pub use attachment::{attachment_fault, names_attachment, with_faults_replaced};
pub use cursor::EntryCursor;
pub use empty::is_empty_message;
pub use outside::{ENTRY_SIGNAL, OutsideEntry, PendingEntry, is_callers_role, pending_of, reported, reported_text};

/// The default signal for messages to an agent.
pub const MESSAGE: &str = "message";

/// The attribute with the reason why an agent waits for the next message.
pub const AGENT_STOP: &str = "agent_stop";

/// Its value after the model has finished its turn.
pub const DONE: &str = "done";

/// The role of an entry that replaces those before it ([`Summary`]).
pub const SUMMARY: &str = "summary";

message! {
    /// An entry with its content, quoted or not.
    pub struct Entry {
        /// The hash of the conversation up to this entry.
        1 => id: Hash,
        2 => parent: Option<Hash>,
        3 => role: Name,
        4 => content: Payload,
        /// The generation whose log contains it.
        5 => generation: u32,
        /// Its index in that log.
        6 => index: Index,
        7 => at: Timestamp,
        /// The code has abandoned it: no later entry follows it.
        8 => is_abandoned: bool,
        /// The entry is stored beside the conversation.
        #[serde(default, skip_serializing)]
        9 => is_aside: bool,
        /// The idempotency key of the append.
        10 => idempotency_key: Option<String>,
    }
}

impl Entry {
    /// Creates the first entry of a conversation.
    pub fn first(role: Name, content: Payload) -> Entry {
        Entry {
            id: entry_id(None, &role, &content),
            parent: None,
            role,
            content,
            generation: 0,
            index: Index(0),
            at: Timestamp(0),
            is_abandoned: false,
            is_aside: false,
            idempotency_key: None,
        }
    }
}

/// Computes the id of an entry, which identifies the whole conversation up to it.
pub fn entry_id(parent: Option<Hash>, role: &Name, content: &Payload) -> Hash {
    let parent = parent.map(|parent| parent.0);
    let parent: &[u8] = parent.as_ref().map_or(&[], |parent| parent);
    Hash::of_parts(&[b"entry", parent, role.as_str().as_bytes(), &Hash::of(content).0])
}

impl EntryKey {
    /// Returns true if this would be the entry that was appended under the key.
    pub fn is(&self, role: &Name, content: &Payload) -> bool {
        entry_id(self.parent, role, content) == self.id
    }
}

/// Returns the entry that was appended under this key and is on the path at the end of this log, as far as it is remembered.
pub fn keyed_entry(records: &[Record], key: &str) -> Option<EntryKey> {
    let entries = entries_of(0, records);
    let own = entries.iter().rev().find(|entry| !entry.is_abandoned && entry.idempotency_key.as_deref() == Some(key));
    let own = own.map(|entry| EntryKey { key: key.to_owned(), id: entry.id, parent: entry.parent });
    own.or_else(|| {
        let checkpoint = records.first()?.started()?.checkpoint.as_ref()?;
        checkpoint.keys.iter().find(|known| known.key == key).cloned()
    })
}

/// Returns the payloads of an input that an entry may quote, in order.
pub fn quotable(event: &Event) -> Vec<Cow<'_, Payload>> {
    match event {
        Event::RunStarted(event) => event.mailbox.iter().map(|signal| signal_content(&signal.name, &signal.payload)).collect(),
        Event::SignalReceived(event) => vec![signal_content(&event.name, &event.payload)],
        Event::TaskCompleted(event) => vec![Cow::Borrowed(&event.output)],
        Event::ChildCompleted(event) => vec![Cow::Borrowed(&event.output)],
        _ => Vec::new(),
    }
}

/// Returns the content of a signal; for an entry from outside, the content of the entry.
pub(crate) fn signal_content<'a>(name: &Name, payload: &'a Payload) -> Cow<'a, Payload> {
    match OutsideEntry::of_signal(name, payload) {
        Some(entry) => Cow::Owned(entry.content),
        None => Cow::Borrowed(payload),
    }
}

/// Returns all entries in the log of one generation, in order, including abandoned ones and those beside the conversation.
pub fn entries_of(generation: u32, records: &[Record]) -> Vec<Entry> {
    let abandoned = abandoned_filter(records);
    let mut entries = Vec::new();
    for record in records {
        for (index, event) in record.indexed() {
            let Event::EntryAppended(entry) = event else { continue };
            let Some(content) = content_of(entry, records) else { continue };
            let is_abandoned = abandoned(index);
            let EntryAppended { id, parent, is_aside, .. } = *entry;
            let (role, idempotency_key, at) = (entry.role.clone(), entry.idempotency_key.clone(), record.at);
            entries.push(Entry { id, parent, role, content, generation, index, at, is_abandoned, is_aside, idempotency_key });
        }
    }
    entries
}

/// Returns a function that tests whether an event was abandoned.
pub(crate) fn abandoned_filter(records: &[Record]) -> impl Fn(Index) -> bool + use<> {
    let range = |record: &Record| match record.events.first() {
        Some(Event::SegmentAbandoned(event)) => Some(event.from..=event.to),
        _ => None,
    };
    let abandoned: Vec<_> = records.iter().filter_map(range).collect();
    move |index| abandoned.iter().any(|range| range.contains(&index))
}

/// Returns the content of the entry; `None` for a quote of a missing event, which only a damaged log has.
fn content_of(entry: &EntryAppended, records: &[Record]) -> Option<Payload> {
    let Some(Quote { index, item }) = entry.quote else { return Some(entry.content.clone()) };
    let record = records.partition_point(|record| record.next_index() <= index);
    let event = records.get(record)?.indexed().find(|(at, _)| *at == index)?.1;
    quotable(event).into_iter().nth(item as usize).map(Cow::into_owned)
}

/// Returns the last entry of the conversation at the end of this log; `None` before the first.
pub fn leaf_of(records: &[Record]) -> Option<Hash> {
    let entries = entries_of(0, records);
    let last = entries.iter().rev().find(|entry| !entry.is_abandoned && !entry.is_aside);
    last.map(|entry| entry.id).or_else(|| records.first()?.started()?.checkpoint.as_ref()?.leaf)
}

/// Returns the number of entries in the conversation at the end of this log.
pub fn depth_of(records: &[Record]) -> u64 {
    let before = records.first().and_then(Record::started).and_then(|started| started.checkpoint.as_ref());
    let own = entries_of(0, records).iter().filter(|entry| !entry.is_abandoned && !entry.is_aside).count() as u64;
    before.map_or(0, |checkpoint| checkpoint.depth) + own
}

/// Returns the generation of the log before the one that begins with `first`, for reading backwards; `None` at the beginning. A
/// log that begins with a copy of another one has everything of that one.
pub fn log_before(key: &RunKey, first: &Record) -> Option<u32> {
    let started = first.started()?;
    let own = started.origins.iter().find(|origin| origin.run == *key);
    own.map_or(started.generation, |origin| origin.generation).checked_sub(1)
}

/// Returns the run whose log a run begins with a copy of, if that is another run.
pub fn original_of(key: &RunKey, first: &Record) -> Option<RunKey> {
    let origin = first.started()?.origins.first()?;
    (origin.run != *key).then(|| origin.run.clone())
}

/// Reads a conversation backwards.
#[derive(Debug, Clone)]
pub struct Walk {
    want: Option<Hash>,
    limit: usize,
    /// Latest first.
    found: Vec<Entry>,
    /// A summary covers the conversation up to this entry.
    covered: Option<Hash>,
    stops_at_summary: bool,
    /// The number of bytes of content that is enough, and the number so far.
    bytes_max: usize,
    bytes: usize,
}

impl Walk {
    /// Starts at `leaf`, for at most `limit` entries.
    pub fn from(leaf: Option<Hash>, limit: usize) -> Walk {
        let (bytes_max, bytes) = (usize::MAX, 0);
        Walk { want: leaf, limit, found: Vec::new(), covered: None, stops_at_summary: false, bytes_max, bytes }
    }

    /// Stops at so many bytes of content.
    pub fn bytes_max(self, bytes_max: usize) -> Walk {
        Walk { bytes_max, ..self }
    }

    /// Reads the model's context of the conversation that ends in `leaf`: the last summary, and everything that it does not
    /// cover.
    pub fn context(leaf: Option<Hash>) -> Walk {
        Walk { stops_at_summary: true, ..Walk::from(leaf, usize::MAX) }
    }

    /// Returns the id of the next missing entry; `None` when all are found.
    pub fn wants(&self) -> Option<Hash> {
        self.want.filter(|_| self.found.len() < self.limit && self.bytes < self.bytes_max)
    }

    /// Returns the entry before the first one found, even if it is not needed; `None` at the beginning of the conversation.
    pub fn before(&self) -> Option<Hash> {
        self.want
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Reads the entries of a generation's log. Generations are given latest first.
    pub fn read(&mut self, entries: &[Entry]) {
        let mut by_id: BTreeMap<Hash, &Entry> = BTreeMap::new();
        // An entry that was abandoned and appended again has one id; the one on the path counts.
        for entry in entries.iter().filter(|entry| !entry.is_aside) {
            match by_id.get(&entry.id) {
                Some(known) if !known.is_abandoned => {}
                _ => drop(by_id.insert(entry.id, entry)),
            }
        }
        while let Some(entry) = self.wants().and_then(|id| by_id.remove(&id)) {
            self.take(entry.clone());
        }
    }

    fn take(&mut self, entry: Entry) {
        self.want = entry.parent;
        if self.stops_at_summary && self.covered.is_none() && entry.role.as_str() == SUMMARY {
            self.covered = Summary::read(&entry.content).map(|summary| summary.covers);
        }
        if self.covered.is_some() && self.want == self.covered {
            self.want = None;
        }
        self.bytes += entry.content.data().len();
        self.found.push(entry);
    }

    /// Returns the entries, oldest first, each after its parent: a reader that continues from a part of a conversation needs
    /// every link.
    pub fn into_path(mut self) -> Vec<Entry> {
        self.found.reverse();
        self.found
    }

    /// Returns the entries, oldest first. In a context the summary comes first, and the entries that it replaces are omitted.
    pub fn into_entries(self) -> Vec<Entry> {
        let mut entries = self.found;
        entries.reverse();
        if self.stops_at_summary {
            let is_summary = |entry: &Entry| entry.role.as_str() == SUMMARY;
            if let Some(last) = entries.iter().rposition(is_summary) {
                let summary = entries.remove(last);
                entries.retain(|entry| !is_summary(entry));
                entries.insert(0, summary);
            }
        }
        entries
    }
}

/// The content of a [`SUMMARY`] entry: the original entries stay, and models get this in their place.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    pub text: String,
    /// The last entry that it covers, with everything before it.
    pub covers: Hash,
}

impl Summary {
    pub fn read(content: &Payload) -> Option<Summary> {
        content.read().ok()
    }
}

#[cfg(test)]
mod tests;
