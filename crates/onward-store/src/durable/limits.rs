//! Limits of payloads by namespace, checked before a write is encoded (NQ6).
//!
//! A copy of what quotas say. A limit of the size of a payload counts nothing, so a copy that is a moment old is no error.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use onward_core::quota::{is_from_outside, is_limited_start};
use onward_core::run::{Input, NewRun};
use onward_core::{KindSchemas, Namespace};

use crate::sync;

#[derive(Default)]
pub struct PayloadLimits {
    /// False if there are none, as usual.
    is_any: AtomicBool,
    by_namespace: RwLock<BTreeMap<Namespace, usize>>,
}

impl PayloadLimits {
    /// Returns the largest payload that may enter a namespace, on a server with its own limit.
    pub fn max(&self, namespace: &Namespace, of_server: usize) -> usize {
        if !self.is_any.load(Ordering::Acquire) {
            return of_server;
        }
        sync::read(&self.by_namespace).get(namespace).map_or(of_server, |max| of_server.min(*max))
    }

    /// Returns the largest payload of a start: those of children are in a log already.
    pub fn of_start(&self, run: &NewRun, of_server: usize) -> usize {
        if is_limited_start(&run.key, &run.started) { self.max(&run.key.namespace, of_server) } else { of_server }
    }

    /// Returns the largest payload of an input: those that other runs send are in a log already.
    pub fn of_input(&self, namespace: &Namespace, input: &Input, of_server: usize) -> usize {
        if is_from_outside(&input.event) { self.max(namespace, of_server) } else { of_server }
    }

    /// Notes the quotas among these rows of the table of kinds; a row without one removes the limit.
    pub fn note<'a>(&self, rows: impl IntoIterator<Item = &'a KindSchemas>) {
        let mut limits = sync::write(&self.by_namespace);
        rows.into_iter().filter(|row| is_quota(row)).for_each(|row| change(&mut limits, row));
        self.is_any.store(!limits.is_empty(), Ordering::Release);
    }

    /// Replaces all limits by those of these rows.
    pub fn replace<'a>(&self, rows: impl IntoIterator<Item = &'a KindSchemas>) {
        let mut found = BTreeMap::new();
        rows.into_iter().filter(|row| is_quota(row)).for_each(|row| change(&mut found, row));
        self.is_any.store(!found.is_empty(), Ordering::Release);
        *sync::write(&self.by_namespace) = found;
    }
}

/// Returns true for the row of a quota.
pub fn is_quota(row: &KindSchemas) -> bool {
    row.kind.as_str() == onward_core::quota::QUOTA_KIND
}

fn change(limits: &mut BTreeMap<Namespace, usize>, row: &KindSchemas) {
    limits.remove(&row.namespace);
    let max = row.quota.as_ref().map_or(usize::MAX, |quota| quota.payload_max(usize::MAX));
    if max < usize::MAX {
        limits.insert(row.namespace.clone(), max);
    }
}
