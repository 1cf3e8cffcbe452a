//! Runs of outside engines: logs that somebody else writes and understands, kept here under compare-and-set on the index.
//!
//! Owns what such a run may be told ([`ExternalAppended`]), the decision whether it is taken, and what its head knows. An outside engine
//! counts its own events from 0; the run's log holds them together with the states its engine has set, one append a record. Must never
//! look into what an outside engine keeps.
//!
//! Invariants:
//! - X1 (L3): events are taken at the index that their engine expects to be the next, or not at all; of many appends that expect the
//!   same one, exactly one is taken, and the others are told where the log goes on.
//! - X2: the events and the state of one append are taken together.
//! - X3: an external run takes external appends and nothing else, and no other run takes them.
//! - X4: an external run is never pending: no worker is offered one.
//! - X5: what an outside engine says of its run stands, also that a closed one is open again; its end does not end the log, because
//!   engines say that a run is over before they append that it is.

use crate::log::event::RunStarted;
use crate::run::{Admitted, Input, NewRun, Once, Refusal};
use crate::{Event, Index, Name, Payload, Record, RunHead, RunKey, Status, Timestamp, message};

message! {
    /// What an outside engine keeps here: the next events of its log, a new state, or both.
    pub struct ExternalAppended {
        /// The index of the first of the events, counted by their engine; a state alone may do without.
        1 => expected: Option<Index>,
        2 => events: Vec<Payload>,
        3 => state: Option<ExternalState>,
    }
}

message! {
    /// What an outside engine says of its run, in the place of what it said before.
    pub struct ExternalState {
        1 => kind: Name,
        2 => version: Option<Name>,
        3 => status: Status,
        /// The engine's own words, which nobody here reads.
        4 => data: Payload,
    }
}

message! {
    /// What a head knows of an external run beyond what it knows of every run.
    #[derive(Copy, Eq, Default)]
    pub struct ExternalHead {
        /// The index of the next event, as the outside engine counts.
        1 => next_index: Index,
        /// The event of the log that holds the state.
        2 => state_at: Option<Index>,
    }
}

/// The kind of an external run whose engine has not said any.
pub const EXTERNAL_KIND: &str = "external";

impl ExternalAppended {
    /// The index behind the last event; `None` where the append has no place among them.
    pub fn next_index(&self) -> Option<Index> {
        self.expected.map(|expected| expected.plus(self.events.len() as u64))
    }

    /// Each event with its index, as the outside engine counts.
    pub fn indexed(&self) -> impl Iterator<Item = (Index, &Payload)> {
        let first = self.expected.unwrap_or_default();
        self.events.iter().enumerate().map(move |(offset, event)| (first.plus(offset as u64), event))
    }

    fn malformed(&self) -> Option<&'static str> {
        if self.expected.is_none() && !self.events.is_empty() {
            return Some("it has events and does not say where they belong");
        }
        if self.events.is_empty() && self.state.is_none() {
            return Some("it has neither events nor a state");
        }
        let status = self.state.as_ref().map_or(Status::Running, |state| state.status);
        let known = matches!(status, Status::Running | Status::Waiting | Status::Completed | Status::Failed | Status::Canceled);
        (!known).then_some("a run of an outside engine is running, waiting, completed, failed or canceled") // X4
    }
}

/// Why a log from outside is not one that appends made (X1, X3), if it is not.
pub fn wrong_append(records: &[Record]) -> Option<String> {
    let (mut is_external, mut next) = (false, Index(0));
    for (index, event) in records.iter().flat_map(Record::indexed) {
        match event {
            Event::RunStarted(event) => is_external = event.is_external,
            Event::ExternalAppended(event) if is_external => {
                if let Some(why) = event.malformed() {
                    return Some(format!("event {index} is malformed: {why}"));
                }
                if event.expected.is_some_and(|expected| expected != next) {
                    return Some(format!("event {index} does not go on at {next}"));
                }
                next = event.next_index().unwrap_or(next);
            }
            Event::ExternalAppended(_) => return Some(format!("event {index} is of an outside engine, the run is not")),
            _ if is_external => return Some(format!("event {index} is not of the outside engine that the run belongs to")),
            _ => {}
        }
    }
    None
}

impl NewRun {
    /// An append to an external run, which is made if it is not there; with an id it is taken once (L11).
    pub fn external(key: RunKey, appended: ExternalAppended, append_id: Option<&str>) -> NewRun {
        let kind = appended.state.as_ref().map(|state| state.kind.clone());
        let kind = kind.unwrap_or_else(|| Name::new(EXTERNAL_KIND).expect("the word is a name"));
        let version = appended.state.as_ref().and_then(|state| state.version.clone());
        let started = RunStarted { version, is_external: true, ..RunStarted::new(kind, Payload::null(), 0) };
        let once = append_id.map(|id| Once::append(&appended, id));
        NewRun { key, started, signal: Some(Box::new(Input { once, ..Input::new(appended) })) }
    }
}

impl Record {
    /// Whether an outside engine said something new of its run.
    pub fn sets_external_state(&self) -> bool {
        matches!(self.events.first(), Some(Event::ExternalAppended(event)) if event.state.is_some())
    }
}

impl ExternalHead {
    /// Brings the head of a run up to its last record; states are in it already.
    pub fn catch_up(&mut self, last: &Record) {
        if let Some(Event::ExternalAppended(event)) = last.events.last() {
            self.next_index = event.next_index().unwrap_or(self.next_index);
        }
    }
}

impl RunHead {
    /// Whether the run is the one that a start asks for (L18). `same_input` compares with what the run was first started with.
    pub fn is_started_by(&self, started: &RunStarted, same_input: impl FnOnce() -> bool) -> Result<bool, Refusal> {
        match (self.external.is_some(), started.is_external) {
            (true, true) => Ok(true),
            (true, false) => Ok(false),
            (false, true) => Err(Refusal::NotExternal { key: self.key.clone() }), // X3
            (false, false) => Ok(*self.first_kind() == started.kind && same_input()),
        }
    }

    /// What the run was started as; it may have been handed over since.
    pub fn first_kind(&self) -> &Name {
        self.first_kind.as_ref().unwrap_or(&self.kind)
    }

    /// Whether the run may go: it is over, or its engine is not ours to ask.
    pub fn may_be_deleted(&self) -> bool {
        self.status.is_closed() || self.external.is_some()
    }

    /// Refuses what only a run of our own engine can go through.
    pub(crate) fn check_ours(&self) -> Result<(), Refusal> {
        if self.external.is_some() { Err(Refusal::External { key: self.key.clone() }) } else { Ok(()) }
    }

    /// Refuses what is not for a run of this form (X3).
    pub(crate) fn check_form(&self, event: &Event) -> Result<(), Refusal> {
        match (self.external.is_some(), matches!(event, Event::ExternalAppended(_))) {
            (true, false) => Err(Refusal::External { key: self.key.clone() }),
            (false, true) => Err(Refusal::NotExternal { key: self.key.clone() }),
            _ => Ok(()),
        }
    }

    /// Decides about an append of an outside engine. On success the head has moved on.
    pub(crate) fn admit_external(&mut self, event: ExternalAppended, at: Timestamp) -> Result<Admitted, Refusal> {
        if let Some(why) = event.malformed() {
            return Err(Refusal::Malformed { key: self.key.clone(), why });
        }
        let next = self.external.unwrap_or_default().next_index;
        if let Some(expected) = event.expected.filter(|expected| *expected != next) {
            return Err(Refusal::LogConflict { key: self.key.clone(), expected, next }); // X1
        }
        let record = Record::input(self.next_index, at, event.into());
        self.take_external(&record);
        Ok(Admitted { record, effects: Vec::new(), successor: None })
    }

    /// Moves on by a record of an external run (X2).
    pub(crate) fn take_external(&mut self, record: &Record) {
        let Some(Event::ExternalAppended(event)) = record.events.first() else { return };
        let external = self.external.get_or_insert_default();
        external.next_index = event.next_index().unwrap_or(external.next_index);
        if let Some(state) = &event.state {
            external.state_at = Some(record.index);
            self.kind.clone_from(&state.kind);
            self.version.clone_from(&state.version);
            self.ended_at = match (state.status.is_closed(), self.status.is_closed()) {
                (true, true) => self.ended_at,
                (true, false) => Some(record.at),
                (false, _) => None, // X5
            };
            self.status = state.status;
        }
        self.next_index = record.next_index();
        self.updated_at = record.at;
    }
}

#[cfg(test)]
mod tests;
