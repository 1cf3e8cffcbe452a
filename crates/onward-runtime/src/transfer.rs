//! Runs out of one store and into another.
//!
//! What one run had for another when it was taken may not have been delivered: after an import the children that a run awaits are
//! started, if they did not come along, and closed children tell their parents again. Receivers take each of that once.

use onward_core::projection::Projection;
use onward_core::run::Delivery;
use onward_core::transfer::ExportedRun;
use onward_core::view::{created_at, outcome};
use onward_core::{Record, RunId, RunKey};
use onward_store::{Restore, RestoreRun, StoreError};

use crate::{Runtime, RuntimeError};

/// What became of runs that were to be imported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    pub created: Vec<RunId>,
    /// Were there already, record for record.
    pub unchanged: Vec<RunId>,
    /// Were not taken, and why.
    pub refused: Vec<(RunId, &'static str)>,
}

impl Runtime {
    /// A run as it stands, with all its generations.
    pub async fn export_run(&self, key: &RunKey) -> Result<ExportedRun, RuntimeError> {
        loop {
            let head = self.read_head(key).await?;
            let mut logs = Vec::new();
            for generation in 0..=head.generation {
                let own = self.store().read_run(key.clone(), Some(generation)).await?;
                let own = own.ok_or_else(|| StoreError::RunNotFound { key: key.clone() })?;
                let mut records = self.read_records(&own).await?;
                records.retain(|record| record.index < own.next_index);
                logs.push(records);
            }
            // A run that has continued meanwhile, or was deleted and started anew, is read again.
            let last = logs.last().map(Vec::as_slice).unwrap_or_default();
            let is_one = created_at(last) == Some(head.created_at) && logs.iter().rev().skip(1).all(|log| ends(log));
            if is_one {
                return Ok(ExportedRun { key: key.clone(), logs });
            }
        }
    }

    /// Takes runs in. One that is there already with the same records is left alone; one with others is refused, and the rest goes on.
    pub async fn import_runs(&self, runs: Vec<ExportedRun>) -> Result<Imported, RuntimeError> {
        let (mut imported, mut news) = (Imported::default(), Vec::new());
        for run in runs {
            let (key, id) = (run.key.clone(), run.key.id.clone());
            let owed = owed(&run);
            let what = Restore::Run { logs: run.logs };
            match self.store().restore_run(RestoreRun { key, what, news: Vec::new() }).await {
                Ok(restored) if restored.created => imported.created.push(id),
                Ok(_) => imported.unchanged.push(id),
                Err(
                    error @ (StoreError::RunExists { .. } | StoreError::LogInvalid { .. } | StoreError::PayloadTooLarge { .. }),
                ) => {
                    imported.refused.push((id, error.code()));
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            news.extend(owed);
        }
        // Only now: a child that comes along must not be started before it is here.
        for delivery in news {
            self.carry(delivery).await?;
        }
        Ok(imported)
    }
}

fn ends(log: &[Record]) -> bool {
    log.last().is_some_and(Record::ends_log)
}

/// What the run may still owe to others.
fn owed(run: &ExportedRun) -> Vec<Delivery> {
    let Some(projection) = run.logs.last().and_then(|log| Projection::of(run.key.clone(), log)) else { return Vec::new() };
    let head = &projection.head;
    match run.logs.last().and_then(|log| log.last()).and_then(outcome) {
        Some(outcome) => head.answers(&outcome),
        None => projection.children.values().map(|child| head.start_child(&child.started, &child.id)).collect(),
    }
}
