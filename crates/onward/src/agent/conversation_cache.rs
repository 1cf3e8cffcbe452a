//! A cache of agents' conversations, read from the logs of their runs.
//!
//! A closed log never changes, so each is read once. Must never trust the cache for a run that may have been deleted and started
//! again: entries are found by their hash, and a miss reads the log again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use onward_core::conversation::{Entry, Walk, entries_of, log_before};
use onward_core::event::EntryLocation;
use onward_core::log::prelude_of;
use onward_core::{Hash, Index, Record, RunKey};
use onward_runtime::WorkerConnection;
use onward_store::StoreError;
use onward_store::sync::lock;

use crate::worker::read_all;

/// Size limit of the cache.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Estimated overhead of an entry beyond its content.
const ENTRY_BYTES: usize = 160;

/// A read of the conversation before the current segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversationRead {
    pub leaf: Hash,
    /// The maximum number of entries; `None` reads the last summary and everything that it does not cover.
    pub limit: Option<usize>,
}

/// A read and its result.
pub(crate) type CompletedRead = (ConversationRead, Arc<[Entry]>);

impl ConversationRead {
    pub fn walk(&self) -> Walk {
        match self.limit {
            Some(limit) => Walk::from(Some(self.leaf), limit),
            None => Walk::context(Some(self.leaf)),
        }
    }
}

pub(crate) struct ConversationCache {
    connection: Arc<dyn WorkerConnection>,
    read: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    logs: HashMap<(RunKey, u32), Read>,
    bytes: usize,
    clock: u64,
}

struct Read {
    log: Arc<ReadLog>,
    bytes: usize,
    used: u64,
}

/// The entries of one log.
struct ReadLog {
    entries: Vec<Entry>,
    /// The generation of the previous log of the conversation.
    before: Option<u32>,
}

impl ConversationCache {
    pub fn new(connection: Arc<dyn WorkerConnection>) -> ConversationCache {
        ConversationCache { connection, read: Mutex::default() }
    }

    /// Reads backwards from the log of `generation`, which may still be open. Fails if an entry is in no log.
    pub async fn read(&self, run: &RunKey, generation: u32, walk: Walk) -> Result<Walk, StoreError> {
        let found = self.walk(run, generation, walk.clone(), true).await?;
        if found.wants().is_none() {
            return Ok(found);
        }
        let found = self.walk(run, generation, walk, false).await?;
        match found.wants() {
            None => Ok(found),
            Some(missing) => Err(StoreError::Corrupt { why: format!("entry {missing} is missing from the logs of the run") }),
        }
    }

    /// Returns an entry stored beside the conversation.
    #[cfg_attr(not(feature = "agents"), expect(dead_code, reason = "only model calls use it"))]
    pub async fn kept(&self, run: &RunKey, generation: u32, kept: EntryLocation) -> Result<Entry, StoreError> {
        for trusts in [true, false] {
            let log = self.log(run, kept.generation, kept.generation < generation, trusts).await?;
            if let Some(entry) = log.entries.iter().find(|entry| entry.id == kept.id) {
                return Ok(entry.clone());
            }
        }
        Err(StoreError::Corrupt { why: format!("entry {} is missing from the logs of the run", kept.id) })
    }

    /// Reads the log of an agent's prelude, which the logs of its turns name by its generation.
    pub async fn prelude(&self, run: &RunKey, generation: u32) -> Result<Vec<Record>, StoreError> {
        let records = read_all(&*self.connection, run, Some(generation), Index(0)).await?;
        if records.is_empty() || prelude_of(&records).is_some() {
            return Err(StoreError::Corrupt { why: "the log of the agent's prelude is missing".to_owned() });
        }
        Ok(records)
    }

    async fn walk(&self, run: &RunKey, generation: u32, mut walk: Walk, trusts: bool) -> Result<Walk, StoreError> {
        let (mut next, mut is_closed) = (Some(generation), false);
        while let Some(generation) = next.filter(|_| walk.wants().is_some()) {
            let log = self.log(run, generation, is_closed, trusts).await?;
            walk.read(&log.entries);
            (next, is_closed) = (log.before, true);
        }
        Ok(walk)
    }

    async fn log(&self, run: &RunKey, generation: u32, is_closed: bool, trusts: bool) -> Result<Arc<ReadLog>, StoreError> {
        let key = (run.clone(), generation);
        if is_closed
            && trusts
            && let Some(log) = self.lock().find(&key)
        {
            return Ok(log);
        }
        let records = read_all(&*self.connection, run, Some(generation), Index(0)).await?;
        let before = records.first().and_then(|first| log_before(run, first));
        let log = Arc::new(ReadLog { entries: entries_of(generation, &records), before });
        if is_closed {
            self.lock().keep(key, log.clone());
        }
        Ok(log)
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        lock(&self.read)
    }
}

impl CacheState {
    fn find(&mut self, key: &(RunKey, u32)) -> Option<Arc<ReadLog>> {
        self.clock += 1;
        let read = self.logs.get_mut(key)?;
        read.used = self.clock;
        Some(read.log.clone())
    }

    fn keep(&mut self, key: (RunKey, u32), log: Arc<ReadLog>) {
        self.clock += 1;
        let bytes = ENTRY_BYTES + log.entries.iter().map(|entry| entry.content.data().len() + ENTRY_BYTES).sum::<usize>();
        let read = Read { log, bytes, used: self.clock };
        self.bytes += bytes;
        if let Some(replaced) = self.logs.insert(key, read) {
            self.bytes -= replaced.bytes;
        }
        if self.bytes > BYTES_MAX {
            self.forget_half();
        }
    }

    /// Evicts the less recently used half at once: finding the oldest log each time would cost more than reading it again.
    fn forget_half(&mut self) {
        let mut used: Vec<u64> = self.logs.values().map(|read| read.used).collect();
        used.sort_unstable();
        let Some(median) = used.get(used.len() / 2).copied() else { return };
        self.logs.retain(|_, read| read.used > median);
        self.bytes = self.logs.values().map(|read| read.bytes).sum();
    }
}
