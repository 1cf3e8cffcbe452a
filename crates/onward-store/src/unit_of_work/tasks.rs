//! Tasks on their queues. [`Task`] itself decides about its outcome.

use std::sync::Arc;

use onward_core::event::TaskAttemptEnded;
use onward_core::run::Input;
use onward_core::run::run_queue::SLOT_KIND;
use onward_core::task::{StaleReport, Task, TaskId, TaskTransition};
use onward_core::{Name, Status};

use super::append::{append_input, append_outcome};
use super::queues::{SharedQueue, claim_shared};
use super::{QueuedTask, RowError, RowRequest, Rows, RunRef};
use crate::durable::Report;
use crate::{ClaimTasks, StoreError};

/// Applies a worker's report on a task.
pub async fn report_task<R: Rows>(rows: &mut R, report: Report) -> Result<(), R::Error> {
    let Report { task: id, claim, report, lease } = report;
    let (run, mut queued) = open_task(rows, &id).await?.ok_or(StaleReport).map_err(StoreError::from)?;
    let cost = report.attempt_ended(&id, claim);
    let now = rows.set().now;
    let transition = queued.task.report(claim, report, lease, now).map_err(StoreError::from)?;
    end_attempt(rows, run, queued, transition, cost).await?;
    rows.save().await
}

/// Makes a task claimable that is quarantined (K3) or waits for a rate limit.
pub async fn retry_task<R: Rows>(rows: &mut R, id: &TaskId) -> Result<(), R::Error> {
    let not_quarantined = || StoreError::TaskNotQuarantined { task: Box::new(id.clone()) };
    let (run, mut queued) = open_task(rows, id).await?.ok_or_else(not_quarantined)?;
    let now = rows.set().now;
    queued.task.retry(now).map_err(|_| not_quarantined())?;
    rows.set().put_task(run, queued);
    rows.save().await
}

/// Returns the task with this id, if it is open.
async fn open_task<R: Rows>(rows: &mut R, id: &TaskId) -> Result<Option<(RunRef, QueuedTask)>, R::Error> {
    let Some(run) = rows.load_run(&id.run).await? else { return Ok(None) };
    if rows.set().runs[run].head.generation != id.generation {
        return Ok(None);
    }
    rows.load(run, RowRequest::Task(&id.call_id)).await?;
    let is_it = |queued: &&QueuedTask| queued.task.id.is_same_task(id) && !queued.task.is_slot(); // RQ7
    let found = rows.set().runs[run].tasks.get(&id.call_id).filter(is_it);
    Ok(found.map(|queued| (run, queued.clone())))
}

/// Stores the task if it is still open, or removes it and appends its outcome to its run (L8); records the cost of the attempt
/// either way. The caller saves.
pub(super) async fn end_attempt<R: Rows>(
    rows: &mut R,
    run: RunRef,
    queued: QueuedTask,
    transition: TaskTransition,
    cost: Option<TaskAttemptEnded>,
) -> Result<(), R::Error> {
    match transition {
        TaskTransition::Open => {
            if let Some(cost) = cost {
                append_outcome(rows, run, Input::attempt_ended(cost), None).await?;
            }
            rows.set().put_task(run, queued);
        }
        TaskTransition::Ended(event) => {
            rows.set().change(run).tasks.remove(&queued.task.id.call_id);
            append_outcome(rows, run, Input::outcome(*event, queued.task.id.generation), cost).await?;
        }
    }
    Ok(())
}

/// Leases visible tasks. Queues that are shared out, and the others together, get equal parts of the limit; what one of them does
/// not use is left to the others. Which comes first changes with the clock.
pub async fn claim_tasks<R: Rows>(rows: &mut R, request: &ClaimTasks) -> Result<Vec<Task>, R::Error> {
    rows.show_delayed_tasks().await?;
    if request.kinds.iter().any(|kind| *kind == *SLOT_KIND) {
        // No worker gets the place of a run in its queue (RQ7).
        let kinds = request.kinds.iter().filter(|kind| **kind != *SLOT_KIND).cloned().collect();
        return claim_from_queues(rows, &ClaimTasks { kinds: Arc::new(kinds), ..request.clone() }).await;
    }
    claim_from_queues(rows, request).await
}

/// Leases tasks that are visible.
pub(super) async fn claim_from_queues<R: Rows>(rows: &mut R, request: &ClaimTasks) -> Result<Vec<Task>, R::Error> {
    let shared = rows.shared_queues(request).await?;
    let is_plain = |queue: &Option<Name>| !shared.iter().any(|other| other.queue == *queue);
    let plain: Vec<Option<Name>> = request.queues.iter().filter(|queue| is_plain(queue)).cloned().collect();
    let mut groups: Vec<Option<&SharedQueue>> = shared.iter().map(Some).collect();
    if !plain.is_empty() {
        groups.push(None);
    }
    let first = rows.set().now.0 as usize % groups.len().max(1);
    groups.rotate_left(first);
    let mut claimed = Vec::new();
    for is_last in [groups.len() < 2, true] {
        for (at, group) in groups.iter().enumerate() {
            let left = request.limit.saturating_sub(claimed.len());
            let wanted = if is_last { left } else { left.div_ceil(groups.len() - at) };
            match group {
                _ if wanted == 0 => {}
                Some(shared) => claim_shared(rows, request, shared, wanted, &mut claimed).await?,
                None => {
                    let request = ClaimTasks { queues: plain.clone(), limit: wanted, ..request.clone() };
                    for (place, task) in rows.ready_tasks(&request).await? {
                        claim_task(rows, &request, place, task, &mut claimed).await?;
                    }
                    rows.save().await?;
                }
            }
        }
        if is_last {
            break;
        }
    }
    rows.save().await?;
    Ok(claimed)
}

/// Leases one task; returns false if its run does not permit it.
pub(super) async fn claim_task<R: Rows>(
    rows: &mut R,
    request: &ClaimTasks,
    place: R::TaskPlace,
    mut task: Task,
    claimed: &mut Vec<Task>,
) -> Result<bool, R::Error> {
    let set = rows.set();
    // An earlier claim of this call may have paused the run.
    if set.runs.get(&task.id.run).is_some_and(|run| set.runs[run].head.status == Status::Paused) {
        return Ok(false);
    }
    task.claim(&request.worker, request.lease, set.now);
    if let Some(attempted) = task.attempted() {
        match begin_attempt(rows, &task.id, attempted).await? {
            Begun::Yes => {}
            Begun::No => return Ok(false), // K7
            Begun::Damaged(error) => {
                rows.skip_task(place, error).await?;
                return Ok(false);
            }
        }
    }
    rows.set().announce_task(&task);
    rows.put_claimed(place, task.clone()).await?;
    claimed.push(task);
    Ok(true)
}

/// The result of [`begin_attempt`].
enum Begun {
    Yes,
    No,
    /// The run cannot be read.
    Damaged(StoreError),
}

/// Records an attempt; if the run's budget refuses it, records the pause instead.
async fn begin_attempt<R: Rows>(rows: &mut R, id: &TaskId, attempted: Input) -> Result<Begun, R::Error> {
    let refused = match append_input(rows, &id.run, attempted, None).await {
        Ok(_) => return Ok(Begun::Yes),
        Err(error) => error.refusal()?,
    };
    let refusal = match refused {
        StoreError::Refused(refusal) => refusal,
        StoreError::RunNotFound { .. } => return Ok(Begun::No),
        refused => return Ok(Begun::Damaged(refused)),
    };
    if let Some(pause) = refusal.pause()
        && let Some(run) = rows.load_run(&id.run).await?
    {
        // Tasks of the same run that were claimed before are frozen in that state.
        rows.save().await?;
        append_outcome(rows, run, pause, None).await?;
    }
    Ok(Begun::No)
}
