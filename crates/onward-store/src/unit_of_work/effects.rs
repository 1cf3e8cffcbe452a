//! Effects of an append: timers, tasks, waits, outbox messages.

use onward_core::run::{Effect, wait_key};
use onward_core::task::Task;
use onward_core::{CallId, Index, Timestamp};

use super::{QueuedTask, RowRequest, Rows, RunRef, Timer};
use crate::admission::TakenSlot;

/// Carries out an effect of the record at `index`.
pub(super) async fn carry_out<R: Rows>(
    rows: &mut R,
    run: RunRef,
    effect: Effect,
    index: Index,
    at: Timestamp,
) -> Result<(), R::Error> {
    let set = rows.set();
    match effect {
        Effect::StartTimer { call_id, due_at } => set.put_timer(run, call_id, Timer { due_at, is_frozen: false }),
        Effect::StopTimer { call_id } => set.change(run).timers.remove(&call_id),
        Effect::AddTask(task) => {
            let order = set.next_order();
            set.put_task(run, QueuedTask { task: *task, order });
        }
        Effect::CancelTask { call_id } => set.change(run).tasks.remove(&call_id),
        Effect::OpenWait(wait) => set.change(run).waits.put(wait.call_id.clone(), *wait),
        Effect::CloseWait { call_id, token } => close_wait(rows, run, &call_id, TakenSlot { token, index, at }).await?,
        Effect::Send(message) => set.send(run, *message),
        Effect::Freeze { at } => {
            reschedule(rows, run, |timer| Timer { is_frozen: true, ..timer }, |task| task.freeze(at)).await?;
        }
        Effect::Thaw { shift } => {
            let unfreeze = |timer: Timer| Timer { due_at: timer.due_at.after(shift), is_frozen: false };
            reschedule(rows, run, unfreeze, |task| task.unfreeze(shift)).await?;
        }
        Effect::Charge { row, sum } => {
            rows.load(run, RowRequest::Ledger(&row)).await?;
            rows.add_spent(&row.run.namespace, row.day, sum.lines.cost);
            let ledger = &mut rows.set().change(run).ledger;
            let known = ledger.get(&row).copied().unwrap_or_default();
            ledger.put(*row, known.plus(&sum));
        }
        Effect::EndRun { goes_on } => end_run(rows, run, goes_on).await?,
    }
    Ok(())
}

/// Closes a wait, if one is open, and records its answer: a plain timer has no wait, and an earlier answer keeps its record.
async fn close_wait<R: Rows>(rows: &mut R, run: RunRef, call_id: &CallId, answer: TakenSlot) -> Result<(), R::Error> {
    rows.load(run, RowRequest::Wait(call_id)).await?;
    let Some(wait) = rows.set().runs[run].waits.get(call_id) else { return Ok(()) };
    let key = wait_key(wait.generation, call_id);
    rows.load(run, RowRequest::Slots(vec![key.clone()])).await?;
    let loaded = rows.set().change(run);
    loaded.waits.remove(call_id);
    if loaded.slots.get(&key).is_none() {
        loaded.slots.put(key, answer);
    }
    Ok(())
}

/// Changes all timers and tasks of a run that is paused or resumed.
async fn reschedule<R: Rows>(
    rows: &mut R,
    run: RunRef,
    timer: impl Fn(Timer) -> Timer,
    task: impl Fn(&mut Task),
) -> Result<(), R::Error> {
    rows.load(run, RowRequest::TimersAndTasks).await?;
    let set = rows.set();
    let timers: Vec<_> = set.runs[run].timers.all().map(|(call_id, old)| (call_id.clone(), timer(*old))).collect();
    let tasks: Vec<_> = set.runs[run].tasks.all().map(|(_, queued)| queued.clone()).collect();
    for (call_id, timer) in timers {
        set.put_timer(run, call_id, timer);
    }
    for mut queued in tasks {
        task(&mut queued.task);
        set.put_task(run, queued);
    }
    Ok(())
}

async fn end_run<R: Rows>(rows: &mut R, run: RunRef, goes_on: bool) -> Result<(), R::Error> {
    let generation = rows.set().runs[run].head.generation;
    rows.load(run, RowRequest::Children(goes_on.then_some(generation))).await?;
    let set = rows.set();
    let children = std::mem::take(&mut set.runs[run].children);
    for message in children.iter().filter_map(|child| child.parent_closed(generation, goes_on)) {
        set.send(run, message);
    }
    let loaded = set.change(run);
    loaded.timers.clear();
    loaded.tasks.clear();
    loaded.waits.clear();
    Ok(())
}
