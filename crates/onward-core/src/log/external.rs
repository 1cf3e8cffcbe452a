//! External runs: logs written and interpreted by another engine, appended with compare-and-set on the index.
//!
//! Owns the append ([`ExternalAppended`]), its admission and the external part of a run's head. An external engine counts its own
//! events from 0; the run's log contains them and the states that the engine set, one append per record. Must never interpret the
//! data of an external engine.
//!
//! Invariants:
//! - X1 (L3): events are appended only if their engine's expected index is the next one. Of several appends that expect the same
//!   index exactly one succeeds; the others fail with the actual index.
//! - X2: the events and the state of one append are written together.
//! - X3: an external run accepts external appends and nothing else, and no other run accepts them.
//! - X4: an external run is never pending: no worker claims it.
//! - X5: the state that an external engine sets is stored as it is, even if it reopens a closed run. A closed state does not end
//!   the log, because engines set it before they append their last events.

use crate::log::event::RunStarted;
use crate::run::{Admitted, IdempotencyRecord, Input, NewRun, Refusal};
use crate::{Event, Index, Name, Payload, Record, RunHead, RunKey, Status, Timestamp, message};

message! {
    /// An append of an external engine: the next events of its log, a new state, or both.
    pub struct ExternalAppended {
        /// The index of the first event, counted by the external engine; optional for a state alone.
        1 => expected: Option<Index>,
        2 => events: Vec<Payload>,
        3 => state: Option<ExternalState>,
    }

    /// The state of an external run; replaces the state before it.
    pub struct ExternalState {
        1 => kind: Name,
        2 => version: Option<Name>,
        3 => status: Status,
        /// The engine's own data, not interpreted here.
        4 => data: Payload,
    }

    /// The part of a run's head that only external runs have.
    #[derive(Copy, Eq, Default)]
    pub struct ExternalHead {
        /// The index of the next event, counted by the external engine.
        1 => next_index: Index,
        /// The event of the log that holds the current state.
        2 => state_at: Option<Index>,
    }
}

/// The kind of an external run whose engine has not set one.
pub const EXTERNAL_KIND: &str = "external";

impl ExternalAppended {
    /// Returns the index after the last event; `None` if the append has no index.
    pub fn next_index(&self) -> Option<Index> {
        self.expected.map(|expected| expected.plus(self.events.len() as u64))
    }

    /// Iterates over the events with their indexes, counted by the external engine.
    pub fn indexed(&self) -> impl Iterator<Item = (Index, &Payload)> {
        let first = self.expected.unwrap_or_default();
        self.events.iter().enumerate().map(move |(offset, event)| (first.plus(offset as u64), event))
    }

    fn malformed(&self) -> Option<&'static str> {
        if self.expected.is_none() && !self.events.is_empty() {
            return Some("it has events but no expected index");
        }
        if self.events.is_empty() && self.state.is_none() {
            return Some("it has neither events nor a state");
        }
        let status = self.state.as_ref().map_or(Status::Running, |state| state.status);
        let known = matches!(status, Status::Running | Status::Waiting | Status::Completed | Status::Failed | Status::Canceled);
        (!known).then_some("the status of an external run must be running, waiting, completed, failed or canceled") // X4
    }
}

/// Returns the reason if an imported log does not consist of valid appends (X1, X3).
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
                    return Some(format!("event {index} does not continue at {next}"));
                }
                next = event.next_index().unwrap_or(next);
            }
            Event::ExternalAppended(_) => return Some(format!("event {index} is an external append, but the run is not")),
            _ if is_external => return Some(format!("event {index} is not an external append, but the run is external")),
            _ => {}
        }
    }
    None
}

impl NewRun {
    /// Builds an append to an external run, which is created if it does not exist; an `append_id` makes it idempotent (L11).
    pub fn external(key: RunKey, appended: ExternalAppended, append_id: Option<&str>) -> NewRun {
        let kind = appended.state.as_ref().map(|state| state.kind.clone());
        let kind = kind.unwrap_or_else(|| Name::new(EXTERNAL_KIND).expect("the word is a name"));
        let version = appended.state.as_ref().and_then(|state| state.version.clone());
        let started = RunStarted { version, is_external: true, ..RunStarted::new(kind, Payload::null(), 0) };
        let once = append_id.map(|id| IdempotencyRecord::append(&appended, id));
        NewRun { key, started, signal: Some(Box::new(Input { once, ..Input::new(appended) })) }
    }
}

impl Record {
    /// Returns true if the record sets a new external state.
    pub fn sets_external_state(&self) -> bool {
        matches!(self.events.first(), Some(Event::ExternalAppended(event)) if event.state.is_some())
    }
}

impl ExternalHead {
    /// Updates the head by the last record, whose state it has already.
    pub fn catch_up(&mut self, last: &Record) {
        if let Some(Event::ExternalAppended(event)) = last.events.last() {
            self.next_index = event.next_index().unwrap_or(self.next_index);
        }
    }
}

impl RunHead {
    /// Returns true if the run is the one that the start request describes (L18). `same_input` compares the input with that of
    /// the run's first start. Fails for an external start of a run that is not external (X3).
    pub fn is_started_by(&self, started: &RunStarted, same_input: impl FnOnce() -> bool) -> Result<bool, Refusal> {
        match (self.external.is_some(), started.is_external) {
            (true, true) => Ok(true),
            (true, false) => Ok(false),
            (false, true) => Err(Refusal::NotExternal { key: self.key.clone() }), // X3
            (false, false) => Ok(*self.first_kind() == started.kind && same_input()),
        }
    }

    /// Returns the kind that the run was started as, before any handoff.
    pub fn first_kind(&self) -> &Name {
        self.first_kind.as_ref().unwrap_or(&self.kind)
    }

    /// Returns true if the run may be deleted: it is closed, or it is external and its engine cannot be queried.
    pub fn may_be_deleted(&self) -> bool {
        self.status.is_closed() || self.external.is_some()
    }

    /// Fails if the run is external.
    pub(crate) fn check_ours(&self) -> Result<(), Refusal> {
        if self.external.is_some() { Err(Refusal::External { key: self.key.clone() }) } else { Ok(()) }
    }

    /// Fails if the event does not match the form of the run, external or not (X3).
    pub(crate) fn check_form(&self, event: &Event) -> Result<(), Refusal> {
        match (self.external.is_some(), matches!(event, Event::ExternalAppended(_))) {
            (true, false) => Err(Refusal::External { key: self.key.clone() }),
            (false, true) => Err(Refusal::NotExternal { key: self.key.clone() }),
            _ => Ok(()),
        }
    }

    /// Decides on the append of an external engine. On success the head is updated.
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

    /// Updates the head by a record of an external run (X2).
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
