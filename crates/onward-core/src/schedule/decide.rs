//! Decisions: what an input changes.
//!
//! [`ScheduleHead::decide`] takes the head and the time, and returns the changes with the head after them. It changes nothing else,
//! so a decision that could not be written is made again.

use super::head::{
    BackfillRange, Buffered, DecidedUntil, Discarded, Ended, Ending, Firing, FiringCause, Paused, RUNNING_MAX, Resumed,
    ScheduleChange, ScheduleHead, SkipReason, Skipped, Stopping, WakeAt, run_of, trigger_of,
};
use super::input::{
    BACKFILL_SLOTS_MAX, BACKFILLS_MAX, BackfillSchedule, CancelBackfill, ScheduleInput, ScheduleRefusal, TriggerSchedule,
    check_id, check_request_id,
};
use super::slots::{NextSlot, SlotWalk, Slots};
use super::spec::{Overlap, ScheduleDefinition, SpecError};
use crate::{Name, RunId, Timestamp};

/// The number of slots that one decision looks at; the rest follows in the next one, at once.
const SLOTS_MAX: u32 = 1_000;

/// The number of runs that one decision starts.
const STARTS_MAX: u32 = 100;

/// The result of an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Empty if nothing changes.
    pub changes: Vec<ScheduleChange>,
    /// The head after the changes.
    pub head: ScheduleHead,
}

impl ScheduleHead {
    /// Creates a schedule. Its first slot is after `now`.
    pub fn create(id: Name, definition: ScheduleDefinition, now: Timestamp) -> Result<Decision, ScheduleRefusal> {
        check_id(&id)?;
        let slots = check(&definition)?;
        let mut deciding = Deciding::new(ScheduleHead::new(id, definition, now), now);
        deciding.advance(&slots);
        Ok(deciding.finish(&slots))
    }

    /// Decides on an input.
    pub fn decide(&self, input: &ScheduleInput, now: Timestamp) -> Result<Decision, ScheduleRefusal> {
        let mut deciding = Deciding::new(self.clone(), now);
        let slots = match Slots::new(&self.definition.spec) {
            Ok(slots) => slots,
            Err(error) => return deciding.without_slots(input, &error),
        };
        match input {
            ScheduleInput::Define(definition) => return deciding.define(&slots, definition),
            ScheduleInput::Pause(pause) => {
                deciding.advance(&slots);
                deciding.pause(&pause.note, None);
            }
            ScheduleInput::Resume(resume) => deciding.resume(&slots, &resume.note),
            ScheduleInput::Trigger(trigger) => deciding.trigger(&slots, trigger)?,
            ScheduleInput::Backfill(request) => deciding.backfill(&slots, request)?,
            ScheduleInput::CancelBackfill(request) => deciding.cancel_backfill(request)?,
            ScheduleInput::Due(_) => {}
            ScheduleInput::Ended(ended) => deciding.end(ended),
        }
        deciding.advance(&slots);
        Ok(deciding.finish(&slots))
    }
}

fn check(definition: &ScheduleDefinition) -> Result<Slots, SpecError> {
    definition.target.check()?;
    definition.options.check()?;
    definition.check_size()?;
    Slots::new(&definition.spec)
}

/// A decision that is being made.
struct Deciding {
    head: ScheduleHead,
    changes: Vec<ScheduleChange>,
    now: Timestamp,
    /// The slots and starts that this decision may still look at and make (SC5).
    slots_left: u32,
    starts_left: u32,
}

impl Deciding {
    fn new(head: ScheduleHead, now: Timestamp) -> Deciding {
        Deciding { head, changes: Vec::new(), now, slots_left: SLOTS_MAX, starts_left: STARTS_MAX }
    }

    /// Applies a change. Slots that are skipped one after the other for the same reason are one change.
    fn push(&mut self, change: ScheduleChange) {
        self.head.apply(&change, self.now);
        match (self.changes.last_mut(), &change) {
            (Some(ScheduleChange::Skipped(last)), ScheduleChange::Skipped(next))
                if last.reason == next.reason && last.cause == next.cause =>
            {
                last.extend(next);
            }
            _ => self.changes.push(change),
        }
    }

    /// Sets the timer, and returns the decision.
    fn finish(mut self, slots: &Slots) -> Decision {
        let at = self.wake_at(slots);
        if at != self.head.wake_at {
            self.push(ScheduleChange::Wake(WakeAt { at }));
        }
        Decision { changes: self.changes, head: self.head }
    }

    fn wake_at(&self, slots: &Slots) -> Option<Timestamp> {
        if self.head.backfills.iter().any(|range| self.has_room(range.overlap)) {
            return Some(self.now);
        }
        if self.head.paused.is_some() {
            return None; // SC8
        }
        match slots.next_slot(self.head.decided_until) {
            NextSlot::At(slot) => Some(slots.due(self.head.id.as_str(), slot)),
            NextSlot::After(after) => Some(after),
            NextSlot::Never => None,
        }
    }

    /// Decides without slots: the specification was accepted by a version with another database of time zones.
    fn without_slots(mut self, input: &ScheduleInput, error: &SpecError) -> Result<Decision, ScheduleRefusal> {
        match input {
            ScheduleInput::Define(definition) => {
                let slots = check(definition)?;
                self.push(ScheduleChange::Defined(definition.clone()));
                self.push(ScheduleChange::Decided(DecidedUntil { slot: self.now }));
                return Ok(self.finish(&slots));
            }
            ScheduleInput::Ended(ended) => self.end(ended),
            ScheduleInput::CancelBackfill(request) => self.cancel_backfill(request)?,
            ScheduleInput::Trigger(_) | ScheduleInput::Backfill(_) | ScheduleInput::Resume(_) => {
                return Err(error.clone().into());
            }
            ScheduleInput::Pause(_) | ScheduleInput::Due(_) => {}
        }
        self.pause(&format!("its specification is not valid any more: {error}"), None);
        if self.head.wake_at.is_some() {
            self.push(ScheduleChange::Wake(WakeAt { at: None }));
        }
        Ok(Decision { changes: self.changes, head: self.head })
    }

    fn define(mut self, slots: &Slots, definition: &ScheduleDefinition) -> Result<Decision, ScheduleRefusal> {
        if self.head.definition.is_same(definition) {
            return Ok(Decision { changes: Vec::new(), head: self.head }); // SC7
        }
        let next = check(definition)?;
        let is_same_spec = self.head.definition.spec == definition.spec;
        if !is_same_spec {
            self.advance(slots);
            self.pass(slots, if self.head.paused.is_some() { SkipReason::Paused } else { SkipReason::Replaced }); // SC4
        }
        self.push(ScheduleChange::Defined(Box::new(definition.clone())));
        self.advance(&next);
        Ok(self.finish(&next))
    }

    fn pause(&mut self, note: &str, after: Option<RunId>) {
        if self.head.paused.is_none() {
            self.push(ScheduleChange::Paused(Paused { note: note.to_owned(), after, at: self.now }));
        }
    }

    fn resume(&mut self, slots: &Slots, note: &str) {
        if self.head.paused.is_some() {
            self.pass(slots, SkipReason::Paused);
            self.push(ScheduleChange::Resumed(Resumed { note: note.to_owned() }));
        }
    }

    /// Skips all slots up to now. Those of a long time are not counted to the end.
    fn pass(&mut self, slots: &Slots, reason: SkipReason) {
        let (mut walk, mut last) = (SlotWalk::new(slots, self.head.decided_until), self.head.decided_until);
        for _ in 0..SLOTS_MAX {
            match walk.next() {
                NextSlot::At(slot) if slot <= self.now => {
                    last = slot;
                    self.push(ScheduleChange::Skipped(Skipped::one(slot, reason, FiringCause::Clock)));
                }
                NextSlot::After(after) if after < self.now => last = after,
                _ => return self.decide_until(self.now),
            }
        }
        self.push(ScheduleChange::Skipped(Skipped {
            is_partial: true,
            count: 0,
            ..Skipped::one(self.now.max(last), reason, FiringCause::Clock)
        }));
        self.decide_until(self.now);
    }

    fn decide_until(&mut self, slot: Timestamp) {
        if slot > self.head.decided_until {
            self.push(ScheduleChange::Decided(DecidedUntil { slot }));
        }
    }

    fn trigger(&mut self, slots: &Slots, request: &TriggerSchedule) -> Result<(), ScheduleRefusal> {
        check_request_id(&request.request_id)?;
        self.advance(slots);
        let overlap = request.overlap.unwrap_or(self.head.definition.options.overlap);
        let run = trigger_of(&self.head.id, &request.request_id);
        let firing = Firing { requested_by: request.requested_by.clone(), ..self.firing(self.now, FiringCause::Trigger, run) };
        self.fire(firing, overlap);
        Ok(())
    }

    fn backfill(&mut self, slots: &Slots, request: &BackfillSchedule) -> Result<(), ScheduleRefusal> {
        check_request_id(&request.request_id)?;
        let BackfillSchedule { request_id, from, until, overlap, requested_by } = request.clone();
        if until <= from || until > self.now {
            return Err(ScheduleRefusal::Range);
        }
        if self.head.backfills.iter().any(|range| range.request_id == request_id) {
            return Ok(()); // SC7
        }
        if self.head.backfills.len() >= BACKFILLS_MAX {
            return Err(ScheduleRefusal::TooManyBackfills { id: self.head.id.clone() });
        }
        if !slots.has_at_most(BACKFILL_SLOTS_MAX, from, until) {
            return Err(ScheduleRefusal::TooManySlots); // SC5
        }
        self.push(ScheduleChange::Backfill(BackfillRange {
            request_id,
            after: Timestamp(from.0.saturating_sub(1)),
            until,
            overlap: overlap.unwrap_or(Overlap::BufferAll),
            is_done: false,
            requested_by,
            left: Some(BACKFILL_SLOTS_MAX),
        }));
        Ok(())
    }

    /// Ends backfills and discards their firings that wait; runs that were started continue.
    fn cancel_backfill(&mut self, request: &CancelBackfill) -> Result<(), ScheduleRefusal> {
        let is_its = |id: Option<&Name>| request.request_id.is_none() || id == request.request_id.as_ref();
        let is_canceled = |firing: &&Firing| firing.cause == FiringCause::Backfill && is_its(firing.backfill.as_ref());
        let waiting: Vec<u32> = self.head.buffered.iter().filter(is_canceled).map(|firing| firing.number).collect();
        let ranges = self.head.backfills.iter().filter(|range| is_its(Some(&range.request_id)));
        let ranges: Vec<BackfillRange> = ranges.map(|range| BackfillRange { is_done: true, ..range.clone() }).collect();
        if waiting.is_empty() && ranges.is_empty() {
            return Err(ScheduleRefusal::NoBackfill { id: self.head.id.clone() });
        }
        for number in waiting {
            self.push(ScheduleChange::Discarded(Discarded { number, reason: SkipReason::Canceled }));
        }
        ranges.into_iter().for_each(|range| self.push(ScheduleChange::Backfill(range)));
        Ok(())
    }

    fn end(&mut self, ended: &Ended) {
        let Some(running) = self.head.running.iter().find(|running| running.firing.number == ended.number) else { return }; // SC7
        let (run, is_stopped) = (running.firing.run.clone(), running.stopped_by.is_some());
        self.push(ScheduleChange::Ended(ended.clone()));
        if ended.ending == Ending::Failed && !is_stopped && self.head.definition.options.pause_on_failure {
            let note = format!("its run {run} failed");
            self.pause(&note, Some(run));
        }
    }

    /// Starts what is due: buffered firings, then backfills, then slots of the clock.
    fn advance(&mut self, slots: &Slots) {
        self.start_buffered();
        self.advance_backfills(slots);
        if self.head.paused.is_none() {
            self.advance_clock(slots);
        }
    }

    fn start_buffered(&mut self) {
        if !self.head.running.is_empty() || self.starts_left == 0 {
            return; // SC3
        }
        let is_paused = self.head.paused.is_some();
        let next = self.head.buffered.iter().find(|firing| !is_paused || firing.cause != FiringCause::Clock); // SC6, SC8
        if let Some(firing) = next.cloned() {
            self.start(firing);
        }
    }

    fn start(&mut self, firing: Firing) {
        self.starts_left = self.starts_left.saturating_sub(1);
        self.push(ScheduleChange::Started(firing));
    }

    /// Returns true if a backfill with this policy can continue: it waits for room instead of skipping slots.
    fn has_room(&self, overlap: Overlap) -> bool {
        let is_free = self.head.running.is_empty();
        match overlap {
            Overlap::BufferOne => is_free || self.head.buffered.is_empty(),
            Overlap::BufferAll => is_free || self.head.buffered.len() < self.head.definition.options.buffer_max(),
            Overlap::AllowAll => self.head.running.len() < RUNNING_MAX,
            Overlap::Skip | Overlap::CancelOther | Overlap::TerminateOther => true,
        }
    }

    fn advance_backfills(&mut self, slots: &Slots) {
        for mut range in self.head.backfills.clone() {
            let mut walk = SlotWalk::new(slots, range.after);
            while self.slots_left > 0 && self.starts_left > 0 && self.has_room(range.overlap) && !range.is_done {
                self.slots_left -= 1;
                match walk.next() {
                    NextSlot::At(slot) if slot < range.until && range.left != Some(0) => {
                        range.after = slot;
                        range.left = range.left.map(|left| left - 1);
                        self.fill_in(slot, &range);
                    }
                    NextSlot::After(after) if after < range.until => range.after = after,
                    _ => range.is_done = true,
                }
            }
            if !self.head.backfills.contains(&range) {
                self.push(ScheduleChange::Backfill(range));
            }
        }
    }

    /// Starts a slot of a backfill, unless it was started before (SC11).
    fn fill_in(&mut self, slot: Timestamp, range: &BackfillRange) {
        let run = run_of(&self.head.id, slot);
        if self.head.has_started(&run) {
            let skipped = Skipped::one(slot, SkipReason::AlreadyStarted, FiringCause::Backfill);
            return self.push(ScheduleChange::Skipped(skipped));
        }
        let (requested_by, backfill) = (range.requested_by.clone(), Some(range.request_id.clone()));
        let firing = Firing { requested_by, backfill, ..self.firing(slot, FiringCause::Backfill, run) };
        self.fire(firing, range.overlap);
    }

    fn firing(&self, slot: Timestamp, cause: FiringCause, run: RunId) -> Firing {
        Firing::new(self.head.next_number, slot, cause, run)
    }

    fn advance_clock(&mut self, slots: &Slots) {
        let options = self.head.definition.options.clone();
        let mut walk = SlotWalk::new(slots, self.head.decided_until);
        let mut reached = self.head.decided_until;
        let mut missed = false;
        while self.slots_left > 0 && self.starts_left > 0 {
            self.slots_left -= 1;
            match walk.next() {
                NextSlot::At(slot) => {
                    let due = walk.due(self.head.id.as_str(), slot);
                    if due > self.now {
                        break; // SC2
                    }
                    reached = slot;
                    missed = millis_since(due, self.now) > options.catch_up();
                    if missed {
                        self.push(ScheduleChange::Skipped(Skipped::one(slot, SkipReason::Missed, FiringCause::Clock)));
                    } else {
                        let run = run_of(&self.head.id, slot);
                        self.fire(self.firing(slot, FiringCause::Clock, run), options.overlap);
                    }
                }
                NextSlot::After(after) if after <= self.now => reached = after,
                NextSlot::After(_) | NextSlot::Never => break,
            }
        }
        self.decide_until(reached);
        if missed && self.slots_left == 0 {
            self.jump(slots, options.catch_up());
        }
    }

    /// Passes the rest of the slots that are surely missed, without counting them.
    fn jump(&mut self, slots: &Slots, catch_up: u64) {
        let until = Timestamp(self.now.0.saturating_sub(catch_up).saturating_sub(slots.jitter_ms()).saturating_sub(1));
        if until > self.head.decided_until {
            let skipped = Skipped::one(until, SkipReason::Missed, FiringCause::Clock);
            self.push(ScheduleChange::Skipped(Skipped { is_partial: true, count: 0, ..skipped }));
            self.decide_until(until);
        }
    }

    /// Starts, buffers or skips one slot (SC4).
    fn fire(&mut self, firing: Firing, overlap: Overlap) {
        let (running, buffered) = (self.head.running.len(), self.head.buffered.len());
        let (slot, cause) = (firing.slot, firing.cause);
        let skip = |reason| ScheduleChange::Skipped(Skipped::one(slot, reason, cause));
        match overlap {
            Overlap::AllowAll if running >= RUNNING_MAX => self.push(skip(SkipReason::TooManyRuns)),
            Overlap::AllowAll => self.start(firing),
            _ if running == 0 => self.start(firing), // SC3
            Overlap::Skip => self.push(skip(SkipReason::Overlap)),
            Overlap::BufferOne if buffered > 0 => self.push(skip(SkipReason::BufferFull)),
            Overlap::BufferAll if buffered >= self.head.definition.options.buffer_max() => {
                self.push(skip(SkipReason::BufferFull))
            }
            Overlap::BufferOne | Overlap::BufferAll => self.push(ScheduleChange::Buffered(Buffered { firing })),
            Overlap::CancelOther | Overlap::TerminateOther => self.replace(firing, overlap),
        }
    }

    /// Stops what is running and discards what waits, in favor of this firing.
    fn replace(&mut self, firing: Firing, policy: Overlap) {
        for waiting in self.head.buffered.clone() {
            self.push(ScheduleChange::Discarded(Discarded { number: waiting.number, reason: SkipReason::Superseded }));
        }
        for running in self.head.running.clone() {
            let is_stopped = running.stopped_by == Some(policy) || running.stopped_by == Some(Overlap::TerminateOther);
            if !is_stopped {
                self.push(ScheduleChange::Stopping(Stopping { number: running.firing.number, run: running.firing.run, policy }));
            }
        }
        self.push(ScheduleChange::Buffered(Buffered { firing }));
    }
}

fn millis_since(earlier: Timestamp, now: Timestamp) -> u64 {
    now.0.saturating_sub(earlier.0)
}
