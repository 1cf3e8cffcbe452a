//! Time-driven changes: timers, task timeouts, expired worker sessions, runs that their queue lets in.

use super::Rows;
use super::append::append_outcome;
use super::claim::lose_worker;
use super::queues::begin_runs;
use super::tasks::end_attempt;
use crate::Expired;

/// Processes what is due, at most `limit` of each; the store adds the next due time.
pub async fn expire<R: Rows>(rows: &mut R, limit: usize) -> Result<Expired, R::Error> {
    let timers = rows.due_timers(limit).await?;
    let timers_fired = timers.found.len() as u64;
    for (run, call_id) in timers.found {
        // The timer row is removed in the write that adds the event: a timer fires once (L10).
        let loaded = rows.set().change(run);
        loaded.timers.remove(&call_id);
        let input = loaded.head.timer_input(call_id);
        append_outcome(rows, run, input, None).await?;
    }
    rows.save().await?;

    let tasks = rows.due_tasks(limit).await?;
    let tasks_expired = tasks.found.len() as u64;
    for (run, mut queued) in tasks.found {
        let now = rows.set().now;
        let transition = queued.task.expire(now);
        end_attempt(rows, run, queued, transition, None).await?;
    }
    rows.save().await?;

    let (freed, workers_lost) = rows.end_sessions(limit).await?;
    for run in freed.found {
        lose_worker(rows, run).await?;
    }
    rows.save().await?;

    let more_delayed = rows.show_delayed_tasks().await?;
    let (runs_begun, more_runs) = begin_runs(rows, limit).await?;
    let more = timers.more || tasks.more || freed.more || more_delayed || more_runs;
    Ok(Expired { timers_fired, tasks_expired, workers_lost: workers_lost as u64, runs_begun, more, next_due: None })
}
