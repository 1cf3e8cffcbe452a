//! Giving space back to the disk after runs were deleted.
//!
//! Owns the decision how much of the file may stay free and how fast the rest goes: a few pages at a time, when nobody waits for the
//! writer, or else once a second. Must never hold up a commit for longer than one slice takes.

use std::time::{Duration, Instant};

use rusqlite::Connection;

/// How many pages one slice moves and gives back: half a megabyte.
const SLICE_PAGES: u64 = 64;
/// A busy writer takes time for one slice this often.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Free pages that stay: what is written next goes there, and a file that grows and shrinks all the time is no gain.
const FREE_PAGES_MIN: u64 = 256;
/// One page in so many may be free.
const FREE_SHARE: u64 = 8;

/// Whether there is space to give back.
pub(crate) struct Shrinking {
    wanted: bool,
    last: Option<Instant>,
}

/// A process that was stopped in the middle of it left some.
impl Default for Shrinking {
    fn default() -> Shrinking {
        Shrinking { wanted: true, last: None }
    }
}

impl Shrinking {
    /// Something was deleted.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// There is no use in trying again before something else is deleted.
    pub fn give_up(&mut self) {
        self.wanted = false;
    }

    /// Whether it is time for a slice.
    pub fn is_due(&self, is_idle: bool) -> bool {
        self.wanted && (is_idle || self.last.is_none_or(|last| last.elapsed() >= BUSY_PAUSE))
    }

    /// Gives one slice back; returns how many pages it was. None is left to give when that is 0.
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
