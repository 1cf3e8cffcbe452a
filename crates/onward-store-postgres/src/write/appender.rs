//! The tasks that append.
//!
//! Owns the batch: many operations, one transaction, then all responses, then the listeners. Never delays a batch to fill it:
//! operations that arrive meanwhile are the next batch. There are a few of these tasks, each for a part of the runs, so that one
//! decides while the database works for another.
//!
//! Invariants:
//! - DB4: quotas are locked first (DB14), then runs in the order of their numbers, then tasks, and new runs are created in the order of their names; claims
//!   and expiry skip locked rows. So transactions do not deadlock.
//! - DB8: an operation that is refused, or that breaks an invariant, does not fail the others: a batch that fails is run one by
//!   one.

use std::sync::Arc;
use std::time::Instant;

use onward_core::quota::is_limited_start;
use onward_core::{CallId, Event, Namespace, RunKey};
use onward_store::durable::reply::{Pending, Slot};
use onward_store::durable::{Replies, RunOp};
use onward_store::unit_of_work;
use onward_store::{Expired, StoreError};

use crate::connection::sql::Sql;
use crate::connection::transaction::{CommittedChanges, LazyConnection, LockRequest, TransactionError, transact};
use crate::error::{OpError, Outcome};
use crate::shared::ServerShared;
use crate::write::expire::{NEXT_DUE, NextDue};
use crate::write::op::Op;
use crate::write::unit::UnitOfWork;

/// Runs until the queue with this number is closed and empty.
pub(crate) async fn run(shared: Arc<ServerShared>, number: usize) {
    let mut line = LazyConnection::new(shared.clone());
    loop {
        let ops = shared.queues.get(number).take(shared.batch_max).await;
        if let [Op::Expire(limit, to)] = ops.as_slice() {
            expire(&shared, &mut line, *limit, to).await;
            continue;
        }
        let ops: Vec<RunOp> = ops.into_iter().filter_map(|op| if let Op::Run(op) = op { Some(op) } else { None }).collect();
        if ops.is_empty() {
            return;
        }
        run_batch(&shared, &mut line, &ops).await;
    }
}

async fn run_batch(shared: &ServerShared, line: &mut LazyConnection, ops: &[RunOp]) {
    let request = LockRequest {
        keys: ops.iter().flat_map(RunOp::runs).cloned().collect(),
        parents: ops.iter().filter_map(ended_run).cloned().collect(),
        fresh: ops.iter().filter(|op| matches!(op, RunOp::Start(..) | RunOp::Restore(..))).count(),
        quotas: ops.iter().filter_map(limited_namespace).cloned().collect(),
    };
    let work = async |unit: &mut UnitOfWork<'_>| {
        prefetch(unit, ops).await?;
        for op in ops {
            unit.records_before = unit.set.record_count;
            op.clone().execute(unit).await?;
        }
        Ok(())
    };
    let begun = Instant::now();
    let done = transact(shared, line, &request, work).await;
    shared.count(|stats| stats.add_batch(ops.len() as u64, begun.elapsed()));
    match done {
        Ok(((), after)) => {
            shared.idle_cache.invalidate_by(&after.changes);
            ops.iter().for_each(|op| op.pending().release()); // DB6
            shared.publish(after);
        }
        Err(TransactionError::Unknown(why)) => {
            shared.count(|stats| stats.unknown += ops.len() as u64);
            ops.iter().for_each(|op| op.pending().fail(TransactionError::Unknown(why.clone()).into_error()));
        }
        Err(failure) => match ops {
            [op] => op.pending().fail(failure.into_error()),
            // An unreachable database would only make each retry take as long again.
            _ if matches!(failure, TransactionError::Undone(StoreError::Unavailable { .. } | StoreError::DiskFull)) => {
                let error = failure.into_error();
                ops.iter().for_each(|op| op.pending().fail(same(&error)));
            }
            _ => {
                for op in ops {
                    Box::pin(run_batch(shared, line, std::slice::from_ref(op))).await; // DB8
                }
            }
        },
    }
}

/// Copies the error for every operation of a batch that failed because of the database.
fn same(error: &StoreError) -> StoreError {
    match error {
        StoreError::DiskFull => StoreError::DiskFull,
        StoreError::Unavailable { why } => StoreError::Unavailable { why: why.clone() },
        other => StoreError::Unavailable { why: other.to_string() },
    }
}

/// Reads the rows that operations are known to need, with one statement per table; others are read later, one by one.
async fn prefetch(unit: &mut UnitOfWork<'_>, ops: &[RunOp]) -> Outcome<()> {
    let (mut slots, mut waits, mut tasks, mut queues) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for op in ops {
        match op {
            RunOp::Input(work, _) => {
                let (key, input, _) = &**work;
                let Some(run) = unit.set.runs.get(key) else { continue };
                slots.extend(input.once.as_ref().map(|once| (run, once.key.clone())));
                waits.extend(closed_call_id(&input.event).map(|call_id| (run, call_id.clone())));
            }
            RunOp::Commit(work, _) => {
                let (commit, _) = &**work;
                let Some(run) = unit.set.runs.get(&commit.key) else { continue };
                waits.extend(commit.events.iter().filter_map(closed_call_id).map(|call_id| (run, call_id.clone())));
            }
            RunOp::Report(work, _) => {
                let run = unit.set.runs.get(&work.task.run);
                tasks.extend(run.map(|run| (run, work.task.call_id.clone())));
            }
            RunOp::Start(start, _) => {
                let task = start.run.started.task.as_ref();
                queues.extend(task.map(|task| (start.run.key.namespace.clone(), task.options.queue.clone()))); // QL7
            }
            _ => {}
        }
    }
    unit.need_settings(queues).await?;
    unit.need_slots(slots).await?;
    unit.need_waits(waits).await?;
    unit.need_tasks(tasks).await
}

/// Returns the namespace in which an operation may start a run whose start a quota may refuse.
fn limited_namespace(op: &RunOp) -> Option<&Namespace> {
    match op {
        RunOp::Start(start, _) => is_limited_start(&start.run.key, &start.run.started).then_some(&start.run.key.namespace),
        RunOp::Restore(work, _) => Some(&work.restore.key.namespace),
        _ => None,
    }
}

/// Returns the run that an operation ends if it is accepted.
fn ended_run(op: &RunOp) -> Option<&RunKey> {
    match op {
        RunOp::Input(work, _) => matches!(work.1.event, Event::TerminateRequested(_)).then_some(&work.0),
        RunOp::Commit(work, _) => work.0.events.last().is_some_and(Event::ends_log).then_some(&work.0.key),
        _ => None,
    }
}

/// Returns the call id of the wait that an event closes.
fn closed_call_id(event: &Event) -> Option<&CallId> {
    match event {
        Event::ApprovalDecided(event) => Some(&event.call_id),
        Event::PromiseResolved(event) => Some(&event.call_id),
        Event::WaitCanceled(event) => Some(&event.call_id),
        _ => None,
    }
}

impl Replies for UnitOfWork<'_> {
    type Settled = ();

    /// Stores a value or a refusal; anything else fails the batch, and so does a refusal after a change (DB2).
    fn settle<T: Send>(&mut self, to: &Slot<T>, outcome: Outcome<T>) -> Outcome<()> {
        let answer = match outcome {
            Ok(value) => Ok(value),
            Err(OpError::Refused(error)) if self.set.record_count != self.records_before => return Err(OpError::Damaged(error)),
            Err(OpError::Refused(error)) => {
                if let StoreError::LogCorrupt { key, .. } = &error {
                    self.needs_repair.insert(key.clone()); // DB10
                }
                Err(error)
            }
            Err(error) => return Err(error),
        };
        to.put(answer);
        Ok(())
    }
}

/// Handles due work. One statement finds out whether there is any; mostly there is none.
async fn expire(shared: &ServerShared, line: &mut LazyConnection, limit: usize, to: &Arc<Slot<Expired>>) {
    shared.begin_due_query();
    let mut answer = try_expire(shared, line, limit).await;
    if let Ok(expired) = &mut answer {
        expired.next_due = shared.end_due_query(expired.next_due);
    }
    to.put(answer);
    to.release();
}

async fn try_expire(shared: &ServerShared, line: &mut LazyConnection, limit: usize) -> Result<Expired, StoreError> {
    let begun = shared.idle_cache.begin();
    if let Some(next) = query_next_due(line).await
        && next.next_due.is_none_or(|due| due > shared.clock.now(next.clock_micros))
    {
        shared.idle_cache.end(begun, next.found);
        return Ok(Expired { next_due: next.next_due, ..Expired::default() });
    }
    let work = async |unit: &mut UnitOfWork<'_>| {
        let expired = unit_of_work::expire(unit, limit).await?;
        unit.freeze_damaged().await?;
        Ok(expired)
    };
    let (mut expired, after) =
        transact(shared, line, &LockRequest::default(), work).await.map_err(TransactionError::into_error)?;
    shared.idle_cache.invalidate();
    shared.publish(CommittedChanges { due: None, ..after });
    // Returned to the caller instead of published, since it includes what this call itself started. If there is more, the next
    // pass follows at once and queries then.
    if !expired.more {
        expired.next_due = query_next_due(line).await.and_then(|next| next.next_due);
    }
    Ok(expired)
}

async fn query_next_due(line: &mut LazyConnection) -> Option<NextDue> {
    let rows = line.get().await.ok()?.query(&Sql::new(NEXT_DUE)).await.ok()?;
    rows.first().map(NextDue::read)
}
