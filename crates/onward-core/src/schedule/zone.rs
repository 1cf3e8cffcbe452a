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

/// Returns the time of a second; those that jiff does not have are far outside of the slots.
fn instant(at: i64) -> Timestamp {
    Timestamp::from_second(at).unwrap_or(if at < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
