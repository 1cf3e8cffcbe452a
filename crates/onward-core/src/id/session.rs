//! Ids of connected workers in a store: one for each session of a worker at a server.

use super::{Namespace, WorkerId};
use crate::Hash;

impl WorkerId {
    /// Returns the worker's id in the store for a session. The store has the workers of all namespaces; the same id in two
    /// namespaces, or with two credentials, is two workers (Q9). The session is part of the id, so that leases of a session that
    /// ended with its server expire even if the worker has another session (Q8).
    pub fn in_session(&self, namespace: &Namespace, credential: Option<&str>, session: u64) -> WorkerId {
        let owner = credential.map(|id| format!("{}:", Hash::of_parts(&[id.as_bytes()]))).unwrap_or_default();
        let whole = format!("{}:{namespace}:{self}:{owner}{session:016x}", namespace.as_str().len());
        WorkerId::new(whole).unwrap_or_else(|_| {
            // The combined id may be too long for a name.
            let both = Hash::of_parts(&[namespace.as_str().as_bytes(), self.as_str().as_bytes()]);
            WorkerId::new(format!("both:{both}:{owner}{session:016x}")).expect("hex digits are a valid name")
        })
    }

    /// Returns the id that a worker chose, from its id in a session; the id itself if it was made otherwise.
    pub fn chosen_name(&self) -> WorkerId {
        let is_hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let chosen = || {
            let (length, rest) = self.as_str().split_once(':')?;
            let rest = rest.get(length.parse::<usize>().ok()?..)?.strip_prefix(':')?;
            let (worker, _) = rest.rsplit_once(':').filter(|(_, session)| is_hex(session, 16))?;
            let owned = worker.rsplit_once(':').filter(|(_, owner)| is_hex(owner, 32));
            WorkerId::new(owned.map_or(worker, |(worker, _)| worker)).ok()
        };
        chosen().unwrap_or_else(|| self.clone())
    }

    /// Returns whether two ids belong to one worker with one credential, in any sessions (Q9).
    pub fn is_same_owner(&self, other: &WorkerId) -> bool {
        let owner = |id: &WorkerId| id.as_str().rsplit_once(':').map(|(owner, _)| owner.to_owned());
        owner(self).is_some() && owner(self) == owner(other)
    }
}

#[cfg(test)]
mod tests;
