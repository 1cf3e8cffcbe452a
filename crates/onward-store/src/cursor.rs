//! Where a page of runs ends.
//!
//! The same on every store, so that a list over several of them can go on in each behind the last run that it showed.

use onward_core::{RunHead, RunId, Timestamp};

use crate::StoreError;

/// The cursor of the page that begins behind `head`.
pub fn cursor_after(head: &RunHead) -> String {
    cursor(head.created_at, head.key.id.as_str())
}

pub(crate) fn cursor(at: Timestamp, id: &str) -> String {
    format!("{}:{id}", at.0)
}

/// When the last run of the page before was created, and its id.
pub fn parse_cursor(cursor: &str) -> Result<(Timestamp, &str), StoreError> {
    // A page ends behind a run, whose id is one: a database may refuse other texts in its own way.
    let is_id = |id: &&str| RunId::new(id).is_ok();
    let parsed = cursor.split_once(':').and_then(|(at, id)| Some((Timestamp(at.parse().ok()?), Some(id).filter(is_id)?)));
    parsed.ok_or_else(|| StoreError::CursorInvalid { cursor: cursor.to_owned() })
}
