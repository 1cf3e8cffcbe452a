//! Branches from outside: an agent continues from an earlier entry of its conversation.
//!
//! Determines the checkpoint from which the agent resumes: the last one whose leaf is on the path to the entry. It is found in
//! the logs and holds for one generation; if the run has moved on meanwhile, the search is repeated. The engine decides what is
//! abandoned.

use std::collections::BTreeSet;

use onward_core::conversation::{EntryCursor, OutsideEntry};
use onward_core::event::{BranchRequested, RunStarted};
use onward_core::run::{IdempotencyRecord, Input};
use onward_core::{Hash, Index, Record, RunHead, RunKey};
use onward_store::{Appended, StoreError};

use crate::api::runs::check_id;
use crate::conversation::read::{ENTRIES_MAX, read_page};
use crate::schemas::depth::check_payload;
use crate::{BranchEntry, BranchRun, EntryQuery, Runtime, RuntimeError};

/// Bound on repeated searches while the run moves on.
const TRIES: u32 = 32;

impl Runtime {
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
                Err(RuntimeError::Store(error)) if error.code() == "run_continued" && tries < TRIES => {}
                answer => return answer,
            }
        }
    }

    async fn look_up(&self, head: &RunHead, branch: &BranchRun) -> Result<BranchRequested, RuntimeError> {
        let way = match branch.from {
            Some(from) => self.way_to(&head.key, from).await?,
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
    async fn way_to(&self, key: &RunKey, entry: EntryCursor) -> Result<BTreeSet<Hash>, RuntimeError> {
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
