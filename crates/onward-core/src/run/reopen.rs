//! Logs that go on from a copy: a failed run is tried again, a run is reset to an earlier point or forked from one.
//!
//! All three make a new log: the copy, one input that says why, and what was kept beside. The old log stays as it is, with its end. A
//! retry is the next generation of the same run; a fork and a reset are runs of their own. One of a later turn of an agent comes with
//! copies of the logs before it, because the conversation is in them.
//!
//! Owns what is copied and what is left out. Must never leave out what has happened: a retry keeps every result, and only failures are
//! set aside.
//!
//! Invariants:
//! - Z1: a retry keeps every record of the failed log but its end. Set aside are the failures of steps, tasks and children behind which
//!   the code did nothing more on that line; what failed is done again, with the keys it had.
//! - Z2: a run that went on after the failure it ended with has undone or handled it, and is not retried.
//! - Z3: a fork ends at a whole commit that was not made while the run was paused, or right behind the start; the original is not
//!   touched, and a reset only ends it.
//! - Z4: what is open in the copy is open in the new log: timers with the time they had left, tasks scheduled again (but Z7), questions, and
//!   children, which are started again or, in a fork, awaited together with the original.
//! - Z5: a run that has ended because it was reset names its one successor, and is not reset to another one.
//! - Z6: a fork needs nothing of its original but children that both await. The logs before its own have the numbers that they had, and
//!   count nothing and begin nothing there: all that is in them has happened to the original.
//! - Z7: a task that must not be done twice and has begun, in the copy or behind it, is not scheduled again: the new log has its outcome,
//!   or that nobody knows it.
//! - Z8: a decision is not carried onto what comes behind it in the copy. Whatever was approved there is asked again, under new ids, and the
//!   new log is paused until all of it is approved; it is not resumed before. A child that would be started again behind an approval is no
//!   part of a copy, because news do not wait.
//! - Z9 (K6): a retry sets a failure aside behind which the effect may have happened (`outcome_unknown`) only if the caller includes those
//!   explicitly: the task is executed again.

use std::collections::{BTreeMap, BTreeSet};

use crate::log::event::{
    ChildAgain, ChildStarted, ParentLink, PauseReason, ResultRequested, RetryRequested, RunForked, RunPaused, RunStarted,
    TaskAttempted, TaskCompleted, TaskFailed, TerminateRequested,
};
use crate::log::projection::Projection;
use crate::log::transfer::imported_calls;
use crate::run::ancestry::{Lineage, follows, is_on_line_of};
use crate::run::root::family;
use crate::run::view::Left;
use crate::run::{Delivery, Input, Once, Refusal, RunHead, Status};
use crate::spend::SpendTotals;
use crate::spend::budget::{Budget, BudgetHead};
use crate::task::{EffectClass, OUTCOME_UNKNOWN};
use crate::{Event, Index, Name, Place, Record, RunId, RunKey, Timestamp};

/// A log that is written as a whole, and what it has to say to others.
#[derive(Debug, Clone, PartialEq)]
pub struct Reopened {
    pub records: Vec<Record>,
    pub news: Vec<Delivery>,
}

/// A run that is written as a whole, and what it has to say to others.
#[derive(Debug, Clone, PartialEq)]
pub struct Forked {
    /// By generation; the last one goes on.
    pub logs: Vec<Vec<Record>>,
    pub news: Vec<Delivery>,
}

/// What becomes of children that had not answered at the end of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenChildren {
    /// They are started again, under new ids and with the same input.
    Restart,
    /// Their result is awaited; they answer both runs.
    Await,
}

/// A wish to go on from a point of a run's log, in another run.
#[derive(Debug, Clone, PartialEq)]
pub struct Fork {
    pub key: RunKey,
    /// The last event to copy; the last possible one if it is not said.
    pub index: Option<Index>,
    /// End the original.
    pub is_reset: bool,
    /// Copy the signals that came behind the point, too.
    pub keep_signals: bool,
    pub children: OpenChildren,
    /// Another version of the code than the original is pinned to.
    pub version: Option<Name>,
    pub seed: u64,
    pub request_id: String,
    pub reason: String,
    /// What the caller may let a run spend (BG8).
    pub budget_max: Option<Budget>,
}

/// A wish to go on with a failed run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Retry {
    /// The same id again is the same request.
    pub request_id: String,
    pub reason: String,
    /// Execute again also what failed with `outcome_unknown` (Z9).
    pub include_outcome_unknown: bool,
    /// What the caller may let a run spend (BG8).
    pub budget_max: Option<Budget>,
}

impl Retry {
    /// A retry without a reason, of failures whose outcome is known.
    pub fn new(request_id: impl Into<String>) -> Retry {
        Retry { request_id: request_id.into(), ..Retry::default() }
    }
}

/// The log with which a failed run goes on.
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
    begin_with(&mut copy, head, set_aside, |started| RunStarted { generation, first_seed: started.origin_seed(), ..started });
    check_children(head, &copy)?;
    let change = |budget: &mut BudgetHead| budget.retried(head.spend.as_deref());
    let children = again(&head.key, generation, &copy, retry.budget_max, change, head.spend.as_deref(), at);
    let Retry { request_id, reason, budget_max, .. } = retry.clone();
    let event = RetryRequested { request_id, reason, children, spend: head.spend.clone(), budget_max }; // R12
    Ok(finish(head.key.clone(), copy, event.into(), Vec::new(), OpenChildren::Restart, at))
}

/// Refuses to set a failure aside behind which the effect may have happened: what failed would be executed again (Z9).
fn check_outcomes(head: &RunHead, before: &[Record], end: &Record, set_aside: &[Index]) -> Result<(), Refusal> {
    let mut events = before.iter().chain([end]).flat_map(Record::indexed);
    let is_unknown = |index: &Index, event: &Event| {
        set_aside.contains(index) && final_failure(event).is_some_and(|(_, failure)| failure.code == OUTCOME_UNKNOWN)
    };
    match events.find(|(index, event)| is_unknown(index, event)) {
        Some((failed, _)) => Err(Refusal::OutcomeUnknown { key: head.key.clone(), failed }),
        None => Ok(()),
    }
}

/// Only the log of a workflow's code goes on from a copy.
fn check_workflow(head: &RunHead) -> Result<(), Refusal> {
    head.check_ours()?;
    if head.is_task { Err(Refusal::IsTask { key: head.key.clone() }) } else { Ok(()) } // R9
}

/// The failures that ended the run: behind them the code did nothing on their line but end (Z1).
fn failures_to_set_aside(head: &RunHead, before: &[Record], end: &Record) -> Result<Vec<Index>, Refusal> {
    let Some(Event::RunFailed(failed)) = end.events.last() else {
        return Err(Refusal::NotFailed { key: head.key.clone(), status: head.status });
    };
    let known = lineage(&head.key, before);
    let (mut set_aside, mut handled) = (Vec::new(), None);
    let mut is_own = false;
    for (index, event) in before.iter().chain([end]).flat_map(Record::indexed) {
        let Some((place, failure)) = final_failure(event).filter(|_| !known.is_set_aside(index)) else { continue };
        let own = *failure == failed.failure;
        match reaction(before, end, index, place) {
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

/// The first thing that came of the failure at `failed`, but for the end. A request to stop behind it would meet what is done again, which
/// it did not then.
fn reaction(before: &[Record], end: &Record, failed: Index, place: &Place) -> Option<Index> {
    let came_of_it = |event: &Event, is_end: bool| match event {
        Event::CancelRequested(_) => true,
        // What the end takes back is open again.
        event if is_end => done_at(event).is_some_and(|later| follows(later, place)),
        event => {
            done_at(event).is_some_and(|later| follows(later, place))
                || withdrawn_at(event).is_some_and(|other| is_on_line_of(other, place))
        }
    };
    let records = before.iter().map(|record| (record, false)).chain([(end, true)]);
    records
        .flat_map(|(record, is_end)| record.indexed().map(move |(index, event)| (index, event, is_end)))
        .find(|(index, event, is_end)| *index > failed && came_of_it(event, *is_end))
        .map(|(index, _, _)| index)
}

/// The wait that the code gave up with this event.
fn withdrawn_at(event: &Event) -> Option<&Place> {
    match event {
        Event::WaitCanceled(event) => Some(&event.place),
        Event::TaskCanceled(event) => Some(&event.place),
        Event::ChildCanceled(event) => Some(&event.place),
        _ => None,
    }
}

/// The call that failed for good with this event.
fn final_failure(event: &Event) -> Option<(&Place, &crate::Failure)> {
    match event {
        Event::StepFailed(event) if event.retry_at.is_none() => Some((&event.place, &event.failure)),
        Event::TaskFailed(event) => Some((&event.place, &event.failure)),
        Event::ChildFailed(event) => Some((&event.place, &event.failure)),
        _ => None,
    }
}

/// Where the code did something with this event; taking back what it no longer waits for is nothing.
fn done_at(event: &Event) -> Option<&Place> {
    match event {
        Event::StepCompleted(event) => Some(&event.place),
        Event::StepFailed(event) => Some(&event.place),
        Event::TaskScheduled(event) => Some(&event.place),
        Event::TimerStarted(event) => Some(&event.place),
        Event::SignalAwaited(event) => Some(&event.place),
        Event::SignalConsumed(event) => Some(&event.place),
        Event::ApprovalRequested(event) => Some(&event.place),
        Event::PromiseCreated(event) => Some(&event.place),
        Event::ChildStarted(event) => Some(&event.place),
        Event::ChildAwaited(event) => Some(&event.place),
        Event::SignalSent(event) => Some(&event.place),
        Event::StateSet(event) => Some(&event.place),
        Event::StateCleared(event) => Some(&event.place),
        Event::AttributeSet(event) => Some(&event.place),
        Event::BudgetSet(event) => Some(&event.place),
        _ => None,
    }
}

/// Whether a fork of this log takes those before it along: it is one of a turn, and the code of an agent reads what was said before.
pub fn takes_earlier(records: &[Record]) -> bool {
    records.first().and_then(Record::started).is_some_and(|started| started.checkpoint.is_some())
}

/// A run that goes on from a point of another one's log. `earlier` are the logs before that one, if it takes them along.
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
    let index = copy[count - 1].last_index();
    begin_with(&mut copy, head, Vec::new(), |started| RunStarted {
        version: fork.version.clone().or(started.version.clone()),
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
    let Reopened { records: last, mut news } = finish(fork.key.clone(), copy, event.into(), kept, fork.children, at);
    // A generation that went on as the next one is closed, and its run is not.
    let went_on = records.last().is_some_and(|last| matches!(last.events.last(), Some(Event::RunContinued(_))));
    if fork.is_reset && (went_on || !head.status.is_closed()) {
        news.push(end_original(head, fork));
    }
    let earlier = earlier.into_iter().zip(0..).map(|(mut log, generation)| {
        begin_with(&mut log, head, Vec::new(), |started| start_in_fork(started, generation, fork.seed));
        log
    });
    Ok(Forked { logs: earlier.chain([last]).collect(), news })
}

/// The approvals of a log that were given and that the code goes by, in the order of their places, and where they were given.
fn given(records: &[Record]) -> BTreeMap<Place, Index> {
    let left = Left::of(records.iter());
    let (mut gone, mut given) = (BTreeSet::new(), BTreeMap::new());
    for record in records {
        for (index, event) in record.indexed() {
            match event {
                // What the code has left asks nobody any more, unless the code has taken it over.
                Event::ApprovalRequested(event) if left.has(record) => drop(gone.insert(event.place.clone())),
                Event::CallAdopted(event) if !left.has(record) => drop(gone.remove(&event.from)),
                Event::ApprovalDecided(event) if event.approved => drop(given.insert(event.place.clone(), index)),
                _ => {}
            }
        }
    }
    given.retain(|place, _| !gone.contains(place));
    given
}

/// Whether what was approved in the log can be asked again before anything begins behind it (Z8).
fn check_children(head: &RunHead, copy: &[Record]) -> Result<(), Refusal> {
    let given = given(copy);
    let open = Projection::of(head.key.clone(), copy).expect("H2").children;
    for (place, child) in &open {
        if let Some((_, approval)) = given.iter().find(|(approval, _)| follows(place, approval)) {
            let (key, child, approval) = (head.key.clone(), child.id.clone(), *approval);
            return Err(Refusal::ChildBehindApproval { key, child, approval });
        }
    }
    Ok(())
}

/// The pause of a log that goes on from a copy in which something was approved (Z8); none if that was asked again already.
pub(crate) fn pause_to_ask(records: &[Record], head: &RunHead) -> Option<RunPaused> {
    let asks: Vec<Place> = given(records).into_keys().collect();
    if asks.iter().all(|place| head.asks.contains(place)) {
        return None;
    }
    let message = format!("the run goes on from a copy: {} approvals that were given before are asked again", asks.len());
    Some(RunPaused { asks, ..RunPaused::because(PauseReason::ApprovalNeeded, message) })
}

/// What became behind the copy of tasks that are open in it and must not be done twice (Z7).
fn done_once(key: &RunKey, copy: &[Record], rest: &[Record]) -> Vec<Event> {
    let open = Projection::of(key.clone(), copy).expect("H2").tasks;
    let is_open = |place| open.get(place).is_some_and(|task| task.options.class == Some(EffectClass::AtMostOnce));
    let done = rest.iter().flat_map(|record| &record.events).filter_map(|event| match event {
        // What it costs is the original's.
        Event::TaskAttempted(event) if is_open(&event.place) => {
            Some(TaskAttempted { stands_as: None, began_at: None, ..event.clone() }.into())
        }
        Event::TaskCompleted(TaskCompleted { place, .. }) | Event::TaskFailed(TaskFailed { place, .. }) if is_open(place) => {
            Some(event.clone())
        }
        _ => None,
    });
    done.collect()
}

/// How a log begins that was copied for a fork, and is that of `generation` there.
fn start_in_fork(started: RunStarted, generation: u32, seed: u64) -> RunStarted {
    let first_seed = (generation > 0).then_some(seed);
    // Its parent hears of the original alone.
    RunStarted { generation, seed, first_seed, parent: None, ..started }
}

/// Whether the run whose current log this is may be reset to `to` (Z5).
pub fn check_reset(head: &RunHead, records: &[Record], to: &RunId) -> Result<(), Refusal> {
    match successor(records).filter(|successor| *successor != to) {
        Some(successor) => Err(Refusal::AlreadyReset { key: head.key.clone(), successor: successor.clone() }),
        None => Ok(()),
    }
}

/// The run that goes on in the place of one that was reset.
fn successor(records: &[Record]) -> Option<&RunId> {
    records.iter().flat_map(|record| &record.events).find_map(|event| match event {
        Event::TerminateRequested(event) => event.reset_to.as_ref(),
        _ => None,
    })
}

fn end_original(head: &RunHead, fork: &Fork) -> Delivery {
    let reason = if fork.reason.is_empty() { format!("it was reset to {}", fork.key.id) } else { fork.reason.clone() };
    let event = TerminateRequested { reason, reset_to: Some(fork.key.id.clone()) };
    let once = Once { key: format!("reset:{}", fork.key.id), token: String::new() };
    Delivery::Input { to: head.key.clone(), input: Input { once: Some(once), ..Input::new(event) } }
}

/// The last event that is copied for a fork at `wanted`.
pub fn point(head: &RunHead, records: &[Record], wanted: Option<Index>) -> Result<Index, Refusal> {
    check_workflow(head)?;
    Ok(records[fork_point(head, records, wanted)? - 1].last_index())
}

/// How many records to copy (Z3).
fn fork_point(head: &RunHead, records: &[Record], wanted: Option<Index>) -> Result<usize, Refusal> {
    let is_point = |record: &Record| match record.commit {
        Some(commit) => !commit.is_standing && !record.ends_log(),
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
    let why = format!("that is not the end of a commit; the nearest are {}", names.join(" and "));
    Err(Refusal::NoForkPoint { key: head.key.clone(), index: wanted, why })
}

fn lineage(key: &RunKey, records: &[Record]) -> Lineage {
    Lineage::new(key, records.first().and_then(Record::started).expect("H2"))
}

/// Gives the copy its own start.
fn begin_with(copy: &mut [Record], head: &RunHead, set_aside: Vec<Index>, change: impl FnOnce(RunStarted) -> RunStarted) {
    let commits = copy.iter().filter(|record| record.commit.is_some()).count() as u64;
    let index = copy.last().expect("a copy has records").last_index();
    let origins = lineage(&head.key, copy).origins_until(commits, index, set_aside);
    if let Some(Event::RunStarted(started)) = copy[0].events.first_mut() {
        **started = RunStarted { origins, ..change(RunStarted::clone(started)) };
    }
}

/// New ids for the children that had not answered, and what they get of a budget that is as `change` makes it.
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
    let open = children.iter().map(|(place, child)| (&child.started, child_id(&key.id, generation, place)));
    let limited = budget_max.map(|_| Box::new(BudgetHead { since: Some(at), ..BudgetHead::default() }));
    match head.budget.or(limited) {
        None => open.map(|(asked, child)| ChildAgain { place: asked.place.clone(), child, budget: None }).collect(),
        Some(mut budget) => {
            change(&mut budget);
            budget.lower(budget_max.unwrap_or_default());
            budget.give_again(open, spend, at)
        }
    }
}

/// The id of a child whose code chose none: every child has its own, and a replay asks for the same.
pub fn child_id(run: &RunId, generation: u32, place: &Place) -> RunId {
    derived_id(run, generation, &place.to_string())
}

/// The id of a run that comes of another one; it is of the same family (FA1).
pub fn derived_id(run: &RunId, generation: u32, what: &str) -> RunId {
    let readable = readable_id(run, generation, what);
    RunId::new(&readable).unwrap_or_else(|_| {
        // The id is too long to be extended: fall back to one of limited length.
        let hash = crate::Hash::of_parts(&[readable.as_bytes()]);
        RunId::new(format!("{}/~{hash}", family(run))).expect("a family leaves room for a hash")
    })
}

/// The id of a child that goes on when the generation ends. No other run ever had it: the result of a namesake would be taken for its own.
pub fn spawned_id(run: &RunId, generation: u32, place: &Place, seed: u64) -> RunId {
    let short = seed ^ (seed >> 32);
    derived_id(run, generation, &format!("{place}-{:08x}", short & 0xffff_ffff))
}

/// The id that a child got before there were families, where it differs: logs of then have it.
pub fn old_child_id(run: &RunId, generation: u32, place: &Place) -> Option<RunId> {
    let readable = readable_id(run, generation, &place.to_string());
    RunId::new(&readable).is_err().then(|| {
        let hash = crate::Hash::of_parts(&[readable.as_bytes()]);
        RunId::new(format!("child_{hash}")).expect("hex digits are a name")
    })
}

fn readable_id(run: &RunId, generation: u32, what: &str) -> String {
    let generation = if generation == 0 { String::new() } else { format!("{generation}-") };
    format!("{run}/{generation}{what}")
}

/// Adds why the copy goes on and what was kept; the children that are open then hear of it.
fn finish(
    key: RunKey,
    mut records: Vec<Record>,
    why: Event,
    kept: Vec<Event>,
    children: OpenChildren,
    at: Timestamp,
) -> Reopened {
    for event in [why].into_iter().chain(kept) {
        let index = records.last().expect("a copy has records").next_index();
        records.push(Record::input(index, at, event));
    }
    let projection = Projection::of(key.clone(), &records).expect("H2");
    for event in imported_calls(&records, &projection) {
        let index = records.last().expect("a copy has records").next_index();
        records.push(Record::input(index, at, event)); // U7
    }
    if let Some(pause) = pause_to_ask(&records, &RunHead::rebuild(key.clone(), &records).expect("H2")) {
        let index = records.last().expect("a copy has records").next_index();
        records.push(Record::input(index, at, pause.into()));
    }
    let projection = Projection::of(key.clone(), &records).expect("H2");
    let head = &projection.head;
    let news = projection.children.values().map(|child| match children {
        OpenChildren::Restart => head.start_child(&child.started, &child.id),
        OpenChildren::Await => await_child(head, &child.started, &child.id),
    });
    let news = news.collect();
    Reopened { records, news }
}

/// Asks a child that another run has started to answer this one, too.
pub fn await_child(head: &RunHead, asked: &ChildStarted, id: &RunId) -> Delivery {
    let ChildStarted { place, on_parent_close, .. } = asked.clone();
    let once = Once { key: format!("listener:{}:{place}", head.key.id), token: String::new() };
    let (run, generation) = (head.key.clone(), head.generation);
    let by = ParentLink { run, generation, place, on_parent_close, life: head.life, is_spawned: false };
    let to = RunKey::new(head.key.namespace.clone(), id.clone());
    Delivery::Input { to, input: Input { once: Some(once), ..Input::new(ResultRequested { by }) } }
}
