//! Segments of an agent's log: recovery from code that diverges from the log.
//!
//! The code of an agent may depend on data that is not recorded. If it makes other calls than its open segment has, that is no
//! error: the recorded rest is *abandoned*, and the code continues from there. This module owns how a part of a log is abandoned,
//! and the *abandoned calls*, in which later calls find completed work by content. The rest itself stays in the log.
//!
//! It takes two passes. The first finds that code and log disagree at a commit ([`Fault::Departed`]) and is discarded. The second
//! gets this *divergence point*: it replays what comes before, and continues live at the horizon of that commit. Calls from there
//! on have call ids of their own (`attempt`), so that an answer to an abandoned call is never taken for one to a new call.
//!
//! Invariants:
//! - SG1: a call takes over the result of an abandoned call of the same kind and content, the k-th that of the k-th, and no
//!   other.
//! - SG2: abandoned tasks that no worker has begun are withdrawn in the commit that abandons them; that commit is rejected if it
//!   has not seen every attempt (R11), so none begins unnoticed.
//! - SG3: while an abandoned call that had an effect, or that a person has decided, is unmatched, nothing else with an effect
//!   begins, and the segment does not close: the run pauses, and resuming it accepts the calls that the pause lists. A decision
//!   is matched if the code has requested the same approval again and got the same decision. A branch request accepts all
//!   abandoned decisions.
//! - SG4: a segment is abandoned at most three times; then the run pauses.
//! - SG5: a call made before the divergence point and canceled after it stays canceled; code that awaits it receives the
//!   cancellation after all events before the divergence point.
//! - SG6: a segment has at most [`SEGMENT_EVENTS_MAX`] events; then the run pauses, and a resume allows as many again. Completed
//!   work is recorded nevertheless.

mod abandoned;
mod content;

use std::collections::BTreeSet;

use abandoned::AbandonedCalls;
use content::{EffectOf, LivePath, call_id_of, effect_of, step_identity};

use super::call::{CallDetails, StepPhase};
use super::{Engine, Fault, Queued};
use crate::log::event::{CallAdopted, ChildStarted, Divergence, PauseReason, RunPaused, SegmentAbandoned};
use crate::{CallId, Event, Failure, Hash, Index, Name, Record, RunId, RunKey};

/// The maximum number of times a segment may be abandoned before the run pauses.
pub const ABANDONMENTS_MAX: u32 = 3;

/// The maximum number of events in a segment before the run pauses: all of them are replayed after every crash.
pub const SEGMENT_EVENTS_MAX: u64 = 100_000;

/// The distance between the call ids of two attempts.
const PLACES_PER_ATTEMPT: u32 = 1 << 24;

#[derive(Default)]
pub(super) struct Segment {
    /// The code may diverge from the log.
    is_agent: bool,
    /// Calls are counted, because the code may abandon them or has. Workflows do not pay for it.
    counts: bool,
    /// The divergence point of this pass.
    divergence_point: Option<DivergencePoint>,
    /// The number of times the segment was abandoned before the current calls.
    attempt: u32,
    /// The highest attempt so far, abandoned ones included.
    attempts: u32,
    /// The number of abandonments that count towards the limit.
    unstable: u32,
    live_path: LivePath,
    /// The call ids that the code has passed.
    passed: BTreeSet<CallId>,
    pub abandoned_calls: AbandonedCalls,
    last_pause: Option<RunPaused>,
    /// The event from which its length is counted (SG6).
    counted_from: Index,
}

/// The point at which a pass stops to replay and continues live.
#[derive(Debug, Clone, PartialEq)]
pub struct DivergencePoint {
    /// The first abandoned commit.
    pub from: Index,
    pub divergence: Box<Divergence>,
}

impl Segment {
    /// Returns the ordinal of the next call, given the number of calls on its branch.
    pub fn ordinal(&self, made: u32) -> u32 {
        self.attempt.saturating_mul(PLACES_PER_ATTEMPT).saturating_add(made)
    }

    /// Reads what must be known before the record is delivered.
    pub fn observe(&mut self, record: &Record) {
        for event in &record.events {
            match event {
                // A log that is abandoned from its first commit on is abandoned before its start is delivered.
                Event::RunStarted(event) => self.begin(event.checkpoint.as_ref().and_then(|checkpoint| checkpoint.leaf)),
                Event::TaskAttempted(event) => self.abandoned_calls.begun(&event.call_id),
                Event::ApprovalDecided(event) => self.abandoned_calls.decided(event),
                Event::RunPaused(event) => self.last_pause = Some(event.clone()),
                Event::RunResumed(_) => match self.last_pause.take() {
                    Some(pause) if pause.reason == PauseReason::EffectAbandoned => {
                        self.abandoned_calls.accept(pause.abandoned_calls)
                    }
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

    /// Returns true if the child belongs to an abandoned call that was not taken over.
    pub fn has_abandoned(&self, child: &RunId) -> bool {
        self.abandoned_calls.abandoned_children().any(|(abandoned, _)| abandoned == child)
    }

    pub fn abandoned_children(&self) -> impl Iterator<Item = RunId> {
        self.abandoned_calls.abandoned_children().map(|(child, _)| child.clone())
    }

    /// Returns those of them that outlive the generation.
    pub fn abandoned_spawned(&self) -> Vec<RunId> {
        self.abandoned_calls.abandoned_children().filter(|(_, is_spawned)| *is_spawned).map(|(child, _)| child.clone()).collect()
    }

    /// Sets the conversation that the segment begins with.
    pub fn begin(&mut self, leaf: Option<Hash>) {
        self.live_path.leaf = leaf;
    }
}

impl Engine {
    /// Allows the code to diverge from the log: it is an agent's.
    pub fn set_agent(&mut self) {
        (self.segment.is_agent, self.segment.counts) = (true, true);
    }

    pub(super) fn is_agent(&self) -> bool {
        self.segment.is_agent
    }

    /// Makes this pass continue live at the commit `divergence_point.from`. Call before anything is fed.
    pub fn set_cut(&mut self, divergence_point: DivergencePoint) {
        self.segment.divergence_point = Some(divergence_point);
    }

    /// Converts a divergence at the commit at `from` into the fault for agents.
    pub(super) fn departed(&self, from: Index, fault: Fault) -> Fault {
        match fault {
            Fault::Diverged(report) if self.segment.is_agent && self.segment.unstable >= ABANDONMENTS_MAX => {
                Fault::Unstable(report)
            } // SG4
            Fault::Diverged(divergence) if self.segment.is_agent => Fault::Departed(DivergencePoint { from, divergence }),
            fault => fault,
        }
    }

    /// Marks the commits that the record abandons; returns true if this pass abandons the record.
    pub(super) fn mark_abandoned(&mut self, record: &Record) -> bool {
        if let Some(Event::SegmentAbandoned(marker)) = record.events.first() {
            let is_left = |queued: &&mut Queued| queued.record.commit.is_some() && queued.record.index >= marker.from;
            self.queue.iter_mut().filter(is_left).for_each(|queued| queued.is_abandoned = true);
        }
        let is_reached = |divergence_point: &DivergencePoint| record.commit.is_some() && record.index >= divergence_point.from;
        self.in_flight.is_none() && self.segment.divergence_point.as_ref().is_some_and(is_reached)
    }

    /// Returns the horizon at which this pass diverges from the log, and the number of its next commit; `None` if it does not, or
    /// has.
    pub(super) fn cut_horizon(&self) -> Option<(Index, u64)> {
        let divergence_point = self.segment.divergence_point.as_ref()?;
        let first = self.queue.iter().find(|queued| queued.record.index == divergence_point.from)?;
        let last = self.queue.iter().rev().find_map(|queued| queued.record.commit)?;
        Some((first.record.commit?.horizon, last.n + 1))
    }

    /// Begins another attempt after the abandoned records between `from` and `to`. If one of them has abandoned others, their
    /// calls are included.
    pub(super) fn switch(&mut self, mut from: Index, to: Index, attempt: u32, horizon: Index) {
        let abandoned =
            self.queue.iter().filter(|queued| queued.is_abandoned && queued.record.index <= to).map(|queued| &queued.record);
        for record in abandoned.clone().rev() {
            if let Some(Event::SegmentAbandoned(marker)) = record.events.first()
                && record.index >= from
            {
                from = from.min(marker.from);
            }
        }
        let records: Vec<Record> = abandoned.filter(|record| record.index >= from).cloned().collect();
        let waiting = self.forget_waiting_steps(horizon);
        self.segment.abandoned_calls.fill(self.segment.live_path.clone(), records.iter());
        self.segment.attempt = attempt;
        for call_id in waiting {
            self.step_is_adopted(&call_id);
        }
    }

    /// Cancels the calls that the code canceled in the abandoned part, once it has observed everything up to there: it may cancel
    /// them again. Returns true if there were any.
    pub(super) fn cancel_given_up_calls(&mut self) -> bool {
        let given_up = self.segment.abandoned_calls.take_given_up();
        given_up.iter().for_each(|call_id| self.cancel_given_up_call(call_id));
        !given_up.is_empty()
    }

    /// Removes steps that were called before the divergence point and have not begun. They may be abandoned calls, so they are
    /// matched as if they were new.
    fn forget_waiting_steps(&mut self, horizon: Index) -> Vec<CallId> {
        let is_due = |queued: &&Queued| !queued.is_abandoned && queued.record.last_index() <= horizon;
        let due = self.queue.iter().filter(is_due).flat_map(|queued| &queued.record.events);
        let answered: BTreeSet<&CallId> = due.filter(|event| event.is_step_result()).filter_map(call_id_of).collect();
        let mut waiting = Vec::new();
        for (call_id, call) in self.calls.iter().filter(|(call_id, _)| !answered.contains(call_id)) {
            if let CallDetails::Step { identity, phase: StepPhase::Idle { .. }, .. } = &call.what {
                waiting.push(call_id.clone());
                if self.segment.passed.remove(call_id) {
                    self.segment.live_path.uncount(step_identity(&identity.name, identity.input_hash));
                }
            }
        }
        waiting
    }

    /// Cancels the call at `call_id`, which was canceled in the abandoned part (SG5).
    fn cancel_given_up_call(&mut self, call_id: &CallId) {
        match self.calls.get(call_id).map(|call| &call.what) {
            // Nothing was withdrawn: the mailbox belongs to the code.
            None | Some(CallDetails::Signal { .. } | CallDetails::Canceled) => {}
            // Its retry delay was canceled: the delay has ended.
            Some(CallDetails::Step { .. }) => {
                let wake = self.step_due(call_id);
                self.wakes.extend(wake);
            }
            Some(what) => {
                let message = format!("{} was canceled in an abandoned part of the log", what.describe());
                let failure = Failure { retryable: false, ..Failure::new("canceled", message) };
                let wake = self.answer(call_id, self.delivered.unwrap_or_default(), Err(failure));
                self.wakes.extend(wake);
            }
        }
    }

    /// Returns the last event that was fed.
    pub(super) fn last_fed(&self) -> Index {
        Index(self.next_feed.0.saturating_sub(1))
    }

    /// Begins the live part of a pass that diverges from the log.
    pub(super) fn begin_cut(&mut self, horizon: Index) {
        let Some(from) = self.segment.divergence_point.as_ref().map(|divergence_point| divergence_point.from) else { return };
        let attempt = self.segment.attempts + 1;
        self.switch(from, self.last_fed(), attempt, horizon);
    }

    /// Abandons everything recorded; returns the new attempt and the withdrawn tasks.
    pub(super) fn leave_all(&mut self, from: Index, to: Index) -> (u32, Vec<CallId>) {
        let attempt = self.segment.attempts + 1;
        self.switch(from, to, attempt, self.horizon);
        let withdrawn = self.segment.abandoned_calls.unbegun();
        self.segment.abandoned_calls.withdraw(&withdrawn);
        self.segment.abandoned_calls.pass_over_decisions();
        self.segment.counts = true;
        (attempt, withdrawn)
    }

    /// Puts the event that abandons the recorded rest before the code's new calls.
    pub(super) fn mark_cut(&mut self) {
        let Some(divergence_point) = self.segment.divergence_point.take() else { return };
        self.adopt_requested();
        let (to, attempt, withdrawn) = (self.last_fed(), self.segment.attempt, self.segment.abandoned_calls.unbegun());
        self.segment.abandoned_calls.withdraw(&withdrawn);
        self.segment.attempts = attempt;
        self.segment.unstable += 1;
        let marker =
            SegmentAbandoned { from: divergence_point.from, to, attempt, withdrawn, divergence: *divergence_point.divergence };
        self.out.insert(0, marker.into());
    }

    /// Applies the withdrawals of a recorded commit that abandons others.
    pub(super) fn match_marker(&mut self, record: &Record) {
        if let Some(Event::SegmentAbandoned(marker)) = record.events.first() {
            self.segment.abandoned_calls.withdraw(&marker.withdrawn);
        }
    }

    /// Replaces calls of the code by equal abandoned ones (SG1).
    pub(super) fn adopt_requested(&mut self) {
        if !self.segment.counts {
            return;
        }
        let mut out = std::mem::take(&mut self.out);
        for event in out.iter_mut().filter(|event| !event.is_step_result()) {
            let call_id = call_id_of(event).cloned();
            if call_id.as_ref().is_some_and(|call_id| !self.segment.passed.insert(call_id.clone())) {
                continue;
            }
            let call = self.segment.live_path.pass(event);
            if let Some((call, call_id)) = call.zip(call_id)
                && let Some(from) = self.segment.abandoned_calls.adopt(call, &call_id)
            {
                *event = CallAdopted { call_id, from }.into();
            }
            self.segment.abandoned_calls.note_request(event);
        }
        self.out = out;
    }

    /// Returns the child that an equal abandoned call has started, and the takeover.
    pub(super) fn adopt_child(&mut self, started: &ChildStarted) -> Option<(RunId, CallAdopted)> {
        if !self.segment.counts {
            return None;
        }
        let call_id = started.call_id.clone();
        self.segment.passed.insert(call_id.clone());
        let call = self.segment.live_path.pass(&started.clone().into())?;
        let child = self.segment.abandoned_calls.child(&call)?;
        let from = self.segment.abandoned_calls.adopt(call, &call_id)?;
        let sender = RunKey::new(self.key.namespace.clone(), child.clone());
        for signal in self.mailbox.release(&sender) {
            self.put_back(signal); // M4
        }
        Some((child, CallAdopted { call_id, from }))
    }

    /// Returns true if an abandoned part of the log has a result for the step at `call_id`, and takes it over.
    pub(super) fn adopt_step(&mut self, call_id: &CallId, name: &Name, input_hash: Option<Hash>) -> bool {
        if !self.segment.counts || !self.segment.passed.insert(call_id.clone()) {
            return false;
        }
        let call = self.segment.live_path.count(step_identity(name, input_hash));
        let Some(from) = self.segment.abandoned_calls.adopt(call, call_id) else { return false };
        self.out.push(CallAdopted { call_id: call_id.clone(), from }.into());
        true
    }

    /// Returns the call id under which stores and callers know the call at `call_id`.
    pub(super) fn origin_of(&self, call_id: &CallId) -> CallId {
        self.segment.abandoned_calls.origin(call_id).clone()
    }

    /// Returns true if a call that is taken over is answered already: the code continues without an input.
    pub(super) fn adopts_answered(&self) -> bool {
        self.out
            .iter()
            .any(|event| matches!(event, Event::CallAdopted(call) if self.segment.abandoned_calls.is_answered(&call.from)))
    }

    /// Returns a fault if the segment is too long for further calls (SG6).
    pub(super) fn check_length(&self) -> Option<Fault> {
        let length = self.last_fed().0.saturating_sub(self.segment.counted_from.0);
        let ends = |event: &Event| event.ends_log() || event.is_step_result();
        if !self.segment.is_agent || length < SEGMENT_EVENTS_MAX || self.out.iter().any(ends) {
            return None;
        }
        Some(Fault::TooLong(format!(
            "the agent has recorded {length} events since its last checkpoint, and all of them are replayed after a crash; end its \
             turns earlier; `onward run resume {}` continues this one",
            self.key.id
        )))
    }

    /// Returns a fault if the code's calls may not be recorded while an abandoned effect is unmatched (SG3).
    pub(super) fn check_effects(&self) -> Option<Fault> {
        let unmatched = self.segment.abandoned_calls.unmatched_effects();
        let begins = |event: &Event| matches!(effect_of(event), EffectOf::Attempt | EffectOf::Always);
        let is_new = |event: &Event| event.ends_log() || (!event.is_step_result() && begins(event));
        let attempt = self.out.iter().find(|event| is_new(event)).filter(|_| !unmatched.is_empty())?;
        let attempt = super::matching::describe(attempt);
        let (abandoned_calls, words): (Vec<CallId>, Vec<String>) = unmatched.into_iter().unzip();
        let message = format!(
            "the code abandoned {}, and now attempts {attempt}; check this, then accept it with `onward run resume {}`",
            words.join("; "),
            self.key.id
        );
        Some(Fault::EffectAbandoned { message, abandoned_calls })
    }
}
