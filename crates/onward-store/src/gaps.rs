//! Databases that a partial list left out.

use crate::sync;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Collector for the names of databases that a list could not reach; clones share it. A caller that passes one accepts a list
/// without their rows and must report the gap. Without one, an unreachable database fails the list.
#[derive(Debug, Clone, Default)]
pub struct Gaps(Arc<Mutex<BTreeSet<String>>>);

impl Gaps {
    pub fn note(&self, database: impl Into<String>) {
        sync::lock(&self.0).insert(database.into());
    }

    /// Returns the names of the databases, without passwords; empty if the list is complete.
    pub fn names(&self) -> Vec<String> {
        sync::lock(&self.0).iter().cloned().collect()
    }
}

impl PartialEq for Gaps {
    fn eq(&self, other: &Gaps) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
