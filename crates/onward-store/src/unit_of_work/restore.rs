//! Runs restored from their logs: every record unchanged, and the rows derived from them.

use onward_core::projection::{Projection, retry_key};
use onward_core::run::wait_key;
use onward_core::{Hash, Index, Record, RunKey};

use super::quotas::admit_start;
use super::{LoadedRun, QueuedTask, RecordBody, RowRequest, Rows, RunRef, Timer, require, settle};
use crate::admission::TakenSlot;
use crate::durable::RestoreWork;
use crate::{Change, Restore, Restored, StoreError};

/// Writes the logs of a run, or of its next generation, unless they are there already.
pub async fn restore_run<R: Rows>(rows: &mut R, work: &RestoreWork) -> Result<Restored, R::Error> {
    let key = &work.restore.key;
    let logs = match &work.restore.what {
        Restore::Run { logs } => {
            if let Some(run) = rows.load_run(key).await? {
                return match rows.has_logs(run, logs).await? {
                    true => Ok(Restored { created: false, head: rows.set().runs[run].shown() }),
                    false => Err(StoreError::RunExists { key: key.clone() }.into()),
                };
            }
            logs.as_slice()
        }
        Restore::Retry { after, log, request_id } => {
            let run = require(rows, key).await?;
            let slot = retry_key(request_id);
            rows.load(run, RowRequest::Slots(vec![slot.clone()])).await?;
            let loaded = &rows.set().runs[run];
            if loaded.slots.get(&slot).is_some() {
                return Ok(Restored { created: false, head: loaded.shown() });
            }
            loaded.head.admit_retry(*after).map_err(StoreError::from)?;
            std::slice::from_ref(log)
        }
    };
    let counted = match (logs.first().and_then(|log| log.first()), work.projections.last()) {
        // It is open again, or a copy of a run goes on.
        (Some(first), Some(last)) if !last.head.status.is_closed() => match first.started() {
            Some(started) => Some(admit_start(rows, key, started).await?),
            None => None,
        },
        _ => None,
    };
    for (log, projection) in logs.iter().zip(&work.projections) {
        put_generation(rows, key, log, projection.clone()).await?;
    }
    let run = require(rows, key).await?;
    let set = rows.set();
    let record = logs.last().and_then(|log| log.last()).expect("a log has records");
    set.notify(|set| Change::Appended { head: set.runs[run].head.clone(), record: record.clone() });
    work.restore.outbox.iter().for_each(|message| set.send(run, message.clone()));
    set.runs[run].head.memo_requests().collect::<Vec<_>>().into_iter().for_each(|message| set.send(run, message)); // MM7
    settle(rows, run);
    if let Some(counted) = counted {
        counted.record(rows).await?;
    }
    rows.save().await?;
    Ok(Restored { created: true, head: rows.set().runs[run].shown() })
}

/// Adds a generation with its log. A restored run brings its epoch; a retried run keeps the one it has.
async fn put_generation<R: Rows>(rows: &mut R, key: &RunKey, log: &[Record], projection: Projection) -> Result<(), R::Error> {
    let mut head = projection.head.clone();
    let run = match rows.set().runs.get(key) {
        Some(run) => {
            let loaded = rows.set().change(run);
            head.epoch = loaded.head.epoch;
            loaded.past.push(std::mem::replace(&mut loaded.head, head));
            run
        }
        None => {
            let started = log.first().and_then(Record::started).expect("the log was checked before");
            let (own, epoch) = rows.new_run(head.epoch)?;
            head.epoch = epoch; // L7
            rows.set().runs.insert(LoadedRun::new(own, head, Hash::of(&started.input)))
        }
    };
    let waits = projection.waits.values().map(|wait| wait_key(wait.generation, &wait.call_id));
    rows.load(run, RowRequest::Slots(projection.slots.keys().cloned().chain(waits).collect())).await?;
    let (mut commit_count, mut last_commit): (u64, Option<Index>) = (0, None);
    for record in log {
        if let Some(header) = &record.commit {
            (commit_count, last_commit) = (header.n + 1, Some(record.index));
        }
        let body = R::Body::of(record, None);
        let set = rows.set();
        set.put_record(run, record, body);
        // The head is that of the end of the log.
        let added = set.runs[run].records.last_mut().expect("the record was just added");
        (added.commit_count, added.last_commit) = (commit_count, last_commit);
    }
    for (row, sum) in &projection.ledger {
        rows.add_spent(&row.run.namespace, row.day, sum.lines.cost);
    }
    put_rows(rows, run, projection);
    Ok(())
}

/// Replaces the rows of the previous generation by those that derive from one log. Idempotency records, which must be loaded,
/// are kept across generations.
pub fn put_rows<R: Rows>(rows: &mut R, run: RunRef, projection: Projection) {
    let Projection { timers, tasks, waits, slots, ledger, .. } = projection;
    let loaded = rows.set().change(run);
    loaded.timers.clear();
    loaded.tasks.clear();
    loaded.waits.clear();
    // Replaces rows of the same log, which may have been here before (LG4).
    ledger.into_iter().for_each(|(row, sum)| loaded.ledger.put(row, sum));
    for (key, slot) in slots {
        if loaded.slots.get(&key).is_none() {
            loaded.slots.put(key, TakenSlot { token: slot.token, index: slot.index, at: slot.at });
        }
    }
    for (call_id, wait) in waits {
        // A wait that the end of an earlier generation withdrew is open again.
        loaded.slots.remove(&wait_key(wait.generation, &wait.call_id));
        loaded.waits.put(call_id, wait);
    }
    let set = rows.set();
    for (call_id, timer) in timers {
        set.put_timer(run, call_id, Timer { due_at: timer.due_at, is_frozen: timer.is_frozen });
    }
    for mut task in tasks.into_values() {
        task.claim_after(set.now); // K8
        let order = set.next_order();
        set.put_task(run, QueuedTask { task, order });
    }
}
