//! Checks of pending work on a server or directory: runs that no worker serves, runs that wait long, quarantined tasks. Leaves
//! out databases that are down; the readiness check reports those.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use onward_core::api::{RunQuery, TaskQuery, WorkerInfo};
use onward_core::{Name, RunHead, Status};
use onward_runtime::CallRef;

use super::finding::Findings;
use crate::commands::run::Pages;
use crate::connection::Connection;
use crate::output::{count, time};

const PAGE: usize = 1_000;

/// Maximum number of pending runs that are read.
const SCANNED_MAX: usize = 10_000;

/// Waiting time of a pending run that gives a warning.
const PENDING_LONG: Duration = Duration::from_secs(60);

/// Maximum number of names in one finding.
const NAMED_MAX: usize = 5;

/// Checks pending runs and quarantined tasks. `workers` is `None` for a directory, which knows of no workers.
pub async fn check(connection: &Connection, workers: Option<&[WorkerInfo]>, findings: &mut Findings) {
    match pending(connection).await {
        Ok(pending) => {
            if let Some(workers) = workers {
                orphans(&pending, workers, findings);
            }
            oldest(&pending, findings);
        }
        Err(error) => findings.fail_with("pending", &error),
    }
    quarantined(connection, findings).await;
}

/// Reads pending runs, newest first.
async fn pending(connection: &Connection) -> Result<Vec<RunHead>> {
    let (namespace, statuses) = (connection.namespace.clone(), vec![Status::Pending]);
    let mut pages = Pages::new(RunQuery { namespace, statuses, limit: PAGE, partly: true, ..RunQuery::default() });
    let mut found = Vec::new();
    while found.len() < SCANNED_MAX
        && let Some(page) = pages.next(connection).await?
    {
        found.extend(page);
    }
    Ok(found)
}

/// Reports kinds and versions of pending runs that no worker serves.
fn orphans(pending: &[RunHead], workers: &[WorkerInfo], findings: &mut Findings) {
    let mut waiting: BTreeMap<(&Name, Option<&Name>), u64> = BTreeMap::new();
    for head in pending {
        *waiting.entry((&head.kind, head.version.as_ref())).or_default() += 1;
    }
    let lonely: Vec<String> = waiting
        .into_iter()
        .filter(|((kind, version), _)| !workers.iter().any(|worker| worker.knows(kind, *version)))
        .map(|((kind, version), runs)| {
            let version = version.map(|version| format!(" in version `{version}`")).unwrap_or_default();
            format!("`{kind}`{version} ({})", count(runs, "run"))
        })
        .collect();
    if lonely.is_empty() {
        return findings.ok("kinds", "a worker serves every pending run");
    }
    let detail = format!("no worker serves {}", some(&lonely));
    findings.warn("kinds", detail, "start a worker with this code; the runs then continue");
}

fn oldest(pending: &[RunHead], findings: &mut Findings) {
    let now = time::now();
    let Some(oldest) = pending.iter().min_by_key(|head| head.updated_at) else {
        return findings.ok("pending", "no run waits for a worker");
    };
    let waited = now.since(oldest.updated_at);
    let detail = format!("{}; {} has waited longest: {}", count(pending.len() as u64, "run"), oldest.key.id, time::span(waited));
    if waited > PENDING_LONG {
        findings.warn(
            "pending",
            detail,
            "check that workers run and have capacity; `onward run list --status pending` lists the runs",
        );
    } else {
        findings.ok("pending", detail);
    }
}

async fn quarantined(connection: &Connection, findings: &mut Findings) {
    let query = TaskQuery { namespace: connection.namespace.clone(), limit: PAGE, partly: true, run: None };
    let tasks = match connection.list_quarantined(query).await {
        Ok(reply) => reply.tasks,
        Err(error) => return findings.fail_with("tasks", &error.into()),
    };
    if tasks.is_empty() {
        return findings.ok("tasks", "none in quarantine");
    }
    let ids: Vec<String> = tasks.iter().map(|task| format!("{} (`{}`)", CallRef::from(task.id.clone()), task.kind)).collect();
    let detail = format!("{} in quarantine: {}", count(tasks.len() as u64, "task"), some(&ids));
    findings.warn("tasks", detail, "find out why these tasks lose their workers, then run `onward queue retry`");
}

/// Joins the first names and counts the others.
fn some(all: &[String]) -> String {
    let listed = all.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}
