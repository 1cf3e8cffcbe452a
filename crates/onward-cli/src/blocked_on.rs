//! Sentences that explain why a run or its tasks are blocked: no worker serves them, a key is rate-limited, they are quarantined,
//! or the next attempt is not due.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_core::task::MODEL_CALL;
use onward_core::{RunKey, Timestamp};
use onward_runtime::{BlockReason, Blocker, WorkerInfo};

use crate::connection::Connection;
use crate::directory::shell_word;
use crate::output::time;

/// Reads why a run and its tasks are blocked; empty on errors. On a directory, leaves out reasons that depend on workers, which
/// only the server process knows.
pub async fn of(connection: &Connection, key: &RunKey) -> Vec<Blocker> {
    let mut found = connection.read_blockers(key.clone()).await.map(|reply| reply.blocked_on).unwrap_or_default();
    found.retain(|blocker| !connection.is_directory || !needs_workers(blocker.why));
    found
}

/// Returns whether the reason depends on the workers that are connected.
fn needs_workers(why: BlockReason) -> bool {
    matches!(why, BlockReason::NoWorker | BlockReason::Queued | BlockReason::RateLimited)
}

/// Returns one sentence for each distinct reason.
pub async fn sentences(connection: &Connection, blocked_on: &[Blocker]) -> Vec<String> {
    let is_lonely = blocked_on.iter().any(|blocker| blocker.task.is_some() && blocker.why == BlockReason::NoWorker);
    let workers = match is_lonely {
        true => connection.list_workers(connection.namespace.clone()).await.map(|reply| reply.workers).unwrap_or_default(),
        false => Vec::new(),
    };
    let now = time::now();
    let mut sentences: Vec<String> = blocked_on.iter().map(|blocker| sentence(blocker, &workers, now)).collect();
    sentences.sort();
    sentences.dedup();
    sentences
}

fn sentence(blocker: &Blocker, workers: &[WorkerInfo], now: Timestamp) -> String {
    let Blocker { task, kind, why, since, until, lost_workers, failure_code } = blocker;
    let (model, until) = (kind.as_str().strip_prefix(MODEL_CALL), until.unwrap_or(now));
    match why {
        BlockReason::NoWorker if task.is_none() => format!("no worker serves `{kind}`; the run is waiting for one"),
        BlockReason::Queued => format!("the workers that serve `{kind}` are busy; the run is waiting for one"),
        BlockReason::NoWorker => match model {
            Some(model) => {
                let offered = offered(workers);
                format!("no worker serves model `{model}` (available: {offered}); the run is waiting")
            }
            None => format!("no worker serves task `{kind}`; the run is waiting"),
        },
        BlockReason::RateLimited => {
            let what = match model {
                Some(model) => format!("the provider rate-limits the key of model `{model}`"),
                None => format!("calls of task `{kind}` are rate-limited"),
            };
            let release = format!("`onward queue reopen {}` ends the wait", shell_word(kind.as_str()));
            format!("{what}; the run waits until {}; {release}", time::moment(until, now))
        }
        BlockReason::SpendQuota => {
            format!("the namespace has spent its quota of the day; `{kind}` continues {}", time::until(until, now))
        }
        BlockReason::TaskQuota => format!("the namespace runs as many tasks as its quota permits; `{kind}` is waiting"),
        BlockReason::Quarantined => {
            let since = since.map_or(String::new(), |since| format!(" since {}", time::moment(since, now)));
            let id = blocker.task_ref().unwrap_or_default();
            let vanished = format!("it lost {lost_workers} workers in a row");
            let release = format!("find out why, then run `onward queue retry {}`", shell_word(&id));
            format!("task {id} (`{kind}`) is in quarantine{since}: {vanished}; {release}")
        }
        BlockReason::WorkerCrashed => {
            let since = since.map_or(String::new(), |since| format!(" since {}", time::moment(since, now)));
            format!("the run is paused{since}: it lost {lost_workers} workers in a row; find out why, then resume it")
        }
        BlockReason::Retries => {
            let what = match model {
                Some(model) => format!("model `{model}`"),
                None => format!("task `{kind}`"),
            };
            let failed = failure_code.as_ref().map_or(String::new(), |code| format!("; the last one failed with {code}"));
            format!("{what}: next attempt {}{failed}", time::until(until, now))
        }
    }
}

fn offered(workers: &[WorkerInfo]) -> String {
    let offered = workers.iter().flat_map(|worker| &worker.task_kinds).filter_map(|kind| kind.as_str().strip_prefix(MODEL_CALL));
    let mut offered: Vec<String> = offered.map(|model| format!("`{model}`")).collect();
    offered.sort();
    offered.dedup();
    if offered.is_empty() { "none".to_owned() } else { offered.join(", ") }
}

/// Tolerance for equal ends: the end of a rate limit is computed from its remaining time and varies slightly.
const SAME: Duration = Duration::from_secs(1);

/// Reasons that were already printed. Each reason of the run and of each task is printed once, and again if the wait lasts longer
/// than the end that was printed.
#[derive(Default)]
pub struct PrintedBlockers {
    /// Tasks and reasons, with the end that was printed.
    printed: BTreeMap<(String, &'static str), Option<Timestamp>>,
}

impl PrintedBlockers {
    /// Records a reason of the run or a task and returns whether it must be printed.
    pub fn is_new(&mut self, blocker: &Blocker, now: Timestamp) -> bool {
        let key = (blocker.task_ref().unwrap_or_default(), blocker.why.as_str());
        let is_new = match (self.printed.get(&key), blocker.until) {
            (None, _) => true,
            (Some(Some(printed)), Some(until)) => *printed <= now && until.since(*printed) > SAME,
            (Some(_), _) => false,
        };
        if is_new {
            self.printed.insert(key, blocker.until);
        }
        is_new
    }
}

#[cfg(test)]
mod tests;
