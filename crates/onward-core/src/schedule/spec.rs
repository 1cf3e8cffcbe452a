//! The definition of a schedule as callers write it, and the errors of its parts.

use crate::codec::Message;
use crate::spend::budget::BudgetHead;
use crate::time::millis;
use crate::{Attribute, ErrorCode, ErrorInfo, Hash, Name, Payload, Timestamp, message, numbered};

/// The maximum number of entries in each list of a specification.
pub(super) const ENTRIES_MAX: usize = 100;

/// The maximum number of single times and of dates of one calendar.
pub(super) const TIMES_MAX: usize = 1_000;

/// The maximum number of slots that wait for a run to end.
pub const BUFFER_MAX: u32 = 1_000;

/// The maximum size of the input of the runs: the state of a schedule has it.
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// The maximum size of a specification, encoded.
const SPEC_BYTES_MAX: usize = 64 * 1024;

/// The shortest interval, and the shortest catch-up window.
const SHORTEST_MS: u64 = 1_000;

message! {
    /// A schedule: what it starts, when, and how.
    pub struct ScheduleDefinition {
        1 => target: ScheduleTarget,
        2 => spec: ScheduleSpec,
        #[serde(default)]
        3 => options: ScheduleOptions,
        /// The name of the credential that defined it; not part of the definition's identity.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => requester: Option<String>,
        /// The budget of each run, as granted to that credential.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => granted: Option<Box<BudgetHead>>,
    }

    /// The run that each slot starts.
    pub struct ScheduleTarget {
        1 => kind: Name,
        2 => input: Payload,
        /// The texts of the input are templates, which are rendered with the slot before the run starts.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        3 => is_template: bool,
        /// The code version that runs are pinned to; the current one at each start if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => version: Option<Name>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        5 => attributes: Vec<Attribute>,
        /// Cancel a run after this time, pauses not counted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => deadline_ms: Option<u64>,
    }

    /// The slots of a schedule: all times of its lists, without those that `except` matches.
    #[derive(Default)]
    #[serde(default, deny_unknown_fields)]
    pub struct ScheduleSpec {
        /// Expressions of 5 fields (minute, hour, day, month, weekday) or 6 (with seconds in front).
        #[serde(skip_serializing_if = "Vec::is_empty")]
        1 => cron: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        2 => every: Vec<Interval>,
        /// Single times.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        3 => at: Vec<Timestamp>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        4 => calendars: Vec<Calendar>,
        /// Times that are no slots. A field that is absent here matches every value.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        5 => except: Vec<Calendar>,
        /// The IANA name of the time zone of expressions, calendars and exceptions; UTC if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        6 => time_zone: Option<String>,
        /// The first time that can be a slot.
        #[serde(skip_serializing_if = "Option::is_none")]
        7 => start_at: Option<Timestamp>,
        /// Slots are before this time.
        #[serde(skip_serializing_if = "Option::is_none")]
        8 => end_at: Option<Timestamp>,
        /// The maximum delay of a slot. The delay follows from schedule and slot, and ends before the next slot.
        #[serde(skip_serializing_if = "is_zero")]
        9 => jitter_ms: u64,
    }

    /// The times that are a multiple of `every_ms` after 1970-01-01T00:00:00Z plus the offset.
    #[derive(Eq)]
    #[serde(deny_unknown_fields)]
    pub struct Interval {
        1 => every_ms: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        2 => offset_ms: u64,
    }

    /// Local times whose fields all match. The fields are written as in a cron expression; if absent, seconds, minutes and hours are
    /// 0, and years, months, days and weekdays match every value.
    #[derive(Default, Eq)]
    #[serde(default, deny_unknown_fields)]
    pub struct Calendar {
        #[serde(skip_serializing_if = "Option::is_none")]
        1 => second: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        2 => minute: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        3 => hour: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        4 => day: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        5 => month: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        6 => weekday: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        7 => year: Option<String>,
        /// Dates such as `2026-12-25`, and ranges of them such as `2026-12-24/2027-01-01`, last day included.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        8 => dates: Vec<String>,
    }

    /// What happens when a slot is due.
    #[derive(Default, Eq)]
    #[serde(default, deny_unknown_fields)]
    pub struct ScheduleOptions {
        1 => overlap: Overlap,
        /// The age up to which a slot that was not started in time is started late; a day if absent.
        2 => catch_up_ms: Option<u64>,
        /// Pause the schedule when a run fails.
        3 => pause_on_failure: bool,
        /// The maximum number of waiting slots under `buffer_all`.
        4 => buffer_max: Option<u32>,
    }
}

numbered! {
    /// What happens to a slot that is due while a run of the schedule is running.
    #[derive(Default)]
    pub enum Overlap {
        /// The slot is skipped.
        #[default]
        0 => Skip / "skip",
        /// The slot waits for the end of the run; while one waits, others are skipped.
        1 => BufferOne / "buffer_one",
        /// All slots wait, up to `buffer_max`, and start one after the other.
        2 => BufferAll / "buffer_all",
        /// The run is canceled, and the slot starts when it has ended.
        3 => CancelOther / "cancel_other",
        /// The run is terminated, and the slot starts when it has ended.
        4 => TerminateOther / "terminate_other",
        /// The slot starts beside the run.
        5 => AllowAll / "allow_all",
    }
}

impl ScheduleDefinition {
    /// Refuses a specification that is too long to be kept in the state of a schedule.
    pub(super) fn check_size(&self) -> Result<(), SpecError> {
        match self.spec.to_bytes().len() > SPEC_BYTES_MAX {
            true => Err(SpecError::new(
                "spec",
                format!("the specification is longer than {SPEC_BYTES_MAX} bytes"),
                "split it into several schedules",
            )),
            false => Ok(()),
        }
    }

    /// Returns true if both define the same schedule, by the same or by different callers.
    pub fn is_same(&self, other: &ScheduleDefinition) -> bool {
        self.target.is_same(&other.target)
            && (&self.spec, &self.options, &self.granted) == (&other.spec, &other.options, &other.granted)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ScheduleOptions {
    /// Returns the age up to which a slot is started late.
    pub fn catch_up(&self) -> u64 {
        self.catch_up_ms.unwrap_or(millis(std::time::Duration::from_hours(24)))
    }

    /// Returns the number of slots that may wait under `buffer_all`.
    pub fn buffer_max(&self) -> usize {
        self.buffer_max.unwrap_or(100) as usize
    }

    /// Refuses numbers outside of their limits.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.catch_up() < SHORTEST_MS {
            return Err(SpecError::new("options.catch_up_ms", "the catch-up window is shorter than a second", LATE_HINT));
        }
        if self.buffer_max.is_some_and(|most| most == 0 || most > BUFFER_MAX) {
            let message = format!("the buffer has between 1 and {BUFFER_MAX} slots");
            return Err(SpecError::new("options.buffer_max", message, "use `overlap: skip` to buffer nothing"));
        }
        Ok(())
    }
}

const LATE_HINT: &str = "a server needs some time to start what is due; the default is a day";

impl ScheduleTarget {
    /// Returns true if both start the same runs. Every encryption of an input has different bytes, so inputs are compared by hash.
    fn is_same(&self, other: &ScheduleTarget) -> bool {
        let ScheduleTarget { kind, input, is_template, version, attributes, deadline_ms } = self;
        (kind, is_template, version, attributes, deadline_ms)
            == (&other.kind, &other.is_template, &other.version, &other.attributes, &other.deadline_ms)
            && Hash::of(input) == Hash::of(&other.input)
    }

    /// Refuses an input that is too long, and attributes that are too long or too many.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.input.data().len() > INPUT_BYTES_MAX {
            let message = format!("the input is longer than {INPUT_BYTES_MAX} bytes");
            return Err(SpecError::new("target.input", message, "store the data elsewhere and pass a reference to it"));
        }
        crate::attribute::check(&self.attributes)
            .map_err(|error| SpecError::new("target.attributes", error.to_string(), "shorten or remove some of them"))
    }
}

impl Interval {
    /// Refuses intervals that are too short, or whose offset is not within the interval.
    pub(super) fn check(&self, part: &str) -> Result<(), SpecError> {
        if self.every_ms < SHORTEST_MS {
            return Err(SpecError::new(part, "the interval is shorter than a second", "use at least 1000 milliseconds"));
        }
        if self.offset_ms >= self.every_ms {
            let hint = "the offset shifts the slots within the interval: use a smaller one";
            return Err(SpecError::new(part, "the offset is not shorter than the interval", hint));
        }
        Ok(())
    }
}

/// An error in the definition of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part}{}: {message}", position.map(|position| format!(", character {position}")).unwrap_or_default())]
pub struct SpecError {
    /// The path of the part, such as `spec.cron[0]`.
    pub part: String,
    /// The character in that part, from 1.
    pub position: Option<usize>,
    pub message: String,
    pub hint: &'static str,
}

impl SpecError {
    /// Returns the error of a part that another crate checks.
    pub fn of(part: impl Into<String>, message: impl Into<String>, hint: &'static str) -> SpecError {
        SpecError::new(part, message, hint)
    }

    pub(super) fn new(part: impl Into<String>, message: impl Into<String>, hint: &'static str) -> SpecError {
        SpecError { part: part.into(), position: None, message: message.into(), hint }
    }

    /// Returns code, consequence and hint.
    pub fn info(&self) -> ErrorInfo {
        ErrorCode::ScheduleInvalid.info().with_hint(self.hint)
    }
}
