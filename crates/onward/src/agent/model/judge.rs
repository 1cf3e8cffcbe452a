//! What must hold in every state.
//!
//! - MA1: every message is an entry once, in the order in which they came, or still unread. An entry of a branch that somebody outside has
//!   left counts.
//! - MA2: a call is given the result of its own kind (the program looks), and no result is used twice.
//! - MA3: nothing begins that the code has left; and while something is left that has had an effect, nothing new with one is recorded, and
//!   no segment closes, unless somebody accepted it.
//! - MA4: there are never more abandonments than flips and branches.
//! - MA5: nothing is stuck.
//! - MA6: every entry from outside is in the conversation once, in the order in which they came, or still to be taken in.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::conversation::{Entry, entries_of, pending_of};
use onward_core::event::PauseReason;
use onward_core::task::EffectClass;
use onward_core::{Event, Index, Log, Name, Place, Status};

use super::explore::State;
use super::program::{GUEST, MESSAGE};

/// The commits of a log that the code has not left, one after the other.
fn way(log: &Log) -> Vec<(Index, &Event)> {
    let mut left: Vec<(Index, Index)> = Vec::new();
    for record in log.records() {
        if let Some(Event::SegmentAbandoned(marker)) = record.events.first() {
            left.push((marker.from, record.index));
        }
    }
    let is_left = |index: Index| left.iter().any(|(from, to)| (*from..*to).contains(&index));
    let commits = log.records().iter().filter(|record| record.commit.is_some() && !is_left(record.index));
    commits.flat_map(|record| record.events.iter().map(|event| (record.index, event))).collect()
}

/// The entries of a log that the code has not left; those that somebody outside has are among them.
fn entries(log: &Log) -> Vec<Entry> {
    let is_branched = log.events().any(|(_, event)| matches!(event, Event::BranchRequested(_)));
    let until = log.records().iter().position(|record| is_branched && record.ends_log()).unwrap_or(log.records().len());
    entries_of(0, &log.records()[..until]).into_iter().filter(|entry| !entry.is_abandoned).collect()
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

/// Nothing can happen any more, and nobody was told.
pub(super) fn is_stuck(state: &State) -> bool {
    let status = state.world.status();
    let waits_for_people = state.world.log().events().any(|(_, event)| matches!(event, Event::SignalAwaited(_)));
    !(status.is_closed() || status == Status::Paused || (status == Status::Waiting && waits_for_people))
}

pub(super) fn judge(state: State) -> Result<State, String> {
    let found = messages(&state)
        .or_else(|| guests(&state))
        .or_else(|| results(&state))
        .or_else(|| effects(&state))
        .or_else(|| flips(&state));
    match found {
        None => Ok(state),
        Some(found) => Err(format!("{found}: {}", state.story())),
    }
}

/// MA1.
fn messages(state: &State) -> Option<String> {
    let logs = state.world.past_logs().iter().chain([state.world.log()]);
    let said = logs.flat_map(entries).filter(|entry| entry.role.as_str() == "user");
    let said: Vec<u32> = said.map(|entry| entry.content.read().expect("a number")).collect();
    if said != (1..=said.len() as u32).collect::<Vec<_>>() {
        return Some(format!("MA1 the conversation has the messages {said:?}"));
    }
    let log = state.world.log();
    let started = log.records().first().and_then(|record| record.started()).expect("a log begins with its start");
    let before: usize = state.world.past_logs().iter().map(user_entries).sum();
    let is_message = |name: &Name| name.as_str() == MESSAGE;
    let received = log.events().filter(|(_, event)| matches!(event, Event::SignalReceived(signal) if is_message(&signal.name)));
    let carried = started.mailbox.iter().filter(|signal| is_message(&signal.name)).count();
    let known = before + carried + received.count();
    (known != state.signals as usize).then(|| format!("MA1 {known} of {} messages are left", state.signals))
}

/// MA6.
fn guests(state: &State) -> Option<String> {
    let logs = state.world.past_logs().iter().chain([state.world.log()]);
    let said = logs.flat_map(entries).filter(|entry| entry.role.as_str() == GUEST);
    let said: Vec<u32> = said.map(|entry| entry.content.read().expect("a number")).collect();
    let pending = pending_of(state.world.log().records()).into_iter();
    let all: Vec<u32> = said.iter().copied().chain(pending.map(|entry| entry.content.read().expect("a number"))).collect();
    (all != (1..=state.entries).collect::<Vec<_>>())
        .then(|| format!("MA6 of {} entries {said:?} are there, {all:?} in all", state.entries))
}

fn user_entries(log: &Log) -> usize {
    entries(log).into_iter().filter(|entry| entry.role.as_str() == "user").count()
}

/// MA2: a result names the task that made it, so the same text twice is the same result twice.
fn results(state: &State) -> Option<String> {
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for entry in entries(state.world.log()).into_iter().filter(|entry| ["assistant", "tool"].contains(&entry.role.as_str())) {
        let text: String = entry.content.read().expect("text");
        if text.contains(" at ") {
            *used.entry(text).or_default() += 1;
        }
    }
    used.into_iter().find(|(_, count)| *count > 1).map(|(text, _)| format!("MA2 used twice: {text}"))
}

/// MA3, looked at whenever something new with an effect was recorded, or a segment was closed.
fn effects(state: &State) -> Option<String> {
    if state.resumes > 0 {
        return None;
    }
    let generation = state.world.generation();
    let closed = state.world.past_logs().last().map(|log| (generation - 1, log));
    closed.into_iter().chain([(generation, state.world.log())]).find_map(|(generation, log)| {
        let last = log.records().last().filter(|record| record.commit.is_some())?;
        let is_new = |event: &Event| event.ends_log() || (!event.is_step_result() && has_effect(event));
        let new = last.events.iter().find(|event| is_new(event))?;
        let loose = loose(state, generation, log);
        (!loose.is_empty()).then(|| format!("MA3 {loose:?} had an effect and is left, when there is {}", new.name()))
    })
}

/// What has had an effect and is not on the way of the code.
fn loose(state: &State, generation: u32, log: &Log) -> Vec<Place> {
    let claimed = claimed(log);
    let begun = state.begun.iter().filter(|(of, _, kind)| *of == generation && ["pay", "wire"].contains(&kind.as_str()));
    let begun = begun.map(|(_, place, _)| place.clone());
    let done =
        log.events().map(|(_, event)| event).filter(|event| has_effect(event) && !matches!(event, Event::TaskScheduled(_)));
    let done = done.filter_map(|event| place_of(event).cloned());
    begun.chain(done).filter(|place| !claimed.contains(place)).collect()
}

/// The places of what the code asks for on its way, as whoever began them knows them.
pub(super) fn claimed(log: &Log) -> BTreeSet<Place> {
    let place = |(_, event): (Index, &Event)| match event {
        Event::CallAdopted(adopted) => Some(adopted.from.clone()),
        event => place_of(event).cloned(),
    };
    way(log).into_iter().filter_map(place).collect()
}

fn has_effect(event: &Event) -> bool {
    match event {
        Event::TaskScheduled(task) => task.options.class != Some(EffectClass::Pure),
        Event::SignalSent(_) | Event::ChildStarted(_) | Event::StepCompleted(_) => true,
        _ => false,
    }
}

fn place_of(event: &Event) -> Option<&Place> {
    match event {
        Event::TaskScheduled(task) => Some(&task.place),
        Event::SignalSent(sent) => Some(&sent.place),
        Event::ChildStarted(child) => Some(&child.place),
        Event::StepCompleted(step) => Some(&step.place),
        _ => None,
    }
}

/// MA4.
fn flips(state: &State) -> Option<String> {
    let logs = state.world.past_logs().iter().chain([state.world.log()]);
    let abandonments: usize = logs.map(abandonments).sum();
    let allowed = (state.flips + state.branches) as usize;
    (abandonments > allowed).then(|| format!("MA4 {abandonments} abandonments after {allowed} flips and branches"))
}
