//! Time zones: the offsets of local time, from the database that is part of the program.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::spec::SpecError;

const ZONE_HINT: &str = "use a name of the IANA database, such as `Europe/Berlin`; without one, times are in UTC";

/// A time zone.
#[derive(Debug, Clone)]
pub(super) struct Zone(TimeZone);

/// A span of time with one offset, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub start: i64,
    pub end: i64,
    /// The difference of local time to UTC.
    pub offset: i64,
    /// The same before the segment.
    pub before: i64,
}

impl Segment {
    /// Returns true if the time is in the segment.
    pub(super) fn has(&self, at: i64) -> bool {
        (self.start..self.end).contains(&at)
    }
}

impl Zone {
    /// Finds a zone by its name; upper and lower case do not matter.
    pub(super) fn find(name: Option<&str>) -> Result<Zone, SpecError> {
        let Some(name) = name else { return Ok(Zone(TimeZone::UTC)) };
        match TimeZone::get(name) {
            Ok(zone) if !zone.is_unknown() => Ok(Zone(zone)),
            _ => {
                let name: String = name.chars().take(100).collect();
                Err(SpecError::new("spec.time_zone", format!("`{name}` is no time zone"), ZONE_HINT))
            }
        }
    }

    /// Returns the segment that has the time.
    pub(super) fn segment(&self, at: i64) -> Segment {
        let time = instant(at);
        // Transitions that precede the next second include one at this second.
        let start = self.0.preceding(instant(at + 1)).next().map(|transition| transition.timestamp().as_second());
        let end = self.0.following(time).next().map(|transition| transition.timestamp().as_second());
        let offset = self.offset(at);
        Segment {
            start: start.unwrap_or(i64::MIN),
            end: end.unwrap_or(i64::MAX),
            offset,
            before: start.map_or(offset, |start| self.offset(start - 1)),
        }
    }

    fn offset(&self, at: i64) -> i64 {
        self.0.to_offset(instant(at)).seconds().into()
    }
}

/// A time as people in a time zone write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalTime {
    /// With the offset, such as `2026-11-20T02:00:00+01:00`.
    pub text: String,
    /// `2026-11-20`.
    pub date: String,
    /// `02:00:00`.
    pub time: String,
}

/// Returns a time in a zone; in UTC if there is no such zone.
pub fn local_time(at: crate::Timestamp, zone: Option<&str>) -> LocalTime {
    let seconds = i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX);
    let offset = Zone::find(zone).map_or(0, |zone| zone.offset(seconds));
    let shifted = crate::Timestamp(seconds.saturating_add(offset).max(0).unsigned_abs().saturating_mul(1_000));
    let text = shifted.to_string();
    let (date, time) = text.trim_end_matches(".000Z").split_once('T').expect("a timestamp has a date and a time");
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs() / 60);
    LocalTime {
        text: format!("{date}T{time}{sign}{:02}:{:02}", minutes / 60, minutes % 60),
        date: date.to_owned(),
        time: time.to_owned(),
    }
}

/// Returns the time of a second; those that jiff does not have are far outside of the slots.
fn instant(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap_or(if at < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
