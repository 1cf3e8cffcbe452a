//! The identity under which the code makes calls: its own or, in a copied log, the original one (see [`crate::run::ancestry`]).

use std::collections::BTreeMap;

use super::call::{Call, CallDetails};
use super::{Advance, Engine, Fault};
use crate::log::event::RunStarted;
use crate::run::ancestry::{Ancestry, Identity};
use crate::{Branch, CallId, Event, Index, RunKey};

/// The number of calls of each branch at a point.
struct CallCounts {
    main_line: u32,
    arms: BTreeMap<Branch, u32>,
}

impl CallCounts {
    /// Returns true if the call at `call_id` had been made by then. An arm that had ended counts with its combinator.
    fn covers(&self, call_id: &CallId) -> bool {
        if call_id.branch().is_main() {
            return call_id.ordinal() < self.main_line;
        }
        match self.arms.get(call_id.branch()) {
            Some(made) => call_id.ordinal() < *made,
            None => call_id.combinator().is_none_or(|combinator| self.covers(&combinator)),
        }
    }
}

pub(super) struct Identities {
    ancestry: Ancestry,
    now: usize,
    /// The ends of all identities before the current one.
    marks: Vec<CallCounts>,
}

impl Identities {
    pub fn new(key: &RunKey) -> Identities {
        Identities { ancestry: Ancestry::alone(key), now: 0, marks: Vec::new() }
    }

    pub fn is_set_aside(&self, index: Index) -> bool {
        self.ancestry.is_set_aside(index)
    }
}

impl Engine {
    pub(super) fn begin_identity(&mut self, started: &RunStarted) {
        self.identities = Identities { ancestry: Ancestry::new(&self.key, started), now: 0, marks: Vec::new() };
        self.pass_identity();
    }

    /// Switches to the identity of the next commit (J2).
    pub(super) fn pass_identity(&mut self) {
        let next = self.identities.ancestry.at_commit(self.next_commit);
        while self.identities.now < next {
            let mark = CallCounts { main_line: self.main_line, arms: self.arms.clone() };
            self.identities.marks.push(mark);
            self.identities.now += 1;
        }
    }

    fn identity(&self) -> &Identity {
        self.identities.ancestry.identity(self.identities.now)
    }

    /// Returns the run's key under the current identity.
    pub fn key(&self) -> &RunKey {
        &self.identity().run
    }

    pub fn generation(&self) -> u32 {
        self.identity().generation
    }

    /// Returns the seed of `uuid` and `random` under the current identity.
    pub fn seed(&self) -> u64 {
        self.identity().seed
    }

    /// Returns the identity under which stores and callers know the call at `call_id`.
    pub fn known_as(&self, call_id: &CallId) -> &Identity {
        let Identities { ancestry, now, marks } = &self.identities;
        let opened = marks.iter().position(|mark| mark.covers(call_id)).unwrap_or(*now);
        ancestry.known_as(opened, *now)
    }

    /// Returns the id by which callers answer the call at `call_id`.
    pub fn call_id(&self, call_id: &CallId) -> String {
        let call_id = &self.origin_of(call_id);
        let Identity { run, generation, .. } = self.known_as(call_id);
        format!("{}~{generation}~{call_id}", run.id)
    }

    /// Ignores a failure that was set aside: the failed call is executed again, from its first attempt.
    pub(super) fn set_aside(&mut self, index: Index, event: Event) -> Result<Option<Advance>, Fault> {
        if let Event::StepFailed(event) = event {
            let identity = super::call::StepIdentity { name: event.name, input_hash: event.input_hash };
            self.match_step(index, &event.call_id, &identity)?;
            if let Some(Call { what: CallDetails::Step { attempt, .. }, .. }) = self.calls.get_mut(&event.call_id) {
                *attempt = 1;
            }
        }
        Ok(None)
    }
}
