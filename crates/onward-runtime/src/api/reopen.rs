//! Runs that continue from a copy of a log: retry, fork and reset.
//!
//! The copy is made here, from parts of logs that no longer change. The store decides whether it is still valid and writes all
//! of it or nothing. A reset ends the original through the outbox, so that no write touches two runs.

use onward_core::budget::Budget;
use onward_core::reopen::{self, Fork, OpenChildren, Retry};
use onward_core::{Event, Index, Name, Record, RunHead, RunId, RunKey, Status};
use onward_store::{Restore, RestoreRun, Restored, StoreError};

use crate::api::runs::{check_id, check_text};
use crate::api::transfer::read_ended;
use crate::{Runtime, RuntimeError};

/// A request for a run that continues from a point of another run's log.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkRun {
    /// The id of the new run. A repeat of the same fork is the same run. Without an id, each fork gets its own, and all resets
    /// of a run to the same point share one, so that a run has one successor there.
    pub id: Option<RunId>,
    /// The generation to copy; the current one if `None`.
    pub generation: Option<u32>,
    /// The last event to copy; the end of the last commit if `None`.
    pub index: Option<Index>,
    /// Ends the original.
    pub is_reset: bool,
    /// Also copies the signals that came after the point.
    pub keep_signals: bool,
    /// Starts children again that had no result at the point; otherwise the new run awaits them together with the original.
    pub restart_children: bool,
    /// The code version of the new run; that of the original if `None`.
    pub version: Option<Name>,
    /// Seed of the new run's random numbers after the point.
    pub seed: u64,
    pub reason: String,
    /// Accepts that calls after the point whose outcome is unknown are executed again (Z9).
    pub include_outcome_unknown: bool,
    /// The name of the caller's credential: that person is a requester of the new run, too.
    pub caller: Option<String>,
    /// Upper bound on the budget, from the caller's credential.
    pub budget_max: Option<Budget>,
}

impl ForkRun {
    /// Returns a fork at the end of the last commit that keeps signals and awaits the original's children.
    pub fn new(seed: u64) -> ForkRun {
        ForkRun {
            id: None,
            generation: None,
            index: None,
            is_reset: false,
            keep_signals: true,
            restart_children: false,
            version: None,
            seed,
            reason: String::new(),
            include_outcome_unknown: false,
            caller: None,
            budget_max: None,
        }
    }

    /// Returns a reset: the original ends, so its children are started again.
    pub fn reset(seed: u64) -> ForkRun {
        ForkRun { is_reset: true, restart_children: true, ..ForkRun::new(seed) }
    }

    /// Returns the request as text, which is the same for the same fork.
    fn wish(&self) -> String {
        let from = self.index.map_or("last".to_owned(), |index| index.0.to_string());
        let (signals, children) =
            (if self.keep_signals { "keep" } else { "drop" }, if self.restart_children { "restart" } else { "await" });
        let version = self.version.as_ref().map_or("same", Name::as_str);
        format!("from {from}, signals {signals}, children {children}, version {version}")
    }
}

impl Runtime {
    /// Continues a failed run: calls that caused the failure are executed again, everything else in the log stays (Z1).
    ///
    /// A repeat with the same `request_id` is the same request, whatever happened to the run since.
    pub async fn retry_run(&self, key: &RunKey, retry: &Retry) -> Result<Restored, RuntimeError> {
        let request_id = &retry.request_id;
        check_id("request id", request_id)?;
        check_text("reason", &retry.reason)?;
        let head = self.read_head(key).await?;
        let records = self.read_records(&head).await?;
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
        let restored = self.store().restore_run(RestoreRun { key: key.clone(), what, news: again.news }).await?;
        if restored.created {
            self.hub().watches.reopened(key);
        }
        Ok(restored)
    }

    /// Starts a run that continues from a point of this run's log. The original is kept; a reset ends it.
    pub async fn fork_run(&self, key: &RunKey, fork: ForkRun) -> Result<Restored, RuntimeError> {
        check_text("reason", &fork.reason)?;
        let Copied { head, earlier, records } = self.read_to_copy(key, fork.generation).await?;
        let own = RunKey::new(key.namespace.clone(), new_id(&head, &records, &fork)?);
        if fork.is_reset && fork.generation.is_some() {
            let current = self.read_head(key).await?;
            reopen::check_reset(&current, &self.read_records(&current).await?, &own.id).map_err(StoreError::from)?;
        }
        let wanted = Fork {
            key: own.clone(),
            index: fork.index,
            is_reset: fork.is_reset,
            keep_signals: fork.keep_signals,
            children: if fork.restart_children { OpenChildren::Restart } else { OpenChildren::Await },
            version: fork.version.clone(),
            seed: fork.seed,
            request_id: fork.wish(),
            reason: fork.reason.clone(),
            include_outcome_unknown: fork.include_outcome_unknown,
            caller: fork.caller.clone(),
            budget_max: fork.budget_max,
        };
        let forked = match reopen::fork(&head, earlier, &records, &wanted, self.clock().now()) {
            Ok(forked) => forked,
            // This may be a repeat of a fork that was accepted: the original has continued since, and now it is refused.
            Err(refusal) => return self.find_fork(own, &head, &fork).await?.ok_or_else(|| StoreError::from(refusal).into()),
        };
        let what = Restore::Run { logs: forked.logs };
        match self.store().restore_run(RestoreRun { key: own.clone(), what, news: forked.news }).await {
            Err(StoreError::RunExists { key: exists }) => {
                self.find_fork(own, &head, &fork).await?.ok_or_else(|| RuntimeError::from(StoreError::RunExists { key: exists }))
            }
            answer => Ok(answer?),
        }
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
            let records = self.read_records(&head).await?;
            let mut earlier = Vec::new();
            for before in (0..head.generation).filter(|_| reopen::takes_earlier(&records)) {
                earlier.push(read_ended(self, key, before).await?);
            }
            let now = read_head(Some(head.generation)).await?;
            if (now.created_at, now.incarnation) == (head.created_at, head.incarnation) {
                return Ok(Copied { head, earlier, records });
            }
        }
    }

    /// Returns the run with that id if the same fork created it.
    async fn find_fork(&self, own: RunKey, original: &RunHead, fork: &ForkRun) -> Result<Option<Restored>, RuntimeError> {
        // A fork continues in the generation that was copied. Older forks without their earlier logs continue in generation 0.
        for generation in [original.generation, 0] {
            let Some(log) = self.store().read_run(own.clone(), Some(generation)).await? else { continue };
            if is_made_by(&self.read_records(&log).await?, original, fork) {
                return Ok(Some(Restored { created: false, head: self.read_head(&own).await? }));
            }
        }
        Ok(None)
    }
}

/// Returns true if `records` is the log in which such a fork of the original continues.
fn is_made_by(records: &[Record], original: &RunHead, fork: &ForkRun) -> bool {
    // An earlier incarnation of the original may have been forked in the same way.
    let copied = records.first().and_then(Record::started).and_then(|started| started.origins.last());
    let is_of_its_life = copied.is_some_and(|origin| original.incarnation.is_none_or(|incarnation| incarnation == origin.seed));
    let asked = |event: &Event| match event {
        Event::RunForked(event) => {
            (&event.from, event.generation, event.is_reset) == (&original.key, original.generation, fork.is_reset)
                && event.request_id == fork.wish()
        }
        _ => false,
    };
    is_of_its_life && records.iter().flat_map(|record| &record.events).any(asked)
}

/// The logs that a fork copies.
struct Copied {
    head: RunHead,
    earlier: Vec<Vec<Record>>,
    records: Vec<Record>,
}

fn new_id(head: &RunHead, records: &[Record], fork: &ForkRun) -> Result<RunId, RuntimeError> {
    if let Some(id) = &fork.id {
        return Ok(id.clone());
    }
    let what = match fork.is_reset {
        true => format!("reset-{}", reopen::point(head, records, fork.index).map_err(StoreError::from)?.0),
        false => format!("fork-{:016x}", fork.seed),
    };
    Ok(reopen::derived_id(&head.key.id, head.generation, &what))
}

fn was_retried(records: &[Record], request_id: &str) -> bool {
    let asked = |event: &Event| matches!(event, Event::RetryRequested(event) if event.request_id == request_id);
    records.iter().any(|record| record.events.iter().any(asked))
}
