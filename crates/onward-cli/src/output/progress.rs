//! A progress line on stderr for long commands, only on a terminal that does not show data.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Delay before the first line, and update interval.
const PAUSE: Duration = Duration::from_millis(300);

pub struct Progress {
    what: &'static str,
    shown: bool,
    due: Option<Instant>,
}

impl Progress {
    /// Creates a progress line. Shows nothing if stderr is not a terminal, or if stdout is one and shows the data.
    pub fn new(what: &'static str, data_is_shown: bool) -> Progress {
        let wanted = std::io::stderr().is_terminal() && !(data_is_shown && std::io::stdout().is_terminal());
        Progress { what, shown: false, due: wanted.then(|| Instant::now() + PAUSE) }
    }

    pub fn at(&mut self, count: u64) {
        if self.due.is_some_and(|due| Instant::now() >= due) {
            drop(write!(std::io::stderr(), "\r{count} {} ", self.what));
            self.shown = true;
            self.due = Some(Instant::now() + PAUSE);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            drop(write!(std::io::stderr(), "\r{:40}\r", ""));
        }
    }
}
