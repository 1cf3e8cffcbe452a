//! One verb for all runs that match a filter.
//!
//! Works in batches, newest runs first. The client continues with the cursor of the reply, so the server keeps no state between
//! batches and any batch can be repeated. Runs that are started meanwhile are newer than every cursor and are not affected.
//!
//! Invariant U1: a batch that is repeated with the same bulk id applies its verb at most once to each run.

use onward_core::api::{BulkRequest, RefusedRun};
use onward_core::event::{CancelRequested, PauseReason, RunPaused, RunResumed, TerminateRequested};
use onward_core::reopen::Retry;
use onward_core::run::{IdempotencyRecord, Input};
use onward_core::{Event, RunHead, Status};
use onward_store::{PAGE_DEFAULT, RunQuery, StoreError};

use crate::api::execute::{CallContext, run_query};
use crate::api::runs::{check_id, check_text};
use crate::{BulkDone, BulkVerb, Runtime, RuntimeError};

/// Maximum number of runs in one batch.
pub const BULK_MAX: usize = 1_000;

/// Number of ids in the sample of a dry run.
const SAMPLE: usize = 20;

/// Returns the statuses that the verb applies to, for a filter without a status.
fn statuses(verb: BulkVerb) -> Vec<Status> {
    match verb {
        BulkVerb::Cancel | BulkVerb::Terminate => vec![Status::Pending, Status::Running, Status::Waiting, Status::Paused],
        BulkVerb::Pause => vec![Status::Pending, Status::Running, Status::Waiting],
        BulkVerb::Resume => vec![Status::Paused],
        BulkVerb::Retry => vec![Status::Failed],
        BulkVerb::Delete => vec![Status::Completed, Status::Failed, Status::Canceled, Status::Terminated],
    }
}

impl Runtime {
    /// Executes one batch, or counts all matching runs. A batch that `deletes` is a verb of its own.
    pub async fn bulk_runs(&self, bulk: BulkRequest, deletes: bool, context: CallContext) -> Result<BulkDone, RuntimeError> {
        let verb = BulkVerb::from_word(&bulk.verb).filter(|verb| (*verb == BulkVerb::Delete) == deletes);
        let unknown = || RuntimeError::RequestInvalid { why: format!("`{}` is not a verb of this method", bulk.verb) };
        let verb = verb.ok_or_else(unknown)?;
        check_id("bulk id", &bulk.bulk_id)?;
        check_text("reason", &bulk.reason)?;
        let mut query = run_query(bulk.filter.clone());
        if !bulk.all && is_empty(&query) {
            return Err(RuntimeError::FilterEmpty);
        }
        if query.statuses.is_empty() {
            query.statuses = statuses(verb);
        }
        if bulk.dry_run {
            return self.count_bulk(query).await;
        }
        query.limit = if query.limit == 0 { PAGE_DEFAULT } else { query.limit.min(BULK_MAX) };
        let page = self.store().list_runs(query).await?;
        let mut done = BulkDone { matched: page.runs.len() as u64, next: page.next, ..BulkDone::default() };
        for head in &page.runs {
            match self.do_to_one(verb, &bulk, &context, head).await {
                Ok(()) => done.done += 1,
                Err(error) if is_about_the_run(&error) => {
                    done.refused.push(RefusedRun { run: head.key.id.clone(), code: error.code().to_owned() })
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    async fn count_bulk(&self, query: RunQuery) -> Result<BulkDone, RuntimeError> {
        let mut found = BulkDone::default();
        let mut query = RunQuery { limit: BULK_MAX, cursor: None, ..query };
        loop {
            let page = self.store().list_runs(query.clone()).await?;
            found.matched += page.runs.len() as u64;
            let room = SAMPLE - found.sample.len();
            found.sample.extend(page.runs.iter().take(room).map(|head| head.key.id.clone()));
            match page.next {
                None => return Ok(found),
                next => query.cursor = next,
            }
        }
    }

    async fn do_to_one(
        &self,
        verb: BulkVerb,
        bulk: &BulkRequest,
        context: &CallContext,
        head: &RunHead,
    ) -> Result<(), RuntimeError> {
        let (key, reason) = (&head.key, bulk.reason.clone());
        let event: Event = match verb {
            BulkVerb::Cancel => CancelRequested::new(reason).into(),
            BulkVerb::Terminate => TerminateRequested { reason, reset_to: None }.into(),
            BulkVerb::Pause => RunPaused::because(PauseReason::Requested, reason).into(),
            BulkVerb::Resume => RunResumed::default().into(),
            BulkVerb::Retry => {
                let (request_id, include_outcome_unknown) = (bulk.bulk_id.clone(), bulk.include_outcome_unknown);
                let (caller, budget_max) = (context.caller.clone(), context.budget_max);
                let retry = Retry { request_id, reason, include_outcome_unknown, caller, budget_max };
                return self.retry_run(key, &retry).await.map(drop);
            }
            BulkVerb::Delete => return self.delete_run(key, &reason).await,
        };
        let once = IdempotencyRecord { key: format!("bulk:{}", bulk.bulk_id), token: verb.as_str().to_owned() };
        self.append(key, Input { once: Some(once), ..Input::new(event) }).await.map(drop) // U1
    }
}

/// Returns true if the filter matches every run.
fn is_empty(query: &RunQuery) -> bool {
    query.kind.is_none()
        && query.statuses.is_empty()
        && query.versions.is_empty()
        && query.attributes.is_empty()
        && query.created_from.is_none()
        && query.created_until.is_none()
}

/// Returns true if the error concerns only this run, which has changed since it was listed; the batch continues.
fn is_about_the_run(error: &RuntimeError) -> bool {
    let RuntimeError::Store(error) = error else { return false };
    matches!(
        error,
        StoreError::Refused(_)
            | StoreError::RunNotFound { .. }
            | StoreError::RunBusy { .. }
            | StoreError::SignalLost { .. }
            | StoreError::LogCorrupt { .. }
    )
}
