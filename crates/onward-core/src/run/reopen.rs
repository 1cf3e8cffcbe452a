//! Logs that continue from a copy: retries of failed runs, resets and forks.
//!
//! All three create a new log: the copy, one input with the reason, and the kept events. The old log is unchanged, including its
//! end. A retry is the next generation of the same run; a fork and a reset are runs of their own. A fork of a later turn of an
//! agent includes copies of the logs before it, because the conversation is in them.
//!
//! Owns what is copied and what is omitted. Must never omit a result: a retry keeps every result, and only failures are set
//! aside.
//!
//! Invariants:
//! - Z1: a retry keeps every record of the failed log but its end. It sets aside the failures of steps, tasks and children after
//!   which the code did nothing more on that line; the failed calls are executed again, with the same keys.
//! - Z2: a run whose code handled or compensated the failure that it ended with cannot be retried.
//! - Z3: a fork ends at a whole commit that was not made while paused, or right after the start; the original is unchanged by a
//!   fork and ended by a reset.
//! - Z4: what is open in the copy is open in the new log: timers with their remaining time, tasks scheduled again (but see Z7),
//!   approvals and promises, and children, which are restarted or, in a fork, awaited together with the original.
//! - Z5: a run that was ended by a reset names its one successor and cannot be reset to another one.
//! - Z6: a fork needs nothing of its original but children that both await. The logs before its own keep their generation numbers
//!   and have no costs or effects there: their content happened in the original.
//! - Z7: an `at_most_once` task that has begun, in the copy or after it, is not scheduled again: the new log has its result or an
//!   unknown outcome.
//! - Z8: an approval does not apply to the calls after it in a copy. Every approval in the copy is requested again, under a new
//!   id, and the new log is paused and cannot be resumed until all are given. A copy that would restart a child started after an
//!   approval is rejected, because outbox messages are not held back.
//! - Z9 (K6): a copy executes a call with an unknown outcome again only if the caller includes those explicitly, because the
//!   effect may have happened. A retry would set its failure aside; a fork or reset would end before it. Only the copied log
//!   counts, not its later generations and open children.
//! - Z10: the start of a copy names its caller beside the requester and the callers of earlier copies; none of them decides an
//!   approval that excludes the requester.

use std::collections::{BTreeMap, BTreeSet};

use crate::log::event::{
    ChildAgain, ChildStarted, PauseReason, ResultRequested, RetryRequested, RunForked, RunPaused, RunStarted, TaskAttempted,
    TaskCompleted, TaskFailed, TerminateRequested,
};
use crate::log::projection::Projection;
use crate::log::transfer::imported_calls;
use crate::run::ancestry::{Ancestry, follows, is_on_line_of};
use crate::run::root::root_run;
use crate::run::view::AbandonedCommits;
use crate::run::{IdempotencyRecord, Input, OutboxMessage, Refusal, RunHead, Status};
use crate::spend::SpendTotals;
use crate::spend::budget::{Budget, BudgetHead};
use crate::task::{EffectClass, OUTCOME_UNKNOWN, Task};
use crate::{CallId, Event, Failure, Index, Name, Record, RunId, RunKey, Timestamp};

/// A new log, and its outbox messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Reopened {
    pub records: Vec<Record>,
    pub outbox: Vec<OutboxMessage>,
}

/// A new run with all its logs, and its outbox messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Forked {
    /// By generation; the last one is open.
    pub logs: Vec<Vec<Record>>,
    pub outbox: Vec<OutboxMessage>,
}

/// The treatment of children without a result at the end of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenChildren {
    /// They are restarted, under new ids and with the same input.
    Restart,
    /// Their result is awaited; they answer both runs.
    Await,
}

/// A request to continue from a point of a run's log in another run.
#[derive(Debug, Clone, PartialEq)]
pub struct Fork {
    pub key: RunKey,
    /// The last event to copy; `None` is the last possible one.
    pub index: Option<Index>,
    /// End the original.
    pub is_reset: bool,
    /// Copy the signals after the point as well.
    pub keep_signals: bool,
    pub children: OpenChildren,
    /// A version of the code that replaces the original's.
    pub version: Option<Name>,
    pub seed: u64,
    pub request_id: String,
    pub reason: String,
    /// Also execute again calls after the point with an unknown outcome (Z9).
    pub include_outcome_unknown: bool,
    /// The name of the caller's credential (Z10).
    pub caller: Option<String>,
    /// The caller's budget ceiling (BG8).
    pub budget_max: Option<Budget>,
}

/// A request to retry a failed run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Retry {
    /// Idempotency key: a repeat with the same id is the same request.
    pub request_id: String,
    pub reason: String,
    /// Also execute again calls that failed with `outcome_unknown` (Z9).
    pub include_outcome_unknown: bool,
    /// The name of the caller's credential (Z10).
    pub caller: Option<String>,
    /// The caller's budget ceiling (BG8).
    pub budget_max: Option<Budget>,
}

impl Retry {
    /// Returns a retry without a reason, of failures with a known outcome.
    pub fn new(request_id: impl Into<String>) -> Retry {
        Retry { request_id: request_id.into(), ..Retry::default() }
    }
}

/// Returns the log with which a failed run continues.
pub fn retry(head: &RunHead, records: &[Record], retry: &Retry, at: Timestamp) -> Result<Reopened, Refusal> {
    check_workflow(head)?;
    if head.status != Status::Failed {
        return Err(Refusal::NotFailed { key: head.key.clone(), status: head.status });
    }
    let (end, before) = records.split_last().expect("a log has records");
    let set_aside = failures_to_set_aside(head, before, end)?;
    if !retry.include_outcome_unknown {
        check_outcomes(head, before, end, &set_aside)?;
    }
    let mut copy = before.to_vec();
    let results: Vec<Event> = end.events.iter().filter(|event| event.is_step_result()).cloned().collect();
    if !results.is_empty() {
        copy.push(Record { events: results, ..end.clone() });
    }
    let generation = head.generation + 1;
    begin_with(&mut copy, head, set_aside, |started| RunStarted {
        generation,
        first_seed: started.origin_seed(),
        copied_by: copied_by(&started, retry.caller.as_ref()),
        ..started
    });
    check_children(head, &copy)?;
    let change = |budget: &mut BudgetHead| budget.retried(head.spend.as_deref());
    let children = again(&head.key, generation, &copy, retry.budget_max, change, head.spend.as_deref(), at);
    let Retry { request_id, reason, budget_max, .. } = retry.clone();
    let event = RetryRequested { request_id, reason, children, spend: head.spend.clone(), budget_max }; // R12
    Ok(finish(head.key.clone(), copy, event.into(), Vec::new(), OpenChildren::Restart, at))
}

/// Fails if a failure to set aside has an unknown outcome: the call would be executed again (Z9).
fn check_outcomes(head: &RunHead, before: &[Record], end: &Record, set_aside: &[Index]) -> Result<(), Refusal> {
    let mut events = before.iter().chain([end]).flat_map(Record::indexed);
    match events.find(|(index, event)| set_aside.contains(index) && unknown_outcome(event).is_some()) {
        Some((index, _)) => Err(Refusal::OutcomeUnknown { key: head.key.clone(), index }),
        None => Ok(()),
    }
}

/// Fails if a call with an unknown outcome comes after the copy and would be executed again (Z9): it has failed with
/// `outcome_unknown`, or it is an `at_most_once` task that has begun and has no result.
fn check_outcomes_after(head: &RunHead, copy: &[Record], rest: &[Record], children: OpenChildren) -> Result<(), Refusal> {
    let known = ancestry(&head.key, copy);
    let there = Projection::of(head.key.clone(), copy).expect("H2");
    let imported = imported_calls(copy, &there);
    let is_kept = |call_id: &CallId| {
        there.tasks.get(call_id).is_some_and(is_at_most_once) // Z7
            || imported.iter().filter_map(unknown_outcome).any(|ended| ended == call_id) // U7
            || (children == OpenChildren::Await && there.children.contains_key(call_id))
    };
    let (mut scheduled, mut unknown) = (BTreeSet::new(), BTreeMap::new());
    for (index, event) in rest.iter().flat_map(Record::indexed) {
        match event {
            Event::TaskScheduled(event) if event.options.class == Some(EffectClass::AtMostOnce) => {
                scheduled.insert(&event.call_id);
            }
            Event::TaskAttempted(event) if scheduled.contains(&event.call_id) => {
                unknown.entry(&event.call_id).or_insert(index);
            }
            Event::TaskCompleted(event) => drop(unknown.remove(&event.call_id)),
            event => match (unknown_outcome(event), final_failure(event)) {
                (Some(call_id), _) if !is_kept(call_id) && !known.is_set_aside(index) => {
                    unknown.insert(call_id, index);
                }
                (_, Some((call_id, _))) => drop(unknown.remove(call_id)),
                _ => {}
            },
        }
    }
    match unknown.into_values().min() {
        Some(index) => Err(Refusal::OutcomeUnknown { key: head.key.clone(), index }),
        None => Ok(()),
    }
}

fn is_at_most_once(task: &Task) -> bool {
    task.options.class == Some(EffectClass::AtMostOnce)
}

/// Returns the call that failed with an unknown outcome.
fn unknown_outcome(event: &Event) -> Option<&CallId> {
    final_failure(event).filter(|(_, failure)| failure.code == OUTCOME_UNKNOWN).map(|(call_id, _)| call_id)
}

/// Fails unless the log belongs to workflow code: no other log continues from a copy.
fn check_workflow(head: &RunHead) -> Result<(), Refusal> {
    head.check_ours()?;
    if head.is_task { Err(Refusal::IsTask { key: head.key.clone() }) } else { Ok(()) } // R9
}

/// Returns the failures that ended the run: after them the code did nothing on their line but end (Z1).
fn failures_to_set_aside(head: &RunHead, before: &[Record], end: &Record) -> Result<Vec<Index>, Refusal> {
    let Some(Event::RunFailed(failed)) = end.events.last() else {
        return Err(Refusal::NotFailed { key: head.key.clone(), status: head.status });
    };
    let known = ancestry(&head.key, before);
    let (mut set_aside, mut handled) = (Vec::new(), None);
    let mut is_own = false;
    for (index, event) in before.iter().chain([end]).flat_map(Record::indexed) {
        let Some((call_id, failure)) = final_failure(event).filter(|_| !known.is_set_aside(index)) else { continue };
        let own = is_same(failure, &failed.failure);
        match reaction(before, end, index, call_id) {
            None => {
                set_aside.push(index);
                is_own |= own;
            }
            Some(next) if own => handled = Some((index, next)),
            Some(_) => {}
        }
    }
    match handled.filter(|_| !is_own) {
        Some((failed, next)) => Err(Refusal::FailureHandled { key: head.key.clone(), failed, next }), // Z2
        None => Ok(set_aside),
    }
}

/// Returns true if a run ended with the failure of a call; its code may have added details.
fn is_same(of_call: &Failure, of_run: &Failure) -> bool {
    (&of_call.code, &of_call.message, &of_call.causes) == (&of_run.code, &of_run.message, &of_run.causes)
}

/// Returns the first reaction to the failure at `failed`, except for the end. A later cancellation request counts, because it
/// would interrupt the repeated call.
fn reaction(before: &[Record], end: &Record, failed: Index, call_id: &CallId) -> Option<Index> {
    let came_of_it = |event: &Event, is_end: bool| match event {
        Event::CancelRequested(_) => true,
        // Waits that are canceled by the end are open again.
        event if is_end => done_at(event).is_some_and(|later| follows(later, call_id)),
        event => {
            done_at(event).is_some_and(|later| follows(later, call_id))
                || event.canceled_call().is_some_and(|other| is_on_line_of(other, call_id))
        }
    };
    let records = before.iter().map(|record| (record, false)).chain([(end, true)]);
    records
        .flat_map(|(record, is_end)| record.indexed().map(move |(index, event)| (index, event, is_end)))
        .find(|(index, event, is_end)| *index > failed && came_of_it(event, *is_end))
        .map(|(index, _, _)| index)
}

/// Returns the call that failed without a further attempt.
fn final_failure(event: &Event) -> Option<(&CallId, &Failure)> {
    match event {
        Event::StepFailed(event) if event.retry_at.is_none() => Some((&event.call_id, &event.failure)),
        Event::TaskFailed(event) => Some((&event.call_id, &event.failure)),
        Event::ChildFailed(event) => Some((&event.call_id, &event.failure)),
        _ => None,
    }
}

/// Returns the call id of an action of the code; canceled waits, entries and takeovers do not count.
fn done_at(event: &Event) -> Option<&CallId> {
    match event {
        Event::EntryAppended(_) | Event::CallAdopted(_) | Event::MemoStored(_) | Event::MemoReleased(_) => None,
        event if event.canceled_call().is_some() => None,
        event => event.call_id(),
    }
}

/// Returns true if a fork of this log includes the logs before it: it is a turn of an agent, whose code reads earlier entries.
pub fn takes_earlier(records: &[Record]) -> bool {
    records.first().and_then(Record::started).is_some_and(|started| started.checkpoint.is_some())
}

/// Returns a run that continues from a point of another run's log. `earlier` has the logs before that one, if they are included.
pub fn fork(
    head: &RunHead,
    earlier: Vec<Vec<Record>>,
    records: &[Record],
    fork: &Fork,
    at: Timestamp,
) -> Result<Forked, Refusal> {
    check_workflow(head)?;
    let generation = if takes_earlier(records) { head.generation } else { 0 };
    assert_eq!(earlier.len(), generation as usize, "Z6");
    if fork.is_reset {
        check_reset(head, records, &fork.key.id)?;
    }
    let count = fork_point(head, records, fork.index)?;
    let (mut copy, rest) = (records[..count].to_vec(), &records[count..]);
    if !fork.include_outcome_unknown {
        check_outcomes_after(head, &copy, rest, fork.children)?;
    }
    let index = copy[count - 1].last_index();
    begin_with(&mut copy, head, Vec::new(), |started| RunStarted {
        version: fork.version.clone().or(started.version.clone()),
        copied_by: copied_by(&started, fork.caller.as_ref()),
        ..start_in_fork(started, generation, fork.seed)
    });
    let there = RunHead::rebuild(fork.key.clone(), &copy).expect("H2");
    let gone = there.budget.as_ref().map(|budget| budget.gone(there.spend.as_deref(), there.updated_at));
    let children = match fork.children {
        OpenChildren::Restart => {
            check_children(head, &copy)?;
            let change = |budget: &mut BudgetHead| budget.forked(gone.unwrap_or_default(), at);
            again(&fork.key, generation, &copy, fork.budget_max, change, None, at)
        }
        OpenChildren::Await => Vec::new(),
    };
    let event = RunForked {
        from: head.key.clone(),
        generation: head.generation,
        index,
        is_reset: fork.is_reset,
        request_id: fork.request_id.clone(),
        reason: fork.reason.clone(),
        children,
        gone,
        budget_max: fork.budget_max,
    };
    let signals = rest.iter().flat_map(|record| &record.events).filter(|event| matches!(event, Event::SignalReceived(_)));
    let kept = signals.filter(|_| fork.keep_signals).cloned().chain(done_once(&fork.key, &copy, rest)).collect();
    let Reopened { records: last, mut outbox } = finish(fork.key.clone(), copy, event.into(), kept, fork.children, at);
    // A generation that continued as the next one is closed, but its run is not.
    let went_on = records.last().is_some_and(|last| matches!(last.events.last(), Some(Event::RunContinued(_))));
    if fork.is_reset && (went_on || !head.status.is_closed()) {
        outbox.push(end_original(head, fork));
    }
    let earlier = earlier.into_iter().zip(0..).map(|(mut log, generation)| {
        begin_with(&mut log, head, Vec::new(), |started| start_in_fork(started, generation, fork.seed));
        log
    });
    Ok(Forked { logs: earlier.chain([last]).collect(), outbox })
}

/// Returns the approvals that were given in a log and that the code depends on, by call id, with the index of the decision.
fn given(records: &[Record]) -> BTreeMap<CallId, Index> {
    let abandoned = AbandonedCommits::of(records.iter());
    let (mut gone, mut given) = (BTreeSet::new(), BTreeMap::new());
    for record in records {
        for (index, event) in record.indexed() {
            match event {
                // Abandoned approvals do not count, unless the code has taken them over.
                Event::ApprovalRequested(event) if abandoned.has(record) => drop(gone.insert(event.call_id.clone())),
                Event::CallAdopted(event) if !abandoned.has(record) => drop(gone.remove(&event.from)),
                Event::ApprovalDecided(event) if event.approved => drop(given.insert(event.call_id.clone(), index)),
                _ => {}
            }
        }
    }
    given.retain(|call_id, _| !gone.contains(call_id));
    given
}

/// Fails if a child would be restarted after an approval that must be given again (Z8).
fn check_children(head: &RunHead, copy: &[Record]) -> Result<(), Refusal> {
    let given = given(copy);
    let open = Projection::of(head.key.clone(), copy).expect("H2").children;
    for (call_id, child) in &open {
        if let Some((_, approval)) = given.iter().find(|(approval, _)| follows(call_id, approval)) {
            let (key, child, approval) = (head.key.clone(), child.id.clone(), *approval);
            return Err(Refusal::ChildBehindApproval { key, child, approval });
        }
    }
    Ok(())
}

/// Returns the pause of a copied log with approvals (Z8); `None` if they are requested already.
pub(crate) fn pause_to_ask(records: &[Record], head: &RunHead) -> Option<RunPaused> {
    let asks: Vec<CallId> = given(records).into_keys().collect();
    if asks.iter().all(|call_id| head.asks.contains(call_id)) {
        return None;
    }
    let message = format!("the run continues from a copy: {} approvals must be given again", asks.len());
    Some(RunPaused { asks, ..RunPaused::because(PauseReason::ApprovalNeeded, message) })
}

/// Returns the later events of `at_most_once` tasks that are open in the copy (Z7).
fn done_once(key: &RunKey, copy: &[Record], rest: &[Record]) -> Vec<Event> {
    let open = Projection::of(key.clone(), copy).expect("H2").tasks;
    let is_open = |call_id| open.get(call_id).is_some_and(is_at_most_once);
    let done = rest.iter().flat_map(|record| &record.events).filter_map(|event| match event {
        // Its cost belongs to the original.
        Event::TaskAttempted(event) if is_open(&event.call_id) => {
            Some(TaskAttempted { ledger_name: None, began_at: None, ..event.clone() }.into())
        }
        Event::TaskCompleted(TaskCompleted { call_id, .. }) | Event::TaskFailed(TaskFailed { call_id, .. })
            if is_open(call_id) =>
        {
            Some(event.clone())
        }
        _ => None,
    });
    done.collect()
}

/// Returns the start of a log that was copied for a fork, with its generation there.
fn start_in_fork(started: RunStarted, generation: u32, seed: u64) -> RunStarted {
    let first_seed = (generation > 0).then_some(seed);
    // The parent receives the result of the original only.
    RunStarted { generation, seed, first_seed, parent: None, ..started }
}

/// Returns the callers of the copies so far and of the next one (Z10).
fn copied_by(started: &RunStarted, caller: Option<&String>) -> Vec<String> {
    let caller = caller.filter(|caller| !started.copied_by.contains(caller));
    started.copied_by.iter().chain(caller).cloned().collect()
}

/// Fails if the run with this current log was reset to another run than `to` (Z5).
pub fn check_reset(head: &RunHead, records: &[Record], to: &RunId) -> Result<(), Refusal> {
    match successor(records).filter(|successor| *successor != to) {
        Some(successor) => Err(Refusal::AlreadyReset { key: head.key.clone(), successor: successor.clone() }),
        None => Ok(()),
    }
}

/// Returns the run that a reset has created.
fn successor(records: &[Record]) -> Option<&RunId> {
    records.iter().flat_map(|record| &record.events).find_map(|event| match event {
        Event::TerminateRequested(event) => event.reset_to.as_ref(),
        _ => None,
    })
}

fn end_original(head: &RunHead, fork: &Fork) -> OutboxMessage {
    let reason = if fork.reason.is_empty() { format!("reset to {}", fork.key.id) } else { fork.reason.clone() };
    let event = TerminateRequested { reason, reset_to: Some(fork.key.id.clone()) };
    let once = IdempotencyRecord::new(format!("reset:{}", fork.key.id));
    OutboxMessage::Input { to: head.key.clone(), input: Input { once: Some(once), ..Input::new(event) } }
}

/// Returns the last event that is copied for a fork at `wanted`.
pub fn point(head: &RunHead, records: &[Record], wanted: Option<Index>) -> Result<Index, Refusal> {
    check_workflow(head)?;
    Ok(records[fork_point(head, records, wanted)? - 1].last_index())
}

/// Returns the number of records to copy (Z3).
fn fork_point(head: &RunHead, records: &[Record], wanted: Option<Index>) -> Result<usize, Refusal> {
    let is_point = |record: &Record| match record.commit {
        Some(commit) => !commit.is_while_paused && !record.ends_log(),
        None => record.index == Index(0),
    };
    let points = || records.iter().enumerate().filter(|(_, record)| is_point(record));
    let Some(wanted) = wanted else {
        return Ok(points().next_back().map_or(1, |(position, _)| position + 1));
    };
    if let Some((position, _)) = points().find(|(_, record)| record.last_index() == wanted) {
        return Ok(position + 1);
    }
    let near = |found: Option<(usize, &Record)>| found.map(|(_, record)| record.last_index().0.to_string());
    let (before, after) =
        (near(points().rfind(|(_, r)| r.last_index() < wanted)), near(points().find(|(_, r)| r.last_index() > wanted)));
    let names: Vec<String> = before.into_iter().chain(after).collect();
    let nearest = if names.len() == 1 { "end is" } else { "ends are" };
    let why = format!("it is not the end of a commit; the nearest {nearest} {}", names.join(" and "));
    Err(Refusal::NoForkPoint { key: head.key.clone(), index: wanted, why })
}

fn ancestry(key: &RunKey, records: &[Record]) -> Ancestry {
    Ancestry::new(key, records.first().and_then(Record::started).expect("H2"))
}

/// Replaces the start of the copy.
fn begin_with(copy: &mut [Record], head: &RunHead, set_aside: Vec<Index>, change: impl FnOnce(RunStarted) -> RunStarted) {
    let commits = copy.iter().filter(|record| record.commit.is_some()).count() as u64;
    let index = copy.last().expect("a copy has records").last_index();
    let origins = ancestry(&head.key, copy).origins_until(commits, index, set_aside);
    if let Some(Event::RunStarted(started)) = copy[0].events.first_mut() {
        **started = RunStarted { origins, ..change(RunStarted::clone(started)) };
    }
}

/// Returns new ids for the children without a result, with their slices of a budget that `change` has adjusted.
fn again(
    key: &RunKey,
    generation: u32,
    copy: &[Record],
    budget_max: Option<Budget>,
    change: impl FnOnce(&mut BudgetHead),
    spend: Option<&SpendTotals>,
    at: Timestamp,
) -> Vec<ChildAgain> {
    let Projection { children, head, .. } = Projection::of(key.clone(), copy).expect("H2");
    let open = children.iter().map(|(call_id, child)| (&child.started, child_id(&key.id, generation, call_id)));
    let limited = budget_max.map(|_| Box::new(BudgetHead { since: Some(at), ..BudgetHead::default() }));
    match head.budget.or(limited) {
        None => open.map(|(started, child)| ChildAgain { call_id: started.call_id.clone(), child, budget: None }).collect(),
        Some(mut budget) => {
            change(&mut budget);
            budget.lower(budget_max.unwrap_or_default());
            budget.give_again(open, spend, at)
        }
    }
}

/// Derives the id of a child for which the code chose none: unique, and the same on replay.
pub fn child_id(run: &RunId, generation: u32, call_id: &CallId) -> RunId {
    derived_id(run, generation, &call_id.to_string())
}

/// Derives the id of a run from another one; both have the same root run (FA1).
pub fn derived_id(run: &RunId, generation: u32, what: &str) -> RunId {
    let generation = if generation == 0 { String::new() } else { format!("{generation}-") };
    let readable = format!("{run}/{generation}{what}");
    RunId::new(&readable).unwrap_or_else(|_| {
        // The id would be too long: use one of limited length.
        let hash = crate::Hash::of_parts(&[readable.as_bytes()]);
        RunId::new(format!("{}/~{hash}", root_run(run))).expect("a root run id leaves room for a hash")
    })
}

/// Derives the id of a spawned child, which outlives the generation. The id is never reused: the result of another run would be
/// taken for this child's.
pub fn spawned_id(run: &RunId, generation: u32, call_id: &CallId, seed: u64) -> RunId {
    let short = seed ^ (seed >> 32);
    derived_id(run, generation, &format!("{call_id}-{:08x}", short & 0xffff_ffff))
}

/// Appends the reason and the kept events, and collects the messages for open children.
fn finish(
    key: RunKey,
    mut records: Vec<Record>,
    why: Event,
    kept: Vec<Event>,
    children: OpenChildren,
    at: Timestamp,
) -> Reopened {
    let append = |records: &mut Vec<Record>, event: Event| {
        let index = records.last().expect("a copy has records").next_index();
        records.push(Record::input(index, at, event));
    };
    for event in [why].into_iter().chain(kept) {
        append(&mut records, event);
    }
    let projection = Projection::of(key.clone(), &records).expect("H2");
    for event in imported_calls(&records, &projection) {
        append(&mut records, event); // U7
    }
    if let Some(pause) = pause_to_ask(&records, &RunHead::rebuild(key.clone(), &records).expect("H2")) {
        append(&mut records, pause.into());
    }
    let projection = Projection::of(key.clone(), &records).expect("H2");
    let head = &projection.head;
    let outbox = projection.children.values().map(|child| match children {
        OpenChildren::Restart => head.start_child(&child.started, &child.id),
        OpenChildren::Await => await_child(head, &child.started, &child.id),
    });
    let outbox = outbox.collect();
    Reopened { records, outbox }
}

/// Returns a request to a child of another run to answer this one as well.
pub fn await_child(head: &RunHead, started: &ChildStarted, id: &RunId) -> OutboxMessage {
    let once = IdempotencyRecord::new(format!("listener:{}:{}", head.key.id, started.call_id));
    let by = head.link(&started.call_id, started.on_parent_close, false);
    let to = RunKey::new(head.key.namespace.clone(), id.clone());
    OutboxMessage::Input { to, input: Input { once: Some(once), ..Input::new(ResultRequested { by }) } }
}
