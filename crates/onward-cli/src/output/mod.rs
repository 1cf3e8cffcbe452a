//! Output: data on stdout, everything else on stderr.
//!
//! Must never print run data to a terminal unescaped.

pub mod entry_text;
mod event_formatter;
mod style;
mod table;
pub mod time;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

pub use event_formatter::{EventFormatter, format_failure, preview, shown, stop_text};
pub use onward_server::{document, escape};
pub use style::Style;
pub(crate) use table::cells;
pub use table::{Cell, TextTable};

/// Width of a terminal that reports none.
const WIDTH_DEFAULT: usize = 80;

/// Writes `text` and a line end to stdout.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes a line to stderr. Ignores write errors.
pub fn print_stderr(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// Prints which databases are missing from a list.
pub fn print_missing_databases(databases: &[String]) {
    for database in databases {
        print_stderr(&format!("{database} is down: its data is missing from this list"));
    }
}

/// Writes one JSON document on one line.
pub fn print_json(value: &(impl Serialize + ?Sized)) -> anyhow::Result<()> {
    Ok(print(&json_line(value)?)?)
}

/// Serializes to one line of JSON, escaped for terminals.
pub fn json_line(value: &(impl Serialize + ?Sized)) -> serde_json::Result<String> {
    Ok(escape::json(serde_json::to_string(value)?))
}

/// Returns the width of the terminal; `None` if stdout is not a terminal.
pub fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    Some(if columns == 0 { WIDTH_DEFAULT } else { columns })
}

/// Truncates a line to `width` characters, with an ellipsis.
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Formats a count with its noun: `1 event`, `2 events`.
pub fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Delay before the first line, and update interval.
const PAUSE: Duration = Duration::from_millis(300);

/// A progress line on stderr for long commands, only on a terminal that does not show data.
pub struct Progress {
    what: &'static str,
    shown: bool,
    due: Option<Instant>,
}

impl Progress {
    /// Creates a progress line. Shows nothing if stderr is not a terminal, or if stdout is one and shows the data.
    pub fn new(what: &'static str, data_is_shown: bool) -> Progress {
        let wanted = io::stderr().is_terminal() && !(data_is_shown && io::stdout().is_terminal());
        Progress { what, shown: false, due: wanted.then(|| Instant::now() + PAUSE) }
    }

    pub fn at(&mut self, count: u64) {
        if self.due.is_some_and(|due| Instant::now() >= due) {
            drop(write!(io::stderr(), "\r{count} {} ", self.what));
            self.shown = true;
            self.due = Some(Instant::now() + PAUSE);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            drop(write!(io::stderr(), "\r{:40}\r", ""));
        }
    }
}
