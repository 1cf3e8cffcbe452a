//! The key file: read and replaced as a whole, by one writer at a time (G5).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_core::budget::Budget;
use onward_core::{Name, Timestamp};
use onward_wire::ApiKey;

use super::entry::{Digest, KeyEntry, Reach};
use super::used;
use crate::auth::Scope;
use crate::auth::bounds::Bounds;
use crate::auth::secret_file::{SecretFile, SecretFileError};

/// Name of the file in a data directory.
pub const KEYS_FILE: &str = "onward.keys.json";

/// Properties of a key to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    pub name: Name,
    pub namespace: Reach,
    pub scopes: BTreeSet<Scope>,
    /// Time until the key expires; `None` for never.
    pub lifetime: Option<Duration>,
    /// Ceiling of the budgets of runs that are started or resumed with the key; `None` for no limit.
    pub budget_max: Option<Budget>,
    /// Kinds and queues that the key is for.
    pub bounds: Bounds,
}

/// New key. Its secret is stored nowhere and cannot be shown again.
#[derive(Debug)]
pub struct CreatedKey {
    pub key: ApiKey,
    pub entry: KeyEntry,
}

/// Reader and writer of the key file.
pub type KeyFile = SecretFile<KeyEntry>;

impl KeyFile {
    /// Returns when each key was last used, to the minute.
    pub fn last_used(&self) -> BTreeMap<String, Timestamp> {
        used::read(self)
    }

    /// Creates a key, and the file with its directory if they do not exist.
    pub fn create(&self, wanted: NewKey, now: Timestamp) -> Result<CreatedKey, SecretFileError> {
        self.change(true, |entries| {
            let made = make(wanted, now);
            entries.push(made.entry.clone());
            Ok(made)
        })
    }

    /// Revokes a key. A key that is revoked already keeps its time of revocation.
    pub fn revoke(&self, id: &str, now: Timestamp) -> Result<KeyEntry, SecretFileError> {
        self.change(false, |entries| {
            let entry = find(entries, id)?;
            entry.revoked_at.get_or_insert(now);
            Ok(entry.clone())
        })
    }

    /// Creates a key with the same properties and lets the old one expire after `overlap`. Returns both.
    pub fn rotate(&self, id: &str, overlap: Duration, now: Timestamp) -> Result<(CreatedKey, KeyEntry), SecretFileError> {
        self.change(false, |entries| {
            let old = find(entries, id)?;
            if !old.is_usable(now) {
                return Err(SecretFileError::KeyEnded { id: id.to_owned(), state: old.state(now) });
            }
            let mut made = make(
                NewKey {
                    name: old.name.clone(),
                    namespace: old.namespace.clone(),
                    scopes: old.scopes.clone(),
                    lifetime: old.expires_at.map(|expires_at| expires_at.since(old.created_at)),
                    budget_max: old.budget_max,
                    bounds: old.bounds.clone(),
                },
                now,
            );
            made.entry.origin = Some(old.origin.as_ref().unwrap_or(&old.id).clone());
            let end = now.after(overlap);
            old.expires_at = Some(old.expires_at.map_or(end, |expires_at| expires_at.min(end)));
            let old = old.clone();
            entries.push(made.entry.clone());
            Ok((made, old))
        })
    }
}

fn find<'a>(entries: &'a mut [KeyEntry], id: &str) -> Result<&'a mut KeyEntry, SecretFileError> {
    entries.iter_mut().find(|entry| entry.id == id).ok_or_else(|| SecretFileError::KeyNotFound { id: id.to_owned() })
}

fn make(wanted: NewKey, now: Timestamp) -> CreatedKey {
    let (mut id, mut secret) = ([0; 8], [0; 32]);
    for bits in [id.as_mut_slice(), secret.as_mut_slice()] {
        getrandom::fill(bits).expect("the system has randomness");
    }
    let key = ApiKey::new(id, secret);
    let NewKey { name, namespace, scopes, lifetime, budget_max, bounds } = wanted;
    let entry = KeyEntry {
        id: key.id().to_owned(),
        name,
        sha256: Digest::of(key.secret()),
        namespace,
        scopes,
        created_at: now,
        expires_at: lifetime.map(|lifetime| now.after(lifetime)),
        revoked_at: None,
        budget_max,
        bounds,
        origin: None,
    };
    CreatedKey { key, entry }
}

#[cfg(test)]
mod tests;
