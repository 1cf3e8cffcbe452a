//! The server's own log: one line per occurrence, for people or for machines.
//!
//! Must never contain a payload, and escapes foreign text, so that it cannot fake a line or move the cursor (S29).
//!
//! Invariant TR1: logging never waits for the reader of the log. A separate thread writes the lines; lines that do not fit its
//! queue are dropped and counted.

mod engine_events;

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onward_store::{Clock, SystemClock};

use crate::http::escape;

/// Longest value that is written, in characters.
const VALUE_CHARS_MAX: usize = 300;

/// Maximum number of queued lines.
const LINES_MAX: usize = 4_096;

/// Time limit for writing the queued lines at the end.
const LAST_LINES: Duration = Duration::from_secs(1);

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

impl Format {
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Pretty => "pretty",
            Format::Json => "json",
        }
    }
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

type Out = Box<dyn std::io::Write + Send>;

/// Destination of log lines.
#[derive(Clone)]
pub struct Trace {
    to: Option<Arc<TraceSink>>,
}

struct TraceSink {
    format: Format,
    level: Level,
    /// Queue of the writing thread; `Some` until the end.
    lines: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
    /// Disconnects when everything is written.
    written: Mutex<Receiver<()>>,
}

impl Trace {
    /// Returns a destination that discards everything.
    pub fn silent() -> Trace {
        Trace { to: None }
    }

    /// Writes everything up to `level` to stderr.
    pub fn stderr(format: Format, level: Level) -> Trace {
        Trace::to(format, level, Box::new(std::io::stderr()))
    }

    pub fn to(format: Format, level: Level, out: Out) -> Trace {
        let (lines, queue) = sync_channel(LINES_MAX);
        let (done, written) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        let write = move || write_lines(out, format, &queue, &counted, &done);
        let thread = std::thread::Builder::new().name("onward-log".to_owned()).spawn(write);
        // Without a thread every line counts as lost.
        let lines = thread.ok().map(|_| lines);
        Trace { to: Some(Arc::new(TraceSink { format, level, lines, lost, written: Mutex::new(written) })) }
    }

    /// Writes the engine's `tracing` events, too, from now on: failed model calls, paused runs, lost signals. Does nothing if the
    /// process already has a global subscriber.
    pub fn capture_tracing_events(&self) {
        if let Some(to) = &self.to {
            let _ = tracing::subscriber::set_global_default(engine_events::EngineEvents::new(to));
        }
    }

    /// Queues one line. Never fails and never waits (TR1).
    pub fn log(&self, level: Level, message: &str, fields: &[(&str, &dyn Display)]) {
        let Some(to) = self.to.as_ref().filter(|to| level <= to.level) else { return };
        let line = line(to.format, level, message, fields);
        if to.lines.as_ref().is_none_or(|lines| lines.try_send(line).is_err()) {
            to.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for TraceSink {
    fn drop(&mut self) {
        drop(self.lines.take());
        let written = self.written.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = written.recv_timeout(LAST_LINES); // the reader may be stuck
    }
}

fn write_lines(mut out: Out, format: Format, queue: &Receiver<String>, lost: &AtomicU64, _done: &Sender<()>) {
    // Write errors are ignored: there is no other place to report them.
    let mut write = |line: String| drop(out.write_all(line.as_bytes()).and_then(|()| out.flush()));
    let lost_line = || match lost.swap(0, Ordering::Relaxed) {
        0 => None,
        lines => Some(line(format, Level::Warn, "log lines lost: the reader of the log is too slow", &[("lines", &lines)])),
    };
    while let Ok(line) = queue.recv() {
        write(line);
        lost_line().into_iter().for_each(&mut write);
    }
    lost_line().into_iter().for_each(write);
}

fn line(format: Format, level: Level, message: &str, fields: &[(&str, &dyn Display)]) -> String {
    match format {
        Format::Pretty => pretty(level, message, fields),
        Format::Json => json(level, message, fields),
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
    let text = |text: &str| serde_json::to_string(text).expect("a string serializes");
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
mod tests;
