//! The logs that a log was copied from, and the identities under which its calls are known.
//!
//! A run that was retried, reset or forked begins with a copy of an earlier log. The calls in the copy depend on the identity of
//! that log: the ids of children, the seed of `uuid`, the run's own id. Replay must reproduce them, so the copy is replayed under
//! the identity that it was recorded under; calls after it have a new one.
//!
//! Owns the sequence of identities. Must never change the id of a call while its run keeps its id: an open approval or promise of
//! a retried run can still be answered by its old id.
//!
//! Invariants:
//! - J2: the calls of a copied commit are replayed under the identity that they were recorded under.
//! - J3: a call after a copy never has the id, the key or the random numbers of a call in another log.

use crate::log::event::RunStarted;
use crate::{CallId, Index, Record, RunKey, message};

message! {
    /// A log that this one begins with a copy of.
    pub struct Origin {
        1 => run: RunKey,
        2 => generation: u32,
        #[serde(with = "crate::log::text_number")]
        3 => seed: u64,
        /// The number of commits in this log that were made under this identity or earlier ones.
        4 => commits: u64,
        /// The last event of the copy.
        5 => index: Index,
        /// Failures in the copy that were set aside: the failed calls are executed again.
        6 => set_aside: Vec<Index>,
    }
}

impl Origin {
    /// Returns the origin of a log that has only its start from `run`.
    pub fn of_start(run: RunKey) -> Origin {
        Origin { run, generation: 0, seed: 0, commits: 0, index: Index(0), set_aside: Vec::new() }
    }
}

/// The identity under which a call is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub run: RunKey,
    pub generation: u32,
    pub seed: u64,
    /// The number of the first commit after this identity.
    until: u64,
}

/// The identities of one log, the last of which is its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestry {
    identities: Vec<Identity>,
    set_aside: Vec<Index>,
    /// The last copied event.
    copied: Option<Index>,
}

impl Ancestry {
    pub fn new(key: &RunKey, started: &RunStarted) -> Ancestry {
        let origin = |origin: &Origin| Identity {
            run: origin.run.clone(),
            generation: origin.generation,
            seed: origin.seed,
            until: origin.commits,
        };
        let own = Identity { run: key.clone(), generation: started.generation, seed: started.seed, until: u64::MAX };
        Ancestry {
            identities: started.origins.iter().map(origin).chain([own]).collect(),
            set_aside: started.origins.iter().flat_map(|origin| origin.set_aside.iter().copied()).collect(),
            copied: started.origins.last().map(|origin| origin.index),
        }
    }

    /// Returns the ancestry of a log that is no copy.
    pub fn alone(key: &RunKey) -> Ancestry {
        let own = Identity { run: key.clone(), generation: 0, seed: 0, until: u64::MAX };
        Ancestry { identities: vec![own], set_aside: Vec::new(), copied: None }
    }

    /// Returns the number of the identity of commit `n`.
    pub fn at_commit(&self, n: u64) -> usize {
        self.identities.iter().position(|identity| n < identity.until).unwrap_or(self.identities.len() - 1)
    }

    pub fn identity(&self, number: usize) -> &Identity {
        &self.identities[number]
    }

    pub fn own(&self) -> usize {
        self.identities.len() - 1
    }

    /// Returns every run that recorded a part of the log, this one first.
    pub fn runs(&self) -> Vec<RunKey> {
        let mut runs: Vec<RunKey> = self.identities.iter().rev().map(|identity| identity.run.clone()).collect();
        runs.dedup();
        runs
    }

    /// Returns the identity under which a call made under `opened` is known under `now`: a retry keeps the ids of calls, a fork
    /// does not.
    pub fn known_as(&self, opened: usize, now: usize) -> &Identity {
        let run = &self.identities[now].run;
        let since = self.identities[..=now].iter().rposition(|identity| identity.run != *run).map_or(0, |other| other + 1);
        &self.identities[opened.max(since)]
    }

    /// Returns true if the failure at `index` was set aside.
    pub fn is_set_aside(&self, index: Index) -> bool {
        self.set_aside.contains(&index)
    }

    /// Returns true if the log is a retry: a copy of an earlier generation of the same run.
    pub fn is_retry(&self) -> bool {
        let own = self.own();
        own > 0 && self.identities[own - 1].run == self.identities[own].run
    }

    /// Returns true if the event at `index` was copied.
    pub fn is_copied(&self, index: Index) -> bool {
        self.copied.is_some_and(|copied| index <= copied)
    }

    /// Returns the origins for a copy of this log up to `index` with `commits` commits.
    pub fn origins_until(&self, commits: u64, index: Index, set_aside: impl IntoIterator<Item = Index>) -> Vec<Origin> {
        let mut origins = Vec::new();
        let mut from = 0;
        for identity in &self.identities {
            let until = identity.until.min(commits);
            // The first identity has the start and the last one has the kept events, so both are always included.
            if until > from || origins.is_empty() || identity.until == u64::MAX {
                let Identity { run, generation, seed, .. } = identity.clone();
                origins.push(Origin { run, generation, seed, commits: until, index, set_aside: Vec::new() });
                from = until;
            }
        }
        if let Some(last) = origins.last_mut() {
            last.set_aside = self.set_aside.iter().copied().chain(set_aside).filter(|failed| *failed <= index).collect();
            last.set_aside.sort();
        }
        origins
    }
}

/// Returns the index at which a log has more than the one before it in the same run: after the copy, if it begins with one.
/// `first` is its first record.
pub fn behind_copy(key: &RunKey, first: &Record) -> Index {
    let copied = first.started().and_then(|started| started.origins.last()).filter(|origin| origin.run == *key);
    copied.map_or(Index(0), |origin| origin.index.plus(1))
}

/// Returns true if the call at `later` was made after the call at `earlier` on the same line, so that it may depend on its
/// result.
pub fn follows(later: &CallId, earlier: &CallId) -> bool {
    let (later, earlier): (Vec<u32>, Vec<u32>) = (later.path().collect(), earlier.path().collect());
    let differ = later.iter().zip(&earlier).position(|(a, b)| a != b);
    // Ordinals are at even positions, arms of combinators at odd ones: two arms do not follow each other.
    differ.is_some_and(|at| at % 2 == 0 && later[at] > earlier[at])
}

/// Returns true if the call at `other` was made on the line of the call at `call_id`, or on a line around it.
pub fn is_on_line_of(other: &CallId, call_id: &CallId) -> bool {
    let (other, call_id): (Vec<u32>, Vec<u32>) = (other.path().collect(), call_id.path().collect());
    let line = &other[..other.len() - 1];
    call_id.len() > line.len() && call_id.starts_with(line)
}

#[cfg(test)]
mod tests;
