//! Reads of runs: the whole view, the log, the outcome.
//!
//! A read returns a run as it was at one moment, or does not find it; never a mix of two moments, however fast the run grows or
//! is deleted (F27).

use onward_core::view::{RunView, outcome};
use onward_core::{Failure, Index, Payload, Record, RunHead, RunKey};
use onward_store::StoreError;

use crate::api::client::read_view;
use crate::api::external::refuse_external;
use crate::conversation::read_page;
use crate::memo::check_run_id;
use crate::{EntryPage, EntryQuery, Runtime, RuntimeError};

impl Runtime {
    /// Reads the current generation of a run, folded from its log.
    pub async fn read_run(&self, key: &RunKey) -> Result<RunView, RuntimeError> {
        read_view(self, key.clone()).await
    }

    /// Reads a page of an agent's conversation.
    pub async fn read_entries(&self, key: &RunKey, query: EntryQuery) -> Result<EntryPage, RuntimeError> {
        read_page(self, key.clone(), query).await
    }

    /// Reads the head of a run without its log.
    pub async fn read_head(&self, key: &RunKey) -> Result<RunHead, RuntimeError> {
        check_run_id(&key.id)?;
        let head = self.store().read_run(key.clone(), None).await?;
        Ok(head.ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?)
    }

    /// Reads up to `limit` records from the one that holds event `from`, of the current generation if `generation` is `None`.
    pub async fn read_log(
        &self,
        key: &RunKey,
        generation: Option<u32>,
        from: Index,
        limit: usize,
    ) -> Result<Vec<Record>, RuntimeError> {
        check_run_id(&key.id)?;
        Ok(self.store().read_log(key.clone(), generation, from, limit).await?)
    }

    /// Returns the outcome of a closed run, `None` while it is open. Reads one record, not the log.
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
}
