//! The conversation of an agent: entries appended from outside, branches from an earlier entry, and pages of entries.
//!
//! An entry from outside is a signal under a reserved name until the code takes it in. Its idempotency key is an idempotency
//! record of the run. The conversation is searched for the key too, because the code may have used it. An append must never
//! report an entry with another content as existing.
//!
//! A branch resumes the agent from a checkpoint: the last one whose leaf is on the path to the entry. It is found in the logs and
//! holds for one generation; if the run has moved on meanwhile, the search is repeated. The engine decides what is abandoned.
//!
//! Entries exist only in the logs, so a page is read from the logs: the open generation first, then earlier ones until the page
//! is full. It is implemented over a [`Client`], so that local and remote callers share it and a codec can decode. Memory is
//! bounded by a page and the log of one generation.
//!
//! Invariant EN1: a page ends with the requested entry, and every other entry on it is the parent of the next one.

use std::collections::BTreeSet;

use onward_core::conversation::{
    ENTRY_SIGNAL, EntryCursor, OutsideEntry, Walk, depth_of, entries_of, keyed_entry, leaf_of, log_before, pending_of,
};
use onward_core::event::{BranchRequested, RunStarted, SignalReceived};
use onward_core::run::{IdempotencyRecord, Input};
use onward_core::view::created_at;
use onward_core::{ErrorCode, Hash, Index, Name, Record, RunHead, RunKey};
use onward_store::{Appended, StoreError};

use crate::api::client::{read_generation, read_records};
use crate::api::runs::check_id;
use crate::schemas::depth::check_payload;
use crate::{AppendEntry, AppendedEntry, BranchEntry, BranchRun, Client, EntryPage, EntryQuery, Runtime, RuntimeError};

/// Page size if the query has none.
pub const ENTRIES_DEFAULT: usize = 100;

/// Maximum page size.
pub const ENTRIES_MAX: usize = 1_000;

/// Size of contents after which a page ends.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Bound on repeated searches while the run moves on.
const BRANCH_TRIES: u32 = 32;

impl Runtime {
    /// Appends an entry from outside, or returns the existing one with the same key, role and content. The agent takes it in when its next turn starts, or when its code polls for it.
    pub async fn append_entry(&self, key: &RunKey, append: AppendEntry) -> Result<AppendedEntry, RuntimeError> {
        let appended = match known_entry(self, key, &append).await? {
            Some(known) => known,
            None => self.put_entry(key, append).await?,
        };
        if appended.already_existed {
            self.counts().entries_repeated.one();
        }
        Ok(appended)
    }

    pub(crate) async fn put_entry(&self, key: &RunKey, append: AppendEntry) -> Result<AppendedEntry, RuntimeError> {
        let AppendEntry { role, content, idempotency_key } = append;
        if let Some(key) = &idempotency_key {
            check_id("idempotency key", key)?;
        }
        Runtime::check_entry(&content)?;
        let payload = OutsideEntry { role, content, idempotency_key: idempotency_key.clone() }.to_payload();
        let name = Name::new(ENTRY_SIGNAL)?;
        let signal = SignalReceived { name, payload, signal_id: idempotency_key.clone(), sender: None };
        let appended = self.append(key, Input::signal(signal)).await.map_err(|error| match (error, idempotency_key) {
            (RuntimeError::Store(StoreError::IdTaken { key, .. }), Some(idempotency_key)) => {
                RuntimeError::EntryKeyTaken { key, idempotency_key }
            }
            (error, _) => error,
        })?;
        let Appended { index, at, repeated, woke } = appended;
        Ok(AppendedEntry { already_existed: repeated, woke, entry: None, index: Some(index), at: Some(at) })
    }

    /// Abandons the open segment of an agent and continues after the given entry.
    pub async fn branch_run(&self, key: &RunKey, branch: BranchRun) -> Result<Appended, RuntimeError> {
        if let Some(key) = &branch.idempotency_key {
            check_id("idempotency key", key)?;
        }
        if let Some(entry) = &branch.entry {
            check_payload(&entry.content)?;
            match entry.role.as_str() {
                "user" => Runtime::check_message(&entry.content)?,
                _ => Runtime::check_entry(&entry.content)?,
            }
        }
        let mut tries = 0;
        loop {
            let head = self.read_head(key).await?;
            let request = self.look_up(&head, &branch).await?;
            let once = branch.idempotency_key.as_deref().map(|id| IdempotencyRecord::branch(&request, id));
            let input = Input { once, generation: Some(head.generation), ..Input::new(request) };
            tries += 1;
            match self.append(key, input).await {
                Err(RuntimeError::Store(error)) if error.code() == ErrorCode::RunContinued && tries < BRANCH_TRIES => {}
                answer => return answer,
            }
        }
    }

    async fn look_up(&self, head: &RunHead, branch: &BranchRun) -> Result<BranchRequested, RuntimeError> {
        let way = match branch.from {
            Some(from) => self.entries_up_to(&head.key, from).await?,
            None => BTreeSet::new(),
        };
        let from = branch.from.map(|from| from.id);
        let nowhere = |why| RuntimeError::NoCheckpoint { key: head.key.clone(), entry: from, why };
        for generation in (0..=head.generation).rev() {
            let Some(RunStarted { kind, input, checkpoint: Some(checkpoint), .. }) = self.start_of(head, generation).await?
            else {
                continue;
            };
            if checkpoint.leaf.is_some_and(|leaf| !way.contains(&leaf)) {
                continue;
            }
            if kind != head.kind {
                return Err(nowhere("it belongs to another kind of agent"));
            }
            let entry =
                branch.entry.clone().map(|BranchEntry { role, content }| OutsideEntry { role, content, idempotency_key: None });
            let (depth, request_id) = (way.len() as u64, branch.idempotency_key.clone());
            return Ok(BranchRequested { from, depth, entry, checkpoint, input, request_id });
        }
        Err(nowhere("the agent has no checkpoint before it"))
    }

    /// Returns the ids of all entries up to this one.
    async fn entries_up_to(&self, key: &RunKey, entry: EntryCursor) -> Result<BTreeSet<Hash>, RuntimeError> {
        let (mut way, mut before) = (BTreeSet::new(), Some(entry));
        while let Some(from) = before {
            let query = EntryQuery { leaf: Some(from), before: None, limit: ENTRIES_MAX };
            let page = read_page(self, key.clone(), query).await?;
            way.extend(page.entries.iter().map(|entry| entry.id));
            before = page.before;
        }
        Ok(way)
    }

    async fn start_of(&self, head: &RunHead, generation: u32) -> Result<Option<RunStarted>, RuntimeError> {
        match self.read_log(&head.key, Some(generation), Index(0), 1).await {
            Ok(records) => Ok(records.first().and_then(Record::started).cloned()),
            Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the entry of the conversation with this key. Fails if its role or content differs.
pub async fn known_entry(client: &dyn Client, key: &RunKey, append: &AppendEntry) -> Result<Option<AppendedEntry>, RuntimeError> {
    let Some(idempotency_key) = &append.idempotency_key else { return Ok(None) };
    let head = client.read_head(key.clone()).await?;
    let records = read_records(client, &head).await?;
    let Some(known) = keyed_entry(&records, idempotency_key) else { return Ok(None) };
    if !known.is(&append.role, &append.content) {
        return Err(RuntimeError::EntryKeyTaken { key: key.clone(), idempotency_key: idempotency_key.clone() });
    }
    Ok(Some(AppendedEntry { already_existed: true, woke: false, entry: Some(known.id), index: None, at: None }))
}

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
    let records = read_generation(client, &head.key, generation).await?;
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
        let records = read_generation(client, &at.key, generation).await?;
        walk.read(&entries_of(generation, &records));
        at = LogPosition { generation, first: records.into_iter().next(), ..at };
    }
    // The entry before is in this log or an earlier one (CV2).
    let before = walk.before().map(|id| EntryCursor { id, generation: Some(at.generation) });
    Ok(EntryPage { entries: walk.into_entries(), before, ..EntryPage::default() })
}
