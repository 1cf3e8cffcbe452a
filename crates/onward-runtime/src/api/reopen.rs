//! Runs that continue from a copy of a log: retry, fork and reset.
//!
//! The copy is made here, from parts of logs that no longer change. The store decides whether it is still valid and writes all
//! of it or nothing. A reset ends the original through the outbox, so that no write touches two runs.

use onward_core::api::ForkRequest;
use onward_core::reopen::{self, Fork, Forked, OpenChildren, Retry};
use onward_core::{Event, Name, Record, RunHead, RunId, RunKey, Status};
use onward_store::{Restore, RestoreRun, Restored, StoreError};

use crate::api::client::{read_generation, read_records};
use crate::api::execute::CallContext;
use crate::api::runs::{check_id, check_text};
use crate::{Runtime, RuntimeError};

impl Runtime {
    /// Continues a failed run: calls that caused the failure are executed again, everything else in the log stays (Z1).
    ///
    /// A repeat with the same `request_id` is the same request, whatever happened to the run since.
    pub async fn retry_run(&self, key: &RunKey, retry: &Retry) -> Result<Restored, RuntimeError> {
        let request_id = &retry.request_id;
        check_id("request id", request_id)?;
        check_text("reason", &retry.reason)?;
        let head = self.read_head(key).await?;
        let records = read_records(self, &head).await?;
        if head.status != Status::Failed && was_retried(&records, request_id) {
            return Ok(Restored { created: false, head });
        }
        let again = reopen::retry(&head, &records, retry, self.clock().now()).map_err(StoreError::from);
        let again = match again {
            // This is a repeat of a retry that was accepted. Meanwhile the run failed again, in a way that cannot be retried.
            Err(_) if was_retried(&records, request_id) => return Ok(Restored { created: false, head }),
            again => again?,
        };
        let what = Restore::Retry { after: head.generation, log: again.records, request_id: request_id.clone() };
        let restored = self.store().restore_run(RestoreRun { key: key.clone(), what, outbox: again.outbox }).await?;
        if restored.created {
            self.hub().watches.reopened(key);
        }
        Ok(restored)
    }

    /// Starts a run that continues from a point of this run's log. The original is kept; a reset ends it.
    pub async fn fork_run(&self, fork: ForkRequest, is_reset: bool, context: CallContext) -> Result<Restored, RuntimeError> {
        check_text("reason", &fork.reason)?;
        let Copied { head, earlier, records } = self.read_to_copy(&fork.run, fork.generation).await?;
        let id = new_id(&head, &records, &fork, is_reset)?;
        if is_reset && fork.generation.is_some() {
            let current = self.read_head(&fork.run).await?;
            reopen::check_reset(&current, &read_records(self, &current).await?, &id).map_err(StoreError::from)?;
        }
        let wanted = Fork {
            request_id: describe(&fork),
            key: RunKey::new(fork.run.namespace, id),
            index: fork.index,
            is_reset,
            keep_signals: !fork.drop_signals,
            children: if fork.restart_children { OpenChildren::Restart } else { OpenChildren::Await },
            version: fork.version,
            seed: fork.seed,
            reason: fork.reason,
            include_outcome_unknown: fork.include_outcome_unknown,
            caller: context.caller,
            budget_max: context.budget_max,
        };
        let refused = match reopen::fork(&head, earlier, &records, &wanted, self.clock().now()) {
            Err(refusal) => StoreError::from(refusal),
            Ok(Forked { logs, outbox }) => {
                let restore = RestoreRun { key: wanted.key.clone(), what: Restore::Run { logs }, outbox };
                match self.store().restore_run(restore).await {
                    Err(exists @ StoreError::RunExists { .. }) => exists,
                    restored => return Ok(restored?),
                }
            }
        };
        // This may be a repeat of a fork that was accepted. If the original has continued since, the repeat is refused.
        self.find_fork(&wanted, &head).await?.ok_or_else(|| refused.into())
    }

    /// Reads a log to copy and the earlier ones that go along, all of one incarnation: the run may be deleted meanwhile and its
    /// id reused.
    async fn read_to_copy(&self, key: &RunKey, generation: Option<u32>) -> Result<Copied, RuntimeError> {
        let read_head = async |generation| {
            let head = self.store().read_run(key.clone(), generation).await?;
            head.ok_or_else(|| StoreError::RunNotFound { key: key.clone() })
        };
        loop {
            let head = read_head(generation).await?;
            let records = read_records(self, &head).await?;
            let mut earlier = Vec::new();
            for before in (0..head.generation).filter(|_| reopen::takes_earlier(&records)) {
                earlier.push(read_generation(self, key, before).await?);
            }
            let now = read_head(Some(head.generation)).await?;
            if (now.created_at, now.incarnation) == (head.created_at, head.incarnation) {
                return Ok(Copied { head, earlier, records });
            }
        }
    }

    /// Returns the run with the id of the fork if the same fork created it.
    async fn find_fork(&self, fork: &Fork, original: &RunHead) -> Result<Option<Restored>, RuntimeError> {
        // A fork with the logs before it continues in the generation that was copied, any other one in generation 0.
        for generation in [original.generation, 0] {
            let Some(log) = self.store().read_run(fork.key.clone(), Some(generation)).await? else { continue };
            if is_made_by(&read_records(self, &log).await?, original, fork) {
                return Ok(Some(Restored { created: false, head: self.read_head(&fork.key).await? }));
            }
        }
        Ok(None)
    }
}

/// Returns true if `records` is the log in which such a fork of the original continues.
fn is_made_by(records: &[Record], original: &RunHead, fork: &Fork) -> bool {
    // An earlier incarnation of the original may have been forked in the same way.
    let copied = records.first().and_then(Record::started).and_then(|started| started.origins.last());
    let is_of_its_life = copied.is_some_and(|origin| original.incarnation.is_none_or(|incarnation| incarnation == origin.seed));
    let is_request = |event: &Event| match event {
        Event::RunForked(event) => {
            (&event.from, event.generation, event.is_reset) == (&original.key, original.generation, fork.is_reset)
                && event.request_id == fork.request_id
        }
        _ => false,
    };
    is_of_its_life && records.iter().flat_map(|record| &record.events).any(is_request)
}

/// Returns the request as text, which is the same for the same fork.
fn describe(fork: &ForkRequest) -> String {
    let from = fork.index.map_or("last".to_owned(), |index| index.0.to_string());
    let (signals, children) =
        (if fork.drop_signals { "drop" } else { "keep" }, if fork.restart_children { "restart" } else { "await" });
    let version = fork.version.as_ref().map_or("same", Name::as_str);
    format!("from {from}, signals {signals}, children {children}, version {version}")
}

/// The logs that a fork copies.
struct Copied {
    head: RunHead,
    earlier: Vec<Vec<Record>>,
    records: Vec<Record>,
}

fn new_id(head: &RunHead, records: &[Record], fork: &ForkRequest, is_reset: bool) -> Result<RunId, RuntimeError> {
    if let Some(id) = &fork.id {
        return Ok(id.clone());
    }
    let what = match is_reset {
        true => format!("reset-{}", reopen::point(head, records, fork.index).map_err(StoreError::from)?.0),
        false => format!("fork-{:016x}", fork.seed),
    };
    Ok(reopen::derived_id(&head.key.id, head.generation, &what))
}

fn was_retried(records: &[Record], request_id: &str) -> bool {
    let is_request = |event: &Event| matches!(event, Event::RetryRequested(event) if event.request_id == request_id);
    records.iter().any(|record| record.events.iter().any(is_request))
}
