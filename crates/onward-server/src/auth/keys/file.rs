//! The key file: read and replaced as a whole, by one writer at a time (G5).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use onward_core::budget::Budget;
use onward_core::{ErrorCode, Name, Timestamp};
use onward_wire::ApiKey;
use serde::{Deserialize, Serialize};

use super::entry::{Digest, KeyEntry, Reach};
use super::used;
use crate::auth::Scope;
use crate::auth::bounds::Bounds;
use crate::auth::whole_file::{FileTrouble, Stamp, WholeFile};

/// Name of the file in a data directory.
pub const KEYS_FILE: &str = "onward.keys.json";

/// Version of the file format; there is only one.
const VERSION: u32 = 1;

/// Reason why keys cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("the key file {} is not usable: {why}", path.display())]
    Unusable { path: PathBuf, why: String, missing: bool },
    #[error("the key file {} cannot be written", path.display())]
    NotWritten { path: PathBuf, source: std::io::Error },
    #[error("key {id} not found")]
    NotFound { id: String },
    #[error("the key {id} is {state}")]
    Ended { id: String, state: &'static str },
}

impl KeyFileError {
    /// Returns the row of the error table.
    fn row(&self) -> ErrorCode {
        match self {
            KeyFileError::Unusable { .. } => ErrorCode::KeyFileUnusable,
            KeyFileError::NotWritten { .. } => ErrorCode::KeyFileNotWritten,
            KeyFileError::NotFound { .. } => ErrorCode::KeyNotFound,
            KeyFileError::Ended { .. } => ErrorCode::KeyEnded,
        }
    }

    /// Returns the stable error code, which `docs/errors` describes.
    pub fn code(&self) -> &'static str {
        self.row().as_str()
    }

    pub fn hint(&self) -> Option<&'static str> {
        match self {
            KeyFileError::Unusable { missing: true, .. } => Some("create it with `onward key create`"),
            _ => self.row().hint(),
        }
    }

    /// Returns whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, KeyFileError::Unusable { missing: true, .. })
    }
}

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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    keys: Vec<KeyEntry>,
}

/// Reader and writer of the key file.
#[derive(Debug, Clone)]
pub struct KeyFile {
    file: WholeFile,
}

impl KeyFile {
    pub fn at(path: impl Into<PathBuf>) -> KeyFile {
        KeyFile { file: WholeFile::at(path) }
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the path with `suffix` appended to its name.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        self.file.beside(suffix)
    }

    pub fn read(&self) -> Result<Vec<KeyEntry>, KeyFileError> {
        self.read_with_stamp().map(|(entries, _)| entries)
    }

    /// Returns when each key was last used, to the minute.
    pub fn last_used(&self) -> BTreeMap<String, Timestamp> {
        used::read(self)
    }

    pub(super) fn stamp(&self) -> Result<Stamp, KeyFileError> {
        self.file.stamp().map_err(|trouble| self.told(trouble))
    }

    pub(super) fn read_with_stamp(&self) -> Result<(Vec<KeyEntry>, Stamp), KeyFileError> {
        let (bytes, stamp) = self.file.read().map_err(|trouble| self.told(trouble))?;
        Ok((self.parse(&bytes)?, stamp))
    }

    fn parse(&self, bytes: &[u8]) -> Result<Vec<KeyEntry>, KeyFileError> {
        // Only the position of the error: the message of serde_json quotes the unexpected text, which may be a secret (G4).
        let wrong =
            |error: serde_json::Error| format!("line {} column {} does not match the format", error.line(), error.column());
        let document: Document = serde_json::from_slice(bytes).map_err(|error| self.unusable(&wrong(error)))?;
        if document.version != VERSION {
            return Err(self.unusable(&format!("it has version {}; this program supports version {VERSION}", document.version)));
        }
        let ids: BTreeSet<&str> = document.keys.iter().map(|entry| entry.id.as_str()).collect();
        if ids.len() != document.keys.len() {
            return Err(self.unusable("two keys have the same id"));
        }
        Ok(document.keys)
    }

    /// Creates a key, and the file with its directory if they do not exist.
    pub fn create(&self, wanted: NewKey, now: Timestamp) -> Result<CreatedKey, KeyFileError> {
        self.change(true, |entries| {
            let made = make(wanted, now);
            entries.push(made.entry.clone());
            Ok(made)
        })
    }

    /// Revokes a key. A key that is revoked already keeps its time of revocation.
    pub fn revoke(&self, id: &str, now: Timestamp) -> Result<KeyEntry, KeyFileError> {
        self.change(false, |entries| {
            let entry = find(entries, id)?;
            entry.revoked_at.get_or_insert(now);
            Ok(entry.clone())
        })
    }

    /// Creates a key with the same properties and lets the old one expire after `overlap`. Returns both.
    pub fn rotate(&self, id: &str, overlap: Duration, now: Timestamp) -> Result<(CreatedKey, KeyEntry), KeyFileError> {
        self.change(false, |entries| {
            let old = find(entries, id)?;
            if !old.is_usable(now) {
                return Err(KeyFileError::Ended { id: id.to_owned(), state: old.state(now) });
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

    fn change<T>(
        &self,
        may_make: bool,
        change: impl FnOnce(&mut Vec<KeyEntry>) -> Result<T, KeyFileError>,
    ) -> Result<T, KeyFileError> {
        let _lock = self.file.lock(may_make).map_err(|trouble| self.told(trouble))?;
        let mut keys = match self.read() {
            Ok(entries) => entries,
            Err(error) if may_make && error.is_missing() => Vec::new(),
            Err(error) => return Err(error),
        };
        let changed = change(&mut keys)?;
        let text = serde_json::to_string_pretty(&Document { version: VERSION, keys }).expect("keys serialize") + "\n";
        self.file.write(text.as_bytes()).map_err(|trouble| self.told(trouble))?;
        Ok(changed)
    }

    fn unusable(&self, why: &str) -> KeyFileError {
        self.told(FileTrouble::unusable(why))
    }

    fn told(&self, trouble: FileTrouble) -> KeyFileError {
        let path = self.path().to_owned();
        match trouble {
            FileTrouble::Unusable { why, missing } => KeyFileError::Unusable { path, why, missing },
            FileTrouble::NotWritten(source) => KeyFileError::NotWritten { path, source },
        }
    }
}

fn find<'a>(entries: &'a mut [KeyEntry], id: &str) -> Result<&'a mut KeyEntry, KeyFileError> {
    entries.iter_mut().find(|entry| entry.id == id).ok_or_else(|| KeyFileError::NotFound { id: id.to_owned() })
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
