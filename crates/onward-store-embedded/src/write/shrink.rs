//! Returning free pages to the file system after deletions.
//!
//! Owns the decision how much of the file may stay free and how fast the rest is returned: a few pages at a time, while the
//! writer is idle, or else once a second. Must never delay a commit for longer than one slice takes.

use std::time::{Duration, Instant};

use rusqlite::Connection;

/// Number of pages that one slice moves and returns: half a megabyte.
const SLICE_PAGES: u64 = 64;
/// Interval of slices while the writer is busy.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Free pages that are kept for the next writes: growing and shrinking the file all the time gains nothing.
const FREE_PAGES_MIN: u64 = 256;
/// Fraction of the file that may be free: one page in so many.
const FREE_SHARE: u64 = 8;

/// State of the return of free pages.
pub(crate) struct Shrinking {
    wanted: bool,
    last: Option<Instant>,
}

/// Starts as wanted: a process that was stopped midway may have left free pages.
impl Default for Shrinking {
    fn default() -> Shrinking {
        Shrinking { wanted: true, last: None }
    }
}

impl Shrinking {
    /// Requests a return, after a deletion.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// Stops until the next deletion.
    pub fn give_up(&mut self) {
        self.wanted = false;
    }

    /// Returns whether it is time for a slice.
    pub fn is_due(&self, is_idle: bool) -> bool {
        self.wanted && (is_idle || self.last.is_none_or(|last| last.elapsed() >= BUSY_PAUSE))
    }

    /// Returns one slice of pages to the file system; the result is their number, 0 if there is nothing left to return.
    pub fn slice(&mut self, db: &Connection) -> rusqlite::Result<u64> {
        self.last = Some(Instant::now());
        let count = |sql: &str| -> rusqlite::Result<u64> {
            Ok(u64::try_from(db.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0))?).unwrap_or(0))
        };
        let (pages, free) = (count("PRAGMA page_count")?, count("PRAGMA freelist_count")?);
        let slice = free.saturating_sub(FREE_PAGES_MIN.max(pages / FREE_SHARE)).min(SLICE_PAGES);
        if slice == 0 {
            self.wanted = false;
            return Ok(0);
        }
        // Each step of the statement moves one page.
        let mut statement = db.prepare(&format!("PRAGMA incremental_vacuum({slice})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(slice)
    }
}
