//! The oracle: rules that must hold in every state.
//!
//! - MA1: every message is an entry once, in the order of arrival, or still unread. An entry of a branch that a client has
//!   abandoned counts.
//! - MA2: a call gets the answer that was made for it: by kind, content, the conversation where that is part of it, and its
//!   ordinal among equal calls (the program compares, and fails otherwise). The live path of the log contains no call that the
//!   code has not made.
//! - MA3: no abandoned call begins. While a call with an effect, or a decision of a person, is abandoned, an activation that has
//!   seen it records no new effect and closes no segment, unless it was accepted by resuming the run.
//! - MA4: there are never more abandonments than flips and branches.
//! - MA5: nothing is stuck: a run waits only after it has seen all inputs, and forever only for a message that was not sent.
//! - MA6: every entry from outside is in the conversation once, in the order of arrival, or still pending.
//! - MA7: the conversation equals what the code appended, entry by entry; no entry, whatever its author, is there twice.
//! - MA8: commits of a previous holder are refused.
//! - MA9: a generation accepts the first branch request, and refuses further ones until it is carried out; its message is in the
//!   conversation from then on.
//! - MA10: one call of the code is one request to the outside: code that returns to a child, a promise or an approval of the open
//!   segment takes it over, whichever path it takes.

use std::collections::BTreeSet;

use onward_core::conversation::{Entry, OutsideEntry, entries_of, pending_of};
use onward_core::event::PauseReason;
use onward_core::task::EffectClass;
use onward_core::{CallId, Event, Index, Log, Name, Status};

use super::explore::State;
use super::program::{BETWEEN_TURNS, Done, EDITOR, GUEST, MESSAGE};
use super::recorded_calls::{self, call_at, calls};

/// The end of every log.
const END: Index = Index(u64::MAX);

/// Returns the events of the commits on the live path.
fn way(log: &Log) -> Vec<(Index, &Event)> {
    let is_left = recorded_calls::is_left(log, END);
    let commits = log.records().iter().filter(|record| record.commit.is_some() && !is_left(record.index));
    commits.flat_map(|record| record.events.iter().map(|event| (record.index, event))).collect()
}

fn logs(state: &State) -> impl Iterator<Item = &Log> {
    state.world.past_logs().iter().chain([state.world.log()])
}

/// Returns the entries of a log that the code has not abandoned, including those from outside.
fn entries(log: &Log) -> Vec<Entry> {
    let is_branched = is_branched(log);
    let until = log.records().iter().position(|record| is_branched && record.ends_log()).unwrap_or(log.records().len());
    let generation = log.records().first().and_then(|record| record.started()).map_or(0, |started| started.generation);
    entries_of(generation, &log.records()[..until]).into_iter().filter(|entry| !entry.is_abandoned).collect()
}

pub(super) fn is_branched(log: &Log) -> bool {
    log.events().any(|(_, event)| matches!(event, Event::BranchRequested(_)))
}

pub(super) fn abandonments(log: &Log) -> usize {
    log.events().filter(|(_, event)| matches!(event, Event::SegmentAbandoned(_))).count()
}

fn last_pause(log: &Log) -> Option<PauseReason> {
    let pause = |(_, event): (Index, &Event)| match event {
        Event::RunPaused(paused) => Some(paused.reason),
        _ => None,
    };
    log.events().filter_map(pause).last()
}

pub(super) fn is_unstable(state: &State) -> bool {
    last_pause(state.world.log()) == Some(PauseReason::UnstableSegment)
}

/// Returns whether the run is stuck: it is open, not paused, and does not wait for an unsent message (MA5).
pub(super) fn is_stuck(state: &State) -> bool {
    let message_count = message_numbers(&conversation(state)).len();
    let waits_for_people = ['R', BETWEEN_TURNS].contains(&state.doing) && message_count == state.signals as usize;
    match state.world.status() {
        Status::Paused => false,
        Status::Waiting => !waits_for_people,
        status => !status.is_closed(),
    }
}

pub(super) fn judge(state: State) -> Result<State, String> {
    let conversation = conversation(&state);
    let found = failed(&state)
        .or_else(|| messages(&state, &conversation))
        .or_else(|| guests(&state, &conversation))
        .or_else(|| twice(&conversation))
        .or_else(|| effects(&state))
        .or_else(|| flips(&state))
        .or_else(|| branches(&state))
        .or_else(|| repeated_request(&state))
        .or_else(|| asleep(&state));
    match found {
        None => Ok(state),
        Some(found) => Err(format!("{found}: {}", state.describe())),
    }
}

/// Compares the log with what the code did (MA2, MA7).
pub(super) fn compare(state: &State, done: &Done) -> Result<(), String> {
    let generation = state.world.generation();
    for (of, part) in &done.parts {
        let log = if *of == generation { state.world.log() } else { &state.world.past_logs()[*of as usize] };
        if is_branched(log) {
            continue;
        }
        let recorded = entries(log).into_iter().filter(|entry| entry.role.as_str() != GUEST);
        let recorded = recorded.map(|entry| (entry.role.to_string(), entry.content.read().expect("JSON")));
        let recorded: Vec<(String, serde_json::Value)> = recorded.collect();
        if recorded != part.appended {
            return Err(format!("MA7 the code appended {:?}, and the log has {recorded:?}: {}", part.appended, state.describe()));
        }
        let mut remaining = part.calls.clone();
        for (_, call) in calls(log, *of, END) {
            let Some(position) = remaining.iter().position(|made| *made == call) else {
                return Err(format!("MA2 the log has {call}, and the code called {:?}: {}", part.calls, state.describe()));
            };
            remaining.swap_remove(position);
        }
    }
    Ok(())
}

/// MA2.
fn failed(state: &State) -> Option<String> {
    let (_, last) = state.world.log().events().last()?;
    matches!(last, Event::RunFailed(_)).then(|| format!("{last:?}"))
}

/// MA5.
fn asleep(state: &State) -> Option<String> {
    if state.world.status() != Status::Waiting {
        return None;
    }
    let records = state.world.log().records();
    let seen = records.iter().rev().find_map(|record| record.commit).map(|commit| commit.horizon);
    let is_unseen = |(index, event): &(Index, &Event)| event.is_input() && !event.is_quiet() && Some(*index) > seen;
    let (index, event) = state.world.log().events().find(is_unseen)?;
    Some(format!("MA5 the run waits, and has not seen {} at {index}", event.name()))
}

/// Returns the entries of all generations that the code has not abandoned.
fn conversation(state: &State) -> Vec<Entry> {
    logs(state).flat_map(entries).collect()
}

fn numbers(conversation: &[Entry], role: &str) -> Vec<u32> {
    let entries = conversation.iter().filter(|entry| entry.role.as_str() == role);
    entries.map(|entry| entry.content.read().expect("a number")).collect()
}

fn message_numbers(conversation: &[Entry]) -> Vec<u32> {
    numbers(conversation, "user")
}

/// MA1.
fn messages(state: &State, conversation: &[Entry]) -> Option<String> {
    let found = message_numbers(conversation);
    if found != (1..=found.len() as u32).collect::<Vec<_>>() {
        return Some(format!("MA1 the conversation has the messages {found:?}"));
    }
    let log = state.world.log();
    let started = log.records().first().and_then(|record| record.started()).expect("a log begins with its start");
    let is_open = |entry: &&Entry| entry.generation == state.world.generation() && entry.role.as_str() == "user";
    let before = found.len() - conversation.iter().filter(is_open).count();
    let is_message = |name: &Name| name.as_str() == MESSAGE;
    let received = log.events().filter(|(_, event)| matches!(event, Event::SignalReceived(signal) if is_message(&signal.name)));
    let carried = started.mailbox.iter().filter(|signal| is_message(&signal.name)).count();
    let known = before + carried + received.count();
    (known != state.signals as usize).then(|| format!("MA1 {known} of {} messages are left", state.signals))
}

/// MA6.
fn guests(state: &State, conversation: &[Entry]) -> Option<String> {
    let present = numbers(conversation, GUEST);
    let pending = pending_of(state.world.log().records()).into_iter();
    let all: Vec<u32> = present.iter().copied().chain(pending.map(|entry| entry.content.read().expect("a number"))).collect();
    (all != (1..=state.entries).collect::<Vec<_>>())
        .then(|| format!("MA6 of {} entries {present:?} are there, {all:?} in all", state.entries))
}

/// MA7: entries contain their generation and ordinal, results the call they were made for; so equal texts are one entry too many.
fn twice(conversation: &[Entry]) -> Option<String> {
    let mut seen = BTreeSet::new();
    let own = conversation.iter().filter(|entry| ![GUEST, "user"].contains(&entry.role.as_str()));
    let again = own.map(|entry| (entry.role.as_str(), entry.content.data())).find(|entry| !seen.insert(*entry))?;
    Some(format!("MA7 twice: {} {}", again.0, String::from_utf8_lossy(again.1)))
}

/// MA3, checked whenever a new effect was recorded, or a segment was closed.
fn effects(state: &State) -> Option<String> {
    let generation = state.world.generation();
    let closed = state.world.past_logs().last().map(|log| (generation - 1, log));
    closed.into_iter().chain([(generation, state.world.log())]).find_map(|(generation, log)| {
        let last = log.records().last().filter(|record| record.commit.is_some())?;
        let is_new = |event: &Event| event.ends_log() || (!event.is_step_result() && has_effect(event));
        let new = last.events.iter().find(|event| is_new(event))?;
        let seen = last.commit.map_or(END, |commit| commit.horizon);
        let loose = loose(state, generation, log, seen);
        (!loose.is_empty()).then(|| format!("MA3 {loose:?} had an effect and is left, when there is {}", new.name()))
    })
}

/// Returns calls with an effect that are neither on the live path nor accepted.
fn loose(state: &State, generation: u32, log: &Log, seen: Index) -> Vec<CallId> {
    let claimed = claimed(log);
    let is_accepted = |call_id: &CallId| state.accepted.contains(&(generation, call_id.clone()));
    let left =
        had_effect(state, generation, log).into_iter().filter(|call_id| !claimed.contains(call_id) && !is_accepted(call_id));
    left.chain(left_decisions(log, seen, &claimed, is_accepted)).collect()
}

/// Returns decisions that have no effect: the question was abandoned, and the same decision was not given when it was asked
/// again. A branch abandons them knowingly, and decisions after `seen` were not known to the commit.
fn left_decisions(log: &Log, seen: Index, claimed: &BTreeSet<CallId>, is_accepted: impl Fn(&CallId) -> bool) -> Vec<CallId> {
    let decision = |(index, event): (Index, &Event)| match event {
        Event::ApprovalDecided(decided) if index <= seen && !is_branched(log) => {
            Some((decided.call_id.clone(), decided.approved))
        }
        _ => None,
    };
    let (effective, mut left): (Vec<_>, Vec<_>) =
        log.events().filter_map(decision).partition(|(call_id, _)| claimed.contains(call_id));
    left.retain(|(call_id, _)| !is_accepted(call_id));
    for (_, approved) in effective {
        let again = left.iter().position(|(_, left)| *left == approved);
        again.into_iter().for_each(|at| drop(left.swap_remove(at)));
    }
    left.into_iter().map(|(call_id, _)| call_id).collect()
}

/// Returns the calls with an effect in a generation.
fn had_effect(state: &State, generation: u32, log: &Log) -> Vec<CallId> {
    let is_begun = |call_id: &CallId| state.begun.contains(&(generation, call_id.clone()));
    let events = log.events().map(|(_, event)| event).filter(|event| has_effect(event));
    let call_ids = events.filter_map(|event| Some((call_id_of(event)?, matches!(event, Event::TaskScheduled(_)))));
    call_ids.filter(|(call_id, is_task)| !is_task || is_begun(call_id)).map(|(call_id, _)| call_id.clone()).collect()
}

/// Returns what resuming accepts, if the run is paused for abandoned effects: the calls that the pause names.
pub(super) fn accepted(state: &State) -> Vec<(u32, CallId)> {
    let (generation, log) = (state.world.generation(), state.world.log());
    let pauses = log.events().filter_map(|(_, event)| match event {
        Event::RunPaused(pause) => Some(pause),
        _ => None,
    });
    let last = pauses.last().filter(|pause| pause.reason == PauseReason::EffectAbandoned);
    last.into_iter().flat_map(|pause| &pause.abandoned_calls).map(|call_id| (generation, call_id.clone())).collect()
}

/// Returns the original ids of the calls on the live path.
pub(super) fn claimed(log: &Log) -> BTreeSet<CallId> {
    let call_id = |(_, event): (Index, &Event)| match event {
        Event::CallAdopted(adopted) => Some(adopted.from.clone()),
        event => call_id_of(event).cloned(),
    };
    way(log).into_iter().filter_map(call_id).collect()
}

fn has_effect(event: &Event) -> bool {
    match event {
        Event::TaskScheduled(task) => task.options.class != Some(EffectClass::Pure),
        Event::SignalSent(_) | Event::ChildStarted(_) | Event::StepCompleted(_) => true,
        _ => false,
    }
}

fn call_id_of(event: &Event) -> Option<&CallId> {
    match event {
        Event::TaskScheduled(task) => Some(&task.call_id),
        Event::SignalSent(sent) => Some(&sent.call_id),
        Event::ChildStarted(child) => Some(&child.call_id),
        Event::StepCompleted(step) => Some(&step.call_id),
        Event::ApprovalRequested(question) => Some(&question.call_id),
        _ => None,
    }
}

/// MA4.
fn flips(state: &State) -> Option<String> {
    let abandonments: usize = logs(state).map(abandonments).sum();
    let allowed = state.flips as usize + logs(state).map(|log| requests(log).count()).sum::<usize>();
    (abandonments > allowed).then(|| format!("MA4 {abandonments} abandonments after {allowed} flips and branches"))
}

/// Returns the branch requests of a log, each with its message.
fn requests(log: &Log) -> impl Iterator<Item = Option<&OutsideEntry>> {
    log.events().filter_map(|(_, event)| match event {
        Event::BranchRequested(request) => Some(request.entry.as_ref()),
        _ => None,
    })
}

/// MA9.
fn branches(state: &State) -> Option<String> {
    logs(state).filter(|log| is_branched(log)).find_map(|log| {
        let requested: Vec<_> = requests(log).collect();
        let requested_numbers: Vec<u32> =
            requested.iter().flatten().map(|entry| entry.content.read().expect("a number")).collect();
        let is_over = log.records().last().is_some_and(|record| record.ends_log());
        let appended = if is_over { numbers(&entries_of(0, log.records()), EDITOR) } else { requested_numbers.clone() };
        let is_sound = requested.len() == 1 && appended == requested_numbers;
        (!is_sound)
            .then(|| format!("MA9 {} branches request {requested_numbers:?}, and {appended:?} was appended", requested.len()))
    })
}

/// MA10.
fn repeated_request(state: &State) -> Option<String> {
    let generation = state.world.generation();
    let closed = state.world.past_logs().last().map(|log| (generation - 1, log));
    closed.into_iter().chain([(generation, state.world.log())]).find_map(|(generation, log)| {
        let is_requested =
            |event: &Event| matches!(event, Event::ChildStarted(_) | Event::PromiseCreated(_) | Event::ApprovalRequested(_));
        let call_ids = log.events().filter(|(_, event)| is_requested(event)).filter_map(|(_, event)| event.call_id());
        let mut seen = BTreeSet::new();
        let again = call_ids.filter_map(|call_id| call_at(log, generation, call_id)).find(|what| !seen.insert(what.clone()))?;
        Some(format!("MA10 the world gets the same request twice: {again}"))
    })
}
