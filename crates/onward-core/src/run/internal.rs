//! Internal runs: runs without code that keep state of the engine under reserved ids.
//!
//! Owns the prefixes of their ids. No list, request, child or signal of a caller reaches a run under such an id (MM6, SR4).

use crate::{Name, RunId};

/// The types of internal runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InternalRuns {
    /// The cells of memos (see [`crate::memo`]).
    Memos,
    /// Schedules (see [`crate::schedule`]).
    Schedules,
}

impl InternalRuns {
    pub const ALL: [InternalRuns; 2] = [InternalRuns::Memos, InternalRuns::Schedules];

    /// Returns the prefix of their ids, and of their kinds.
    pub const fn prefix(self) -> &'static str {
        match self {
            InternalRuns::Memos => "memo:",
            InternalRuns::Schedules => "schedule:",
        }
    }

    /// Returns the type that an id is reserved for.
    pub fn of(id: &RunId) -> Option<InternalRuns> {
        InternalRuns::ALL.into_iter().find(|of| id.as_str().starts_with(of.prefix()))
    }

    /// Returns the type that a kind belongs to.
    pub fn of_kind(kind: &Name) -> Option<InternalRuns> {
        InternalRuns::ALL.into_iter().find(|of| kind.as_str().starts_with(of.prefix()))
    }

    /// Returns true if the run with this id is kept while it has open children. The runs of a schedule outlive it.
    pub fn holds_children(id: &RunId) -> bool {
        InternalRuns::of(id) != Some(InternalRuns::Schedules)
    }
}
