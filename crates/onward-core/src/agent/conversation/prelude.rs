//! The prelude: the log of an agent's code before its first turn.
//!
//! Checkpoints refer to it by its generation. A run that was forked from a later turn has a copy of it (Z6). An older fork has no
//! copy: its first log is that of a turn, and earlier logs are those of its original.

use crate::log::prelude_of;
use crate::{Record, RunKey};

/// Returns the run and generation whose log a run begins with a copy of, if that is another run.
pub fn original_of(key: &RunKey, first: &Record) -> Option<(RunKey, u32)> {
    let origin = first.started()?.origins.first()?;
    (origin.run != *key).then(|| (origin.run.clone(), origin.generation))
}

/// A search for the log of a prelude. Must never load anything: it receives the first record of each log that it needs.
#[derive(Debug, Clone)]
pub struct PreludeSearch {
    run: RunKey,
    wanted: u32,
    /// The run's own logs do not have it: the first of them names the original.
    asks_original: bool,
}

/// The result of a search step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    Found(RunKey, u32),
    /// Load the log that [`PreludeSearch::wants`] returns next.
    GoesOn,
    Nowhere,
}

impl PreludeSearch {
    /// Starts the search for the log of generation `within`, whose checkpoint refers to generation `wanted`.
    pub fn new(run: RunKey, within: u32, wanted: u32) -> PreludeSearch {
        PreludeSearch { run, wanted, asks_original: wanted >= within }
    }

    /// Returns the log whose first record is needed.
    pub fn wants(&self) -> (RunKey, u32) {
        (self.run.clone(), if self.asks_original { 0 } else { self.wanted })
    }

    /// Takes that record; `None` if there is no such log.
    pub fn take(&mut self, first: Option<&Record>) -> Search {
        if !self.asks_original {
            // A log with a prelude of its own is none: it is that of the turn that a fork began with.
            if first.is_some_and(|first| prelude_of(std::slice::from_ref(first)).is_none()) {
                return Search::Found(self.run.clone(), self.wanted);
            }
            self.asks_original = true;
            return Search::GoesOn;
        }
        match first.and_then(|first| original_of(&self.run, first)) {
            Some((run, generation)) => {
                *self = PreludeSearch::new(run, generation, self.wanted);
                Search::GoesOn
            }
            None => Search::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests;
