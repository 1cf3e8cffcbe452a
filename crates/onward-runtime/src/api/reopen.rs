//! Runs that go on from a copy of a log: retry, fork and reset.
//!
//! The copy is made here, from logs that cannot change any more where they are copied; the store decides whether it is still wanted, and
//! writes all of it or nothing. A reset ends the original by news, so that no write touches two runs.

use onward_core::budget::Budget;
use onward_core::reopen::{self, Fork, OpenChildren, Retry};
use onward_core::{Event, Index, Name, Record, RunHead, RunId, RunKey, Status};
use onward_store::{Restore, RestoreRun, Restored, StoreError};

use crate::api::runs::{check_id, check_text};
use crate::api::transfer::read_ended;
use crate::{Runtime, RuntimeError};

/// A run that goes on from a point of another one's log.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkRun {
    /// The id of the new run. The same fork again is the same run. Without one, every fork has its own, and all resets of a run to one
    /// point have the same, so that a run has one successor there.
    pub id: Option<RunId>,
    /// The generation to copy; the current one if it is not said.
    pub generation: Option<u32>,
    /// The last event to copy; the end of the last commit if it is not said.
    pub index: Option<Index>,
    /// End the original.
    pub is_reset: bool,
    /// Copy the signals that came behind the point, too.
    pub keep_signals: bool,
    /// Start children again that had not answered at the point; otherwise their result is awaited together with the original.
    pub restart_children: bool,
    /// Another version of the code than the original is pinned to.
    pub version: Option<Name>,
    /// Where the chance of the new run derives from behind the point; any number.
    pub seed: u64,
    pub reason: String,
    /// What the caller may let a run spend.
    pub budget_max: Option<Budget>,
}

impl ForkRun {
    /// A fork at the end of the last commit that keeps signals and awaits the original's children.
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
            budget_max: None,
        }
    }

    /// A reset: the original ends, so its children are started again.
    pub fn reset(seed: u64) -> ForkRun {
        ForkRun { is_reset: true, restart_children: true, ..ForkRun::new(seed) }
    }

    /// What is asked for, in words that are the same for the same fork.
    fn wish(&self) -> String {
        let from = self.index.map_or("last".to_owned(), |index| index.0.to_string());
        let (signals, children) =
            (if self.keep_signals { "keep" } else { "drop" }, if self.restart_children { "restart" } else { "await" });
        let version = self.version.as_ref().map_or("same", Name::as_str);
        format!("from {from}, signals {signals}, children {children}, version {version}")
    }
}

impl Runtime {
    /// Lets a failed run go on: what it failed over is done again, everything else that is recorded stays (Z1).
    ///
    /// The same `request_id` again is the same request, whatever became of the run since.
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
            // A repeat finds the run failed again in a way that cannot be retried: it was taken all the same.
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

    /// Begins a run that goes on from a point of this one's log; the original is kept, and ended by a reset.
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
            budget_max: fork.budget_max,
        };
        let forked = reopen::fork(&head, earlier, &records, &wanted, self.clock().now()).map_err(StoreError::from)?;
        let what = Restore::Run { logs: forked.logs };
        match self.store().restore_run(RestoreRun { key: own.clone(), what, news: forked.news }).await {
            Err(StoreError::RunExists { key: exists }) => {
                self.find_fork(own, &head, &fork).await?.ok_or_else(|| RuntimeError::from(StoreError::RunExists { key: exists }))
            }
            answer => Ok(answer?),
        }
    }

    /// A log to copy, and those before it that go along, all of one run: it may be deleted meanwhile, and another one get its id.
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
            if (now.created_at, now.life) == (head.created_at, head.life) {
                return Ok(Copied { head, earlier, records });
            }
        }
    }

    /// The run of that id, if it is what the same fork made before.
    async fn find_fork(&self, own: RunKey, original: &RunHead, fork: &ForkRun) -> Result<Option<Restored>, RuntimeError> {
        // One of a later turn goes on in the generation that was copied; it was made without its earlier logs once.
        for generation in [original.generation, 0] {
            let Some(log) = self.store().read_run(own.clone(), Some(generation)).await? else { continue };
            if is_made_by(&self.read_records(&log).await?, original, fork) {
                return Ok(Some(Restored { created: false, head: self.read_head(&own).await? }));
            }
        }
        Ok(None)
    }
}

/// Whether this is the log that such a fork of the original goes on in.
fn is_made_by(records: &[Record], original: &RunHead, fork: &ForkRun) -> bool {
    // A run that had the original's id before may have been forked like this too.
    let copied = records.first().and_then(Record::started).and_then(|started| started.origins.last());
    let is_of_its_life = copied.is_some_and(|origin| original.life.is_none_or(|life| life == origin.seed));
    let asked = |event: &Event| match event {
        Event::RunForked(event) => {
            (&event.from, event.generation, event.is_reset) == (&original.key, original.generation, fork.is_reset)
                && event.request_id == fork.wish()
        }
        _ => false,
    };
    is_of_its_life && records.iter().flat_map(|record| &record.events).any(asked)
}

/// What a fork is made of.
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
