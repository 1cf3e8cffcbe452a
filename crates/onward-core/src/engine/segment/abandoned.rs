//! Abandoned calls of the open segment, their results, and the calls that have taken them over.
//!
//! Must never decide whether a part of the log is abandoned.

use std::collections::{BTreeMap, BTreeSet};

use super::content::{EffectOf, Identity, LivePath, NumberedCall, answered_call_id, call_id_of, effect_of, subject};
use crate::engine::matching::describe;
use crate::log::event::{ApprovalDecided, CallAdopted};
use crate::{CallId, Event, Hash, Index, Record, RunId};

/// The maximum number of characters of a decision's feedback in a message.
const FEEDBACK_CHARS_MAX: usize = 200;

#[derive(Default)]
pub(in crate::engine) struct AbandonedCalls {
    calls: BTreeMap<NumberedCall, Abandoned>,
    /// Canceled calls that were made again: no call takes them over, but they may have had an effect.
    over: Vec<Abandoned>,
    /// The call that has taken over each abandoned one.
    adopters: BTreeMap<CallId, CallId>,
    /// The abandoned call for each call that has taken one over.
    origins: BTreeMap<CallId, CallId>,
    /// Answers to abandoned calls that were not taken over yet.
    answers: BTreeMap<CallId, Event>,
    /// Calls that were canceled in an abandoned part of the log.
    given_up: Vec<CallId>,
    /// Tasks with a recorded attempt.
    attempted: BTreeSet<CallId>,
    /// Decided approvals.
    decided: BTreeMap<CallId, Decided>,
    /// Approvals on the current path, and their subjects.
    requested: BTreeMap<CallId, Identity>,
    /// Abandoned calls that a resume has accepted.
    accepted: BTreeSet<CallId>,
}

/// Whether it was approved, and the hash of the structured answer.
type Verdict = (bool, Option<Hash>);

/// The decision of a person.
struct Decided {
    verdict: Verdict,
    words: String,
}

/// A call in an abandoned part of the log.
struct Abandoned {
    call_id: CallId,
    /// A description for people.
    what: String,
    /// A task whose attempts are recorded.
    is_task: bool,
    child: Option<RunId>,
    /// The child outlives the generation.
    is_spawned: bool,
    effect: EffectOf,
    /// The subject of an approval.
    subject: Option<Identity>,
    adopted: bool,
    withdrawn: bool,
    /// The code that made it has canceled it: it will not be answered.
    is_given_up: bool,
}

impl AbandonedCalls {
    /// Records that an attempt of the task at `call_id` has begun.
    pub fn begun(&mut self, call_id: &CallId) {
        self.attempted.insert(call_id.clone());
    }

    /// Records the decision of a person.
    pub fn decided(&mut self, decision: &ApprovalDecided) {
        let ApprovalDecided { call_id, approved, feedback, decided_by, answer, .. } = decision;
        let verdict = (*approved, answer.as_ref().map(Hash::of));
        let how = if *approved { "was approved" } else { "was DECLINED" };
        let by = decided_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let why = feedback.as_ref().map(|why| format!(" ({})", why.chars().take(FEEDBACK_CHARS_MAX).collect::<String>()));
        let words = format!("{how}{by}{}", why.unwrap_or_default());
        self.decided.insert(call_id.clone(), Decided { verdict, words });
    }

    /// Records the event if it is an approval request.
    pub fn note_request(&mut self, event: &Event) {
        if let Some((subject, call_id)) = subject(event).zip(call_id_of(event)) {
            self.requested.insert(call_id.clone(), subject);
        }
    }

    /// Accepts all abandoned decisions: a branch was requested.
    pub fn pass_over_decisions(&mut self) {
        self.decided.clear();
    }

    /// Excludes abandoned approvals and their decisions from takeover, because the log continues from a copy (Z8).
    pub fn forget_decisions(&mut self) {
        let questions = self.calls.values_mut().filter(|found| found.effect == EffectOf::Decision && !found.adopted);
        questions.for_each(|found| found.withdrawn = true);
        self.decided.clear();
    }

    /// Accepts the calls that a pause has listed.
    pub fn accept(&mut self, call_ids: Vec<CallId>) {
        self.accepted.extend(call_ids);
    }

    /// Takes over the abandoned call that matches the one at `call_id`, if there is one; returns its call id.
    pub fn adopt(&mut self, call: NumberedCall, call_id: &CallId) -> Option<CallId> {
        let found = self.calls.get_mut(&call).filter(|found| !found.adopted && !found.withdrawn && !found.is_given_up)?;
        found.adopted = true;
        let from = found.call_id.clone();
        self.adopters.insert(from.clone(), call_id.clone());
        self.origins.insert(call_id.clone(), from.clone());
        Some(from)
    }

    /// Returns the child that the call has started.
    pub fn child(&self, call: &NumberedCall) -> Option<RunId> {
        self.calls.get(call)?.child.clone()
    }

    /// Iterates over the children that were not taken over; true if a child outlives the generation.
    pub fn abandoned_children(&self) -> impl Iterator<Item = (&RunId, bool)> {
        let open = self.calls.values().chain(&self.over).filter(|found| !found.adopted);
        open.filter_map(|found| Some((found.child.as_ref()?, found.is_spawned)))
    }

    /// Returns the call id under which stores and callers know the call at `call_id`.
    pub fn origin<'a>(&'a self, call_id: &'a CallId) -> &'a CallId {
        self.origins.get(call_id).unwrap_or(call_id)
    }

    /// Returns the tasks that were neither begun nor taken over.
    pub fn unbegun(&self) -> Vec<CallId> {
        let is_unbegun = |found: &&Abandoned| !found.adopted && !found.withdrawn && !self.attempted.contains(&found.call_id);
        let tasks = self.calls.values().filter(|found| found.is_task).filter(is_unbegun);
        tasks.filter(|found| !self.answers.contains_key(&found.call_id)).map(|found| found.call_id.clone()).collect()
    }

    pub fn withdraw(&mut self, call_ids: &[CallId]) {
        self.calls.values_mut().filter(|found| call_ids.contains(&found.call_id)).for_each(|found| found.withdrawn = true);
    }

    /// Returns the calls that had an effect and are neither taken over nor accepted (SG3), with a description. A decision is not
    /// among them if the code has requested the same approval again and got the same decision.
    pub fn unmatched_effects(&self) -> Vec<(CallId, String)> {
        let decisions =
            self.requested.iter().filter_map(|(call_id, subject)| Some((*subject, self.decided.get(call_id)?.verdict)));
        let mut decisions: Vec<(Identity, Verdict)> = decisions.collect();
        let mut effect = |found: &Abandoned| {
            let may_have = || Some("may have had an effect".to_owned());
            match found.effect {
                EffectOf::Never => None,
                EffectOf::Always => may_have(),
                EffectOf::Decision => {
                    let decided = self.decided.get(&found.call_id)?;
                    let again = found
                        .subject
                        .and_then(|subject| decisions.iter().position(|decision| *decision == (subject, decided.verdict)));
                    match again {
                        Some(again) => {
                            decisions.swap_remove(again); // each matches once
                            None
                        }
                        None => Some(decided.words.clone()),
                    }
                }
                EffectOf::Attempt if self.attempted.contains(&found.call_id) => may_have(),
                EffectOf::Attempt => self.answers.contains_key(&found.call_id).then(may_have).flatten(),
            }
        };
        let is_loose = |found: &&Abandoned| !found.adopted && !found.withdrawn && !self.accepted.contains(&found.call_id);
        let unmatched = self.calls.values().chain(&self.over).filter(is_loose);
        unmatched.filter_map(|found| Some((found.call_id.clone(), format!("{}, which {}", found.what, effect(found)?)))).collect()
    }

    /// Takes the calls that were canceled in the records added last.
    pub fn take_given_up(&mut self) -> Vec<CallId> {
        std::mem::take(&mut self.given_up)
    }

    /// Returns the event as an answer to the call that took its call over; stores it if there is none yet.
    pub fn readdress(&mut self, mut event: Event) -> Option<Event> {
        // A step result is in the commit of the worker that ran it: a delivered one is never abandoned.
        if event.is_step_result() || self.calls.is_empty() {
            return Some(event);
        }
        let Some(call_id) = answered_call_id(&mut event) else { return Some(event) };
        if let Some(adopter) = self.adopters.get(call_id) {
            *call_id = adopter.clone();
            return Some(event);
        }
        if self.calls.values().any(|found| found.call_id == *call_id) {
            let call_id = call_id.clone();
            self.answers.insert(call_id, event);
            return None;
        }
        Some(event)
    }

    /// Returns true if the abandoned call has an answer that was not delivered.
    pub fn is_answered(&self, from: &CallId) -> bool {
        self.answers.contains_key(from)
    }

    /// Returns the stored answer for a call whose takeover is durable now.
    pub fn take_answer(&mut self, adopted: &CallAdopted) -> Option<Event> {
        let mut event = self.answers.remove(&adopted.from)?;
        *answered_call_id(&mut event)? = adopted.call_id.clone();
        Some(event)
    }

    /// Adds the calls of abandoned records. Each path is followed from where it diverged from the one before.
    pub(super) fn fill<'a>(&mut self, mut live_path: LivePath, records: impl Iterator<Item = &'a Record>) {
        let mut way_at: BTreeMap<Index, LivePath> = BTreeMap::new();
        self.requested.clear();
        for record in records {
            if let Some(Event::SegmentAbandoned(marker)) = record.events.first() {
                live_path = way_at.get(&marker.from).cloned().unwrap_or(live_path);
                self.withdraw(&marker.withdrawn);
            }
            way_at.insert(record.index, live_path.clone());
            for event in &record.events {
                self.enter(event, &mut live_path);
            }
        }
    }

    fn enter(&mut self, event: &Event, live_path: &mut LivePath) {
        if let Event::CallAdopted(event) = event {
            // It was taken over and is abandoned again.
            if let Some((key, found)) = self.calls.iter_mut().find(|(_, found)| found.call_id == event.from) {
                found.adopted = false;
                live_path.count(key.0);
            }
            return;
        }
        if let Some(call_id) = event.canceled_call() {
            self.given_up.push(call_id.clone());
            self.calls.values_mut().filter(|found| found.call_id == *call_id).for_each(|found| found.is_given_up = true);
        }
        let Some(call) = live_path.pass(event) else { return };
        let Some(call_id) = call_id_of(event) else { return };
        if event.is_step_result() {
            self.answers.insert(call_id.clone(), event.clone());
        }
        let (child, is_spawned) = match event {
            Event::ChildStarted(event) => (Some(event.child.clone()), event.is_spawned),
            _ => (None, false),
        };
        let found = Abandoned {
            call_id: call_id.clone(),
            what: describe(event),
            // Attempts of a task without a class are not recorded: it may have begun.
            is_task: matches!(event, Event::TaskScheduled(task) if task.options.class.is_some()),
            child,
            is_spawned,
            effect: effect_of(event),
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
