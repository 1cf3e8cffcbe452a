//! Page cursors of run lists.
//!
//! The format is the same in every store, so that a list over several shards can continue in each of them after the last run
//! shown.

use onward_core::{RunHead, RunId, Timestamp};

use crate::StoreError;

/// Returns the cursor of the page that starts after `head`.
pub fn cursor_after(head: &RunHead) -> String {
    cursor(head.created_at, head.key.id.as_str())
}

pub(crate) fn cursor(at: Timestamp, id: &str) -> String {
    format!("{}:{id}", at.0)
}

/// Returns the creation time and the id of the last run of the previous page.
pub fn parse_cursor(cursor: &str) -> Result<(Timestamp, &str), StoreError> {
    // The id must be a valid run id: a database may reject other texts with errors of its own.
    let is_id = |id: &&str| RunId::new(id).is_ok();
    let parsed = cursor.split_once(':').and_then(|(at, id)| Some((Timestamp(at.parse().ok()?), Some(id).filter(is_id)?)));
    parsed.ok_or_else(|| StoreError::CursorInvalid { cursor: cursor.to_owned() })
}
