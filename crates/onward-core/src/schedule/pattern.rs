//! Patterns of local times: which wall clock readings an expression or calendar selects.
//!
//! Works on seconds of local time since 1970-01-01T00:00:00, without a time zone.

use super::calendar::day_of;
use super::field::{Days, Weekdays};
use crate::time::{Date, SECONDS_OF_DAY};

/// The local times that match in all fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub seconds: u64,
    pub minutes: u64,
    pub hours: u64,
    pub days: Days,
    pub months: u64,
    pub weekdays: Weekdays,
    /// Ranges with steps; empty for every year.
    pub years: Vec<(u32, u32, u32)>,
    /// Ranges of days since 1970, sorted; empty for every date.
    pub dates: Vec<(i64, i64)>,
    /// Day or weekday selects a day, as in cron; otherwise both have to.
    pub either: bool,
}

const ALL_HOURS: u64 = (1 << 24) - 1;
const ALL_MINUTES: u64 = (1 << 60) - 1;

impl Pattern {
    /// Returns true if every hour of a day is selected, so that the pattern follows elapsed time (SL3).
    pub(super) fn is_hourly(&self) -> bool {
        self.hours == ALL_HOURS
    }

    /// Returns the length of the span around a local time in which all times match if one does, in seconds.
    pub(super) fn span(&self) -> i64 {
        match (self.hours, self.minutes, self.seconds) {
            (ALL_HOURS, ALL_MINUTES, ALL_MINUTES) => SECONDS_OF_DAY,
            (_, ALL_MINUTES, ALL_MINUTES) => 3_600,
            (_, _, ALL_MINUTES) => 60,
            _ => 1,
        }
    }

    /// Returns true if the local time matches.
    pub(super) fn matches(&self, local: i64) -> bool {
        let time = local.rem_euclid(SECONDS_OF_DAY);
        let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
        has(self.hours, hour) && has(self.minutes, minute) && has(self.seconds, second) && self.has_day(day_of(local))
    }

    /// Returns the first local time that matches, from `from` on and before `until`.
    pub(super) fn next(&self, from: i64, until: i64) -> Option<i64> {
        let mut day = day_of(from);
        let mut time = from.rem_euclid(SECONDS_OF_DAY);
        while day * SECONDS_OF_DAY < until {
            let date = Date::of_days(day);
            let (is_year, is_month) = (self.has_year(date.year), has(self.months, date.month));
            if is_year
                && is_month
                && self.has_day(day)
                && let Some(time) = self.next_time(time)
            {
                return Some(day * SECONDS_OF_DAY + time).filter(|local| *local < until);
            }
            day = match (is_year, is_month) {
                (true, true) => self.next_date(day + 1)?,
                (true, false) => date.next_month().days(),
                (false, _) => Date { year: date.year + 1, month: 1, day: 1 }.days(),
            };
            time = 0;
        }
        None
    }

    /// Returns the first time of a day that matches, from `from` on, in seconds.
    fn next_time(&self, from: i64) -> Option<i64> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        let first = |bits: u64| i64::from(bits.trailing_zeros());
        let (first_minute, first_second) = (first(self.minutes), first(self.seconds));
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = at_least(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = at_least(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + first_second);
            }
        }
        at_least(self.hours, hour + 1).map(|hour| hour * 3_600 + first_minute * 60 + first_second)
    }

    /// Returns a day from `day` on before which no day matches, by years and dates alone; `None` if none matches any more.
    pub(super) fn first_day(&self, day: i64) -> Option<i64> {
        self.next_date(self.next_year(day)?)
    }

    /// Returns the first day from `day` on in one of the years.
    fn next_year(&self, day: i64) -> Option<i64> {
        let year = Date::of_days(day).year;
        if self.has_year(year) {
            return Some(day);
        }
        let later = |&(first, last, step): &(u32, u32, u32)| {
            let (first, last, step) = (i64::from(first), i64::from(last), i64::from(step));
            let steps = ((year - first).max(0) + step - 1) / step;
            Some(first + steps * step).filter(|year| *year <= last)
        };
        let year = self.years.iter().filter_map(later).min()?;
        Some(Date { year, month: 1, day: 1 }.days())
    }

    /// Returns the first day from `day` on that is one of the dates, if there are dates.
    fn next_date(&self, day: i64) -> Option<i64> {
        if self.dates.is_empty() {
            return Some(day);
        }
        self.dates.iter().filter(|(_, last)| *last >= day).map(|(first, _)| day.max(*first)).min()
    }

    fn has_year(&self, year: i64) -> bool {
        let has = |&(first, last, step): &(u32, u32, u32)| {
            (i64::from(first)..=i64::from(last)).contains(&year) && (year - i64::from(first)) % i64::from(step) == 0
        };
        self.years.is_empty() || self.years.iter().any(has)
    }

    fn has_day(&self, day: i64) -> bool {
        let date = Date::of_days(day);
        if !has(self.months, date.month) || !self.has_year(date.year) {
            return false;
        }
        if !self.dates.is_empty() && !self.dates.iter().any(|(first, last)| (first..=last).contains(&&day)) {
            return false;
        }
        let (is_day, is_weekday) = (self.has_day_of_month(date, day), self.has_weekday(date, day));
        if self.either { is_day || is_weekday } else { is_day && is_weekday }
    }

    fn has_day_of_month(&self, date: Date, day: i64) -> bool {
        let Days { days, before_last, nearest, last_weekday } = self.days;
        let last = date.days_of_month();
        has(days.into(), date.day)
            || has(before_last.into(), last - date.day)
            || (last_weekday && is_nearest_weekday(date, day, last, last))
            || (nearest != 0
                && (1..=last).any(|target| has(nearest.into(), target) && is_nearest_weekday(date, day, target, last)))
    }

    fn has_weekday(&self, date: Date, day: i64) -> bool {
        let weekday = weekday_of(day);
        let nth = usize::try_from((date.day - 1) / 7).ok().and_then(|nth| self.weekdays.nth.get(nth));
        has(self.weekdays.weekdays.into(), weekday)
            || nth.is_some_and(|nth| has((*nth).into(), weekday))
            || (date.day + 7 > date.days_of_month() && has(self.weekdays.last.into(), weekday))
    }
}

/// Returns true if `date` is the weekday of its month that is nearest to the day `target`.
fn is_nearest_weekday(date: Date, day: i64, target: i64, last: i64) -> bool {
    let nearest = match weekday_of(day + target - date.day) {
        6 if target > 1 => target - 1,
        6 => target + 2,
        0 if target < last => target + 1,
        0 => target - 2,
        _ => target,
    };
    date.day == nearest
}

/// Returns the weekday; 0 is Sunday. 1970-01-01 was a Thursday.
fn weekday_of(day: i64) -> i64 {
    (day + 4).rem_euclid(7)
}

fn has(bits: u64, value: i64) -> bool {
    (0..64).contains(&value) && bits >> value & 1 == 1
}

/// Returns the lowest value of the set that is at least `least`.
fn at_least(bits: u64, least: i64) -> Option<i64> {
    let rest = if (0..64).contains(&least) { bits >> least << least } else { 0 };
    (rest != 0).then(|| i64::from(rest.trailing_zeros()))
}
