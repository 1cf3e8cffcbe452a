//! A plain reference of schedules: slots by looking at every minute, and policies as a list of rules.
//!
//! It has no changes, no bounded work but the limit of starts, and no walk; it keeps what it needs in lists.

use super::*;

/// A specification that can be evaluated minute by minute, in UTC.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlainSpec {
    pub every_minutes: u64,
    pub minutes: Vec<u64>,
    pub hours: Vec<u64>,
    pub single: Vec<u64>,
    /// Hours without slots.
    pub quiet: Vec<u64>,
    pub jitter_ms: u64,
}

pub(super) const MINUTE: u64 = 60_000;

fn list(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

impl PlainSpec {
    pub(super) fn spec(&self) -> ScheduleSpec {
        let every = if self.every_minutes == 0 { Vec::new() } else { every(self.every_minutes).every };
        let has_cron = !self.minutes.is_empty();
        ScheduleSpec {
            cron: if has_cron { vec![format!("{} {} * * *", list(&self.minutes), list(&self.hours))] } else { Vec::new() },
            every,
            at: self.single.iter().map(|minute| Timestamp(minute * MINUTE)).collect(),
            except: if self.quiet.is_empty() {
                Vec::new()
            } else {
                vec![Calendar { hour: Some(list(&self.quiet)), ..Calendar::default() }]
            },
            jitter_ms: self.jitter_ms,
            ..ScheduleSpec::default()
        }
    }

    fn has(&self, minute: u64) -> bool {
        let hour = minute / 60 % 24;
        let is_interval = self.every_minutes != 0 && minute.is_multiple_of(self.every_minutes);
        let is_cron = self.minutes.contains(&(minute % 60)) && self.hours.contains(&hour);
        (is_interval || is_cron || self.single.contains(&minute)) && !self.quiet.contains(&hour)
    }

    /// Returns the first slot after `after` and up to `until`.
    pub(super) fn first_slot(&self, after: u64, until: u64) -> Option<u64> {
        (after / MINUTE..=until / MINUTE)
            .filter(|minute| minute * MINUTE > after)
            .find(|minute| self.has(*minute))
            .map(|minute| minute * MINUTE)
    }

    /// Returns the slots after `after` and up to `until`.
    pub(super) fn slots(&self, after: u64, until: u64) -> Vec<u64> {
        (after / MINUTE..=until / MINUTE)
            .filter(|minute| self.has(*minute))
            .map(|minute| minute * MINUTE)
            .filter(|slot| *slot > after)
            .collect()
    }
}

/// Slot, cause and number of a firing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlainFiring {
    pub number: u32,
    pub slot: u64,
    pub cause: FiringCause,
    pub backfill: Option<String>,
}

/// A line of the history.
#[derive(Debug, Clone, PartialEq)]
enum PlainLine {
    Run { number: u32, slot: u64, existed: bool },
    Skipped(SkipReason, FiringCause),
}

#[derive(Debug, Clone)]
pub(super) struct PlainBackfill {
    id: String,
    after: u64,
    until: u64,
    overlap: Overlap,
    is_open: bool,
}

/// The reference.
pub(super) struct Plain {
    pub spec: PlainSpec,
    pub options: ScheduleOptions,
    pub cursor: u64,
    pub paused: bool,
    pub running: Vec<(PlainFiring, bool)>,
    pub waiting: Vec<PlainFiring>,
    pub backfills: Vec<PlainBackfill>,
    pub number: u32,
    pub started: u64,
    pub skipped: u64,
    pub missed: u64,
    starts_left: u32,
    lines: Vec<PlainLine>,
}

impl Plain {
    pub(super) fn new(spec: PlainSpec, options: ScheduleOptions, now: u64) -> Plain {
        let (running, waiting, backfills) = (Vec::new(), Vec::new(), Vec::new());
        Plain {
            spec,
            options,
            cursor: now,
            paused: false,
            running,
            waiting,
            backfills,
            number: 0,
            started: 0,
            skipped: 0,
            missed: 0,
            starts_left: 0,
            lines: Vec::new(),
        }
    }

    fn run(&mut self, firing: PlainFiring) {
        self.number = self.number.max(firing.number + 1);
        if firing.cause == FiringCause::Trigger {
            self.line(PlainLine::Run { number: firing.number, slot: 0, existed: false });
        } else {
            self.line(PlainLine::Run { number: firing.number, slot: firing.slot, existed: false });
        }
        self.running.push((firing, false));
        self.started += 1;
        self.starts_left = self.starts_left.saturating_sub(1);
    }

    fn line(&mut self, line: PlainLine) {
        if matches!(line, PlainLine::Skipped(..)) && self.lines.last() == Some(&line) {
            return;
        }
        self.lines.push(line);
        if self.lines.len() > HISTORY_MAX {
            self.lines.remove(0);
        }
    }

    fn skip(&mut self, reason: SkipReason, cause: FiringCause) {
        self.skipped += u64::from(reason != SkipReason::AlreadyStarted);
        self.line(PlainLine::Skipped(reason, cause));
    }

    /// Returns true if the slot has a run by what is remembered.
    fn has_started(&self, of: u64) -> bool {
        let is_it = |firing: &PlainFiring| firing.slot == of && firing.cause != FiringCause::Trigger;
        let in_history = |line: &PlainLine| matches!(line, PlainLine::Run { slot, existed: false, .. } if *slot == of);
        self.running.iter().any(|(firing, _)| is_it(firing))
            || self.waiting.iter().any(is_it)
            || self.lines.iter().any(in_history)
    }

    fn fire(&mut self, slot: u64, cause: FiringCause, overlap: Overlap, backfill: Option<String>) {
        let firing = PlainFiring { number: self.number, slot, cause, backfill };
        let is_free = self.running.is_empty();
        match overlap {
            Overlap::AllowAll => self.run(firing),
            _ if is_free => self.run(firing),
            Overlap::Skip => self.skip(SkipReason::Overlap, cause),
            Overlap::BufferOne if !self.waiting.is_empty() => self.skip(SkipReason::BufferFull, cause),
            Overlap::BufferAll if self.waiting.len() >= self.options.buffer_max() => self.skip(SkipReason::BufferFull, cause),
            _ => {
                if matches!(overlap, Overlap::CancelOther | Overlap::TerminateOther) {
                    for waiting in std::mem::take(&mut self.waiting) {
                        self.skip(SkipReason::Superseded, waiting.cause);
                    }
                    self.running.iter_mut().for_each(|(_, is_stopped)| *is_stopped = true);
                }
                self.number += 1;
                self.waiting.push(firing);
            }
        }
    }

    /// Starts a decision.
    pub(super) fn begin(&mut self) {
        self.starts_left = 100;
    }

    pub(super) fn tick(&mut self, now: u64) {
        if self.running.is_empty() && self.starts_left > 0 {
            let next = self.waiting.iter().position(|firing| !self.paused || firing.cause != FiringCause::Clock);
            if let Some(next) = next {
                let firing = self.waiting.remove(next);
                self.run(firing);
            }
        }
        for at in 0..self.backfills.len() {
            let PlainBackfill { until, overlap, .. } = self.backfills[at];
            while self.has_room(overlap) && self.starts_left > 0 && self.backfills[at].is_open {
                match self.spec.first_slot(self.backfills[at].after, until - 1) {
                    Some(slot) => {
                        self.backfills[at].after = slot;
                        if self.has_started(slot) {
                            self.skip(SkipReason::AlreadyStarted, FiringCause::Backfill);
                        } else {
                            let id = self.backfills[at].id.clone();
                            self.fire(slot, FiringCause::Backfill, overlap, Some(id));
                        }
                    }
                    None => self.backfills[at].is_open = false,
                }
            }
        }
        self.backfills.retain(|backfill| backfill.is_open);
        if self.paused {
            return;
        }
        let due = Slots::new(&self.spec.spec()).unwrap();
        for slot in self.spec.slots(self.cursor, now) {
            let due = due.due("s", Timestamp(slot)).0;
            if due > now || self.starts_left == 0 {
                break;
            }
            self.cursor = slot;
            if now - due > self.options.catch_up() {
                self.skip(SkipReason::Missed, FiringCause::Clock);
                self.missed += 1;
            } else {
                self.fire(slot, FiringCause::Clock, self.options.overlap, None);
            }
        }
    }

    fn has_room(&self, overlap: Overlap) -> bool {
        match overlap {
            _ if self.running.is_empty() => true,
            Overlap::BufferOne => self.waiting.is_empty(),
            Overlap::BufferAll => self.waiting.len() < self.options.buffer_max(),
            _ => true,
        }
    }

    /// Skips all slots up to now.
    pub(super) fn pass(&mut self, now: u64, reason: SkipReason) {
        self.spec.slots(self.cursor, now).iter().for_each(|_| self.skip(reason, FiringCause::Clock));
        self.cursor = self.cursor.max(now);
    }

    pub(super) fn backfill(&mut self, id: &str, from: u64, until: u64, overlap: Overlap) {
        if self.backfills.iter().all(|backfill| backfill.id != id) {
            self.backfills.push(PlainBackfill { id: id.to_owned(), after: from - 1, until, overlap, is_open: true });
        }
    }

    /// Cancels a backfill, or all of them; returns false if there is none.
    pub(super) fn cancel(&mut self, id: Option<&str>) -> bool {
        let is_its = |of: &str| id.is_none_or(|id| id == of);
        let (canceled, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|firing| firing.cause == FiringCause::Backfill && firing.backfill.as_deref().is_some_and(is_its));
        let before = self.backfills.len();
        self.backfills.retain(|backfill| !is_its(&backfill.id));
        self.waiting = kept;
        canceled.iter().for_each(|_| self.skip(SkipReason::Canceled, FiringCause::Backfill));
        before != self.backfills.len() || !canceled.is_empty()
    }

    pub(super) fn trigger(&mut self, now: u64, overlap: Option<Overlap>) {
        self.tick(now);
        self.fire(now, FiringCause::Trigger, overlap.unwrap_or(self.options.overlap), None);
    }

    /// Ends a run; a second report of the same end changes nothing.
    pub(super) fn end(&mut self, number: u32, ending: Ending) {
        let Some(at) = self.running.iter().position(|(firing, _)| firing.number == number) else { return };
        let (_, is_stopped) = self.running.remove(at);
        if ending == Ending::Existed {
            self.started -= 1;
            let its = self.lines.iter_mut().find_map(|line| match line {
                PlainLine::Run { number: of, existed, .. } if *of == number => Some(existed),
                _ => None,
            });
            its.into_iter().for_each(|existed| *existed = true);
        }
        if ending == Ending::Failed && !is_stopped && self.options.pause_on_failure {
            self.paused = true;
        }
    }

    /// Returns true if a backfill has slots left.
    pub(super) fn has_backfill(&self) -> bool {
        self.backfills.iter().any(|backfill| self.spec.first_slot(backfill.after, backfill.until - 1).is_some())
    }
}
