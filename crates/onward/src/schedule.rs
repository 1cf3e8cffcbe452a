//! Schedules as programs write them.

use std::time::Duration;

use onward_core::api::PutScheduleRequest;
use onward_core::budget::Budget;
use onward_core::schedule::{Calendar, Interval, Overlap, ScheduleDefinition, ScheduleOptions, ScheduleSpec, ScheduleTarget};
use onward_core::time::millis;
use onward_core::{Attribute, AttributeValue, Name, NameError, Namespace, Payload, Timestamp};
use serde::Serialize;

use crate::{Error, Result};

/// What starts runs by the clock: times, the kind and input of the runs, and policies.
///
/// ```
/// # use onward::{Overlap, Schedule, time::mins};
/// let nightly = Schedule::cron("0 2 * * *")
///     .zone("Europe/Berlin")
///     .except_date("2026-12-24/2027-01-01")
///     .overlap(Overlap::BufferOne)
///     .of("report")
///     .input("all shops");
/// # drop((nightly, Schedule::every(mins(15)).of("check")));
/// ```
///
/// It is stored by [`crate::Onward::put_schedule`], or when the program starts by [`crate::Builder::schedule`].
#[derive(Debug)]
#[must_use = "a schedule is stored by `put_schedule`, or by `Builder::schedule`"]
pub struct Schedule {
    spec: ScheduleSpec,
    options: ScheduleOptions,
    kind: Option<String>,
    input: Result<Payload, serde_json::Error>,
    is_template: bool,
    version: Option<String>,
    attributes: Vec<(String, AttributeValue)>,
    deadline: Option<Duration>,
    budget: Option<Budget>,
    force: bool,
}

impl From<ScheduleSpec> for Schedule {
    fn from(spec: ScheduleSpec) -> Schedule {
        Schedule {
            spec,
            options: ScheduleOptions::default(),
            kind: None,
            input: Ok(Payload::null()),
            is_template: false,
            version: None,
            attributes: Vec::new(),
            deadline: None,
            budget: None,
            force: false,
        }
    }
}

impl Schedule {
    /// Begins with the times of an expression of 5 fields, or of 6 with seconds in front: `0 9 * * MON-FRI`.
    pub fn cron(expression: impl Into<String>) -> Schedule {
        Schedule::from(ScheduleSpec::default()).and_cron(expression)
    }

    /// Begins with an interval: the multiples of this time after 1970.
    pub fn every(interval: Duration) -> Schedule {
        Schedule::from(ScheduleSpec::default()).and_every(interval, Duration::ZERO)
    }

    /// Begins with a single time.
    pub fn at(time: Timestamp) -> Schedule {
        Schedule::from(ScheduleSpec::default()).and_at(time)
    }

    /// Begins with the local times that match a calendar.
    pub fn calendar(calendar: Calendar) -> Schedule {
        Schedule::from(ScheduleSpec { calendars: vec![calendar], ..ScheduleSpec::default() })
    }

    /// Adds the times of an expression.
    pub fn and_cron(mut self, expression: impl Into<String>) -> Schedule {
        self.spec.cron.push(expression.into());
        self
    }

    /// Adds an interval, whose times are later by `offset`.
    pub fn and_every(mut self, interval: Duration, offset: Duration) -> Schedule {
        self.spec.every.push(Interval { every_ms: millis(interval), offset_ms: millis(offset) });
        self
    }

    /// Adds a single time.
    pub fn and_at(mut self, time: Timestamp) -> Schedule {
        self.spec.at.push(time);
        self
    }

    /// Sets the time zone of expressions, calendars and exceptions, by its IANA name; the default is UTC.
    pub fn zone(mut self, name: impl Into<String>) -> Schedule {
        self.spec.time_zone = Some(name.into());
        self
    }

    /// Excludes a date such as `2026-12-25`, or a range such as `2026-12-24/2027-01-01` with its last day.
    pub fn except_date(self, dates: impl Into<String>) -> Schedule {
        self.except(Calendar { dates: vec![dates.into()], ..Calendar::default() })
    }

    /// Excludes all times that match a calendar; a field that is absent matches every value.
    pub fn except(mut self, calendar: Calendar) -> Schedule {
        self.spec.except.push(calendar);
        self
    }

    /// Sets the first time that can be a slot.
    pub fn start_at(mut self, time: Timestamp) -> Schedule {
        self.spec.start_at = Some(time);
        self
    }

    /// Sets the time before which all slots are.
    pub fn end_at(mut self, time: Timestamp) -> Schedule {
        self.spec.end_at = Some(time);
        self
    }

    /// Delays each slot by up to this time; the delay follows from the id of the schedule and the slot.
    pub fn jitter(mut self, most: Duration) -> Schedule {
        self.spec.jitter_ms = millis(most);
        self
    }

    /// Sets what happens to a slot while a run of the schedule is running; the default skips it.
    pub fn overlap(mut self, overlap: Overlap) -> Schedule {
        self.options.overlap = overlap;
        self
    }

    /// Sets the age up to which a slot is started late, after downtime for example; the default is a day.
    pub fn catch_up(mut self, age: Duration) -> Schedule {
        self.options.catch_up_ms = Some(millis(age));
        self
    }

    /// Pauses the schedule when a run fails.
    pub fn pause_on_failure(mut self) -> Schedule {
        self.options.pause_on_failure = true;
        self
    }

    /// Sets the maximum number of slots that wait under [`Overlap::BufferAll`]; the default is 100.
    pub fn buffer_max(mut self, count: u32) -> Schedule {
        self.options.buffer_max = Some(count);
        self
    }

    /// Sets the kind of the runs: a name, or a typed [`crate::Workflow`].
    pub fn of(mut self, kind: impl Into<String>) -> Schedule {
        self.kind = Some(kind.into());
        self
    }

    /// Sets the input of the runs; the default is `null`.
    pub fn input(mut self, input: &(impl Serialize + ?Sized)) -> Schedule {
        (self.input, self.is_template) = (Payload::json(input), false);
        self
    }

    /// Sets an input whose texts are templates, rendered for each slot: `{{ slot.date }}`. Names are `slot.at`, `slot.local`,
    /// `slot.date`, `slot.time`, `slot.epoch_ms`, `schedule`, `run` and `cause`. A server cannot render encrypted inputs.
    pub fn template(mut self, input: &(impl Serialize + ?Sized)) -> Schedule {
        (self.input, self.is_template) = (Payload::json(input), true);
        self
    }

    /// Pins the runs to a version of their code; the default is the current one at each start.
    pub fn version(mut self, version: impl Into<String>) -> Schedule {
        self.version = Some(version.into());
        self
    }

    /// Sets an attribute of the runs.
    pub fn attribute(mut self, name: &str, value: impl Into<AttributeValue>) -> Schedule {
        self.attributes.push((name.to_owned(), value.into()));
        self
    }

    /// Cancels a run that has not ended after this time; time while it is paused does not count.
    pub fn deadline(mut self, deadline: Duration) -> Schedule {
        self.deadline = Some(deadline);
        self
    }

    /// Limits what each run and its children may spend.
    pub fn budget(mut self, budget: Budget) -> Schedule {
        self.budget = Some(budget);
        self
    }

    /// Stores the schedule also if no worker is known to have the kind.
    pub fn force(mut self) -> Schedule {
        self.force = true;
        self
    }

    /// Returns the request that stores it.
    pub(crate) fn put(self, namespace: Namespace, schedule: Name) -> Result<PutScheduleRequest, Error> {
        let attribute = |(name, value): (String, AttributeValue)| Ok::<_, NameError>(Attribute { name: Name::new(name)?, value });
        let target = ScheduleTarget {
            kind: Name::new(self.kind.unwrap_or_default())?,
            input: self.input.map_err(|why| Error::Convert { what: "the input", why })?,
            is_template: self.is_template,
            version: self.version.map(Name::new).transpose()?,
            attributes: self.attributes.into_iter().map(attribute).collect::<Result<_, _>>()?,
            deadline_ms: self.deadline.map(millis),
        };
        let definition = ScheduleDefinition { target, spec: self.spec, options: self.options, requester: None, granted: None };
        Ok(PutScheduleRequest { namespace, schedule, definition, budget: self.budget, force: self.force })
    }
}
