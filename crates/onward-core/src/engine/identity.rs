//! Under which names the code asks: its own, or in a copied log those of then (see [`crate::run::ancestry`]).

use std::collections::BTreeMap;

use super::call::{Call, What};
use super::{Advance, Engine, Fault};
use crate::log::event::RunStarted;
use crate::run::ancestry::{Identity, Lineage};
use crate::{Branch, Event, Index, Name, Payload, Place, RunKey};

/// How many calls each line had made.
struct Mark {
    main_line: u32,
    arms: BTreeMap<Branch, u32>,
}

impl Mark {
    /// Whether the call at `place` had been made by then. An arm that was over by then counts with its combinator.
    fn covers(&self, place: &Place) -> bool {
        if place.branch().is_main() {
            return place.ordinal() < self.main_line;
        }
        match self.arms.get(place.branch()) {
            Some(made) => place.ordinal() < *made,
            None => place.combinator().is_none_or(|combinator| self.covers(&combinator)),
        }
    }
}

pub(super) struct Identities {
    lineage: Lineage,
    now: usize,
    /// Where each identity but the present one ended.
    marks: Vec<Mark>,
}

impl Identities {
    pub fn new(key: &RunKey) -> Identities {
        let nothing = RunStarted::new(Name::new("unknown").expect("a constant name"), Payload::null(), 0);
        Identities { lineage: Lineage::new(key, &nothing), now: 0, marks: Vec::new() }
    }

    pub fn is_set_aside(&self, index: Index) -> bool {
        self.lineage.is_set_aside(index)
    }
}

impl Engine {
    pub(super) fn begin_identity(&mut self, started: &RunStarted) {
        self.identities = Identities { lineage: Lineage::new(&self.key, started), now: 0, marks: Vec::new() };
        self.pass_identity();
    }

    /// The next commit may be made under another identity (J2).
    pub(super) fn pass_identity(&mut self) {
        let next = self.identities.lineage.at_commit(self.next_commit);
        while self.identities.now < next {
            let mark = Mark { main_line: self.main_line, arms: self.arms.clone() };
            self.identities.marks.push(mark);
            self.identities.now += 1;
        }
    }

    fn identity(&self) -> &Identity {
        self.identities.lineage.identity(self.identities.now)
    }

    /// The run's key as the code knows it now.
    pub fn key(&self) -> &RunKey {
        &self.identity().run
    }

    pub fn generation(&self) -> u32 {
        self.identity().generation
    }

    /// Where `uuid` and `random` derive from now.
    pub fn seed(&self) -> u64 {
        self.identity().seed
    }

    /// Under which names the call at `place` is known to the world.
    pub fn known_as(&self, place: &Place) -> &Identity {
        let Identities { lineage, now, marks } = &self.identities;
        let opened = marks.iter().position(|mark| mark.covers(place)).unwrap_or(*now);
        lineage.known_as(opened, *now)
    }

    /// The id by which the question at `place` is answered from outside.
    pub fn call_id(&self, place: &Place) -> String {
        let place = &self.origin_of(place);
        let Identity { run, generation, .. } = self.known_as(place);
        format!("{}~{generation}~{place}", run.id)
    }

    /// A failure that no longer counts: what failed is done again, from its first attempt.
    pub(super) fn set_aside(&mut self, index: Index, event: Event) -> Result<Option<Advance>, Fault> {
        if let Event::StepFailed(event) = event {
            let asked = super::call::StepIdentity { name: event.name, input_hash: event.input_hash };
            self.match_step(index, &event.place, &asked)?;
            if let Some(Call { what: What::Step { attempt, .. }, .. }) = self.calls.get_mut(&event.place) {
                *attempt = 1;
            }
        }
        Ok(None)
    }
}
