//! Restore guard: detects a restored backup or a promoted standby, which has lost writes that servers and workers still rely on.
//!
//! Owns the single row of `onward.restore_guard`: the identity of the database at its last write (`location`), and the epoch below which
//! no lease counts (`floor`). The first statement of every transaction reads it. A server that finds another identity, or less
//! write-ahead log than before, raises the floor to the present and revokes all leases. Epochs are times by the database clock,
//! so everything granted in the lost time is below the floor. Must never revoke leases twice for the same change.
//!
//! Invariants:
//! - DB9 (L7, F32): no epoch is assigned twice, and no lease counts that was granted before the database went back, however it
//!   went back and whichever server notices first.

use onward_store::sync;
use std::sync::{Mutex, MutexGuard};

use tokio_postgres::Row;

use crate::connection::sql::{Db, Sql};
use crate::connection::timeout::TimeLimit;
use crate::error::{ErrorClass, OpError, Outcome, classify};

/// Reads the time, the floor, the length of the write-ahead log, the start time of the server and the oid of the table. After a
/// restart of the server, [`LOCATION`] is checked, which costs more.
const START_QUERY: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, l.floor, l.location = '', l.tableoid::bigint,
  (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
  FROM onward.restore_guard l WHERE l.only_one";
/// The same without these functions, for databases that lack them; only recreated tables are noticed then.
const LIMITED_START_QUERY: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, l.floor, l.location = '', l.tableoid::bigint,
  0::bigint, 0::bigint FROM onward.restore_guard l WHERE l.only_one";

/// Identity of the cluster, its timeline, the database and the table: a dump, a base backup or a promoted standby changes at
/// least one.
const LOCATION: &str = "SELECT (SELECT system_identifier FROM pg_control_system()) || '/' ||
  substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8) || '/' ||
  (SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || 'onward.restore_guard'::regclass::oid";
const LIMITED_LOCATION: &str = "SELECT '/' || 'onward.restore_guard'::regclass::oid";

/// Revokes all leases of runs; those that were running become claimable.
const TAKE_BACK: &str =
    "UPDATE onward.runs SET worker = NULL, ready = CASE WHEN status = 0 THEN $1::bigint END WHERE worker IS NOT NULL";

/// Result of the first statement of a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TransactionStart {
    pub micros: i64,
    pub floor: i64,
    /// `location` is empty: the database is new, or an operator cleared it to declare it another one.
    is_denied: bool,
    table: i64,
    written: i64,
    running_since: i64,
}

/// What this store knows about the database it writes to.
#[derive(Default)]
pub(crate) struct RestoreGuard {
    state: Mutex<GuardState>,
}

#[derive(Debug, Clone, Copy, Default)]
struct GuardState {
    /// The last result that was accepted.
    known: Option<TransactionStart>,
    is_limited: bool,
}

/// Conclusion from a [`TransactionStart`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdentityCheck {
    Same,
    /// Another server has noticed the change and raised the floor.
    Moved,
    /// The identity has to be verified.
    Doubtful,
}

impl RestoreGuard {
    fn lock(&self) -> MutexGuard<'_, GuardState> {
        sync::lock(&self.state)
    }

    fn start_query(&self) -> Sql {
        Sql::new(if self.is_limited() { LIMITED_START_QUERY } else { START_QUERY })
    }

    /// Returns whether the database lacks the functions of PostgreSQL that the full check needs.
    pub fn is_limited(&self) -> bool {
        self.lock().is_limited
    }

    /// Compares a result with the last accepted one; its transaction must have begun later.
    pub fn clock(&self, start: TransactionStart) -> IdentityCheck {
        let mut state = self.lock();
        let Some(known) = &mut state.known else { return IdentityCheck::Doubtful };
        let is_elsewhere = start.table != known.table || start.running_since != known.running_since;
        if start.is_denied || is_elsewhere {
            return IdentityCheck::Doubtful;
        }
        // A result that was under way when another one read the new floor is not the newest.
        if start.floor == known.floor {
            known.written = known.written.max(start.written);
        }
        let has_moved = start.floor > known.floor;
        if has_moved {
            *known = start;
        }
        if has_moved { IdentityCheck::Moved } else { IdentityCheck::Same }
    }

    /// Finds out whether the database has the functions of the full check, and verifies its identity. Returns the time by its
    /// clock, in microseconds.
    pub async fn open(&self, db: &Db) -> Outcome<i64> {
        let can = match db.pipeline(None, &[Sql::new(START_QUERY), Sql::new(LOCATION)], None).await {
            Ok(_) => true,
            Err(error) if classify(&error) == ErrorClass::Other => false,
            Err(error) => return Err(error.into()),
        };
        self.lock().is_limited = !can;
        self.verify(db).await?;
        Ok(self.lock().known.map_or(0, |known| known.micros))
    }

    /// Verifies the identity in a separate transaction and raises the floor if it changed. Returns whether leases were revoked,
    /// by this call or by another server.
    pub async fn verify(&self, db: &Db) -> Outcome<bool> {
        db.with(TimeLimit::Long, self.verify_identity(db)).await
    }

    async fn verify_identity(&self, db: &Db) -> Outcome<bool> {
        let GuardState { known, is_limited } = *self.lock();
        db.execute("BEGIN; SELECT 1 FROM onward.restore_guard FOR UPDATE").await?;
        let location = Sql::new(if is_limited { LIMITED_LOCATION } else { LOCATION });
        let texts = [
            self.start_query(),
            location,
            Sql::new("SELECT location, EXISTS (SELECT 1 FROM onward.runs) FROM onward.restore_guard"),
        ];
        let answers = db.pipeline(None, &texts, None).await?;
        let (mut start, actual, expected) = (read(&answers[0], 0)?, text(&answers[1]), text(&answers[2]));
        let is_used = answers[2].first().is_some_and(|row| row.get(1));
        let is_known_floor = known.is_none_or(|known| known.floor == start.floor);
        let is_shorter = is_known_floor && known.is_some_and(|known| start.written < known.written);
        let is_another = actual != expected;
        if is_another || is_shorter {
            // A database without runs has no leases.
            if is_used {
                start.floor = start.micros.max(start.floor + 1);
            }
            move_in(db, &actual, start).await?;
        }
        db.execute("COMMIT").await?;
        start.is_denied = false;
        self.lock().known = Some(start);
        Ok(known.is_some_and(|known| known.floor != start.floor))
    }
}

/// Records the new identity and floor, and revokes all leases.
async fn move_in(db: &Db, location: &str, start: TransactionStart) -> Outcome<()> {
    let statements = [
        Sql::new("UPDATE onward.restore_guard SET location = $1, floor = $2").text(location).number(start.floor),
        // Runs before sessions, the lock order of all transactions (DB4).
        Sql::new(TAKE_BACK).number(start.micros * crate::write::unit::ORDERS_PER_MICROSECOND),
        Sql::new("DELETE FROM onward.sessions"),
    ];
    db.pipeline(None, &statements, None).await?;
    Ok(())
}

/// Decodes the result of [`START_QUERY`], or the last columns of `onward.enter`.
pub(crate) fn read(rows: &[Row], at: usize) -> Outcome<TransactionStart> {
    let row = rows.first().filter(|row| row.get::<_, Option<i64>>(at + 1).is_some()).ok_or_else(|| {
        let why =
            "onward.restore_guard has no row: run `INSERT INTO onward.restore_guard(location, floor) VALUES ('', 0)`".to_owned();
        OpError::from(onward_store::StoreError::Corrupt { why })
    })?;
    Ok(TransactionStart {
        micros: row.get(at),
        floor: row.get(at + 1),
        is_denied: row.get(at + 2),
        table: row.get(at + 3),
        written: row.get(at + 4),
        running_since: row.get(at + 5),
    })
}

fn text(rows: &[Row]) -> String {
    rows.first().map(|row| row.get(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
