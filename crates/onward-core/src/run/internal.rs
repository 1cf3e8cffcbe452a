//! Internal runs: runs without code that keep state of the engine under reserved ids.
//!
//! Owns the prefixes of their ids. No list, request, child or signal of a caller reaches a run under such an id (MM6, SR4, SS4).

use std::time::Duration;

use crate::{Name, RunId};

/// The types of internal runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InternalRuns {
    /// The cells of memos (see [`crate::memo`]).
    Memos,
    /// Schedules (see [`crate::schedule`]).
    Schedules,
    /// The cells of start policies (see [`crate::start_policy`]).
    StartPolicies,
}

impl InternalRuns {
    pub const ALL: [InternalRuns; 3] = [InternalRuns::Memos, InternalRuns::Schedules, InternalRuns::StartPolicies];

    /// Returns the prefix of their ids, and of their kinds.
    pub const fn prefix(self) -> &'static str {
        match self {
            InternalRuns::Memos => "memo:",
            InternalRuns::Schedules => "schedule:",
            InternalRuns::StartPolicies => "starts:",
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

    /// Returns true if the run with this id is kept while it has open children. The runs of schedules and of start policies outlive
    /// what started them.
    pub fn holds_children(id: &RunId) -> bool {
        !matches!(InternalRuns::of(id), Some(InternalRuns::Schedules | InternalRuns::StartPolicies))
    }

    /// Returns the time for which a closed internal run of this kind is kept; `None` for kinds without a time. The kind has the
    /// time, so that these runs are removed with the closed runs of their kind.
    pub fn kept_for(kind: &Name) -> Option<Duration> {
        let prefix = InternalRuns::of_kind(kind)?.prefix();
        kind.as_str().strip_prefix(prefix)?.parse().ok().map(Duration::from_secs)
    }
}
