//! Abandoned calls of the open segment, their results, and the calls that have taken them over.
//!
//! Must never decide whether a part of the log is abandoned.

use std::collections::{BTreeMap, BTreeSet};

use super::content::{Call, EffectOf, Identity, Way, answered_place, effect_of, given_up_place, place_of, subject};
use crate::engine::matching::describe;
use crate::log::event::{ApprovalDecided, CallAdopted};
use crate::{Event, Index, Place, Record, RunId};

/// The maximum number of characters of a decision's feedback in a message.
const FEEDBACK_CHARS_MAX: usize = 200;

#[derive(Default)]
pub(super) struct Book {
    calls: BTreeMap<Call, Abandoned>,
    /// Canceled calls that were made again: no call takes them over, but they may have had an effect.
    over: Vec<Abandoned>,
    /// The call that has taken over each abandoned one.
    adopters: BTreeMap<Place, Place>,
    /// The abandoned call for each call that has taken one over.
    origins: BTreeMap<Place, Place>,
    /// Answers to abandoned calls that were not taken over yet.
    answers: BTreeMap<Place, Event>,
    /// Calls that were canceled in an abandoned part of the log.
    given_up: Vec<Place>,
    /// Tasks with a recorded attempt.
    attempted: BTreeSet<Place>,
    /// Decided approvals.
    decided: BTreeMap<Place, Decided>,
    /// Approvals on the current path, and their subjects.
    asked: BTreeMap<Place, Identity>,
    /// Abandoned calls that a resume has accepted.
    accepted: BTreeSet<Place>,
    /// For older logs without a list: calls before this event are accepted.
    accepted_before: Index,
}

/// The decision of a person.
struct Decided {
    approved: bool,
    words: String,
}

/// A call in an abandoned part of the log.
struct Abandoned {
    place: Place,
    /// A description for people.
    what: String,
    /// A task whose attempts are recorded.
    is_task: bool,
    child: Option<RunId>,
    /// The child outlives the generation.
    is_spawned: bool,
    /// The index of the call.
    index: Index,
    effect: EffectOf,
    /// The subject of an approval.
    subject: Option<Identity>,
    adopted: bool,
    withdrawn: bool,
    /// The code that made it has canceled it: it will not be answered.
    is_given_up: bool,
}

impl Book {
    /// Records that an attempt of the task at `place` has begun.
    pub fn begun(&mut self, place: &Place) {
        self.attempted.insert(place.clone());
    }

    /// Records the decision of a person.
    pub fn decided(&mut self, decision: &ApprovalDecided) {
        let ApprovalDecided { place, approved, feedback, decided_by, .. } = decision;
        let how = if *approved { "was approved" } else { "was DECLINED" };
        let by = decided_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let why = feedback.as_ref().map(|why| format!(" ({})", why.chars().take(FEEDBACK_CHARS_MAX).collect::<String>()));
        let words = format!("{how}{by}{}", why.unwrap_or_default());
        self.decided.insert(place.clone(), Decided { approved: *approved, words });
    }

    /// Records the event if it is an approval request.
    pub fn asked(&mut self, event: &Event) {
        if let Some((subject, place)) = subject(event).zip(place_of(event)) {
            self.asked.insert(place.clone(), subject);
        }
    }

    /// Accepts all abandoned decisions: a branch was requested.
    pub fn pass_over_decisions(&mut self) {
        self.decided.clear();
    }

    /// Excludes abandoned approvals and their decisions from takeover.
    pub fn forget_decisions(&mut self) {
        let questions = self.calls.values_mut().filter(|found| found.effect == EffectOf::Decision && !found.adopted);
        questions.for_each(|found| found.withdrawn = true);
        self.decided.clear();
    }

    /// Accepts the calls that a pause has listed. `index` is that of the resume.
    pub fn accept(&mut self, left: Vec<Place>, index: Index) {
        if left.is_empty() {
            self.accepted_before = index;
        }
        self.accepted.extend(left);
    }

    /// Takes over the abandoned call that matches the one at `place`, if there is one; returns its call id.
    pub fn adopt(&mut self, call: Call, place: &Place) -> Option<Place> {
        let found = self.calls.get_mut(&call).filter(|found| !found.adopted && !found.withdrawn && !found.is_given_up)?;
        found.adopted = true;
        let from = found.place.clone();
        self.adopters.insert(from.clone(), place.clone());
        self.origins.insert(place.clone(), from.clone());
        Some(from)
    }

    /// Returns the child that the call has started.
    pub fn child(&self, call: &Call) -> Option<RunId> {
        self.calls.get(call)?.child.clone()
    }

    /// Iterates over the children that were not taken over; true if a child outlives the generation.
    pub fn left_children(&self) -> impl Iterator<Item = (&RunId, bool)> {
        let left = self.calls.values().chain(&self.over).filter(|found| !found.adopted);
        left.filter_map(|found| Some((found.child.as_ref()?, found.is_spawned)))
    }

    /// Returns the call id under which stores and callers know the call at `place`.
    pub fn origin<'a>(&'a self, place: &'a Place) -> &'a Place {
        self.origins.get(place).unwrap_or(place)
    }

    /// Returns the tasks that were neither begun nor taken over.
    pub fn unbegun(&self) -> Vec<Place> {
        let is_unbegun = |found: &&Abandoned| !found.adopted && !found.withdrawn && !self.attempted.contains(&found.place);
        let tasks = self.calls.values().filter(|found| found.is_task).filter(is_unbegun);
        tasks.filter(|found| !self.answers.contains_key(&found.place)).map(|found| found.place.clone()).collect()
    }

    pub fn withdraw(&mut self, places: &[Place]) {
        self.calls.values_mut().filter(|found| places.contains(&found.place)).for_each(|found| found.withdrawn = true);
    }

    /// Returns the calls that had an effect and are neither taken over nor accepted (SG3), with a description. A decision is not
    /// among them if the code has requested the same approval again and got the same decision.
    pub fn loose_effects(&self) -> Vec<(Place, String)> {
        let told = self.asked.iter().filter_map(|(place, subject)| Some((*subject, self.decided.get(place)?.approved)));
        let mut told: Vec<(Identity, bool)> = told.collect();
        let mut effect = |found: &Abandoned| {
            let may_have = || Some("may have had an effect".to_owned());
            match found.effect {
                EffectOf::Never => None,
                EffectOf::Always => may_have(),
                EffectOf::Decision => {
                    let decided = self.decided.get(&found.place)?;
                    let again =
                        found.subject.and_then(|subject| told.iter().position(|told| *told == (subject, decided.approved)));
                    match again {
                        Some(again) => {
                            told.swap_remove(again); // each matches once
                            None
                        }
                        None => Some(decided.words.clone()),
                    }
                }
                EffectOf::Attempt if self.attempted.contains(&found.place) => may_have(),
                EffectOf::Attempt => self.answers.contains_key(&found.place).then(may_have).flatten(),
            }
        };
        let is_accepted = |found: &Abandoned| found.index < self.accepted_before || self.accepted.contains(&found.place);
        let is_loose = |found: &&Abandoned| !found.adopted && !found.withdrawn && !is_accepted(found);
        let loose = self.calls.values().chain(&self.over).filter(is_loose);
        loose.filter_map(|found| Some((found.place.clone(), format!("{}, which {}", found.what, effect(found)?)))).collect()
    }

    /// Takes the calls that were canceled in the records added last.
    pub fn take_given_up(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.given_up)
    }

    /// Returns the event as an answer to the call that took its call over; stores it if there is none yet.
    pub fn readdress(&mut self, mut event: Event) -> Option<Event> {
        // A step result is in the commit of the worker that ran it: a delivered one is never abandoned.
        if event.is_step_result() || self.calls.is_empty() {
            return Some(event);
        }
        let Some(place) = answered_place(&mut event) else { return Some(event) };
        if let Some(adopter) = self.adopters.get(place) {
            *place = adopter.clone();
            return Some(event);
        }
        if self.calls.values().any(|found| found.place == *place) {
            let place = place.clone();
            self.answers.insert(place, event);
            return None;
        }
        Some(event)
    }

    /// Returns true if the abandoned call has an answer that was not delivered.
    pub fn is_answered(&self, from: &Place) -> bool {
        self.answers.contains_key(from)
    }

    /// Returns the stored answer for a call whose takeover is durable now.
    pub fn take_answer(&mut self, adopted: &CallAdopted) -> Option<Event> {
        let mut event = self.answers.remove(&adopted.from)?;
        *answered_place(&mut event)? = adopted.place.clone();
        Some(event)
    }

    /// Adds the calls of abandoned records. Each path is followed from where it diverged from the one before.
    pub fn fill<'a>(&mut self, mut way: Way, records: impl Iterator<Item = &'a Record>) {
        let mut way_at: BTreeMap<Index, Way> = BTreeMap::new();
        self.asked.clear();
        for record in records {
            if let Some(Event::SegmentAbandoned(marker)) = record.events.first() {
                way = way_at.get(&marker.from).cloned().unwrap_or(way);
                self.withdraw(&marker.withdrawn);
            }
            way_at.insert(record.index, way.clone());
            for event in &record.events {
                self.enter(record.index, event, &mut way);
            }
        }
    }

    fn enter(&mut self, index: Index, event: &Event, way: &mut Way) {
        if let Event::CallAdopted(event) = event {
            // It was taken over and is abandoned again.
            if let Some((key, found)) = self.calls.iter_mut().find(|(_, found)| found.place == event.from) {
                found.adopted = false;
                way.count(key.0);
            }
            return;
        }
        if let Some(place) = given_up_place(event) {
            self.given_up.push(place.clone());
            self.calls.values_mut().filter(|found| found.place == *place).for_each(|found| found.is_given_up = true);
        }
        let Some(call) = way.pass(event) else { return };
        let Some(place) = place_of(event) else { return };
        if event.is_step_result() {
            self.answers.insert(place.clone(), event.clone());
        }
        let what = describe(event);
        // Attempts of a task without a class are not recorded: it may have begun.
        let is_task = matches!(event, Event::TaskScheduled(task) if task.options.class.is_some());
        let effect = effect_of(event);
        let child = match event {
            Event::ChildStarted(event) => Some(event.child.clone()),
            _ => None,
        };
        let found = Abandoned {
            place: place.clone(),
            what,
            is_task,
            child,
            is_spawned: matches!(event, Event::ChildStarted(event) if event.is_spawned),
            index,
            effect,
            subject: subject(event),
            adopted: false,
            withdrawn: false,
            is_given_up: false,
        };
        match self.calls.get(&call) {
            Some(known) if !known.withdrawn && !known.is_given_up => {}
            _ => self.over.extend(self.calls.insert(call, found).filter(|known| known.is_given_up)),
        }
    }
}
