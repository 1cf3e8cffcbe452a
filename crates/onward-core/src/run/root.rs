//! Root runs: a run with its descendants and their forks, which are stored together.
//!
//! Owns the position of the root run's id in an id. A sharded store keeps a tree in one database, so that parent and children
//! change in one write (L19). Must never change: the location of stored runs depends on it.
//!
//! Invariant FA1: an id that [`crate::run::reopen::derived_id`] derives from another one has the same root run.

use crate::RunId;

/// The maximum length of a root run's id within other ids, in bytes: it leaves room for a hash.
pub const ROOT_RUN_BYTES_MAX: usize = 200;

/// Returns the id of the root run: the part before the first `/`, truncated to [`ROOT_RUN_BYTES_MAX`] at a character boundary.
pub fn root_run(id: &RunId) -> &str {
    let first = id.as_str().split('/').next().unwrap_or_default();
    &first[..first.floor_char_boundary(ROOT_RUN_BYTES_MAX)]
}

/// Returns the common prefix of ids in a run's tree, except for the root run's own: stores find candidates by it and filter them
/// with [`root_run`].
pub fn stem(id: &RunId) -> String {
    let root_run = root_run(id);
    // A root id that may have been truncated inside a character has no fixed continuation.
    if root_run.len() + 3 < ROOT_RUN_BYTES_MAX { format!("{root_run}/") } else { root_run.to_owned() }
}

#[cfg(test)]
mod tests;
