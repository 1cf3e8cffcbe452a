//! Points in time, as data.
//!
//! Must never read a clock: callers pass the time in.

use std::fmt;
use std::time::Duration;

/// Milliseconds since 1970-01-01T00:00:00Z. Text form: RFC 3339 in UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub fn after(self, delay: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(millis(delay)))
    }

    pub fn before(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(millis(span)))
    }

    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Parses `2026-11-15T05:00:00.123Z`; the fraction is optional.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let mut date = date.splitn(3, '-');
        let (year, month, day) = (part(date.next()?, 0, YEAR_MAX)?, part(date.next()?, 1, 12)?, part(date.next()?, 1, 31)?);
        let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let mut clock = clock.splitn(3, ':');
        let (hour, minute, second) = (part(clock.next()?, 0, 23)?, part(clock.next()?, 0, 59)?, part(clock.next()?, 0, 60)?);
        let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
        let milli = part(&digits, 0, 999)?;
        let days = days_of_civil(year, month, day);
        // Reject dates that do not exist, such as 30 February.
        if civil_of_days(days) != (year, month, day) {
            return None;
        }
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
        u64::try_from(i128::from(seconds) * 1_000 + i128::from(milli)).ok().map(Timestamp)
    }
}

/// Converts a duration to milliseconds, rounded up so that nothing happens early.
pub fn millis(span: Duration) -> u64 {
    let whole = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if span.subsec_nanos().is_multiple_of(1_000_000) { whole } else { whole.saturating_add(1) }
}

/// The length of a day without a change of the clock.
pub(crate) const SECONDS_OF_DAY: i64 = 86_400;

/// A date of the proleptic Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Date {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
}

impl Date {
    /// Parses `2026-11-15`; rejects dates that do not exist.
    pub(crate) fn parse(text: &str) -> Option<Date> {
        let mut parts = text.splitn(3, '-');
        let (year, month) = (part(parts.next()?, 0, 9_999)?, part(parts.next()?, 1, 12)?);
        let date = Date { year, month, day: part(parts.next()?, 1, 31)? };
        (Date::of_days(date.days()) == date).then_some(date)
    }

    /// Converts days since 1970-01-01 to a date.
    pub(crate) fn of_days(days: i64) -> Date {
        let (year, month, day) = civil_of_days(days);
        Date { year, month, day }
    }

    /// Returns the days since 1970-01-01.
    pub(crate) fn days(self) -> i64 {
        days_of_civil(self.year, self.month, self.day)
    }

    /// Returns the first day of the next month.
    pub(crate) fn next_month(self) -> Date {
        match self.month {
            12 => Date { year: self.year + 1, month: 1, day: 1 },
            month => Date { month: month + 1, day: 1, ..self },
        }
    }

    /// Returns the number of days of the date's month.
    pub(crate) fn days_of_month(self) -> i64 {
        self.next_month().days() - Date { day: 1, ..self }.days()
    }
}

/// The year of the last millisecond that a [`Timestamp`] holds.
const YEAR_MAX: i64 = 584_556_019;

/// Parses a decimal number within bounds; only digits are allowed.
fn part(digits: &str, least: i64, most: i64) -> Option<i64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && (least..=most).contains(number))
}

/// Converts a date of the proleptic Gregorian calendar to days since 1970-01-01 (years counted from March).
fn days_of_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Inverts [`days_of_civil`].
fn civil_of_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_of_days((self.0 / 86_400_000) as i64);
        let (milli, second) = (self.0 % 1_000, self.0 / 1_000 % 60);
        let (minute, hour) = (self.0 / 60_000 % 60, self.0 / 3_600_000 % 24);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

#[cfg(test)]
mod tests;
