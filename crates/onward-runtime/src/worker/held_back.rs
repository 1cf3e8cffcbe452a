//! Namespaces in which limits of queues keep tasks back, so that the end of a task wakes workers to claim them.
//!
//! A notification only: a slot that is freed by another server, or in another way, is found by the next claim, after one second.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use onward_core::Namespace;
use onward_store::sync::lock;

#[derive(Default)]
pub(crate) struct HeldBack {
    /// False if there are none, as usual: then the end of a task costs nothing more.
    is_any: AtomicBool,
    namespaces: Mutex<BTreeSet<Namespace>>,
}

impl HeldBack {
    /// Notes that a claim left tasks of this namespace.
    pub fn note(&self, namespace: &Namespace) {
        lock(&self.namespaces).insert(namespace.clone());
        self.is_any.store(true, Ordering::SeqCst);
    }

    /// Returns whether tasks of this namespace were left, once.
    pub fn take(&self, namespace: &Namespace) -> bool {
        if !self.is_any.load(Ordering::SeqCst) {
            return false;
        }
        let mut namespaces = lock(&self.namespaces);
        let was_noted = namespaces.remove(namespace);
        self.is_any.store(!namespaces.is_empty(), Ordering::SeqCst);
        was_noted
    }
}
