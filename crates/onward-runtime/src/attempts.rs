//! Attempts that stand in the log before anybody works on them.
//!
//! Whoever leaves a part of a log behind must know what has begun in it (R11), and what a model call costs is counted from its beginning.
//! So an attempt of a task whose class is known, or that costs something, is recorded first, and only then handed out. A run whose budget is
//! spent is paused instead (BG1). Must never hand out what is not recorded.
//!
//! Invariant B5: an attempt that is recorded before the task is taken back is known to whoever takes it back; one that is recorded after
//! that is not handed out, because the task is looked at once more behind the record.

use onward_core::RunKey;
use onward_core::event::{PauseReason, RunPaused, TaskAttempted};
use onward_core::run::{Input, Refusal};
use onward_core::task::{Task, TaskReport};
use onward_store::{StoreError, StoreFuture};

use crate::Runtime;

/// Those of the tasks that may be worked on, in their order. All writes are under way at once, so that they share their syncs.
pub(crate) async fn record(runtime: &Runtime, tasks: Vec<Task>) -> Vec<Task> {
    let mut appends = Vec::with_capacity(tasks.len());
    for task in tasks {
        let stands_as = task.stands_as();
        let append = (task.options.class.is_some() || stands_as.is_some()).then(|| {
            let began_at = stands_as.as_ref().and(task.started_at);
            let attempted = TaskAttempted { place: task.id.place.clone(), attempt: task.attempt, stands_as, began_at };
            let input = Input { generation: Some(task.id.generation), ..Input::new(attempted) };
            runtime.store().append_input(task.id.run.clone(), input)
        });
        appends.push((task, append));
    }
    let mut looks = Vec::with_capacity(appends.len());
    let mut exhausted: Vec<RunKey> = Vec::new();
    for (task, append) in appends {
        let mut may_stand = true;
        let look = match append {
            None => None,
            Some(append) => {
                let recorded = append.await;
                if let Err(StoreError::Refused(refusal @ Refusal::BudgetExhausted { .. })) = &recorded
                    && !exhausted.contains(&task.id.run)
                {
                    exhausted.push(task.id.run.clone());
                    pause(runtime, &task, refusal).await;
                }
                may_stand = !matches!(recorded, Err(StoreError::Refused(_) | StoreError::RunNotFound { .. }));
                Some(look_again(runtime, &task, recorded.is_ok()))
            }
        };
        looks.push((task, look, may_stand));
    }
    let mut begun = Vec::with_capacity(looks.len());
    for (task, look, may_stand) in looks {
        let may_begin = match look {
            None => true,
            Some((is_recorded, said)) => said.await.is_ok() && is_recorded,
        };
        if may_begin {
            begun.push(task);
        } else if let Some(ended) = task.unbegun(TaskReport::Released).attempt_ended(&task.id, task.claim)
            && may_stand
        {
            // It stands in the log, or may, and is nobody's: it costs nothing (LG1). Where this fails, it stays unknown. One that was refused
            // does not stand there, and must not be taken for another one that does.
            drop(runtime.store().append_input(task.id.run.clone(), Input::attempt_ended(ended)).await);
        }
    }
    begun
}

/// The run stands still until somebody lets it spend more. Before its task is given back, so that nobody takes that again; where this
/// fails, whoever takes it is refused like us.
async fn pause(runtime: &Runtime, task: &Task, refusal: &Refusal) {
    let pause = RunPaused { reason: PauseReason::BudgetExhausted, message: refusal.to_string(), divergence: None };
    let input = Input { generation: Some(task.id.generation), ..Input::new(pause) };
    drop(runtime.store().append_input(task.id.run.clone(), input).await);
}

/// Says that the task is still ours, behind the record of its attempt. Without one its run has gone on without it, or the store is not
/// there: it has not begun, and is given back.
fn look_again<'a>(runtime: &'a Runtime, task: &Task, is_recorded: bool) -> (bool, StoreFuture<'a, ()>) {
    let word = if is_recorded { TaskReport::Heartbeat { progress: None } } else { TaskReport::Released };
    (is_recorded, runtime.store().report_task(task.id.clone(), task.claim, word, runtime.options().lease))
}
