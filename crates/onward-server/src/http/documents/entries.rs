//! JSON documents of conversations.

use onward_core::conversation::{Entry, PendingEntry};
use onward_core::{Hash, Index, Name, Payload, RunId, Timestamp};
use onward_runtime::{AppendedEntry, EntryPage};
use serde::Serialize;

/// Page of a conversation.
#[derive(Serialize)]
pub struct Entries<'a> {
    run: &'a RunId,
    /// Oldest first.
    entries: Vec<ShownEntry<'a>>,
    before: Option<String>,
    leaf: Option<Hash>,
    depth: Option<u64>,
    pending: &'a [PendingEntry],
}

#[derive(Serialize)]
struct ShownEntry<'a> {
    id: Hash,
    parent: Option<Hash>,
    role: &'a Name,
    content: &'a Payload,
    idempotency_key: Option<&'a str>,
    generation: u32,
    index: Index,
    at: Timestamp,
    is_abandoned: bool,
}

impl<'a> Entries<'a> {
    pub fn new(run: &'a RunId, page: &'a EntryPage) -> Entries<'a> {
        let shown = |entry: &'a Entry| ShownEntry {
            id: entry.id,
            parent: entry.parent,
            role: &entry.role,
            content: &entry.content,
            idempotency_key: entry.idempotency_key.as_deref(),
            generation: entry.generation,
            index: entry.index,
            at: entry.at,
            is_abandoned: entry.is_abandoned,
        };
        Entries {
            run,
            entries: page.entries.iter().map(shown).collect(),
            before: page.before.map(|before| before.to_string()),
            leaf: page.leaf,
            depth: page.depth,
            pending: &page.pending,
        }
    }
}

/// Response to an appended entry.
#[derive(Serialize)]
pub struct EntryAnswer<'a> {
    run: &'a RunId,
    already_existed: bool,
    woke: bool,
    entry: Option<Hash>,
    index: Option<Index>,
    at: Option<Timestamp>,
}

impl<'a> EntryAnswer<'a> {
    pub fn new(run: &'a RunId, appended: &AppendedEntry) -> EntryAnswer<'a> {
        let AppendedEntry { already_existed, woke, entry, index, at } = *appended;
        EntryAnswer { run, already_existed, woke, entry, index, at }
    }
}
