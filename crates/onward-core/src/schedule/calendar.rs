//! Parsing of calendars and cron expressions into patterns.

use super::field::{Days, FieldText, HOUR, MINUTE, MONTH, SECOND, Weekdays, YEAR};
use super::pattern::Pattern;
use super::spec::{Calendar, SpecError, TIMES_MAX};
use crate::time::{Date, SECONDS_OF_DAY};

/// The maximum length of an expression or field, in bytes.
const TEXT_BYTES_MAX: usize = 1_000;

const FIELDS_HINT: &str = "write minute, hour, day, month and weekday, with seconds in front if needed: `0 9 * * MON-FRI`";
const NEVER_HINT: &str = "check day and month: 30 February never comes";
const DATE_HINT: &str = "write a date as `2026-12-25`, and a range as `2026-12-24/2027-01-01`";

/// Names of frequent expressions.
const ALIASES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Pattern {
    /// Parses a cron expression. If both day and weekday are restricted, either of them selects a day.
    pub(super) fn cron(expression: &str, part: &str) -> Result<Pattern, SpecError> {
        check_length(expression, part)?;
        let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(expression.trim()));
        let text = FieldText { part, text: alias.map_or(expression, |(_, meaning)| meaning), at: 0 };
        let fields: Vec<FieldText<'_>> = text.split(char::is_whitespace).filter(|field| !field.text.is_empty()).collect();
        let (second, rest) = match fields.as_slice() {
            [second, rest @ ..] if rest.len() == 5 => (Some(*second), rest),
            rest => (None, rest),
        };
        let &[minute, hour, day, month, weekday] = rest else {
            let message = format!("the expression has {} fields, not 5 or 6", fields.len());
            return Err(SpecError { position: Some(1), ..SpecError::new(part, message, FIELDS_HINT) });
        };
        let (days, weekdays) = (Days::parse(day)?, Weekdays::parse(weekday)?);
        let pattern = Pattern {
            seconds: second.map_or(Ok(1), |second| SECOND.bits(second))?,
            minutes: MINUTE.bits(minute)?,
            hours: HOUR.bits(hour)?,
            months: MONTH.bits(month)?,
            either: !days.is_any() && !weekdays.is_any(),
            days,
            weekdays,
            years: Vec::new(),
            dates: Vec::new(),
        };
        pattern.check(part)
    }

    /// Parses a calendar. `is_exception` makes absent times match every value.
    pub(super) fn calendar(calendar: &Calendar, part: &str, is_exception: bool) -> Result<Pattern, SpecError> {
        let Calendar { second, minute, hour, day, month, weekday, year, dates } = calendar;
        let text = |text: &Option<String>, absent: &'static str, name: &str| -> Result<(String, String), SpecError> {
            let part = format!("{part}.{name}");
            let text = text.as_deref().unwrap_or(absent);
            check_length(text, &part)?;
            Ok((text.trim().to_owned(), part))
        };
        let time = if is_exception { "*" } else { "0" };
        let (second, minute, hour) = (text(second, time, "second")?, text(minute, time, "minute")?, text(hour, time, "hour")?);
        let (day, month) = (text(day, "*", "day")?, text(month, "*", "month")?);
        let (weekday, year) = (text(weekday, "*", "weekday")?, text(year, "*", "year")?);
        let pattern = Pattern {
            seconds: SECOND.bits(whole(&second))?,
            minutes: MINUTE.bits(whole(&minute))?,
            hours: HOUR.bits(whole(&hour))?,
            months: MONTH.bits(whole(&month))?,
            days: Days::parse(whole(&day))?,
            weekdays: Weekdays::parse(whole(&weekday))?,
            years: if year.0 == "*" { Vec::new() } else { YEAR.ranges(whole(&year))? },
            dates: dates_of(dates, &format!("{part}.dates"))?,
            either: false,
        };
        pattern.check(part)
    }

    /// Refuses a pattern that no time matches.
    fn check(self, part: &str) -> Result<Pattern, SpecError> {
        match self.next(0, super::slots::SLOTS_END / 1_000) {
            Some(_) => Ok(self),
            None => Err(SpecError::new(part, "no time matches it", NEVER_HINT)),
        }
    }
}

fn whole((text, part): &(String, String)) -> FieldText<'_> {
    FieldText { part, text, at: 0 }
}

fn check_length(text: &str, part: &str) -> Result<(), SpecError> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the text has more than {TEXT_BYTES_MAX} bytes");
        return Err(SpecError::new(part, message, "use several shorter expressions"));
    }
    Ok(())
}

/// Parses dates and ranges of dates into ranges of days since 1970, sorted.
fn dates_of(dates: &[String], part: &str) -> Result<Vec<(i64, i64)>, SpecError> {
    if dates.len() > TIMES_MAX {
        return Err(SpecError::new(part, format!("there are more than {TIMES_MAX} dates"), "use ranges, or a second calendar"));
    }
    let mut ranges = Vec::with_capacity(dates.len());
    for (at, text) in dates.iter().enumerate() {
        let part = format!("{part}[{at}]");
        let (first, last) = text.split_once('/').unwrap_or((text, text));
        let date = |text: &str| {
            let date = Date::parse(text.trim()).filter(|date| (1970..2200).contains(&date.year));
            date.ok_or_else(|| SpecError::new(&part, format!("`{text}` is no date between 1970 and 2199"), DATE_HINT))
        };
        let (first, last) = (date(first)?.days(), date(last)?.days());
        if last < first {
            return Err(SpecError::new(part, "the range ends before it begins", DATE_HINT));
        }
        ranges.push((first, last));
    }
    ranges.sort_unstable();
    Ok(ranges)
}

/// Returns the day of a local time, as days since 1970.
pub(super) fn day_of(local: i64) -> i64 {
    local.div_euclid(SECONDS_OF_DAY)
}
