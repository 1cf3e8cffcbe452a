//! Registrations of kinds: on which condition rows are written, and which time they get, decided once for all stores.
//!
//! A store locks what it compares, calls [`Registration::decide`] with the stored rows, and writes what that returns.
//!
//! Invariants:
//! - RK1: of several registrations that expect the same current version of a kind, one succeeds.
//! - RK2: a registration on a condition is later than all rows of its kind, also if the clock goes back.
//! - RK3: a copy changes no row that was registered later than it.

use onward_core::{KindSchemas, Name, Namespace, Timestamp};

use crate::StoreError;

/// When rows of kinds are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registration {
    /// In any case.
    Always,
    /// Only if this version of the kind is the one that was registered last.
    If(KindCondition),
    /// In any case, with the time of the database that they are copied from (RK3).
    Copy { at: Timestamp },
}

/// The version of a kind that was registered last; `None` if there is none. Imported rows do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindCondition {
    pub namespace: Namespace,
    pub kind: Name,
    pub version: Option<Name>,
}

impl KindCondition {
    /// Returns the row of the kind that was registered last.
    pub fn latest<'a>(&self, stored: &'a [KindSchemas]) -> Option<&'a KindSchemas> {
        let is_of_kind = |row: &&KindSchemas| row.namespace == self.namespace && !row.is_task && row.kind == self.kind;
        let of_kind = stored.iter().filter(|row| is_of_kind(row) && !row.is_imported);
        of_kind.max_by(|a, b| (a.registered_at, &a.version).cmp(&(b.registered_at, &b.version)))
    }
}

impl Registration {
    /// Returns the namespaces whose rows [`Self::decide`] needs.
    pub fn compared(&self, kinds: &[KindSchemas]) -> Vec<Namespace> {
        let mut namespaces = match self {
            Registration::Always => Vec::new(),
            Registration::If(condition) => vec![condition.namespace.clone()],
            Registration::Copy { .. } => kinds.iter().map(|row| row.namespace.clone()).collect(),
        };
        namespaces.sort();
        namespaces.dedup();
        namespaces
    }

    /// Returns the rows to write, with their time.
    ///
    /// # Errors
    /// [`StoreError::KindChanged`] if the condition is not met.
    pub fn decide(
        &self,
        kinds: Vec<KindSchemas>,
        stored: &[KindSchemas],
        now: Timestamp,
    ) -> Result<(Vec<KindSchemas>, Timestamp), StoreError> {
        let at = match self {
            Registration::Always => now,
            Registration::If(condition) => {
                let latest = condition.latest(stored);
                let version = latest.and_then(|row| row.version.clone());
                if version != condition.version {
                    return Err(StoreError::KindChanged { kind: condition.kind.clone(), version }); // RK1
                }
                latest.map_or(now, |row| now.max(Timestamp(row.registered_at.0 + 1))) // RK2
            }
            Registration::Copy { at } => *at,
        };
        let is_older = |row: &KindSchemas| stored.iter().any(|other| other.key() == row.key() && other.registered_at > at);
        let is_copy = matches!(self, Registration::Copy { .. });
        let kept = kinds.into_iter().filter(|row| !is_copy || !is_older(row)); // RK3
        Ok((kept.map(|row| KindSchemas { registered_at: at, ..row }).collect(), at))
    }
}
