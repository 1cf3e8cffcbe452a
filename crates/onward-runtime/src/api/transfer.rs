//! Export of runs from one store and import into another.
//!
//! An exported run may have had undelivered outbox messages. After an import, awaited children that did not come along are
//! started, and closed children send their results to the parents that wait for them. Receivers accept each of these once. The
//! definitions of flows come along: see `schemas/imported_flows`.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::event::ParentLink;
use onward_core::internal::InternalRuns;
use onward_core::projection::{ProjectedChild, Projection};
use onward_core::reopen::await_child;
use onward_core::run::answer_to;
use onward_core::schedule::ScheduleHead;
use onward_core::transfer::{ExportedRun, FlowRef, child_calls, receive};
use onward_core::view::created_at;
use onward_core::{CallId, ErrorCode, Index, Log, Record, RunHead, RunId, RunKey};
use onward_store::{Restore, RestoreRun, Restored, StoreError, StoreFuture};

use crate::api::client::{read_generation, read_records};
use crate::schemas::imported_flows::{ExportedFlows, MissingFlows};
use crate::{Client, Runtime, RuntimeError};

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    pub created: Vec<RunId>,
    /// Runs that existed already with the same records.
    pub unchanged: Vec<RunId>,
    /// Runs that were refused, with the error code.
    pub refused: Vec<(RunId, &'static str)>,
    /// The definitions of flows that were stored for these runs.
    pub flows: Vec<FlowRef>,
}

/// Bound on repeated reads of a run that changes meanwhile.
const ATTEMPTS: u32 = 100;

/// Number of runs that are restored concurrently.
const TOGETHER: usize = 100;

/// Reads runs with the definitions of flows that they need.
pub struct RunExporter<'a> {
    client: &'a dyn Client,
    flows: ExportedFlows,
}

impl<'a> RunExporter<'a> {
    pub fn new(client: &'a dyn Client) -> RunExporter<'a> {
        RunExporter { client, flows: ExportedFlows::default() }
    }

    /// Reads a run with all its generations.
    pub async fn read(&mut self, key: &RunKey) -> Result<ExportedRun, RuntimeError> {
        let logs = read_logs(self.client, key).await?;
        let flows = self.flows.of(self.client, key, &logs).await?;
        Ok(ExportedRun { key: key.clone(), logs, flows })
    }
}

/// Reads one run with all its generations, and the definitions of flows that it needs.
pub async fn export_run(client: &dyn Client, key: &RunKey) -> Result<ExportedRun, RuntimeError> {
    RunExporter::new(client).read(key).await
}

async fn read_logs(client: &dyn Client, key: &RunKey) -> Result<Vec<Vec<Record>>, RuntimeError> {
    for _ in 0..ATTEMPTS {
        let head = client.read_head(key.clone()).await?;
        let mut logs = Vec::new();
        for generation in 0..head.generation {
            logs.push(read_generation(client, key, generation).await?);
        }
        let mut last = read_records(client, &head).await?;
        last.retain(|record| record.index < head.next_index);
        // The run continued meanwhile, or was deleted and started again: read it again.
        let is_whole = last.last().is_some_and(|record| record.next_index() == head.next_index);
        if is_whole && created_at(&last) == Some(head.created_at) && logs.iter().all(|log| ends(log)) {
            logs.push(last);
            return Ok(logs);
        }
    }
    let why = "its records do not match its head".to_owned();
    Err(StoreError::LogCorrupt { key: key.clone(), index: Index(0), why }.into())
}

/// Returns true if an export skips the run because it cannot be read.
pub fn leaves_out(error: &RuntimeError) -> bool {
    matches!(ErrorCode::find(error.code()), Some(ErrorCode::LogCorrupt | ErrorCode::StoreCorrupt))
}

impl Runtime {
    /// Imports runs with the definitions that they need, like [`Runtime::import_with`].
    pub async fn import_runs(&self, runs: Vec<ExportedRun>) -> Result<Imported, RuntimeError> {
        let missing = self.missing_flows(&runs).await?;
        self.import_with(runs, missing).await
    }

    /// Imports runs, and the definitions among `missing` that they need. A run that exists with the same records is left alone; one
    /// with other records is refused, and the import continues.
    pub async fn import_with(&self, runs: Vec<ExportedRun>, missing: MissingFlows) -> Result<Imported, RuntimeError> {
        let (mut imported, mut taken) = (Imported::default(), Vec::new());
        let parent_mismatches = parent_mismatches(self, &runs).await?;
        let mut coming = runs.into_iter().zip(parent_mismatches);
        loop {
            // Restored concurrently: a store makes one write of many.
            let restores = coming.by_ref().take(TOGETHER).map(|(run, mismatch)| (run.key.clone(), self.restore(run, mismatch)));
            let restores: Vec<_> = restores.collect();
            if restores.is_empty() {
                break;
            }
            for (key, restored) in restores {
                match restored.await {
                    Ok(restored) if restored.created => imported.created.push(key.id.clone()),
                    Ok(_) => imported.unchanged.push(key.id.clone()),
                    Err(error) if is_about_the_run(&error) => {
                        imported.refused.push((key.id, error.code()));
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
                taken.push(key);
            }
        }
        // Only for runs that are here now; if the import is interrupted before this, a repeated one stores them.
        imported.flows = self.store_missing(missing, &taken).await?;
        // Only after all runs are restored: a child that comes along must not be started before.
        let mut recovery = OutboxRecovery { runtime: self, parents: BTreeMap::new() };
        for key in taken {
            recovery.deliver(&key).await?;
        }
        Ok(imported)
    }

    fn restore(&self, run: ExportedRun, mismatch: Option<String>) -> StoreFuture<'_, Restored> {
        let ExportedRun { key, logs, .. } = receive(run);
        let mismatch = InternalRuns::of(&key.id).map(|_| "its id is reserved".to_owned()).or(mismatch); // MM6, SR4
        match mismatch {
            Some(why) => Box::pin(std::future::ready(Err(StoreError::LogInvalid { key, why }))),
            None => self.store().restore_run(RestoreRun { key, what: Restore::Run { logs }, outbox: Vec::new() }),
        }
    }
}

/// Returns true if the error concerns only this run; the import continues.
fn is_about_the_run(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::RunExists { .. }
            | StoreError::LogInvalid { .. }
            | StoreError::PayloadTooLarge { .. }
            | StoreError::RootRunDiffers { .. }
    )
}

/// Returns for each open run why it is not the child of the parent that it names, if that parent is in the store or comes
/// along.
async fn parent_mismatches(runtime: &Runtime, runs: &[ExportedRun]) -> Result<Vec<Option<String>>, RuntimeError> {
    let along: BTreeMap<&RunKey, &ExportedRun> = runs.iter().map(|run| (&run.key, run)).collect();
    let (mut known, mut parent_mismatches) = (BTreeMap::new(), Vec::new());
    for run in runs {
        let mut mismatch = None;
        for link in open_links(run) {
            let name = (link.run.clone(), link.generation);
            if !known.contains_key(&name) {
                let here = runtime.store().read_run(link.run.clone(), generation_of(&link)).await?;
                let children = match (here, along.get(&link.run)) {
                    (Some(RunHead { schedule: Some(schedule), .. }), _) => Some(running_calls(&schedule)),
                    (Some(here), _) => Some(child_calls(&read_records(runtime, &here).await?)),
                    (None, Some(parent)) => parent.logs.get(link.generation as usize).map(|log| child_calls(log)),
                    (None, None) => None,
                };
                known.insert(name.clone(), children);
            }
            if known[&name].as_ref().is_some_and(|children| !children.contains(&(link.call_id, run.key.id.clone()))) {
                mismatch = Some(format!("run {} did not start it as a child", link.run));
            }
        }
        parent_mismatches.push(mismatch);
    }
    Ok(parent_mismatches)
}

/// Returns the generation of the parent that knows the child; a schedule knows its runs in its current one.
fn generation_of(link: &ParentLink) -> Option<u32> {
    InternalRuns::of(&link.run.id).is_none().then_some(link.generation)
}

/// Returns the runs that a schedule waits for (U4).
fn running_calls(schedule: &ScheduleHead) -> BTreeSet<(CallId, RunId)> {
    schedule.running.iter().map(|running| (CallId::root(running.firing.number), running.firing.run.clone())).collect()
}

/// Delivers the outbox messages that imported runs may not have delivered.
struct OutboxRecovery<'a> {
    runtime: &'a Runtime,
    /// Parents as they were when first read; a result delivered twice does no harm.
    parents: BTreeMap<RunKey, Option<Projection>>,
}

impl OutboxRecovery<'_> {
    async fn deliver(&mut self, key: &RunKey) -> Result<(), RuntimeError> {
        let head = self.runtime.read_head(key).await?;
        if head.status.is_closed() {
            return self.answer(&head).await;
        }
        let Some(projection) = Projection::of(key.clone(), &read_records(self.runtime, &head).await?) else { return Ok(()) };
        for child in projection.children.values() {
            self.take_up(&projection, child).await?;
        }
        Ok(())
    }

    /// Sends the result of a closed run to the runs that wait for it (U4).
    async fn answer(&mut self, head: &RunHead) -> Result<(), RuntimeError> {
        // The end of a run of a schedule is a message of the run that ends; schedules are not imported.
        for link in head.awaited_by().filter(|link| InternalRuns::of(&link.run.id).is_none()) {
            if !self.parents.contains_key(&link.run) {
                let projection = match self.runtime.store().read_run(link.run.clone(), None).await? {
                    Some(parent) => Projection::of(link.run.clone(), &read_records(self.runtime, &parent).await?),
                    None => None,
                };
                self.parents.insert(link.run.clone(), projection);
            }
            if !self.parents[&link.run].as_ref().is_some_and(|parent| parent.awaits(link, &head.key.id)) {
                continue;
            }
            if let Some(outcome) = self.runtime.read_outcome(&head.key).await? {
                self.runtime.carry(answer_to(link, &head.key.id, outcome).with_spent(head.budget_used())).await?;
            }
        }
        Ok(())
    }

    /// Handles a child that an imported run awaits: requests the result of an existing one, starts a missing one.
    async fn take_up(&mut self, parent: &Projection, child: &ProjectedChild) -> Result<(), RuntimeError> {
        let key = RunKey::new(parent.head.key.namespace.clone(), child.id.clone());
        let here = self.runtime.store().read_run(key, None).await?;
        let is_ours = |child: &RunHead| child.awaited_by().any(|link| parent.awaits(link, &child.key.id));
        // The child belongs to the run that this one was forked from: it sends its result to both.
        let is_shared = |child: &RunHead| child.parent.as_ref().is_some_and(|link| parent.ancestry().runs().contains(&link.run));
        let message = match here {
            Some(here) if is_ours(&here) && here.status.is_closed() => return self.answer(&here).await,
            Some(here) if is_ours(&here) => return Ok(()),
            Some(here) if is_shared(&here) => await_child(&parent.head, &child.started, &child.id),
            _ => parent.head.start_child(&child.started, &child.id),
        };
        self.runtime.carry(message).await?;
        Ok(())
    }
}

fn ends(log: &[Record]) -> bool {
    log.last().is_some_and(Record::ends_log)
}

/// Returns the parents that an open run will send its result to; none if its log is invalid, which is refused elsewhere.
fn open_links(run: &ExportedRun) -> Vec<ParentLink> {
    let log = run.logs.last().and_then(|log| Log::load(log.clone()).ok()).filter(|log| !ends(log.records()));
    let head = log.and_then(|log| RunHead::rebuild(run.key.clone(), log.records()));
    head.map(|head| head.awaited_by().cloned().collect()).unwrap_or_default()
}
