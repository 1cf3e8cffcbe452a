//! Reading runs: the whole view, the log, the outcome.
//!
//! A read sees a run as it was at one moment, or does not see it; never half of it, however fast it grows or goes (F27).

use onward_core::view::{RunView, outcome};
use onward_core::{Failure, Index, Payload, Record, RunHead, RunKey, Status};
use onward_store::StoreError;

use crate::api::external::refuse_external;
use crate::{Door, EntryPage, EntryQuery, Runtime, RuntimeError};

/// How many records are read at a time.
const PAGE: usize = 1_000;

/// Why a run that has something to do is not being worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyPending {
    /// No worker that is known has code for its kind and version. The run is unharmed: it goes on when one comes.
    NoCompatibleWorker,
    /// A worker has the code and takes the run when it has room.
    Queued,
}

impl WhyPending {
    pub fn from_word(word: &str) -> Option<WhyPending> {
        [WhyPending::NoCompatibleWorker, WhyPending::Queued].into_iter().find(|why| why.as_str() == word)
    }

    /// Stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            WhyPending::NoCompatibleWorker => "no_compatible_worker",
            WhyPending::Queued => "queued",
        }
    }
}

impl std::fmt::Display for WhyPending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl Runtime {
    /// Why a run is pending, as far as the workers that have joined this runtime can tell; `None` for a run that is not.
    pub fn why_pending(&self, head: &RunHead) -> Option<WhyPending> {
        let known = || self.hub().workers.knowing(head).is_some();
        (head.status == Status::Pending).then(|| if known() { WhyPending::Queued } else { WhyPending::NoCompatibleWorker })
    }

    /// The run's current generation as its log tells it.
    pub async fn read_run(&self, key: &RunKey) -> Result<RunView, RuntimeError> {
        Door::read_run(self, key.clone()).await
    }

    /// A page of the conversation of an agent.
    pub async fn read_entries(&self, key: &RunKey, query: EntryQuery) -> Result<EntryPage, RuntimeError> {
        Door::read_entries(self, key.clone(), query).await
    }

    /// What the store knows of the run without reading its log.
    pub async fn read_head(&self, key: &RunKey) -> Result<RunHead, RuntimeError> {
        let head = self.store().read_run(key.clone(), None).await?;
        Ok(head.ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?)
    }

    /// Up to `limit` records from the one that holds event `from`; the current generation's unless another is named.
    pub async fn read_log(
        &self,
        key: &RunKey,
        generation: Option<u32>,
        from: Index,
        limit: usize,
    ) -> Result<Vec<Record>, RuntimeError> {
        Ok(self.store().read_log(key.clone(), generation, from, limit).await?)
    }

    /// How the run ended; `None` while it is open. Reads one record, not the log.
    pub async fn read_outcome(&self, key: &RunKey) -> Result<Option<Result<Payload, Failure>>, RuntimeError> {
        let head = self.read_head(key).await?;
        refuse_external(&head)?;
        if !head.status.is_closed() {
            return Ok(None);
        }
        let last = Index(head.next_index.0 - 1);
        let records = self.store().read_log(key.clone(), Some(head.generation), last, 1).await?;
        Ok(records.last().and_then(outcome))
    }

    /// The log of one generation, at least up to where its head says it ends.
    pub(crate) async fn read_records(&self, head: &RunHead) -> Result<Vec<Record>, RuntimeError> {
        let mut records: Vec<Record> = Vec::new();
        loop {
            let from = records.last().map_or(Index(0), Record::next_index);
            if from >= head.next_index {
                return Ok(records);
            }
            let page = self.store().read_log(head.key.clone(), Some(head.generation), from, PAGE).await?;
            if page.is_empty() {
                return Ok(records);
            }
            records.extend(page);
        }
    }
}
