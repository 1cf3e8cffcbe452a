//! The slots of a specification, as questions about time.

use super::calendar::day_of;
use super::pattern::Pattern;
use super::spec::{ENTRIES_MAX, Interval, ScheduleSpec, SpecError, TIMES_MAX};
use super::zone::{Segment, Zone};
use crate::time::SECONDS_OF_DAY;
use crate::{Hash, Timestamp};

/// 2200-01-01T00:00:00Z: all slots are before it.
pub(super) const SLOTS_END: i64 = 7_258_118_400_000;

/// The number of excluded times that one question passes.
const EXCLUDED_MAX: usize = 1_000;

/// The answer to a question for the next slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextSlot {
    At(Timestamp),
    /// There is no slot up to this time: ask again from here. The work of the question is used up (SL4).
    After(Timestamp),
    Never,
}

/// Slots of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotPage {
    pub slots: Vec<Timestamp>,
    /// The rest of the range is after this time; `None` if the page is complete.
    pub rest_after: Option<Timestamp>,
}

/// A specification that was checked.
#[derive(Debug, Clone)]
pub struct Slots {
    patterns: Vec<Pattern>,
    every: Vec<Interval>,
    /// Sorted.
    at: Vec<Timestamp>,
    except: Vec<Pattern>,
    zone: Zone,
    start: Timestamp,
    end: Timestamp,
    jitter_ms: u64,
}

impl Slots {
    /// Checks a specification.
    pub fn new(spec: &ScheduleSpec) -> Result<Slots, SpecError> {
        check_sizes(spec)?;
        let mut patterns = Vec::with_capacity(spec.cron.len() + spec.calendars.len());
        for (at, expression) in spec.cron.iter().enumerate() {
            patterns.push(Pattern::cron(expression, &format!("spec.cron[{at}]"))?);
        }
        for (at, calendar) in spec.calendars.iter().enumerate() {
            patterns.push(Pattern::calendar(calendar, &format!("spec.calendars[{at}]"), false)?);
        }
        for (at, interval) in spec.every.iter().enumerate() {
            interval.check(&format!("spec.every[{at}]"))?;
        }
        let except = spec.except.iter().enumerate();
        let except = except.map(|(at, calendar)| Pattern::calendar(calendar, &format!("spec.except[{at}]"), true));
        let mut at = spec.at.clone();
        at.sort_unstable();
        let end = Timestamp(SLOTS_END.unsigned_abs());
        Ok(Slots {
            patterns,
            every: spec.every.clone(),
            at,
            except: except.collect::<Result<_, _>>()?,
            zone: Zone::find(spec.time_zone.as_deref())?,
            start: spec.start_at.unwrap_or_default(),
            end: spec.end_at.map_or(end, |at| at.min(end)),
            jitter_ms: spec.jitter_ms,
        })
    }

    /// Returns the first slot after a time.
    pub fn next_slot(&self, after: Timestamp) -> NextSlot {
        SlotWalk::new(self, after).next()
    }

    /// Returns the slots from `from` on and before `until`, at most `limit`.
    pub fn slots(&self, from: Timestamp, until: Timestamp, limit: usize) -> SlotPage {
        let mut page = SlotPage { slots: Vec::new(), rest_after: None };
        let mut walk = SlotWalk::from(self, from);
        loop {
            match walk.next() {
                NextSlot::At(slot) if slot < until && page.slots.len() < limit => page.slots.push(slot),
                NextSlot::At(slot) if slot < until => page.rest_after = Some(Timestamp(slot.0.saturating_sub(1))),
                NextSlot::After(after) if after < until => page.rest_after = Some(after),
                _ => return page,
            }
            if page.rest_after.is_some() {
                return page;
            }
        }
    }

    /// Returns the first slots after a time, at most `limit`, with the times at which they are due.
    pub fn upcoming(&self, schedule: &str, after: Timestamp, limit: usize) -> Vec<(Timestamp, Timestamp)> {
        let (mut walk, mut found) = (SlotWalk::new(self, after), Vec::new());
        // Many excluded times in a row give a time to continue from instead of a slot (SL4).
        for _ in 0..limit.saturating_mul(2) {
            match walk.next() {
                NextSlot::At(slot) => found.push((slot, walk.due(schedule, slot))),
                NextSlot::After(_) => {}
                NextSlot::Never => break,
            }
            if found.len() == limit {
                break;
            }
        }
        found
    }

    /// Returns the time at which a slot of the schedule is due: later by its jitter, and before the next slot (SL2).
    pub fn due(&self, schedule: &str, slot: Timestamp) -> Timestamp {
        SlotWalk::new(self, slot).due(schedule, slot)
    }

    fn due_before(&self, schedule: &str, slot: Timestamp, next: NextSlot) -> Timestamp {
        let gap = match next {
            NextSlot::At(next) | NextSlot::After(next) => next.0.saturating_sub(slot.0),
            NextSlot::Never => u64::MAX,
        };
        let most = self.jitter_ms.min(gap.saturating_sub(1));
        let hash = Hash::of_parts(&[b"jitter", schedule.as_bytes(), &slot.0.to_le_bytes()]);
        let (low, _) = hash.0.split_at(8);
        let random = u64::from_le_bytes(low.try_into().expect("8 of 16 bytes"));
        Timestamp(slot.0.saturating_add(random % most.saturating_add(1).max(1)))
    }

    /// Returns the maximum delay of a slot.
    pub(super) fn jitter_ms(&self) -> u64 {
        self.jitter_ms
    }
}

/// The longest jitter.
const JITTER_MAX_MS: u64 = 31 * 86_400_000;

const LIST_HINT: &str = "split it into several schedules";

fn check_sizes(spec: &ScheduleSpec) -> Result<(), SpecError> {
    let ScheduleSpec { cron, every, at, calendars, except, start_at, end_at, jitter_ms, .. } = spec;
    let sizes = [
        ("spec.cron", cron.len(), ENTRIES_MAX),
        ("spec.every", every.len(), ENTRIES_MAX),
        ("spec.at", at.len(), TIMES_MAX),
        ("spec.calendars", calendars.len(), ENTRIES_MAX),
        ("spec.except", except.len(), ENTRIES_MAX),
    ];
    if let Some((part, size, most)) = sizes.iter().find(|(_, size, most)| size > most) {
        return Err(SpecError::new(*part, format!("the list has {size} entries, at most {most} are allowed"), LIST_HINT));
    }
    if sizes.iter().take(4).all(|(_, size, _)| *size == 0) {
        let hint = "use at least one of `cron`, `every`, `at` and `calendars`";
        return Err(SpecError::new("spec", "the specification has no times", hint));
    }
    if *jitter_ms > JITTER_MAX_MS {
        return Err(SpecError::new(
            "spec.jitter_ms",
            "the jitter is longer than 31 days",
            "a slot is due before the next slot in any case",
        ));
    }
    if let (Some(start), Some(end)) = (start_at, end_at)
        && end <= start
    {
        return Err(SpecError::new("spec.end_at", "the end is not after the start", "slots are from `start_at` up to `end_at`"));
    }
    Ok(())
}

/// What a walk knows about a pattern.
#[derive(Debug, Clone, Copy)]
enum NextMatch {
    Unknown,
    /// Valid until the walk has passed it.
    At(u64),
    Never,
}

/// A walk over the slots, in order. It evaluates a pattern again only when its match has passed (SL4).
#[derive(Clone)]
pub(super) struct SlotWalk<'a> {
    slots: &'a Slots,
    /// The next slot is at this time or later, in milliseconds.
    from: u64,
    /// The segment of the zone that was used last.
    segment: Option<Segment>,
    /// By pattern.
    matches: Vec<NextMatch>,
    /// How often a pattern was evaluated (SL4).
    #[cfg(test)]
    pub evaluations: u32,
}

impl<'a> SlotWalk<'a> {
    pub(super) fn new(slots: &'a Slots, after: Timestamp) -> SlotWalk<'a> {
        SlotWalk::from(slots, Timestamp(after.0.saturating_add(1)))
    }

    fn from(slots: &'a Slots, from: Timestamp) -> SlotWalk<'a> {
        SlotWalk {
            slots,
            from: from.0.max(slots.start.0),
            segment: None,
            matches: vec![NextMatch::Unknown; slots.patterns.len()],
            #[cfg(test)]
            evaluations: 0,
        }
    }

    /// Returns the time at which the slot that was returned last is due.
    pub(super) fn due(&self, schedule: &str, slot: Timestamp) -> Timestamp {
        match self.slots.jitter_ms {
            0 => slot,
            _ => self.slots.due_before(schedule, slot, self.clone().next()),
        }
    }

    /// Returns the next slot, and continues after it.
    pub(super) fn next(&mut self) -> NextSlot {
        for _ in 0..EXCLUDED_MAX {
            let Some(time) = self.candidate().filter(|time| *time < self.slots.end.0) else { return NextSlot::Never };
            match self.excluded_until(time) {
                Some(until) => self.from = until,
                None => {
                    self.from = time + 1;
                    return NextSlot::At(Timestamp(time));
                }
            }
        }
        NextSlot::After(Timestamp(self.from - 1))
    }

    /// Returns the first time of any list from `from` on.
    fn candidate(&mut self) -> Option<u64> {
        if self.from >= self.slots.end.0 {
            return None;
        }
        let single = self.slots.at.get(self.slots.at.partition_point(|at| at.0 < self.from)).map(|at| at.0);
        let from = self.from;
        let every = self.slots.every.iter().filter_map(|interval| interval.first_from(from)).min();
        let slots = self.slots;
        let pattern = slots.patterns.iter().enumerate().filter_map(|(at, pattern)| self.known_match(at, pattern)).min();
        [single, every, pattern].into_iter().flatten().min()
    }

    fn known_match(&mut self, at: usize, pattern: &Pattern) -> Option<u64> {
        match self.matches[at] {
            NextMatch::Never => None,
            NextMatch::At(time) if time >= self.from => Some(time),
            NextMatch::At(_) | NextMatch::Unknown => {
                #[cfg(test)]
                {
                    self.evaluations += 1;
                }
                let found = self.first_match(pattern);
                self.matches[at] = found.map_or(NextMatch::Never, NextMatch::At);
                found
            }
        }
    }

    /// Returns the first time of a pattern from `from` on, in milliseconds. Years and dates are skipped that have none (SL4).
    fn first_match(&mut self, pattern: &Pattern) -> Option<u64> {
        let mut from = i64::try_from(self.from.div_ceil(1_000)).ok()?;
        let end = i64::try_from(self.slots.end.0.div_ceil(1_000)).ok()?;
        while from < end {
            // Local time differs by less than two days.
            let day = pattern.first_day(day_of(from) - 2)?;
            from = from.max((day - 2) * SECONDS_OF_DAY);
            let segment = self.segment_of(from);
            if let Some(found) = segment.first_match(pattern, from, end) {
                return u64::try_from(found).ok()?.checked_mul(1_000);
            }
            from = segment.end;
        }
        None
    }

    fn segment_of(&mut self, at: i64) -> Segment {
        match self.segment {
            Some(segment) if segment.has(at) => segment,
            _ => *self.segment.insert(self.slots.zone.segment(at)),
        }
    }

    /// Returns the end of the exception that matches the time, or of a part of it.
    fn excluded_until(&mut self, time: u64) -> Option<u64> {
        if self.slots.except.is_empty() {
            return None;
        }
        let second = i64::try_from(time / 1_000).ok()?;
        let segment = self.segment_of(second);
        let local = second + segment.offset;
        let pattern = self.slots.except.iter().filter(|pattern| pattern.matches(local)).max_by_key(|pattern| pattern.span())?;
        let until = (local.div_euclid(pattern.span()) + 1) * pattern.span() - segment.offset;
        u64::try_from(until.min(segment.end)).ok()?.checked_mul(1_000)
    }
}

impl Segment {
    /// Returns the first time of a pattern in this segment, from `from` on and before `end` (SL3).
    fn first_match(&self, pattern: &Pattern, from: i64, end: i64) -> Option<i64> {
        let is_hourly = pattern.is_hourly();
        let (gap_from, gap_until) = (self.start.saturating_add(self.before), self.start.saturating_add(self.offset));
        if !is_hourly && from == self.start && pattern.next(gap_from, gap_until).is_some() {
            return Some(from);
        }
        // The first pass of a time that comes twice was in the segment before.
        let first = if is_hourly { from } else { from.max(self.start.saturating_add(self.before - self.offset)) };
        let until = self.end.min(end);
        if first >= until {
            return None;
        }
        pattern.next(first + self.offset, until.saturating_add(self.offset)).map(|local| local - self.offset)
    }
}

impl Interval {
    /// Returns the first time of the interval from `from` on.
    fn first_from(&self, from: u64) -> Option<u64> {
        let Interval { every_ms, offset_ms } = *self;
        let passed = from.saturating_sub(offset_ms).div_ceil(every_ms);
        passed.checked_mul(every_ms)?.checked_add(offset_ms)
    }
}
