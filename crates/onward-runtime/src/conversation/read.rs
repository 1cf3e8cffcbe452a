//! Pages of an agent's conversation.
//!
//! Entries exist only in the logs, so a page is read from the logs: the open generation first, then earlier ones until the page
//! is full. It is implemented over a [`Client`], so that local and remote callers share it and a codec can decode. Memory is
//! bounded by a page and the log of one generation.
//!
//! Invariant EN1: a page ends with the requested entry, and every other entry on it is the parent of the next one.

use onward_core::conversation::{EntryCursor, Walk, depth_of, entries_of, leaf_of, log_before, pending_of};
use onward_core::view::created_at;
use onward_core::{Hash, Index, Record, RunHead, RunKey};

use crate::api::client::read_records;
use crate::{Client, EntryPage, EntryQuery, RuntimeError};

/// Page size if the query has none.
pub const ENTRIES_DEFAULT: usize = 100;

/// Maximum page size.
pub const ENTRIES_MAX: usize = 1_000;

/// Size of contents after which a page ends.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Page size of log reads, in records.
const RECORDS: usize = 1_000;

fn walk_of(query: EntryQuery, from: Option<Hash>) -> Walk {
    let limit = if query.limit == 0 { ENTRIES_DEFAULT } else { query.limit.min(ENTRIES_MAX) };
    Walk::from(from, limit).bytes_max(PAGE_BYTES)
}

/// Reads one page.
pub async fn read_page(client: &dyn Client, key: RunKey, query: EntryQuery) -> Result<EntryPage, RuntimeError> {
    loop {
        let head = client.read_head(key.clone()).await?;
        let page = match query.before.or(query.leaf) {
            None => read_last(client, &head, query).await?,
            Some(from) => Some(read_from(client, &head, from, query).await?),
        };
        if let Some(page) = page {
            return Ok(page);
        }
        // The run was deleted and started again during the read: read it again (F27).
    }
}

/// Reads the page at the end of the conversation; `None` if the log no longer belongs to `head`.
async fn read_last(client: &dyn Client, head: &RunHead, query: EntryQuery) -> Result<Option<EntryPage>, RuntimeError> {
    let records = read_records(client, head).await?;
    let covered = records.last().is_some_and(|record| record.next_index() >= head.next_index);
    if !covered || created_at(&records) != Some(head.created_at) {
        return Ok(None);
    }
    let leaf = leaf_of(&records);
    let (depth, pending) = (Some(depth_of(&records)), pending_of(&records));
    let mut walk = walk_of(query, leaf);
    walk.read(&entries_of(head.generation, &records));
    let at = LogPosition { key: head.key.clone(), generation: head.generation, first: records.into_iter().next() };
    let page = walk_back(client, at, walk).await?;
    Ok(Some(EntryPage { leaf, depth, pending, ..page }))
}

/// Reads the page that ends with the entry `from`.
async fn read_from(client: &dyn Client, head: &RunHead, from: EntryCursor, query: EntryQuery) -> Result<EntryPage, RuntimeError> {
    let mut walk = walk_of(query, Some(from.id));
    let generation = from.generation.unwrap_or(u32::MAX).min(head.generation);
    let records = read_whole(client, &head.key, generation).await?;
    walk.read(&entries_of(generation, &records));
    let at = LogPosition { key: head.key.clone(), generation, first: records.into_iter().next() };
    let page = walk_back(client, at, walk).await?;
    if page.entries.is_empty() {
        return Err(RuntimeError::EntryNotFound { key: head.key.clone(), entry: from.id });
    }
    let leaf = query.leaf.map(|leaf| leaf.id).or(Some(from.id).filter(|_| query.before.is_none()));
    Ok(EntryPage { leaf, ..page })
}

/// A log that was read.
struct LogPosition {
    key: RunKey,
    generation: u32,
    first: Option<Record>,
}

/// Reads earlier logs until the walk is complete or there is no earlier log.
async fn walk_back(client: &dyn Client, mut at: LogPosition, mut walk: Walk) -> Result<EntryPage, RuntimeError> {
    while walk.wants().is_some() {
        let Some(generation) = at.first.as_ref().and_then(|first| log_before(&at.key, first)) else { break };
        let records = read_whole(client, &at.key, generation).await?;
        walk.read(&entries_of(generation, &records));
        at = LogPosition { generation, first: records.into_iter().next(), ..at };
    }
    // The entry before is in this log or an earlier one (CV2).
    let before = walk.before().map(|id| EntryCursor { id, generation: Some(at.generation) });
    Ok(EntryPage { entries: walk.into_entries(), before, ..EntryPage::default() })
}

/// Reads the whole log of a generation, up to its current end if it is open.
async fn read_whole(client: &dyn Client, key: &RunKey, generation: u32) -> Result<Vec<Record>, RuntimeError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let from = records.last().map_or(Index(0), Record::next_index);
        let page = client.read_log(key.clone(), Some(generation), from, RECORDS).await?;
        let is_over = page.last().is_none_or(Record::ends_log);
        records.extend(page);
        if is_over {
            return Ok(records);
        }
    }
}
