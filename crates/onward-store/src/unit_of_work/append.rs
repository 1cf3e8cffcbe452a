//! Starts, inputs and commits: everything that adds a record to a log.

use onward_core::event::TaskAttemptEnded;
use onward_core::run::{Admitted, Commit, CommitRefusal, Committed, Input, NewRun};
use onward_core::{Event, Record, RunHead, RunKey};

use super::claim::claim;
use super::effects::carry_out;
use super::queues::refuse_full_queue;
use super::quotas::admit_start;
use super::{LoadedRun, RecordBody, RowRequest, Rows, RunRef, Table, require, settle};
use crate::admission::{self, Admission, TakenSlot};
use crate::durable::{Body, StartRun};
use crate::{Appended, Change, ClaimedRun, Started, StoreError};

/// Appends a worker's commit.
pub async fn commit<R: Rows>(rows: &mut R, commit: Commit, encoded: Option<Body>) -> Result<Committed, R::Error> {
    let run = require(rows, &commit.key).await?;
    let now = rows.set().now;
    // A repeat of the commit that continued the run as new is checked against the generation it ended.
    if commit.generation != rows.set().runs[run].head.generation
        && let Some(mut own) = past_head(rows, run, commit.generation).await?
        && let Err(CommitRefusal::Repeated(first)) = own.admit_commit(commit.clone(), now)
    {
        return Ok(first);
    }
    let head = &mut rows.set().runs[run].head;
    let admitted = match head.admit_commit(commit, now) {
        Ok(admitted) => admitted,
        Err(CommitRefusal::Repeated(first)) => return Ok(first),
        Err(CommitRefusal::Refused(refusal)) => return Err(StoreError::from(refusal).into()),
    };
    let answer = Committed { index: admitted.record.index, at: now, status: head.status };
    take(rows, run, admitted, encoded).await?;
    settle(rows, run);
    rows.save().await?;
    Ok(answer)
}

async fn past_head<R: Rows>(rows: &mut R, run: RunRef, generation: u32) -> Result<Option<RunHead>, R::Error> {
    if let Some(head) = rows.set().runs[run].past.iter().find(|head| head.generation == generation) {
        return Ok(Some(head.clone()));
    }
    rows.load(run, RowRequest::PastHead(generation)).await?;
    Ok(rows.set().runs[run].past_head.take())
}

/// Begins the next generation of a run, unleased.
async fn continue_as_new<R: Rows>(rows: &mut R, run: RunRef, successor: NewRun) -> Result<(), R::Error> {
    let set = rows.set();
    let (mut head, first) = RunHead::start(successor.key, successor.started, set.now);
    let (effects, index, at) = (head.start_effects(&first), first.index, first.at);
    let loaded = &mut set.runs[run];
    // Epochs continue over generations: a late release of the old lease must not match the new one (L7).
    head.epoch = loaded.head.epoch;
    loaded.lease = None;
    loaded.past.push(std::mem::replace(&mut loaded.head, head));
    put_first(rows, run, first, None);
    for effect in effects {
        carry_out(rows, run, effect, index, at).await?;
    }
    Ok(())
}

/// Adds the first record of a generation and announces it.
fn put_first<R: Rows>(rows: &mut R, run: RunRef, first: Record, encoded: Option<Body>) {
    let body = R::Body::of(&first, encoded);
    let set = rows.set();
    set.put_record(run, &first, body);
    set.notify(|set| Change::Appended { head: set.runs[run].head.clone(), record: first });
}

/// Starts a run, or finds it.
pub async fn start_run<R: Rows>(rows: &mut R, start: StartRun) -> Result<Started, R::Error> {
    let StartRun { run: NewRun { key, started, signal, .. }, claim: claimer, input_hash, body, signal_body } = start;
    if let Some(run) = rows.load_run(&key).await? {
        rows.load(run, RowRequest::InputHash).await?;
        let loaded = &rows.set().runs[run];
        let is_same = loaded.head.is_started_by(&started, || loaded.input_hash == Some(input_hash));
        if !is_same.map_err(StoreError::from)? {
            return Err(StoreError::RunExists { key }.into()); // L18
        }
        let signal = match signal {
            Some(signal) => Some(append_input(rows, &key, *signal, signal_body).await?),
            None => None,
        };
        return Ok(Started { created: false, head: rows.set().runs[run].shown(), signal, claimed: None });
    }
    let parent = match &started.parent {
        Some(link) => rows.load_run(&link.run).await?,
        None => None,
    };
    if let Some(task) = &started.task {
        refuse_full_queue(rows, &key, task.options.queue.as_ref()).await?;
    }
    let counted = admit_start(rows, &key, &started).await?; // NQ1, NQ2
    let (mut head, first) = RunHead::start(key, started, rows.set().now);
    // Decided before anything is changed: if the signal is refused, the whole call is. There are no rows to load yet.
    let now = rows.set().now;
    let admit_first = |signal: Box<Input>| admission::admit(&head, *signal, None, now, &Table::empty(), &Table::empty());
    let admission = signal.map(admit_first).transpose()?;
    let effects = head.start_effects(&first);
    let (own, epoch) = rows.new_run(head.epoch)?;
    head.epoch = epoch;
    let signal = admission.as_ref().map(Admission::answer);
    let (index, at) = (first.index, first.at);
    let mut records = claimer.is_some().then(|| vec![first.clone()]);
    let run = rows.set().runs.insert(LoadedRun::new(own, head, input_hash));
    put_first(rows, run, first, body);
    for effect in effects {
        carry_out(rows, run, effect, index, at).await?;
    }
    if let Some(parent) = parent {
        apply_parent_close(rows, run, parent);
    }
    if let Some(mut admission) = admission {
        if let Admission::Taken { head, admitted, .. } = &mut admission {
            head.epoch = epoch;
            records.iter_mut().for_each(|records| records.push(admitted.record.clone()));
        }
        take_input(rows, run, admission, signal_body).await?;
    }
    let claimed = claimer.and_then(|worker| claim(rows, run, &worker)).map(|claimed| ClaimedRun { records, ..claimed });
    settle(rows, run);
    counted.record(rows).await?;
    rows.save().await?;
    Ok(Started { created: true, head: rows.set().runs[run].shown(), signal, claimed })
}

/// Sends a child its `on_parent_close` action if its parent closed before the child was created (L19).
fn apply_parent_close<R: Rows>(rows: &mut R, child: RunRef, parent: RunRef) {
    let set = rows.set();
    if let Some(message) = set.runs[child].head.parent_is_closed(&set.runs[parent].head) {
        set.send(parent, message);
    }
}

/// Appends an event from outside.
pub async fn append_input<R: Rows>(
    rows: &mut R,
    key: &RunKey,
    input: Input,
    encoded: Option<Body>,
) -> Result<Appended, R::Error> {
    let run = require(rows, key).await?;
    if let Event::TaskAttemptEnded(attempt) = &input.event
        && let Some(counted) = rows.find_counted(run, attempt).await?
    {
        return Ok(counted);
    }
    load_for_admission(rows, run, &input, None).await?;
    let now = rows.input_time(run);
    let loaded = &rows.set().runs[run];
    let admission = admission::admit(&loaded.head, input, None, now, &loaded.slots, &loaded.waits)?;
    let answer = admission.answer();
    if !answer.repeated {
        take_input(rows, run, admission, encoded).await?;
        settle(rows, run);
        rows.save().await?;
    }
    Ok(answer)
}

/// Appends the outcome of a timer or task, with the cost of its last attempt. Returns false if the run refuses it. The caller
/// saves.
pub(super) async fn append_outcome<R: Rows>(
    rows: &mut R,
    run: RunRef,
    input: Input,
    cost: Option<TaskAttemptEnded>,
) -> Result<bool, R::Error> {
    load_for_admission(rows, run, &input, cost.as_ref()).await?;
    let now = rows.input_time(run);
    let loaded = &rows.set().runs[run];
    let admission = match admission::admit(&loaded.head, input, cost, now, &loaded.slots, &loaded.waits) {
        Ok(admission) => admission,
        Err(StoreError::Refused(_)) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    take_input(rows, run, admission, None).await?;
    settle(rows, run);
    Ok(true)
}

/// Loads the rows that the decision about an input needs.
async fn load_for_admission<R: Rows>(
    rows: &mut R,
    run: RunRef,
    input: &Input,
    cost: Option<&TaskAttemptEnded>,
) -> Result<(), R::Error> {
    let slots = cost.iter().map(|cost| cost.once().key).chain(input.once.iter().map(|once| once.key.clone()));
    let slots: Vec<String> = slots.collect();
    if !slots.is_empty() {
        rows.load(run, RowRequest::Slots(slots)).await?;
    }
    if let Some(call_id) = input.needs_wait() {
        rows.load(run, RowRequest::Wait(call_id)).await?;
    }
    Ok(())
}

/// Applies what [`admission::admit`] decided; the caller settles the run.
async fn take_input<R: Rows>(rows: &mut R, run: RunRef, admission: Admission, encoded: Option<Body>) -> Result<(), R::Error> {
    let Admission::Taken { head, admitted, slots, .. } = admission else { return Ok(()) };
    let (index, at) = (admitted.record.index, admitted.record.at);
    // The record of an internal run has other events than the input.
    let encoded = encoded.filter(|_| head.cell.is_none() && head.schedule.is_none());
    let in_log = if R::COST_NEEDS_SLOT { None } else { admitted.record.cost().map(TaskAttemptEnded::once) }; // I5
    let loaded = rows.set().change(run);
    for once in slots.into_iter().filter(|once| in_log.as_ref() != Some(once)) {
        loaded.slots.put(once.key, TakenSlot { token: once.token, index, at });
    }
    loaded.head = *head;
    take(rows, run, admitted, encoded).await
}

/// Adds an admitted record with its effects, and begins the run's next generation if it continues; the caller settles the run.
async fn take<R: Rows>(rows: &mut R, run: RunRef, admitted: Admitted, encoded: Option<Body>) -> Result<(), R::Error> {
    let Admitted { record, effects, successor } = admitted;
    let (index, at) = (record.index, record.at);
    let body = R::Body::of(&record, encoded);
    let set = rows.set();
    set.put_record(run, &record, body);
    set.notify(|set| Change::Appended { head: set.runs[run].shown(), record });
    for effect in effects {
        carry_out(rows, run, effect, index, at).await?;
    }
    match successor {
        Some(successor) => Box::pin(continue_as_new(rows, run, *successor)).await,
        None => Ok(()),
    }
}
