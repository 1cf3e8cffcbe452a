//! Reasons why a pending run or tasks of a run are not executed, for people.
//!
//! Combines what the store, the workers and the rate limits have at one moment. No decision depends on it. A task that a worker
//! executes or takes at once is never listed.

use onward_core::quota::next_day;
use onward_core::task::{Task, TaskState};
use onward_core::{Namespace, RunHead, RunKey, Status, Timestamp};
use onward_store::TaskQuery;

use crate::worker::list::KnownWorker;
use crate::{BlockReason, Blocker, Runtime, RuntimeError};

/// Number of tasks that are read for each state, queued and quarantined.
const SCANNED_MAX: usize = 100;

fn blocker(task: &Task, why: BlockReason, until: Option<Timestamp>) -> Blocker {
    Blocker {
        task: Some(task.id.clone()),
        kind: task.kind.clone(),
        why,
        since: task.quarantined_at(),
        until,
        lost_workers: task.lost_workers,
        failure_code: task.last_failure.as_ref().map(|failure| failure.code.clone()),
    }
}

/// What the quota of a namespace holds back.
#[derive(Default)]
struct QuotaState {
    /// As many tasks run as the quota permits (NQ3).
    is_full: bool,
    /// The day is spent until then (NQ4).
    spent_until: Option<Timestamp>,
}

impl QuotaState {
    fn blocks(&self, task: &Task) -> Option<(BlockReason, Option<Timestamp>)> {
        match self.spent_until {
            Some(until) if task.ledger_name().is_some() => Some((BlockReason::SpendQuota, Some(until))),
            _ => self.is_full.then_some((BlockReason::TaskQuota, None)),
        }
    }
}

impl Runtime {
    /// Returns why the run, if it is pending or has crashed its workers, and tasks of the run are not executed at this moment, from what all servers on the
    /// store know. The run comes first. Covers only part of a very long list of tasks.
    pub async fn blocked_on(&self, key: &RunKey) -> Result<Vec<Blocker>, RuntimeError> {
        let head = self.read_head(key).await?;
        if head.status.is_closed() || head.external.is_some() {
            return Ok(Vec::new());
        }
        let of_run = |why| {
            let (kind, lost) = (head.kind.clone(), head.crashed());
            let (since, lost_workers) = (head.paused_at.filter(|_| lost.is_some()), lost.map_or(0, |lost| lost.count));
            Blocker { task: None, kind, why, since, until: None, lost_workers, failure_code: None }
        };
        let why = match head.crashed() {
            Some(_) => Some(BlockReason::WorkerCrashed),
            None => self.pending_reason(&head).await,
        };
        let mut found: Vec<Blocker> = why.map(of_run).into_iter().collect();
        let quarantined = self.tasks_in(key, TaskState::Quarantined).await?;
        found.extend(quarantined.iter().map(|task| blocker(task, BlockReason::Quarantined, None)));
        let (now, here) = (self.clock().now(), self.known_workers(&key.namespace));
        let mut anywhere = None;
        let queued = self.tasks_in(key, TaskState::Queued).await?;
        let quota = if queued.is_empty() { QuotaState::default() } else { self.quota_state(&key.namespace, now).await? };
        for task in queued.iter().filter(|task| task.waits_its_turn()) {
            if task.visible_at > now {
                let failed = task.last_failure.as_ref();
                found.extend(failed.map(|_| blocker(task, BlockReason::Retries, Some(task.visible_at))));
                continue;
            }
            if let Some((why, until)) = quota.blocks(task) {
                found.push(blocker(task, why, until));
                continue;
            }
            if self.blocker_of(task, &here, now).is_none() {
                continue;
            }
            if anywhere.is_none() {
                // If the other servers cannot be read, only the workers of this one count.
                let elsewhere = self.known_elsewhere(&key.namespace).await.unwrap_or_default();
                anywhere = Some(here.iter().cloned().chain(elsewhere).collect::<Vec<_>>());
            }
            found.extend(self.blocker_of(task, anywhere.as_deref().unwrap_or_default(), now));
        }
        found.sort_by(|one, other| one.task.cmp(&other.task));
        Ok(found)
    }

    /// Returns why a run is pending, judging by the workers of all servers; `None` if it is not pending.
    pub async fn pending_reason(&self, head: &RunHead) -> Option<BlockReason> {
        if head.status != Status::Pending {
            return None;
        }
        if self.hub().workers.knowing(head).is_some() {
            return Some(BlockReason::Queued);
        }
        // If the other servers cannot be read, only the workers of this one count.
        let elsewhere = self.workers_elsewhere(&head.key.namespace).await.unwrap_or_default();
        let is_known = elsewhere.iter().any(|worker| worker.knows(&head.kind, head.version.as_ref()));
        Some(if is_known { BlockReason::Queued } else { BlockReason::NoWorker })
    }

    pub(super) async fn tasks_in(&self, key: &RunKey, state: TaskState) -> Result<Vec<Task>, RuntimeError> {
        let (namespace, run) = (key.namespace.clone(), Some(key.clone()));
        let query = TaskQuery { namespace, run, state: Some(state), limit: SCANNED_MAX, gaps: None };
        Ok(self.store().list_tasks(query).await?)
    }

    /// Returns which tasks the quota of a namespace holds back now.
    async fn quota_state(&self, namespace: &Namespace, now: Timestamp) -> Result<QuotaState, RuntimeError> {
        let known = self.known_kinds(namespace).await?;
        let Some(quota) = known.quota().filter(|quota| quota.tasks_running_max.is_some() || quota.spend_per_day_max.is_some())
        else {
            return Ok(QuotaState::default());
        };
        let used = self.store().quota_use(namespace.clone()).await?;
        let running = u32::try_from(used.tasks_running).unwrap_or(u32::MAX);
        let is_spent = !quota.may_spend(used.spent_today);
        Ok(QuotaState { is_full: quota.task_room(running, 1) == 0, spent_until: is_spent.then(|| next_day(now)) })
    }

    /// Returns why none of these workers takes a task that is due.
    fn blocker_of(&self, task: &Task, workers: &[KnownWorker], now: Timestamp) -> Option<Blocker> {
        let takes = |worker: &&KnownWorker| {
            worker.info.task_kinds.contains(&task.kind) && worker.info.queues.contains(&task.options.queue)
        };
        let closed = |worker: &KnownWorker| {
            let limit = worker.task_limits.get(&task.kind);
            self.hub().closed.closed_for(&task.id.run.namespace, &task.kind, limit)
        };
        let mut able = workers.iter().filter(takes).map(closed).peekable();
        if able.peek().is_none() {
            return Some(blocker(task, BlockReason::NoWorker, None));
        }
        // One worker whose key is not rate-limited is enough.
        let first = able.collect::<Option<Vec<_>>>()?.into_iter().min()?;
        Some(blocker(task, BlockReason::RateLimited, Some(now.after(first))))
    }
}
