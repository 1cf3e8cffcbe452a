//! Quotas of namespaces: checked in the write that starts a run or leases a task.
//!
//! [`QuotaSettings`] decides; this module asks the store for its counts. The store makes sure that nothing else starts runs or leases
//! tasks of a namespace with a quota at the same time (NQ1 to NQ4).

use std::collections::BTreeSet;
use std::sync::Arc;

use onward_core::event::RunStarted;
use onward_core::queue::{QueueRate, QueueSettings, QueueStarts};
use onward_core::quota::is_limited_start;
use onward_core::quota::settings::quota_kind;
use onward_core::spend::day_of;
use onward_core::task::{MODEL_CALL, Task};
use onward_core::{Name, Namespace, RunKey};

use super::{Rows, SharedQueue};
use crate::{Change, ClaimTasks, StoreError};

/// The starts with which an admitted one is counted, if the namespace has a start rate.
pub(super) struct CountedStart(Option<(QueueRate, QueueStarts)>);

/// Fails if the quota of the namespace permits no further start (NQ1, NQ2). Changes nothing.
pub(super) async fn admit_start<R: Rows>(rows: &mut R, key: &RunKey, started: &RunStarted) -> Result<CountedStart, R::Error> {
    if !is_limited_start(key, started) {
        return Ok(CountedStart(None));
    }
    let Some(quota) = rows.quota(&key.namespace).await? else { return Ok(CountedStart(None)) };
    let open = match quota.open_max() {
        Some(max) => rows.count_open_runs(&key.namespace, max).await?,
        None => 0,
    };
    let starts = match (&quota.start_rate, starts_of(&key.namespace)) {
        (Some(_), Some(of)) => Some(rows.load_starts(&of).await?.unwrap_or_else(|| new_starts(of))),
        _ => None,
    };
    let admitted = quota.admit_start(open, starts.as_ref(), rows.set().now);
    admitted.map_err(|exceeded| StoreError::QuotaExceeded { namespace: key.namespace.clone(), exceeded })?;
    Ok(CountedStart(quota.start_rate.zip(starts)))
}

impl CountedStart {
    /// Records the start, once it is decided (NQ2).
    pub async fn record<R: Rows>(self, rows: &mut R) -> Result<(), R::Error> {
        let Some((rate, mut starts)) = self.0 else { return Ok(()) };
        starts.add(&rate, 1, rows.set().now);
        rows.put_starts(vec![starts]).await
    }
}

/// Returns what identifies the starts of a namespace among those of its queues. No queue with settings has this name.
pub fn starts_of(namespace: &Namespace) -> Option<SharedQueue> {
    let queue = quota_kind().ok()?;
    Some(SharedQueue { namespace: namespace.clone(), queue: Some(queue), settings: QueueSettings::default() })
}

fn new_starts(of: SharedQueue) -> QueueStarts {
    QueueStarts::new(of.namespace, of.queue, None)
}

/// The tasks that a claim has leased, and what the quota of the namespace leaves out.
#[derive(Default)]
pub(super) struct Claimed {
    tasks: Vec<Task>,
    /// The cost of the day has reached the quota (NQ4).
    is_spent: bool,
    /// Kinds with a task that was not leased because it costs.
    unaffordable: BTreeSet<Name>,
}

impl Claimed {
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn push(&mut self, task: Task) {
        self.tasks.push(task);
    }

    pub fn into_tasks(self) -> Vec<Task> {
        self.tasks
    }

    /// Returns false for a task that costs if nothing may be spent (NQ4).
    pub fn may_begin(&mut self, task: &Task) -> bool {
        let is_affordable = !self.is_spent || task.ledger_name().is_none();
        if !is_affordable {
            self.unaffordable.insert(task.kind.clone());
        }
        is_affordable
    }

    /// Leaves out the kinds of tasks that were not leased because they cost, so that they are not in the way of others. Returns
    /// whether another claim may find tasks.
    pub fn leave_out(&mut self, request: &mut ClaimTasks) -> bool {
        let left_out = std::mem::take(&mut self.unaffordable);
        if left_out.is_empty() {
            return false;
        }
        request.kinds = without(request, |kind| left_out.contains(kind));
        !request.kinds.is_empty() && self.len() < request.limit
    }
}

fn without(request: &ClaimTasks, is_out: impl Fn(&Name) -> bool) -> Arc<Vec<Name>> {
    Arc::new(request.kinds.iter().filter(|kind| !is_out(kind)).cloned().collect())
}

/// Lowers a claim to what the quota of the namespace permits (NQ3), without kinds that always cost if nothing may be spent (NQ4).
pub(super) async fn limit_claim<R: Rows>(rows: &mut R, request: &mut ClaimTasks) -> Result<Claimed, R::Error> {
    let mut claimed = Claimed::default();
    let Some(quota) = rows.quota(&request.namespace).await? else { return Ok(claimed) };
    if let Some(max) = quota.leases_max() {
        let held = rows.count_leases(&request.namespace, max).await?;
        let room = quota.task_room(held, request.limit);
        if room < request.limit {
            let namespace = request.namespace.clone();
            rows.set().notify(|_| Change::HeldBack { namespace, queue: None });
        }
        request.limit = room;
    }
    if quota.spend_per_day_max.is_some() && request.limit > 0 {
        let day = day_of(rows.set().now);
        claimed.is_spent = !quota.may_spend(rows.spent_on(&request.namespace, day).await?);
    }
    if claimed.is_spent {
        request.kinds = without(request, |kind| kind.as_str().starts_with(MODEL_CALL));
    }
    Ok(claimed)
}
