//! Admission of inputs to cells.
//!
//! Must never accept anything but the four inputs of cells.

use crate::log::event::{MemoAsked, MemoReturned, MemoSettled, RunCanceled, RunCompleted};
use crate::run::memo::{MemoCaller, MemoCell, MemoScope, PROMISE_KEY_MS};
use crate::run::{Admitted, Effect, Input, OutboxMessage, Refusal, RunHead, Status};
use crate::{Event, Failure, Payload, Record, Timestamp, message};

/// The maximum number of calls that wait for one computation; further calls compute for themselves.
pub const WAITERS_MAX: usize = 500;

message! {
    /// The part of a run's head that only cells have.
    #[derive(Eq)]
    pub struct CellHead {
        1 => memo: MemoCell,
        /// The call that computes the value (MM1).
        2 => owner: Option<MemoCaller>,
        /// The calls that wait, in the order of their requests.
        3 => waiters: Vec<Waiter>,
        /// The memo was invalidated since the owner got it: its value is not used.
        4 => is_stale: bool,
        /// Set once the cell is closed with a value.
        5 => value: Option<CellValue>,
    }

    #[derive(Eq)]
    pub struct Waiter { 1 => by: MemoCaller, 2 => ttl_ms: u64 }

    /// The origin of a cell's value; the value itself is the output of the cell.
    #[derive(Eq)]
    pub struct CellValue { 1 => from: MemoCaller, 2 => ttl_ms: u64, 3 => computed_at: Timestamp }
}

/// A consequence of an input to a cell.
enum Answer {
    /// The call is the owner now.
    Grant(MemoCaller),
    /// The call computes for itself.
    Alone(MemoCaller),
    /// The key belongs to another promise (PK1).
    Taken(MemoCaller),
    /// There is a value: these calls ask again and find it.
    Value(Vec<Waiter>),
    /// No call is left.
    Empty,
}

impl CellHead {
    pub(crate) fn new(memo: MemoCell) -> CellHead {
        CellHead { memo, owner: None, waiters: Vec::new(), is_stale: false, value: None }
    }

    /// Makes the next waiting call the owner (MM2).
    fn pass_on(&mut self) -> Answer {
        self.is_stale = false;
        if self.waiters.is_empty() {
            self.owner = None;
            return Answer::Empty;
        }
        let next = self.waiters.remove(0).by;
        self.owner = Some(next.clone());
        Answer::Grant(next)
    }

    fn ask(&mut self, by: &MemoCaller, ttl_ms: u64) -> Option<Answer> {
        if self.owner.is_none() {
            self.owner = Some(by.clone());
            return Some(Answer::Grant(by.clone()));
        }
        if self.memo.scope == MemoScope::Promise {
            return Some(Answer::Taken(by.clone()));
        }
        if self.waiters.len() >= WAITERS_MAX {
            return Some(Answer::Alone(by.clone()));
        }
        self.waiters.push(Waiter { by: by.clone(), ttl_ms });
        None
    }

    fn settle(&mut self, settled: &MemoSettled) -> Answer {
        if self.is_stale {
            return self.pass_on(); // MM4
        }
        self.close(&settled.by, settled.ttl_ms, settled.computed_at)
    }

    /// Closes the cell with the value of a call.
    fn close(&mut self, by: &MemoCaller, ttl_ms: u64, computed_at: Timestamp) -> Answer {
        self.owner = None;
        self.value = Some(CellValue { from: by.clone(), ttl_ms, computed_at });
        Answer::Value(std::mem::take(&mut self.waiters))
    }

    fn take_back(&mut self, by: &MemoCaller, at: Timestamp) -> Option<Answer> {
        if self.owner.as_ref() == Some(by) {
            if self.memo.scope == MemoScope::Promise {
                return Some(self.close(by, PROMISE_KEY_MS, at)); // PK2: it ended before it learned that it has the key
            }
            return Some(self.pass_on());
        }
        self.waiters.retain(|waiter| waiter.by != *by);
        None
    }

    /// Updates the cell by an input.
    fn take(&mut self, event: &Event, at: Timestamp) -> Option<Answer> {
        match event {
            Event::MemoAsked(MemoAsked { by, ttl_ms, .. }) => self.ask(by, *ttl_ms),
            Event::MemoSettled(event) => Some(self.settle(event)),
            Event::MemoReturned(MemoReturned { by }) => self.take_back(by, at),
            Event::MemoInvalidated(_) => {
                self.is_stale = true;
                None
            }
            _ => None,
        }
    }

    fn knows(&self, by: &MemoCaller) -> bool {
        self.owner.as_ref() == Some(by) || self.waiters.iter().any(|waiter| waiter.by == *by)
    }

    /// Returns the reason if the cell does not accept the input (MM1, MM3).
    fn refuses(&self, event: &Event) -> Option<&'static str> {
        match event {
            Event::MemoAsked(event) if event.cell != self.memo => Some("it requests another memo"),
            Event::MemoAsked(event) if self.knows(&event.by) => Some("the call has requested it already"),
            Event::MemoSettled(event) if self.owner.as_ref() != Some(&event.by) => Some("the call does not own the memo"),
            Event::MemoReturned(event) if !self.knows(&event.by) => Some("the call neither owns the memo nor waits for it"),
            Event::MemoAsked(_) | Event::MemoSettled(_) | Event::MemoReturned(_) | Event::MemoInvalidated(_) => None,
            _ => Some("a memo does not accept it"),
        }
    }
}

/// Returns true for the inputs that only cells accept.
pub(in crate::run) fn is_cell_input(event: &Event) -> bool {
    matches!(event, Event::MemoAsked(_) | Event::MemoSettled(_) | Event::MemoReturned(_) | Event::MemoInvalidated(_))
}

impl RunHead {
    /// Decides on an input to a cell. On success the head is updated.
    pub(in crate::run) fn admit_to_cell(&mut self, input: Input, at: Timestamp) -> Result<Admitted, Refusal> {
        let Input { mut event, incarnation, .. } = input;
        let key = || self.key.clone();
        let Some(cell) = &self.cell else {
            return Err(Refusal::Malformed { key: key(), why: "the run is not a memo" });
        };
        if self.status.is_closed() {
            return Err(Refusal::Closed { key: key(), status: self.status }); // R4
        }
        if incarnation.is_some_and(|incarnation| Some(incarnation) != self.incarnation) {
            return Err(Refusal::OtherGeneration { key: key() }); // R10
        }
        if let Some(why) = cell.refuses(&event) {
            return Err(Refusal::Malformed { key: key(), why });
        }
        let output = match &mut event {
            Event::MemoSettled(settled) => settled.output.take(),
            _ => None,
        };
        let mut after = cell.clone();
        let answer = after.take(&event, at);
        let mut events = vec![event];
        match &answer {
            Some(Answer::Value(_)) => {
                events.push(RunCompleted { output: output.unwrap_or_else(Payload::null), attempts: None }.into())
            }
            Some(Answer::Empty) => events.push(RunCanceled { failure: Failure::canceled("no call needs the memo") }.into()),
            _ => {}
        }
        let mut effects: Vec<Effect> = answer.into_iter().flat_map(|answer| self.cell_effects(answer)).collect();
        effects.extend(events.last().filter(|event| event.ends_log()).map(|_| Effect::EndRun { goes_on: false }));
        let record = Record { index: self.next_index, at, commit: None, events };
        self.take_cell_record(&record);
        debug_assert_eq!(self.cell.as_ref(), Some(&after), "L16");
        Ok(Admitted { record, effects, successor: None })
    }

    fn cell_effects(&self, answer: Answer) -> Vec<Effect> {
        let send = |message| Effect::Send(Box::new(message));
        let again = |Waiter { by, ttl_ms }| {
            let cell = self.cell.as_ref().map(|cell| cell.memo.clone()).expect("only a cell answers");
            let asked = MemoAsked { by, cell, ttl_ms, waited_for: self.incarnation };
            OutboxMessage::Input { to: self.key.clone(), input: asked.into_input() }
        };
        match answer {
            Answer::Grant(by) => vec![send(by.answer(&self.key.id, None, self.incarnation))],
            Answer::Taken(by) => {
                let key = self.cell.as_ref().map(|cell| cell.memo.key.as_str()).expect("only a cell answers");
                vec![send(by.taken(key))]
            }
            Answer::Alone(by) => vec![send(by.answer(&self.key.id, None, None))],
            Answer::Value(waiters) => waiters.into_iter().map(|waiter| send(again(waiter))).collect(),
            Answer::Empty => Vec::new(),
        }
    }

    /// Updates the head of a cell by a record that was admitted.
    pub(in crate::run) fn take_cell_record(&mut self, record: &Record) {
        for event in &record.events {
            self.cell.as_mut().and_then(|cell| cell.take(event, record.at));
            match event {
                Event::RunCompleted(_) => self.status = Status::Completed,
                Event::RunCanceled(_) => self.status = Status::Canceled,
                _ => {}
            }
        }
        self.advance(record);
    }
}
