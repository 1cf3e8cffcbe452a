//! The state of a schedule, and the changes that it consists of.
//!
//! [`ScheduleHead`] is a fold over [`ScheduleChange`]s: every decision is recorded as changes, and the head follows from them alone (SC9).

use super::spec::{Overlap, ScheduleDefinition};
use crate::{Name, RunId, Timestamp, choice, message, numbered};

/// The number of entries in the history of a head; the log has all of them.
pub const HISTORY_MAX: usize = 50;

/// The number of runs of one schedule that may run at once.
pub const RUNNING_MAX: usize = 500;

numbered! {
    /// The origin of a firing.
    pub enum FiringCause {
        0 => Clock / "clock",
        1 => Backfill / "backfill",
        2 => Trigger / "trigger",
    }
}

numbered! {
    /// The reason why a slot has no run.
    pub enum SkipReason {
        /// A run was running, and the policy is `skip`.
        0 => Overlap / "overlap",
        /// The buffer was full.
        1 => BufferFull / "buffer_full",
        /// A later slot took its place in the buffer.
        2 => Superseded / "superseded",
        3 => Paused / "paused",
        /// It was due before the catch-up window.
        4 => Missed / "missed",
        /// The specification was replaced before it was due.
        5 => Replaced / "replaced",
        /// Too many runs were running.
        6 => TooManyRuns / "too_many_runs",
        /// Its backfill was canceled while it waited.
        7 => Canceled / "canceled",
        /// A backfill met a slot that was started before; not counted as skipped.
        8 => AlreadyStarted / "already_started",
    }
}

numbered! {
    /// The end of a run that a schedule started.
    pub enum Ending {
        0 => Completed / "completed",
        1 => Failed / "failed",
        2 => Canceled / "canceled",
        3 => Terminated / "terminated",
        /// A run of this id existed: the slot was started before, or a caller used the id. Not counted as started.
        4 => Existed / "existed",
    }
}

message! {
    /// One start of a run. Its number is never used again.
    #[derive(Eq)]
    pub struct Firing {
        1 => number: u32,
        2 => slot: Timestamp,
        3 => cause: FiringCause,
        4 => run: RunId,
        /// The name of the credential that requested it, other than that of the definition.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => requested_by: Option<String>,
        /// The backfill that it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => backfill: Option<Name>,
    }

    /// A firing that waits for a run to end.
    #[derive(Eq)]
    pub struct Buffered { 1 => firing: Firing }

    /// A firing whose run is running, or about to start.
    #[derive(Eq)]
    pub struct RunningFiring {
        1 => firing: Firing,
        2 => started_at: Timestamp,
        /// The policy that ends the run for a later slot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => stopped_by: Option<Overlap>,
    }

    /// Slots without a run, for one reason.
    #[derive(Eq)]
    pub struct Skipped {
        1 => first: Timestamp,
        2 => last: Timestamp,
        3 => count: u64,
        /// There may be more in the range than were counted.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        4 => is_partial: bool,
        5 => reason: SkipReason,
        6 => cause: FiringCause,
    }

    /// A firing that leaves the buffer without a run.
    #[derive(Eq)]
    pub struct Discarded { 1 => number: u32, 2 => reason: SkipReason }

    /// A run that is canceled or terminated for a later slot.
    #[derive(Eq)]
    pub struct Stopping { 1 => number: u32, 2 => run: RunId, 3 => policy: Overlap }

    #[derive(Eq)]
    pub struct Ended {
        1 => number: u32,
        2 => ending: Ending,
        /// The code of its failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => code: Option<String>,
        /// The start was refused: there was no run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        4 => was_refused: bool,
    }

    #[derive(Eq)]
    pub struct Paused {
        1 => note: String,
        /// The failed run that paused the schedule.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => after: Option<RunId>,
        /// Set when it is applied.
        #[serde(default)]
        3 => at: Timestamp,
    }

    #[derive(Eq)]
    pub struct Resumed { 1 => note: String }

    /// The part of a backfill that is left. It ends when `after` reaches `until`.
    #[derive(Eq)]
    pub struct BackfillRange {
        1 => request_id: Name,
        /// Slots up to this time are done.
        2 => after: Timestamp,
        3 => until: Timestamp,
        4 => overlap: Overlap,
        #[serde(default)]
        5 => is_done: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => requested_by: Option<String>,
        /// The number of slots that it may still look at; without a limit in older records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        7 => left: Option<u32>,
    }

    /// The clock has decided all slots up to this time.
    #[derive(Eq)]
    pub struct DecidedUntil { 1 => slot: Timestamp }

    /// The time of the next decision; none without a slot to come.
    #[derive(Eq)]
    pub struct WakeAt { 1 => at: Option<Timestamp> }
}

choice! {
    /// One change of a head.
    pub enum ScheduleChange {
        1 => Defined / "defined": Box<ScheduleDefinition>,
        2 => Started / "started": Firing,
        3 => Buffered / "buffered": Buffered,
        4 => Skipped / "skipped": Skipped,
        5 => Discarded / "discarded": Discarded,
        6 => Stopping / "stopping": Stopping,
        7 => Ended / "ended": Ended,
        8 => Paused / "paused": Paused,
        9 => Resumed / "resumed": Resumed,
        10 => Backfill / "backfill": BackfillRange,
        11 => Decided / "decided": DecidedUntil,
        12 => Wake / "wake": WakeAt,
    }
}

message! {
    /// A line of the history: a run, or slots without one.
    #[derive(Eq)]
    pub struct HistoryEntry {
        1 => at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => started: Option<Firing>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => ended: Option<Ended>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => ended_at: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => skipped: Option<Skipped>,
    }

    /// Counts since the schedule was created.
    #[derive(Copy, Eq, Default)]
    #[serde(default)]
    pub struct Totals {
        1 => started: u64,
        2 => completed: u64,
        3 => failed: u64,
        /// Slots without a run, missed ones included.
        4 => skipped: u64,
        5 => missed: u64,
    }

    /// The state of a schedule.
    pub struct ScheduleHead {
        1 => id: Name,
        2 => definition: ScheduleDefinition,
        /// The number of changes of the definition.
        3 => revision: u32,
        4 => created_at: Timestamp,
        5 => updated_at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => paused: Option<Paused>,
        /// The clock has decided all slots up to this time.
        7 => decided_until: Timestamp,
        8 => next_number: u32,
        /// Oldest first.
        9 => running: Vec<RunningFiring>,
        10 => buffered: Vec<Firing>,
        11 => backfills: Vec<BackfillRange>,
        12 => history: Vec<HistoryEntry>,
        13 => totals: Totals,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        14 => wake_at: Option<Timestamp>,
    }
}

choice! {
    /// What the log of a schedule begins with.
    pub enum ScheduleStart {
        1 => New / "new": Box<ScheduleDefinition>,
        /// The head at the end of the generation before.
        2 => Continued / "continued": Box<ScheduleHead>,
    }
}

message! {
    /// The slot that a template is rendered for.
    #[derive(Eq)]
    pub struct SlotContext {
        1 => schedule: Name,
        2 => firing: Firing,
        /// The time zone of the schedule; UTC if absent.
        3 => time_zone: Option<String>,
    }
}

impl ScheduleStart {
    /// Returns the head at the start of the log of the schedule `id`.
    pub(crate) fn head(&self, id: Option<&str>, at: Timestamp) -> ScheduleHead {
        match self {
            ScheduleStart::New(definition) => {
                let id = Name::new(id.unwrap_or("-")).expect("a part of an id is a name");
                ScheduleHead::new(id, (**definition).clone(), at)
            }
            ScheduleStart::Continued(head) => (**head).clone(),
        }
    }
}

/// Returns the id of the run of a slot.
pub fn run_of(schedule: &Name, slot: Timestamp) -> RunId {
    let text = slot.to_string();
    let text = text.strip_suffix(".000Z").map_or_else(|| text.clone(), |whole| format!("{whole}Z"));
    RunId::new(format!("{schedule}@{text}")).expect("the length of a schedule's id is limited")
}

/// Returns the id of the run that a request started.
pub fn trigger_of(schedule: &Name, request_id: &Name) -> RunId {
    RunId::new(format!("{schedule}@now:{request_id}")).expect("the lengths of ids of schedules and requests are limited")
}

impl ScheduleHead {
    /// Returns the head of a schedule that has decided nothing: its first slot is after `at`.
    pub(super) fn new(id: Name, definition: ScheduleDefinition, at: Timestamp) -> ScheduleHead {
        ScheduleHead {
            id,
            definition,
            revision: 0,
            created_at: at,
            updated_at: at,
            paused: None,
            decided_until: at,
            next_number: 0,
            running: Vec::new(),
            buffered: Vec::new(),
            backfills: Vec::new(),
            history: Vec::new(),
            totals: Totals::default(),
            wake_at: None,
        }
    }

    /// Applies a change that was decided at `at` (SC9).
    pub fn apply(&mut self, change: &ScheduleChange, at: Timestamp) {
        self.updated_at = self.updated_at.max(at);
        match change {
            ScheduleChange::Defined(definition) => {
                self.definition = (**definition).clone();
                self.revision = self.revision.saturating_add(1);
            }
            ScheduleChange::Started(firing) => self.start(firing, at),
            ScheduleChange::Buffered(Buffered { firing }) => {
                self.next_number = self.next_number.max(firing.number.saturating_add(1));
                self.buffered.push(firing.clone());
            }
            ScheduleChange::Skipped(skipped) => self.skip(skipped, at),
            ScheduleChange::Discarded(discarded) => self.discard(discarded, at),
            ScheduleChange::Stopping(stopping) => {
                let running = self.running.iter_mut().find(|running| running.firing.number == stopping.number);
                running.into_iter().for_each(|running| running.stopped_by = Some(stopping.policy));
            }
            ScheduleChange::Ended(ended) => self.end(ended, at),
            ScheduleChange::Paused(paused) => self.paused = Some(Paused { at, ..paused.clone() }),
            ScheduleChange::Resumed(_) => self.paused = None,
            ScheduleChange::Backfill(range) => self.set_backfill(range),
            ScheduleChange::Decided(decided) => self.decided_until = self.decided_until.max(decided.slot), // SC1
            ScheduleChange::Wake(wake) => self.wake_at = wake.at,
        }
    }

    fn start(&mut self, firing: &Firing, at: Timestamp) {
        self.next_number = self.next_number.max(firing.number.saturating_add(1));
        self.buffered.retain(|buffered| buffered.number != firing.number);
        self.running.push(RunningFiring { firing: firing.clone(), started_at: at, stopped_by: None });
        self.totals.started += 1;
        self.remember(HistoryEntry { at, started: Some(firing.clone()), ended: None, ended_at: None, skipped: None });
    }

    fn skip(&mut self, skipped: &Skipped, at: Timestamp) {
        if skipped.reason != SkipReason::AlreadyStarted {
            self.totals.skipped = self.totals.skipped.saturating_add(skipped.count);
        }
        if skipped.reason == SkipReason::Missed {
            self.totals.missed = self.totals.missed.saturating_add(skipped.count);
        }
        match self.history.last_mut().and_then(|entry| entry.skipped.as_mut()) {
            Some(last) if last.reason == skipped.reason && last.cause == skipped.cause => last.extend(skipped),
            _ => self.remember(HistoryEntry { at, started: None, ended: None, ended_at: None, skipped: Some(skipped.clone()) }),
        }
    }

    fn discard(&mut self, discarded: &Discarded, at: Timestamp) {
        let Some(place) = self.buffered.iter().position(|firing| firing.number == discarded.number) else { return };
        let Firing { slot, cause, .. } = self.buffered.remove(place);
        self.skip(&Skipped::one(slot, discarded.reason, cause), at);
    }

    fn end(&mut self, ended: &Ended, at: Timestamp) {
        self.running.retain(|running| running.firing.number != ended.number);
        match ended.ending {
            Ending::Completed => self.totals.completed += 1,
            Ending::Failed => self.totals.failed += 1,
            Ending::Existed => self.totals.started = self.totals.started.saturating_sub(1), // SC10
            Ending::Canceled | Ending::Terminated => {}
        }
        let started = |entry: &&mut HistoryEntry| entry.started.as_ref().is_some_and(|firing| firing.number == ended.number);
        if let Some(entry) = self.history.iter_mut().rev().find(started) {
            (entry.ended, entry.ended_at) = (Some(ended.clone()), Some(at));
        }
    }

    /// Returns true if the run of a slot was started, is about to, or waits (SC11). Earlier slots than those of the history are
    /// unknown.
    pub(super) fn has_started(&self, run: &RunId) -> bool {
        let is_running = self.running.iter().any(|running| running.firing.run == *run);
        let is_waiting = self.buffered.iter().any(|firing| firing.run == *run);
        let had_run = |entry: &HistoryEntry| {
            let is_its = entry.started.as_ref().is_some_and(|firing| firing.run == *run);
            is_its && entry.ended.as_ref().is_none_or(Ended::had_run)
        };
        is_running || is_waiting || self.history.iter().any(had_run)
    }

    fn set_backfill(&mut self, range: &BackfillRange) {
        match self.backfills.iter_mut().find(|known| known.request_id == range.request_id) {
            Some(known) => *known = range.clone(),
            None => self.backfills.push(range.clone()),
        }
        self.backfills.retain(|range| !range.is_done);
    }

    fn remember(&mut self, entry: HistoryEntry) {
        let excess = (self.history.len() + 1).saturating_sub(HISTORY_MAX);
        self.history.drain(..excess); // SC5
        self.history.push(entry);
    }
}

impl Ended {
    pub fn new(number: u32, ending: Ending, code: Option<String>) -> Ended {
        Ended { number, ending, code, was_refused: false }
    }

    /// Returns true if the firing had a run of its own.
    fn had_run(&self) -> bool {
        self.ending != Ending::Existed && !self.was_refused
    }
}

impl Firing {
    /// Returns a firing that no caller requested.
    pub fn new(number: u32, slot: Timestamp, cause: FiringCause, run: RunId) -> Firing {
        Firing { number, slot, cause, run, requested_by: None, backfill: None }
    }
}

impl Skipped {
    /// Returns the entry of one slot.
    pub(super) fn one(slot: Timestamp, reason: SkipReason, cause: FiringCause) -> Skipped {
        Skipped { first: slot, last: slot, count: 1, is_partial: false, reason, cause }
    }

    /// Adds slots that were skipped for the same reason.
    pub(super) fn extend(&mut self, other: &Skipped) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.count = self.count.saturating_add(other.count);
        self.is_partial |= other.is_partial;
    }
}
