//! Formats times and durations.

use std::time::{Duration, SystemTime};

use onward_core::Timestamp;

pub fn now() -> Timestamp {
    Timestamp::default().after(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Formats a duration with one unit: `850 ms`, `12.3 s`, `5 min`, `3 h`, `12 d`.
pub fn span(span: Duration) -> String {
    let round = |unit: u64| (span.as_secs() + unit / 2) / unit;
    match span.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        millis @ 1_000..59_950 => format!("{}.{} s", (millis + 50) / 1_000, (millis + 50) / 100 % 10),
        59_950..3_570_000 => format!("{} min", round(60)),
        3_570_000..172_800_000 => format!("{} h", round(3_600)),
        _ => format!("{} d", round(86_400)),
    }
}

/// Formats a past time, without tenths of seconds: `3 min ago`.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    let past = now.since(at);
    match past.as_secs() {
        0 => "now".to_owned(),
        seconds @ 1..60 => format!("{seconds} s ago"),
        _ => format!("{} ago", span(past)),
    }
}

/// Formats a future time as `in 3 min`, or a past one as `3 min ago`.
pub fn until(at: Timestamp, now: Timestamp) -> String {
    if at <= now { ago(at, now) } else { format!("in {}", span(at.since(now))) }
}

/// Formats a timestamp with its distance from now.
pub fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{at} ({})", until(at, now))
}

/// Formats the time since `start` in seconds with milliseconds.
pub fn offset(at: Timestamp, start: Timestamp) -> String {
    let millis = at.since(start).as_millis();
    format!("+{}.{:03}s", millis / 1_000, millis % 1_000)
}

#[cfg(test)]
mod tests;
