//! Ceilings of namespaces: upper limits of the budgets of runs.
//!
//! The server checks the requests of callers against them. The runtime applies them to runs that no request starts (SZ3).

use std::collections::BTreeMap;

use onward_core::Namespace;
use onward_core::budget::Budget;
use onward_store::sync::lock;

use crate::Runtime;

/// Ceilings of all namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ceilings {
    /// Ceiling of every namespace.
    pub all: Budget,
    pub namespaces: BTreeMap<Namespace, Budget>,
}

impl Ceilings {
    /// Returns the ceiling of a namespace.
    pub fn of(&self, namespace: &Namespace) -> Budget {
        self.all.lowered_by(self.namespaces.get(namespace).copied().unwrap_or_default())
    }
}

impl Runtime {
    /// Sets the ceilings of the runs that schedules start from now on.
    pub fn set_ceilings(&self, ceilings: Ceilings) {
        *lock(&self.shared.ceilings) = ceilings;
    }

    pub(crate) fn ceiling(&self, namespace: &Namespace) -> Budget {
        lock(&self.shared.ceilings).of(namespace)
    }
}
