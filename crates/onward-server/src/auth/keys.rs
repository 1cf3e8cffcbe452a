//! API keys, from a file that the command line writes and a running server reads again after a change.
//!
//! The file contains no secret, only hashes.
//!
//! Invariants:
//! - G1 (S3): a key that is unknown, wrong, revoked, expired or malformed gets the same response, after the same work.
//! - G2 (S1): with a key file that cannot be read or parsed every request is refused; the same holds for a file that existed and
//!   is gone.
//! - G3 (S2): five seconds after a key was revoked or has expired, it is refused, and every stream and wait that it opened has
//!   ended.
//! - G4 (S2): a secret is in no file, no log line and no error.
//! - G5: only the command line writes the key file, one process at a time; a server writes to another file. So a server that read
//!   the file earlier cannot undo a revocation.

mod entry;
mod file;
mod used;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use onward_core::{Namespace, Timestamp};
use onward_store::Clock;
use onward_wire::ApiKey;

use crate::auth::secret_file::{FileState, FollowedFile, SecretFileError};
use crate::auth::session::{self, SignedIn};
use crate::auth::{AuthFuture, AuthRefusal, AuthRequest, Authenticate, Caller, Scope};
use crate::trace::Trace;
use used::Used;

pub use entry::{Digest, KeyEntry, Reach};
pub use file::{CreatedKey, KEYS_FILE, KeyFile, NewKey};

/// API keys of one server.
pub struct Keys {
    file: KeyFile,
    clock: Arc<dyn Clock>,
    keys: FollowedFile<KeyEntry>,
    used: Used,
}

impl Keys {
    /// Opens the key file. Fails if it is not usable now.
    pub fn open(path: &Path, clock: Arc<dyn Clock>, trace: Trace) -> Result<Keys, SecretFileError> {
        Keys::new(path, false, clock, trace)
    }

    /// Opens the key file, which may be missing. Until it exists, every request is allowed; from then on it must exist (G2).
    pub fn open_or_await(path: &Path, clock: Arc<dyn Clock>, trace: Trace) -> Result<Keys, SecretFileError> {
        Keys::new(path, std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound), clock, trace)
    }

    fn new(path: &Path, may_be_missing: bool, clock: Arc<dyn Clock>, trace: Trace) -> Result<Keys, SecretFileError> {
        let file = KeyFile::at(path);
        let keys = FollowedFile::open(file.clone(), may_be_missing, false, trace)?;
        Ok(Keys { used: Used::read(&file), file, clock, keys })
    }

    /// Returns whether there is a key that is neither revoked nor expired.
    pub fn has_usable(&self) -> bool {
        let now = self.clock.now();
        matches!(&*self.keys.current(), FileState::Entries(keys) if keys.values().any(|key| key.is_usable(now)))
    }

    /// Returns the key that `find` finds, or `None` if no key is needed.
    fn find(&self, find: impl FnOnce(&HashMap<String, KeyEntry>) -> Option<&KeyEntry>) -> Result<Option<KeyEntry>, AuthRefusal> {
        match &*self.keys.current() {
            FileState::Absent => Ok(None),
            FileState::Broken(_) => Err(AuthRefusal::Unavailable { why: "the API keys cannot be read".to_owned() }),
            FileState::Entries(keys) => find(keys).map(|key| Some(key.clone())).ok_or(AuthRefusal::Unauthenticated),
        }
    }

    fn check(&self, request: AuthRequest<'_>) -> Result<Caller, AuthRefusal> {
        let now = self.clock.now();
        let Some(key) = self.find(|keys| recognize(keys, request.headers, now))? else { return Ok(Caller::default()) };
        // Requests that need `admin`, such as imports and deletion by a filter, are not checked by kind (BK1).
        if !key.scopes.contains(&request.scope) || (request.scope == Scope::Admin && !key.bounds.is_none()) {
            return Err(AuthRefusal::Scope { scope: request.scope });
        }
        if !key.namespace.covers(request.namespace) {
            return Err(AuthRefusal::Namespace { namespace: request.namespace.clone() });
        }
        if request.server_wide && key.namespace != Reach::All {
            return Err(AuthRefusal::ServerWide);
        }
        self.used.note(&self.file, &key.id, now);
        let credential = Some(key.origin.unwrap_or(key.id));
        Ok(Caller { name: Some(key.name.to_string()), credential, budget_max: key.budget_max, bounds: key.bounds })
    }
}

/// Returns the usable key that the headers contain, or the session in their cookie.
fn recognize<'a>(keys: &'a HashMap<String, KeyEntry>, headers: &HeaderMap, now: Timestamp) -> Option<&'a KeyEntry> {
    let given = match session::token(headers) {
        Some(token) => session::open(token, |id| keys.get(id).map(|key| key.sha256), now),
        None => bearer(headers).and_then(|text| ApiKey::parse(text).ok()),
    };
    verify(keys, given.as_ref(), now)
}

/// Returns the entry of a usable key. Always hashes once and compares once (G1).
fn verify<'a>(keys: &'a HashMap<String, KeyEntry>, given: Option<&ApiKey>, now: Timestamp) -> Option<&'a KeyEntry> {
    let digest = Digest::of(given.map_or("", |key| key.secret()));
    let found = given.and_then(|key| keys.get(key.id()));
    let expected = found.map_or(Digest::NONE, |key| key.sha256);
    let same = digest.equals(&expected);
    found.filter(|key| same && key.is_usable(now))
}

/// Returns the token after `Bearer`; `None` unless there is exactly one Authorization header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    let (scheme, text) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| text.trim())
}

impl Authenticate for Keys {
    fn authenticate<'a>(&'a self, request: AuthRequest<'a>) -> AuthFuture<'a> {
        Box::pin(std::future::ready(self.check(request)))
    }

    fn namespace(&self, headers: &HeaderMap) -> Namespace {
        let found = self.keys.current();
        let FileState::Entries(keys) = &*found else { return Namespace::default() };
        match recognize(keys, headers, self.clock.now()).map(|key| &key.namespace) {
            Some(Reach::One(namespace)) => namespace.clone(),
            Some(Reach::All) | None => Namespace::default(),
        }
    }

    fn key(&self, headers: &HeaderMap) -> Result<Option<KeyEntry>, AuthRefusal> {
        self.find(|keys| recognize(keys, headers, self.clock.now()))
    }

    fn sign_in(&self, key: &str) -> Result<Option<SignedIn>, AuthRefusal> {
        let (given, now) = (ApiKey::parse(key).ok(), self.clock.now());
        let entry = self.find(|keys| verify(keys, given.as_ref(), now))?;
        Ok(entry.zip(given).map(|(entry, key)| SignedIn { name: entry.name, token: session::seal(&key, now) }))
    }

    fn unavailable_reason(&self) -> Option<String> {
        match &*self.keys.current() {
            FileState::Broken(_) => Some("the key file is not usable".to_owned()),
            FileState::Absent | FileState::Entries(_) => None,
        }
    }
}
