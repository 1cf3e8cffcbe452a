//! What the server says about itself: one line per happening, for people or for machines.
//!
//! Must never tell a payload, and never let what others wrote fake a line or move a cursor (S29).

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use onward_store::{Clock, SystemClock};

use crate::escape;

/// The longest value that is written out, in characters.
const VALUE_CHARS_MAX: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Pretty,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

type Out = Box<dyn std::io::Write + Send>;

/// Where lines go.
#[derive(Clone)]
pub struct Trace {
    to: Option<Arc<To>>,
}

struct To {
    format: Format,
    level: Level,
    out: Mutex<Out>,
}

impl Trace {
    /// Says nothing.
    pub fn silent() -> Trace {
        Trace { to: None }
    }

    /// Writes everything up to `level` to stderr.
    pub fn stderr(format: Format, level: Level) -> Trace {
        Trace::to(format, level, Box::new(std::io::stderr()))
    }

    pub fn to(format: Format, level: Level, out: Out) -> Trace {
        Trace { to: Some(Arc::new(To { format, level, out: Mutex::new(out) })) }
    }

    /// Writes one line. That nobody reads it is no reason to fail.
    pub fn say(&self, level: Level, message: &str, fields: &[(&str, &dyn Display)]) {
        let Some(to) = self.to.as_ref().filter(|to| level <= to.level) else { return };
        let line = match to.format {
            Format::Pretty => pretty(level, message, fields),
            Format::Json => json(level, message, fields),
        };
        let mut out = to.out.lock().unwrap_or_else(PoisonError::into_inner);
        drop(out.write_all(line.as_bytes()).and_then(|()| out.flush()));
    }
}

fn pretty(level: Level, message: &str, fields: &[(&str, &dyn Display)]) -> String {
    let mut line = format!("{} {:5} {}", SystemClock.now(), level.as_str(), escape::text(message));
    for (name, value) in fields {
        // Writing to a String cannot fail.
        let _ = write!(line, " {name}={}", escape::text(&clipped(value)));
    }
    line.push('\n');
    line
}

fn json(level: Level, message: &str, fields: &[(&str, &dyn Display)]) -> String {
    let text = |text: &str| serde_json::to_string(text).expect("a text is plain data");
    let mut line = format!(r#"{{"at":"{}","level":"{}","message":{}"#, SystemClock.now(), level.as_str(), text(message));
    for (name, value) in fields {
        let _ = write!(line, ",{}:{}", text(name), text(&clipped(value)));
    }
    line.push('}');
    escape::json(line) + "\n"
}

fn clipped(value: &dyn Display) -> String {
    value.to_string().chars().take(VALUE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_whatever_it_tells() {
        let evil = "a\u{1b}[31m\nb\u{202e}";
        let line = pretty(Level::Info, "request", &[("run", &evil)]);
        assert!(line.ends_with(" info  request run=a\\u{1b}[31m\\nb\\u{202e}\n"), "{line:?}");
        let line = json(Level::Error, "request", &[("run", &evil)]);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.contains(['\u{1b}', '\u{202e}']));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["run"], evil);
    }

    #[test]
    fn a_long_value_is_cut() {
        assert!(pretty(Level::Info, "x", &[("run", &"y".repeat(10_000))]).len() < 400);
    }
}
