//! Work of the writer between batches: checkpoints, returning space, repair.
//!
//! Owns the timing. None of it runs inside a batch, and all replies are sent before. Must never write after a write or a sync has
//! failed (T3).
//!
//! Invariants:
//! - I10 (S40): deleted data stays in the write-ahead log for about a second at most while no reader needs it, also over a kill: a log
//!   that an earlier process left may hold such data and is truncated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::error::{Failure, is_out_of_memory};
use crate::file::failpoint;
use crate::file::schema::{BUSY_TIMEOUT, keep_log};
use crate::ready::Ready;
use crate::repair::rows;
use crate::write::writer::Writer;

/// Pause between repairs, since damage that could not be repaired is met again and again.
const REPAIR_PAUSE: Duration = Duration::from_secs(60);

/// Maximum time that deleted data stays in the write-ahead log while no reader needs it: many deletions share one truncation.
const ERASE_PAUSE: Duration = Duration::from_secs(1);

/// Number of pages that one slice moves and returns: half a megabyte.
const SLICE_PAGES: u64 = 64;
/// Interval of slices while the writer is busy.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Free pages that are kept for the next writes: growing and shrinking the file all the time gains nothing.
const FREE_PAGES_MIN: u64 = 256;
/// Fraction of the file that may be free: one page in so many.
const FREE_SHARE: u64 = 8;

#[derive(Default)]
pub(crate) struct Maintenance {
    /// Time of the last repair without success.
    repair_tried_at: Option<Instant>,
    pub vacuum: IncrementalVacuum,
    pub wal_truncation: WalTruncation,
    /// Pages were freed since the file was last truncated.
    truncation_requested: bool,
}

/// Length of the write-ahead log in pages after the last commit.
pub(crate) struct LogLength {
    pages: AtomicU64,
    /// Number of commits that wrote to the log.
    commits: AtomicU64,
    pub checkpoint_pages: u64,
}

impl LogLength {
    pub fn new(checkpoint_pages: u64) -> LogLength {
        LogLength { pages: AtomicU64::new(0), commits: AtomicU64::new(0), checkpoint_pages }
    }

    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub fn set(&self, pages: u64) {
        self.pages.store(pages, Ordering::Relaxed);
        self.commits.fetch_add(1, Ordering::Relaxed);
    }
}

/// Truncation of a write-ahead log that holds deleted data (I10, S40).
#[derive(Default)]
pub(crate) struct WalTruncation {
    requested: bool,
    last: Option<Instant>,
}

impl WalTruncation {
    /// Requests a truncation, after a deletion, and if an earlier process left its log.
    pub fn request(&mut self) {
        self.requested = true;
    }

    /// Returns the time until the log is to be truncated; `None` if it holds no deleted data.
    pub fn due_in(&self) -> Option<Duration> {
        self.requested.then(|| self.last.map_or(Duration::ZERO, |last| ERASE_PAUSE.saturating_sub(last.elapsed())))
    }
}

/// Return of free pages to the file system after deletions: a few pages at a time, while the writer is idle, or else once a
/// second. No commit is delayed for longer than one slice takes.
pub(crate) struct IncrementalVacuum {
    requested: bool,
    last: Option<Instant>,
}

/// Starts as wanted: a process that was stopped midway may have left free pages.
impl Default for IncrementalVacuum {
    fn default() -> IncrementalVacuum {
        IncrementalVacuum { requested: true, last: None }
    }
}

impl IncrementalVacuum {
    /// Requests a return, after a deletion.
    pub fn request(&mut self) {
        self.requested = true;
    }

    /// Stops until the next deletion.
    pub fn give_up(&mut self) {
        self.requested = false;
    }

    /// Returns whether it is time for a slice.
    pub fn is_due(&self, is_idle: bool) -> bool {
        self.requested && (is_idle || self.last.is_none_or(|last| last.elapsed() >= BUSY_PAUSE))
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
            self.requested = false;
            return Ok(0);
        }
        // Each step of the statement moves one page.
        let mut statement = db.prepare(&format!("PRAGMA incremental_vacuum({slice})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(slice)
    }
}

impl Maintenance {
    /// Returns whether the last repair failed recently.
    pub fn repair_failed(&self) -> bool {
        self.repair_tried_at.is_some_and(|at| at.elapsed() < REPAIR_PAUSE)
    }
}

impl Writer<'_> {
    /// Returns space to the file system while the queue is empty.
    pub fn shrink_while_idle(&mut self) {
        while self.maintenance.vacuum.is_due(self.shared.queue.is_empty()) {
            self.shrink();
        }
        if self.maintenance.wal_truncation.due_in().is_some_and(|span| span.is_zero()) {
            self.erase_log();
        }
    }

    /// Checkpoints and truncates the write-ahead log, which holds the pages from before a deletion. A reader that still needs it
    /// delays that. The mark first records that the log may go (I6).
    fn erase_log(&mut self) {
        if self.shared.queue.stopped().is_some() {
            self.maintenance.wal_truncation = WalTruncation::default();
            return;
        }
        self.maintenance.wal_truncation.last = Some(Instant::now());
        if !self.checkpoint() || !self.mark.close() {
            return;
        }
        // Callers of the writer must not wait for a reader.
        drop(self.db.busy_timeout(Duration::ZERO));
        let cut = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        drop(self.db.busy_timeout(BUSY_TIMEOUT));
        match cut {
            Ok(busy) => self.maintenance.wal_truncation.requested = busy != 0,
            Err(error) => {
                if let Failure::Io(why) = Failure::of_commit(&error) {
                    self.refuse_writes(&format!("truncating the write-ahead log failed: {why}"));
                }
            }
        }
    }

    /// Repairs what can be rebuilt; returns whether anything was.
    pub fn repair(&mut self) -> bool {
        if self.maintenance.repair_failed() || self.shared.queue.stopped().is_some() {
            return false;
        }
        self.maintenance.repair_tried_at = Some(Instant::now());
        let repaired = rows::repair(self.db, self.shared.clock.now()).unwrap_or_default();
        self.shared.repair_failed.store(repaired == 0, Ordering::Relaxed);
        if repaired == 0 {
            return false;
        }
        // There may be more damage, and what was repaired may be used at once.
        self.maintenance.repair_tried_at = None;
        self.forget_runs();
        if let Ok(ready) = Ready::load(self.db) {
            self.ready = ready;
        }
        self.shared.announced_due.store(u64::MAX, Ordering::Relaxed);
        self.shared.count(|stats| stats.repaired += repaired);
        true
    }

    /// Returns a slice of free pages. The file is truncated when the write-ahead log is copied into it.
    fn shrink(&mut self) {
        if self.shared.queue.stopped().is_some() {
            return self.maintenance.vacuum.give_up();
        }
        match self.maintenance.vacuum.slice(self.db) {
            Ok(0) if self.maintenance.truncation_requested => {
                self.maintenance.truncation_requested = false;
                self.checkpoint();
            }
            Ok(pages) => {
                self.maintenance.truncation_requested |= pages > 0;
                self.shared.count(|stats| stats.pages_returned += pages);
            }
            Err(error) => {
                self.maintenance.vacuum.give_up();
                if let Failure::Io(why) = Failure::of_commit(&error) {
                    self.refuse_writes(&format!("returning free space failed: {why}"));
                }
            }
        }
    }

    /// Copies the write-ahead log into the database, after all replies are sent. Returns whether all of it was copied.
    pub fn checkpoint(&mut self) -> bool {
        if self.shared.queue.stopped().is_some() {
            return false;
        }
        failpoint::hit("before_checkpoint");
        let started = Instant::now();
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
        let done = self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], read);
        let failure = done.as_ref().err().map(|error| (is_out_of_memory(error), Failure::of_commit(error)));
        // A full disk or a lack of memory does no harm: the log keeps everything and the next checkpoint tries again.
        if let Some((false, Failure::Io(why))) = failure {
            self.refuse_writes(&format!("a checkpoint failed: {why}"));
        }
        self.shared.count(|stats| {
            stats.checkpoints += 1;
            stats.checkpoint += started.elapsed();
        });
        failpoint::hit("after_checkpoint");
        done.is_ok_and(|(busy, frames, copied)| busy == 0 && frames == copied)
    }

    /// Removes the write-ahead log with the connection if the database has all of it. The mark records that first, durably, since
    /// a missing log is damage otherwise (I6).
    pub fn close(&mut self) {
        self.shared.leases.close();
        if self.checkpoint() && self.mark.close() {
            let _ = keep_log(self.db, false); // on failure the log stays, which does no harm
        }
    }
}
