//! The book: what abandoned parts of the open segment have asked for, what became of it, and who has taken it over.
//!
//! Must never decide whether a log is left: it only remembers.

use std::collections::{BTreeMap, BTreeSet};

use super::content::{Call, EffectOf, Identity, Way, answered_place, effect_of, given_up_place, place_of, subject};
use crate::engine::matching::describe;
use crate::log::event::{ApprovalDecided, CallAdopted};
use crate::{Event, Index, Place, Record, RunId};

/// How much of what a person said with a decision is told with it.
const FEEDBACK_CHARS_MAX: usize = 200;

#[derive(Default)]
pub(super) struct Book {
    calls: BTreeMap<Call, Abandoned>,
    /// What was given up and asked for once more: nobody takes it over, but it may have had an effect.
    over: Vec<Abandoned>,
    /// Who has taken over the call at an abandoned place.
    adopters: BTreeMap<Place, Place>,
    /// As whom the world knows a call that was taken over.
    origins: BTreeMap<Place, Place>,
    /// What answered abandoned calls that nobody has taken over yet.
    answers: BTreeMap<Place, Event>,
    /// Calls that an abandoned part of the log has given up.
    given_up: Vec<Place>,
    /// Tasks of which an attempt was begun.
    attempted: BTreeSet<Place>,
    /// Questions that a person has decided.
    decided: BTreeMap<Place, Decided>,
    /// Questions that the code asks on the way that it goes, and what they are about.
    asked: BTreeMap<Place, Identity>,
    /// What whoever resumed the run has accepted.
    accepted: BTreeSet<Place>,
    /// In logs that do not say what: everything that was asked for before this.
    accepted_before: Index,
}

/// How a person has decided.
struct Decided {
    approved: bool,
    words: String,
}

/// A call that an abandoned part of the log has made.
struct Abandoned {
    place: Place,
    /// In words, for people.
    what: String,
    /// A task whose attempts are recorded.
    is_task: bool,
    child: Option<RunId>,
    /// A child that goes on when the generation ends.
    is_spawned: bool,
    /// Where it was asked for.
    index: Index,
    effect: EffectOf,
    /// What a question is about.
    subject: Option<Identity>,
    adopted: bool,
    withdrawn: bool,
    /// The code that asked for it gave it up: nobody will answer it.
    is_given_up: bool,
}

impl Book {
    /// An attempt of the task at `place` was begun.
    pub fn begun(&mut self, place: &Place) {
        self.attempted.insert(place.clone());
    }

    /// A person has decided a question.
    pub fn decided(&mut self, decision: &ApprovalDecided) {
        let ApprovalDecided { place, approved, feedback, decided_by, .. } = decision;
        let how = if *approved { "was approved" } else { "was DECLINED" };
        let by = decided_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let why = feedback.as_ref().map(|why| format!(" ({})", why.chars().take(FEEDBACK_CHARS_MAX).collect::<String>()));
        let words = format!("{how}{by}{}", why.unwrap_or_default());
        self.decided.insert(place.clone(), Decided { approved: *approved, words });
    }

    /// The code asks this, if it is a question.
    pub fn asked(&mut self, event: &Event) {
        if let Some((subject, place)) = subject(event).zip(place_of(event)) {
            self.asked.insert(place.clone(), subject);
        }
    }

    /// Whoever went back has left what was decided, knowingly.
    pub fn pass_over_decisions(&mut self) {
        self.decided.clear();
    }

    /// Nobody takes over a question of an abandoned part, nor what was decided there.
    pub fn forget_decisions(&mut self) {
        let questions = self.calls.values_mut().filter(|found| found.effect == EffectOf::Decision && !found.adopted);
        questions.for_each(|found| found.withdrawn = true);
        self.decided.clear();
    }

    /// Somebody has looked at what a pause has named, and goes on without it. `index` is where the log says so.
    pub fn accept(&mut self, left: Vec<Place>, index: Index) {
        if left.is_empty() {
            self.accepted_before = index;
        }
        self.accepted.extend(left);
    }

    /// The abandoned call that the one at `place` takes over, if there is one.
    pub fn adopt(&mut self, call: Call, place: &Place) -> Option<Place> {
        let found = self.calls.get_mut(&call).filter(|found| !found.adopted && !found.withdrawn && !found.is_given_up)?;
        found.adopted = true;
        let from = found.place.clone();
        self.adopters.insert(from.clone(), place.clone());
        self.origins.insert(place.clone(), from.clone());
        Some(from)
    }

    /// The child that the call has started.
    pub fn child(&self, call: &Call) -> Option<RunId> {
        self.calls.get(call)?.child.clone()
    }

    /// Children that nobody has taken over, and whether each goes on when the generation ends.
    pub fn left_children(&self) -> impl Iterator<Item = (&RunId, bool)> {
        let left = self.calls.values().chain(&self.over).filter(|found| !found.adopted);
        left.filter_map(|found| Some((found.child.as_ref()?, found.is_spawned)))
    }

    /// As whom the world knows the call at `place`.
    pub fn origin<'a>(&'a self, place: &'a Place) -> &'a Place {
        self.origins.get(place).unwrap_or(place)
    }

    /// Tasks that nobody has begun, and nobody has taken over.
    pub fn unbegun(&self) -> Vec<Place> {
        let is_unbegun = |found: &&Abandoned| !found.adopted && !found.withdrawn && !self.attempted.contains(&found.place);
        let tasks = self.calls.values().filter(|found| found.is_task).filter(is_unbegun);
        tasks.filter(|found| !self.answers.contains_key(&found.place)).map(|found| found.place.clone()).collect()
    }

    pub fn withdraw(&mut self, places: &[Place]) {
        self.calls.values_mut().filter(|found| places.contains(&found.place)).for_each(|found| found.withdrawn = true);
    }

    /// What has had an effect, and is neither taken over nor accepted (SG3), in words. A decision is not dropped where the code has asked about
    /// the same once more, and was told the same.
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
                            told.swap_remove(again); // one for each
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

    /// The calls that were given up in what was written here last.
    pub fn take_given_up(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.given_up)
    }

    /// The event as an answer to whoever took the call over; kept if nobody has yet.
    pub fn readdress(&mut self, mut event: Event) -> Option<Event> {
        // The result of a step stands in the commit of whoever ran it: what is delivered is never an abandoned one.
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

    /// Whether the call at the abandoned place is answered, and nobody has got the answer.
    pub fn is_answered(&self, from: &Place) -> bool {
        self.answers.contains_key(from)
    }

    /// The takeover is durable: what was there already, as an answer to who took it over.
    pub fn take_answer(&mut self, adopted: &CallAdopted) -> Option<Event> {
        let mut event = self.answers.remove(&adopted.from)?;
        *answered_place(&mut event)? = adopted.place.clone();
        Some(event)
    }

    /// Writes the abandoned records into the book. Each of their ways is followed from where it left the one before.
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
            // It was taken over and is left again.
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
        // Of a task without a class nobody records the attempts: it may have begun.
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
