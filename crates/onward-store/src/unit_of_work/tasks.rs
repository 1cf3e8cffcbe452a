//! Tasks on their queues. [`Task`] itself decides about its outcome.

use onward_core::event::TaskAttemptEnded;
use onward_core::run::Input;
use onward_core::task::{StaleReport, Task, TaskId, TaskTransition};
use onward_core::{Name, Status};

use super::append::{append_input, append_outcome};
use super::queues::{SharedQueue, claim_shared};
use super::quotas::{Claimed, limit_claim};
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
    let found = rows.set().runs[run].tasks.get(&id.call_id).filter(|queued| queued.task.id.is_same_task(id));
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

/// Leases visible tasks, as many as the quota of the namespace permits (NQ3, NQ4).
pub async fn claim_tasks<R: Rows>(rows: &mut R, request: &ClaimTasks) -> Result<Vec<Task>, R::Error> {
    rows.show_delayed_tasks().await?;
    let shared = rows.shared_queues(request).await?;
    let mut request = request.clone();
    let mut claimed = limit_claim(rows, &mut request).await?;
    if request.limit > 0 && !request.kinds.is_empty() {
        claim_from(rows, &request, &shared, &mut claimed).await?;
        while claimed.leave_out(&mut request) {
            claim_from(rows, &request, &shared, &mut claimed).await?;
        }
    }
    rows.save().await?;
    Ok(claimed.into_tasks())
}

/// Leases tasks of queues that are shared out, and of the others together: they get equal parts of the limit; what one of them does
/// not use is left to the others. Which comes first changes with the clock.
async fn claim_from<R: Rows>(
    rows: &mut R,
    request: &ClaimTasks,
    shared: &[SharedQueue],
    claimed: &mut Claimed,
) -> Result<(), R::Error> {
    let is_plain = |queue: &Option<Name>| !shared.iter().any(|other| other.queue == *queue);
    let plain: Vec<Option<Name>> = request.queues.iter().filter(|queue| is_plain(queue)).cloned().collect();
    let mut groups: Vec<Option<&SharedQueue>> = shared.iter().map(Some).collect();
    if !plain.is_empty() {
        groups.push(None);
    }
    let first = rows.set().now.0 as usize % groups.len().max(1);
    groups.rotate_left(first);
    for is_last in [groups.len() < 2, true] {
        for (at, group) in groups.iter().enumerate() {
            let left = request.limit.saturating_sub(claimed.len());
            let wanted = if is_last { left } else { left.div_ceil(groups.len() - at) };
            match group {
                _ if wanted == 0 => {}
                Some(shared) => claim_shared(rows, request, shared, wanted, claimed).await?,
                None => {
                    let request = ClaimTasks { queues: plain.clone(), limit: wanted, ..request.clone() };
                    for (place, task) in rows.ready_tasks(&request).await? {
                        claim_task(rows, &request, place, task, claimed).await?;
                    }
                    rows.save().await?;
                }
            }
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

/// Leases one task; returns false if its run, or the quota of the namespace, does not permit it.
pub(super) async fn claim_task<R: Rows>(
    rows: &mut R,
    request: &ClaimTasks,
    place: R::TaskPlace,
    mut task: Task,
    claimed: &mut Claimed,
) -> Result<bool, R::Error> {
    if !claimed.may_begin(&task) {
        return Ok(false); // NQ4
    }
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
