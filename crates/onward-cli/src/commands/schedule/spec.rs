//! The options that are a specification, and times on the command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::schedule::{Calendar, Interval, ScheduleSpec};
use onward_core::time::millis;
use onward_core::{ErrorCode, Timestamp};
use onward_flow::document::read_value;

use super::problem;
use crate::args::read_file;
use crate::error::Mistake;
use crate::span;

#[derive(Debug, Args)]
#[command(next_help_heading = "Times")]
pub struct SpecArgs {
    /// Add the times of an expression: "0 9 * * MON-FRI" (repeatable)
    #[arg(long, value_name = "EXPRESSION")]
    cron: Vec<String>,
    /// Add an interval: 15m, 1h, 1d (repeatable)
    #[arg(long, value_name = "DURATION", value_parser = span::parse_positive)]
    every: Vec<Duration>,
    /// Shift the intervals by this time
    #[arg(long, value_name = "DURATION", value_parser = span::parse, requires = "every")]
    offset: Option<Duration>,
    /// Add a single time: 2026-11-20T09:00:00Z or with an offset such as +01:00 (repeatable)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Vec<Timestamp>,
    /// Read a specification from a YAML or JSON file, or - for stdin; other options add to it
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Time zone of expressions, calendars and exceptions, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Except a date, or a range of dates: 2026-12-24/2027-01-01 (repeatable)
    #[arg(long, value_name = "DATES")]
    except_date: Vec<String>,
    /// First time that can be a slot
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    start_at: Option<Timestamp>,
    /// Slots are before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    end_at: Option<Timestamp>,
    /// Delay each slot by up to this time
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    jitter: Option<Duration>,
}

impl SpecArgs {
    /// Returns true if an option is given.
    pub fn is_given(&self) -> bool {
        let SpecArgs { cron, every, at, spec, zone, except_date, start_at, end_at, jitter, offset: _ } = self;
        let lists = [cron.is_empty(), every.is_empty(), at.is_empty(), except_date.is_empty()];
        lists.contains(&false) || spec.is_some() || zone.is_some() || start_at.is_some() || end_at.is_some() || jitter.is_some()
    }

    /// Returns the specification. Shows the position of an error.
    pub fn into_spec(self, json: bool) -> Result<ScheduleSpec> {
        let mut spec = self.spec.as_deref().map_or(Ok(ScheduleSpec::default()), read_spec)?;
        spec.cron.extend(self.cron);
        let offset_ms = self.offset.map_or(0, millis);
        spec.every.extend(self.every.into_iter().map(|every| Interval { every_ms: millis(every), offset_ms }));
        spec.at.extend(self.at);
        if !self.except_date.is_empty() {
            spec.except.push(Calendar { dates: self.except_date, ..Calendar::default() });
        }
        spec.time_zone = self.zone.or(spec.time_zone);
        spec.start_at = self.start_at.or(spec.start_at);
        spec.end_at = self.end_at.or(spec.end_at);
        spec.jitter_ms = self.jitter.map_or(spec.jitter_ms, millis);
        problem::check(&spec, json)?;
        Ok(spec)
    }
}

/// Reads a specification from a YAML or JSON file.
fn read_spec(file: &Path) -> Result<ScheduleSpec> {
    let (text, name) = (read_file(file, "the specification")?, file.display().to_string());
    let hint = "the fields are cron, every, at, calendars, except, time_zone, start_at, end_at and jitter_ms";
    let wrong = |why: String| Mistake::usage(ErrorCode::ScheduleInvalid, format!("{name}: {why}"), hint);
    let value = read_value(&text, &name).map_err(|problems| {
        let first = problems.first().map(|problem| format!("line {}: {}", problem.line, problem.message));
        wrong(first.unwrap_or_else(|| "the file is empty".to_owned()))
    })?;
    Ok(serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?)
}

/// Parses `2026-11-20T09:00:00Z`, or a time with an offset: `2026-11-20T09:00:00+01:00`.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let wrong = || "must be a time like 2026-11-20T09:00:00Z or 2026-11-20T09:00:00+01:00".to_owned();
    if let Some(time) = Timestamp::parse(text) {
        return Ok(time);
    }
    // The date has dashes, too.
    let sign_at = text.rfind(['+', '-']).filter(|at| text.find('T').is_some_and(|t| t < *at)).ok_or_else(wrong)?;
    let (local, offset) = text.split_at(sign_at);
    let local = Timestamp::parse(&format!("{local}Z")).ok_or_else(wrong)?;
    let (hours, minutes) = offset[1..].split_once(':').ok_or_else(wrong)?;
    let number = |digits: &str, most: u64| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|number: &u64| is_number && *number <= most).ok_or_else(wrong)
    };
    let shift = (number(hours, 23)? * 60 + number(minutes, 59)?) * 60_000;
    let utc = if offset.starts_with('-') { local.0.checked_add(shift) } else { local.0.checked_sub(shift) };
    utc.map(Timestamp).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_an_offset_are_the_same_as_in_utc() {
        let utc = Timestamp::parse("2026-11-20T08:00:00Z").unwrap();
        for text in ["2026-11-20T08:00:00Z", "2026-11-20T09:00:00+01:00", "2026-11-20T02:30:00-05:30"] {
            assert_eq!(parse_time(text), Ok(utc), "{text}");
        }
        for text in [
            "2026-11-20",
            "2026-11-20T09:00:00",
            "2026-11-20T09:00:00+1",
            "2026-02-30T09:00:00+01:00",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
