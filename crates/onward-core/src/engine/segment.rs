//! Segments of an agent's log: what happens when its code does not repeat itself.
//!
//! The code of an agent may depend on things that nobody has recorded. Where it asks for something else than its open segment says, that
//! is no error: the recorded rest is *abandoned*, and the code goes on from there. This module owns how a log is left,
//! and with it the *book* of what an abandoned rest asked for, by content, in which later calls find what was done already. The rest itself stays in the log.
//!
//! It takes two passes. The first finds that code and log disagree at a commit ([`Fault::Departed`]) and is thrown away. The second is
//! told where to *cut*: it replays what comes before, and at the horizon of that commit it goes on live. What the code asks for from there
//! on stands at places of their own (`attempt`), so that an answer to an abandoned call is never taken for one to a new call.
//!
//! Invariants:
//! - SG1: a call is answered with what was done for a call of the same kind and content, the k-th with the k-th, and with nothing else.
//! - SG2: what an abandoned rest has scheduled and nobody has begun is taken back in the commit that leaves it; a commit that has not seen
//!   every attempt is refused (R11), so none begins behind its back.
//! - SG3: while something that has had an effect, or that a person has decided, is in the book and unclaimed, nothing else that has an
//!   effect begins, and the segment does not close: the run pauses, and whoever resumes it accepts what was named. A decision is in
//!   force, and not left, where the code has asked about the same again and was told the same. Whoever asks for a branch has left what
//!   was decided knowingly.
//! - SG4: a segment is abandoned three times at most; then the run pauses.
//! - SG5: a call that the code made before the cut, and gave up behind it, is over: what was taken back stays so, and whoever awaits it is
//!   told that it was canceled, behind everything that came before the cut.
//! - SG6: a segment has [`SEGMENT_EVENTS_MAX`] events at most; then the run pauses, and whoever resumes it gives it as many again. What
//!   has happened is recorded all the same.

mod book;
mod content;

use std::collections::BTreeSet;

use book::Book;
use content::{EffectOf, Way, effect_of, place_of, step_identity};

use super::call::{StepPhase, What};
use super::{Engine, Fault, Queued};
use crate::log::event::{CallAdopted, ChildStarted, Divergence, PauseReason, RunPaused, SegmentAbandoned};
use crate::{Event, Failure, Hash, Index, Name, Place, Record, RunId, RunKey};

/// How often a segment may be abandoned before somebody has to look at it.
pub const ABANDONMENTS_MAX: u32 = 3;

/// How many events a segment may have before somebody has to look at it: all of them are read again after every crash.
pub const SEGMENT_EVENTS_MAX: u64 = 100_000;

/// By how much the places of one attempt lie above those of the one before.
const PLACES_PER_ATTEMPT: u32 = 1 << 24;

#[derive(Default)]
pub(super) struct Segment {
    /// The code may leave what is recorded.
    is_agent: bool,
    /// What the code asks for is counted: it may leave it, or has. Nobody else pays for it.
    counts: bool,
    /// Where this pass leaves it.
    cut: Option<Cut>,
    /// How often the segment was abandoned before what the code asks for now.
    attempt: u32,
    /// The highest attempt there was, abandoned ones included.
    attempts: u32,
    /// How many abandonments count towards the limit.
    unstable: u32,
    way: Way,
    /// The places of what the code has gone past.
    passed: BTreeSet<Place>,
    book: Book,
    last_pause: Option<RunPaused>,
    /// Where its length is counted from (SG6).
    counted_from: Index,
}

/// Where a pass stops to replay and goes on live.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The first commit that is left.
    pub from: Index,
    pub divergence: Box<Divergence>,
}

impl Segment {
    /// The ordinal of the next call's place, given how many calls its line has made.
    pub fn ordinal(&self, made: u32) -> u32 {
        self.attempt.saturating_mul(PLACES_PER_ATTEMPT).saturating_add(made)
    }

    /// Takes note of what must be known before it is delivered.
    pub fn hear(&mut self, record: &Record) {
        for event in &record.events {
            match event {
                // A log that is left at its first commit is left before its start is delivered.
                Event::RunStarted(event) => self.begin(event.checkpoint.as_ref().and_then(|checkpoint| checkpoint.leaf)),
                Event::TaskAttempted(event) => self.book.begun(&event.place),
                Event::ApprovalDecided(event) => self.book.decided(event),
                Event::RunPaused(event) => self.last_pause = Some(event.clone()),
                Event::RunResumed(_) => match self.last_pause.take() {
                    Some(pause) if pause.reason == PauseReason::EffectAbandoned => self.book.accept(pause.left, record.index),
                    Some(pause) if pause.reason == PauseReason::UnstableSegment => self.unstable = 0,
                    Some(pause) if pause.reason == PauseReason::SegmentTooLong => self.counted_from = record.index,
                    _ => {}
                },
                Event::SegmentAbandoned(event) => {
                    self.counts = true;
                    self.attempts = self.attempts.max(event.attempt);
                    self.unstable += 1;
                }
                _ => {}
            }
        }
    }

    /// The event as an answer to whoever took its call over; nothing while nobody has.
    pub fn readdress(&mut self, event: Event) -> Option<Event> {
        self.book.readdress(event)
    }

    /// The takeover is durable: what answered the call before.
    pub fn take_answer(&mut self, adopted: &CallAdopted) -> Option<Event> {
        self.book.take_answer(adopted)
    }

    /// Whether the child was asked for on a way that the code has left, and nobody has taken it over.
    pub fn has_left(&self, child: &RunId) -> bool {
        self.book.left_children().any(|(left, _)| left == child)
    }

    pub fn left_children(&self) -> impl Iterator<Item = RunId> {
        self.book.left_children().map(|(child, _)| child.clone())
    }

    /// Those of them that go on when the generation ends.
    pub fn left_spawned(&self) -> Vec<RunId> {
        self.book.left_children().filter(|(_, is_spawned)| *is_spawned).map(|(child, _)| child.clone()).collect()
    }

    /// The log goes on from a copy: what was approved on ways that the code has left is no answer here (Z8).
    pub fn forget_decisions(&mut self) {
        self.book.forget_decisions();
    }

    /// The conversation that the segment begins with.
    pub fn begin(&mut self, leaf: Option<Hash>) {
        self.way.leaf = leaf;
    }
}

impl Engine {
    /// The code may leave what is recorded: it is an agent's.
    pub fn set_agent(&mut self) {
        (self.segment.is_agent, self.segment.counts) = (true, true);
    }

    pub(super) fn is_agent(&self) -> bool {
        self.segment.is_agent
    }

    /// This pass goes on live where the commit at `cut.from` was made. Call before anything is fed.
    pub fn set_cut(&mut self, cut: Cut) {
        self.segment.cut = Some(cut);
    }

    /// Code and log disagree at the commit that begins at `from`.
    pub(super) fn departed(&self, from: Index, fault: Fault) -> Fault {
        match fault {
            Fault::Diverged(report) if self.segment.is_agent && self.segment.unstable >= ABANDONMENTS_MAX => {
                Fault::Unstable(report)
            } // SG4
            Fault::Diverged(divergence) if self.segment.is_agent => Fault::Departed(Cut { from, divergence }),
            fault => fault,
        }
    }

    /// Marks what the record leaves behind, or what this pass will.
    pub(super) fn mark_abandoned(&mut self, record: &Record) -> bool {
        if let Some(Event::SegmentAbandoned(marker)) = record.events.first() {
            let is_left = |queued: &&mut Queued| queued.record.commit.is_some() && queued.record.index >= marker.from;
            self.queue.iter_mut().filter(is_left).for_each(|queued| queued.is_abandoned = true);
        }
        let is_cut = |cut: &Cut| record.commit.is_some() && record.index >= cut.from;
        self.in_flight.is_none() && self.segment.cut.as_ref().is_some_and(is_cut)
    }

    /// The horizon at which this pass leaves the log, and the number of its next commit; nothing if it does not, or has.
    pub(super) fn cut_horizon(&self) -> Option<(Index, u64)> {
        let cut = self.segment.cut.as_ref()?;
        let first = self.queue.iter().find(|queued| queued.record.index == cut.from)?;
        let last = self.queue.iter().rev().find_map(|queued| queued.record.commit)?;
        Some((first.record.commit?.horizon, last.n + 1))
    }

    /// What the code asks for from here on belongs to another attempt than the abandoned records between `from` and `to`. Where one of
    /// them has left others behind, those were in its book, and are in the next one.
    pub(super) fn switch(&mut self, mut from: Index, to: Index, attempt: u32, horizon: Index) {
        let left =
            self.queue.iter().filter(|queued| queued.is_abandoned && queued.record.index <= to).map(|queued| &queued.record);
        for record in left.clone().rev() {
            if let Some(Event::SegmentAbandoned(marker)) = record.events.first()
                && record.index >= from
            {
                from = from.min(marker.from);
            }
        }
        let records: Vec<Record> = left.filter(|record| record.index >= from).cloned().collect();
        let waiting = self.forget_waiting_steps(horizon);
        self.segment.book.fill(self.segment.way.clone(), records.iter());
        self.segment.attempt = attempt;
        for place in waiting {
            self.step_is_adopted(&place);
        }
    }

    /// Tells the code of what it had given up in what it has left, once it has seen everything up to there: it may give it up again, for the
    /// same reason. Says whether there was something to tell.
    pub(super) fn tell_given_up(&mut self) -> bool {
        let given_up = self.segment.book.take_given_up();
        given_up.iter().for_each(|place| self.was_given_up(place));
        !given_up.is_empty()
    }

    /// Steps that were asked for before the cut and have not begun. They may be in the book: they are looked for as if they were new.
    fn forget_waiting_steps(&mut self, horizon: Index) -> Vec<Place> {
        let is_due = |queued: &&Queued| !queued.is_abandoned && queued.record.last_index() <= horizon;
        let due = self.queue.iter().filter(is_due).flat_map(|queued| &queued.record.events);
        let answered: BTreeSet<&Place> = due.filter(|event| event.is_step_result()).filter_map(place_of).collect();
        let mut waiting = Vec::new();
        for (place, call) in self.calls.iter().filter(|(place, _)| !answered.contains(place)) {
            if let What::Step { identity, phase: StepPhase::Idle { .. }, .. } = &call.what {
                waiting.push(place.clone());
                if self.segment.passed.remove(place) {
                    self.segment.way.uncount(step_identity(&identity.name, identity.input_hash));
                }
            }
        }
        waiting
    }

    /// The call at `place` was given up in what the code has left (SG5).
    fn was_given_up(&mut self, place: &Place) {
        match self.calls.get(place).map(|call| &call.what) {
            // Nothing was taken back: the mailbox is the code's own.
            None | Some(What::Signal { .. } | What::Canceled) => {}
            // Its pause was taken back: it is over.
            Some(What::Step { .. }) => {
                let wake = self.step_due(place);
                self.wakes.extend(wake);
            }
            Some(what) => {
                let message = format!("{} was canceled in a part of the log that the code has left", what.describe());
                let failure = Failure { retryable: false, ..Failure::new("canceled", message) };
                let wake = self.answer(place, self.delivered.unwrap_or_default(), Err(failure));
                self.wakes.extend(wake);
            }
        }
    }

    /// The last event that was fed.
    pub(super) fn last_fed(&self) -> Index {
        Index(self.next_feed.0.saturating_sub(1))
    }

    /// Begins the part of the pass that leaves the log.
    pub(super) fn begin_cut(&mut self, horizon: Index) {
        let Some(from) = self.segment.cut.as_ref().map(|cut| cut.from) else { return };
        let attempt = self.segment.attempts + 1;
        self.switch(from, self.last_fed(), attempt, horizon);
    }

    /// Leaves everything that is recorded; says in which attempt, and which tasks are taken back.
    pub(super) fn leave_all(&mut self, from: Index, to: Index) -> (u32, Vec<Place>) {
        let attempt = self.segment.attempts + 1;
        self.switch(from, to, attempt, self.horizon);
        let withdrawn = self.segment.book.unbegun();
        self.segment.book.withdraw(&withdrawn);
        self.segment.book.pass_over_decisions();
        self.segment.counts = true;
        (attempt, withdrawn)
    }

    /// The event that leaves the log, in front of what the code asked for instead.
    pub(super) fn mark_cut(&mut self) {
        let Some(cut) = self.segment.cut.take() else { return };
        self.adopt_asked();
        let (to, attempt, withdrawn) = (self.last_fed(), self.segment.attempt, self.segment.book.unbegun());
        self.segment.book.withdraw(&withdrawn);
        self.segment.attempts = attempt;
        self.segment.unstable += 1;
        let marker = SegmentAbandoned { from: cut.from, to, attempt, withdrawn, divergence: *cut.divergence };
        self.out.insert(0, marker.into());
    }

    /// The recorded commit left what was before it.
    pub(super) fn match_marker(&mut self, record: &Record) {
        if let Some(Event::SegmentAbandoned(marker)) = record.events.first() {
            self.segment.book.withdraw(&marker.withdrawn);
        }
    }

    /// Replaces what the code asked for by what an abandoned part of the log has done of it (SG1).
    pub(super) fn adopt_asked(&mut self) {
        if !self.segment.counts {
            return;
        }
        let mut out = std::mem::take(&mut self.out);
        for event in out.iter_mut().filter(|event| !event.is_step_result()) {
            let place = place_of(event).cloned();
            if place.as_ref().is_some_and(|place| !self.segment.passed.insert(place.clone())) {
                continue;
            }
            let call = self.segment.way.pass(event);
            if let Some((call, place)) = call.zip(place)
                && let Some(from) = self.segment.book.adopt(call, &place)
            {
                *event = CallAdopted { place, from }.into();
            }
            self.segment.book.asked(event);
        }
        self.out = out;
    }

    /// The child that an abandoned part of the log has started for the same call.
    pub(super) fn adopt_child(&mut self, asked: &ChildStarted) -> Option<(RunId, CallAdopted)> {
        if !self.segment.counts {
            return None;
        }
        let place = asked.place.clone();
        self.segment.passed.insert(place.clone());
        let call = self.segment.way.pass(&asked.clone().into())?;
        let child = self.segment.book.child(&call)?;
        let from = self.segment.book.adopt(call, &place)?;
        let sender = RunKey::new(self.key.namespace.clone(), child.clone());
        for signal in self.mailbox.release(&sender) {
            self.put_back(signal); // M4
        }
        Some((child, CallAdopted { place, from }))
    }

    /// Whether the step at `place` was done in an abandoned part of the log. If so, that is asked for instead.
    pub(super) fn adopt_step(&mut self, place: &Place, name: &Name, input_hash: Option<Hash>) -> bool {
        if !self.segment.counts || !self.segment.passed.insert(place.clone()) {
            return false;
        }
        let call = self.segment.way.count(step_identity(name, input_hash));
        let Some(from) = self.segment.book.adopt(call, place) else { return false };
        self.out.push(CallAdopted { place: place.clone(), from }.into());
        true
    }

    /// As whom the world knows the call at `place`.
    pub(super) fn origin_of(&self, place: &Place) -> Place {
        self.segment.book.origin(place).clone()
    }

    /// Whether something that the code takes over is answered already: it goes on without an input.
    pub(super) fn adopts_answered(&self) -> bool {
        self.out.iter().any(|event| matches!(event, Event::CallAdopted(call) if self.segment.book.is_answered(&call.from)))
    }

    /// Why nothing more may be asked for in this segment (SG6).
    pub(super) fn check_length(&self) -> Option<Fault> {
        let length = self.last_fed().0.saturating_sub(self.segment.counted_from.0);
        let ends = |event: &Event| event.ends_log() || event.is_step_result();
        if !self.segment.is_agent || length < SEGMENT_EVENTS_MAX || self.out.iter().any(ends) {
            return None;
        }
        Some(Fault::TooLong(format!(
            "the agent has recorded {length} events since its last checkpoint, and all of them are read again after a crash; let its \
             turns end earlier; `onward run resume {}` lets it go on with this one",
            self.key.id
        )))
    }

    /// Why this may not be recorded while an abandoned effect is loose (SG3).
    pub(super) fn check_effects(&self, events: &[Event]) -> Option<Fault> {
        let loose = self.segment.book.loose_effects();
        let begins = |event: &Event| matches!(effect_of(event), EffectOf::Attempt | EffectOf::Always);
        let is_new = |event: &Event| event.ends_log() || (!event.is_step_result() && begins(event));
        if loose.is_empty() || !events.iter().any(is_new) {
            return None;
        }
        let asked = events.iter().find(|event| is_new(event)).map(super::matching::describe).unwrap_or_default();
        let (left, words): (Vec<Place>, Vec<String>) = loose.into_iter().unzip();
        let message = format!(
            "the code left behind {}, and now asks for {asked}; look at it: `onward run resume {}` lets the code do that",
            words.join("; "),
            self.key.id
        );
        Some(Fault::EffectAbandoned { message, left })
    }
}
