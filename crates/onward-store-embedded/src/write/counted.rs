//! Lookup of attempts whose cost is in one record with their outcome.
//!
//! Such a cost needs no idempotency record: the log record lasts as long as the run, and only a late, repeated report needs it.
//! Must never be called while the attempt is running: its record cannot exist yet, and the search would be wasted.
//!
//! Invariants:
//! - I5 (LG1): an attempt that was counted is found, by its idempotency record or by its log record.

use onward_core::ancestry::Ancestry;
use onward_core::event::{TaskAttemptEnded, TaskAttempted};
use onward_core::{Event, Index, Record, RunKey};
use onward_store::StoreError;
use rusqlite::{Connection, params};

use crate::read::heads::{self, EVENT_COLUMNS, event_row, log_error};

/// Returns the record with the cost and the outcome of `attempt`. Records copied from another run's log do not count.
pub(crate) fn find(db: &Connection, key: &RunKey, attempt: &TaskAttemptEnded) -> Result<Option<Record>, StoreError> {
    let Some(run) = heads::find(db, key, Some(attempt.generation))? else { return Ok(None) };
    let Some(found) = find_backwards(db, key, run.rk, attempt)? else { return Ok(None) };
    let first = heads::first_record(db, key, run.rk)?;
    let is_copied = first.started().is_some_and(|started| Ancestry::new(key, started).is_copied(found.index));
    Ok(Some(found).filter(|_| !is_copied))
}

/// Searches from the end of the log back to the start of the attempt, or of the log if the task's attempts are not recorded.
fn find_backwards(db: &Connection, key: &RunKey, rk: i64, attempt: &TaskAttemptEnded) -> Result<Option<Record>, StoreError> {
    let failed = |error| log_error(key, Index(0), error);
    let text = format!("SELECT {EVENT_COLUMNS} FROM events WHERE rk = ?1 ORDER BY idx DESC");
    let mut statement = db.prepare_cached(&text).map_err(failed)?;
    let mut rows = statement.query(params![rk]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let record = event_row(row).map_err(failed)?.decode(key)?;
        if record.cost().is_some_and(|cost| cost.once() == attempt.once()) {
            return Ok(Some(record));
        }
        if record.events.iter().any(|event| matches!(event, Event::TaskAttempted(begun) if is_beginning(begun, attempt))) {
            break;
        }
    }
    Ok(None)
}

fn is_beginning(begun: &TaskAttempted, attempt: &TaskAttemptEnded) -> bool {
    (&begun.call_id, begun.began_at) == (&attempt.call_id, Some(attempt.began_at))
}
