//! What a list lacks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a list notes which databases could not be asked; clones note into the same. Whoever brings one takes a list without their rows,
/// and has to say so; without one such a list is an error.
#[derive(Debug, Clone, Default)]
pub struct Gaps(Arc<Mutex<BTreeSet<String>>>);

impl Gaps {
    pub fn note(&self, database: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(database.into());
    }

    /// The names of the databases, without passwords; none if the list is whole.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl PartialEq for Gaps {
    fn eq(&self, other: &Gaps) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
