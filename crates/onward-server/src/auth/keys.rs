//! API keys, from a file that the command line writes and a running server reads again after a change.
//!
//! The file contains no secret, only hashes. A server checks the file when a request arrives, at most once a second, so a change
//! is in force within seconds and no background task is needed.
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
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use onward_core::{Namespace, Timestamp};
use onward_store::Clock;
use onward_wire::ApiKey;
use tokio::time::Instant;

use crate::auth::whole_file::Stamp;
use crate::auth::{Ask, AuthFuture, AuthRefusal, Authenticate, Caller, Scope};
use crate::trace::{Level, Trace};
use used::Used;

pub use entry::{Digest, KeyEntry, Reach};
pub use file::{CreatedKey, KEYS_FILE, KeyFile, KeyFileError, NewKey};

/// Maximum age of the keys in memory when a request arrives (G3).
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// API keys of one server.
pub struct Keys {
    file: KeyFile,
    clock: Arc<dyn Clock>,
    trace: Trace,
    known: Mutex<Known>,
    used: Used,
}

struct Known {
    keys: Arc<Found>,
    /// State of the file when it was read.
    stamp: Option<Stamp>,
    looked: Instant,
}

/// Content of the key file.
enum Found {
    /// There is no file and never was one: every request is allowed.
    Nothing,
    Keys(HashMap<String, KeyEntry>),
    Broken(String),
}

impl Keys {
    /// Opens the key file. Fails if it is not usable now.
    pub fn open(path: &Path, clock: Arc<dyn Clock>, trace: Trace) -> Result<Keys, KeyFileError> {
        let file = KeyFile::at(path);
        let (entries, stamp) = file.read_with_stamp()?;
        Ok(Keys::new(file, Found::Keys(by_id(entries)), Some(stamp), clock, trace))
    }

    /// Opens the key file, which may be missing. Until it exists, every request is allowed; from then on it must exist (G2).
    pub fn open_or_await(path: &Path, clock: Arc<dyn Clock>, trace: Trace) -> Result<Keys, KeyFileError> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Keys::new(KeyFile::at(path), Found::Nothing, None, clock, trace))
            }
            _ => Keys::open(path, clock, trace),
        }
    }

    fn new(file: KeyFile, found: Found, stamp: Option<Stamp>, clock: Arc<dyn Clock>, trace: Trace) -> Keys {
        let used = Used::read(&file);
        Keys { file, clock, trace, known: Mutex::new(Known { keys: Arc::new(found), stamp, looked: Instant::now() }), used }
    }

    /// Returns whether there is a key that is neither revoked nor expired.
    pub fn has_usable(&self) -> bool {
        let now = self.clock.now();
        matches!(&*self.look(), Found::Keys(keys) if keys.values().any(|key| key.is_usable(now)))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keys as of at most a second ago. A check is one `stat` call, which blocks for microseconds.
    fn look(&self) -> Arc<Found> {
        let mut known = self.lock();
        if known.looked.elapsed() >= LOOK_PAUSE {
            known.looked = Instant::now();
            self.look_again(&mut known);
        }
        known.keys.clone()
    }

    fn look_again(&self, known: &mut Known) {
        let stamp = self.file.stamp();
        let broken = matches!(*known.keys, Found::Broken(_));
        match &stamp {
            // The file does not exist yet.
            Err(error) if matches!(*known.keys, Found::Nothing) && error.is_missing() => return,
            Ok(stamp) if !broken && known.stamp.as_ref() == Some(stamp) => return,
            _ => {}
        }
        match self.file.read_with_stamp() {
            Ok((entries, stamp)) => {
                self.trace.say(Level::Info, "keys read", &[("keys", &entries.len())]);
                (known.keys, known.stamp) = (Arc::new(Found::Keys(by_id(entries))), Some(stamp));
            }
            Err(error) => {
                let why = error.to_string();
                // Logged once per reason, as the file is checked every second.
                if !matches!(&*known.keys, Found::Broken(before) if *before == why) {
                    self.trace.say(Level::Error, "the key file is not usable; all requests are refused", &[("error", &why)]);
                }
                (known.keys, known.stamp) = (Arc::new(Found::Broken(why)), None);
            }
        }
    }

    fn judge(&self, ask: Ask<'_>) -> Result<Caller, AuthRefusal> {
        let found = self.look();
        let keys = match &*found {
            Found::Nothing => return Ok(Caller::default()),
            Found::Broken(_) => return Err(AuthRefusal::Unavailable { why: "the API keys cannot be read".to_owned() }),
            Found::Keys(keys) => keys,
        };
        let now = self.clock.now();
        let key = recognize(keys, ask.headers, now).ok_or(AuthRefusal::Unauthenticated)?;
        // Requests that need `admin`, such as imports and deletion by a filter, are not checked by kind (BK1).
        if !key.scopes.contains(&ask.scope) || (ask.scope == Scope::Admin && !key.bounds.is_none()) {
            return Err(AuthRefusal::Scope { scope: ask.scope });
        }
        if !key.namespace.covers(ask.namespace) {
            return Err(AuthRefusal::Namespace { namespace: ask.namespace.clone() });
        }
        if ask.server_wide && key.namespace != Reach::All {
            return Err(AuthRefusal::ServerWide);
        }
        self.used.note(&self.file, &key.id, now);
        let credential = Some(key.origin.as_ref().unwrap_or(&key.id).clone());
        Ok(Caller { name: Some(key.name.to_string()), credential, budget_max: key.budget_max, bounds: key.bounds.clone() })
    }
}

/// Returns the usable key that the headers contain. Always hashes once and compares once (G1).
fn recognize<'a>(keys: &'a HashMap<String, KeyEntry>, headers: &HeaderMap, now: Timestamp) -> Option<&'a KeyEntry> {
    let given = bearer(headers).and_then(|text| ApiKey::parse(text).ok());
    let digest = Digest::of(given.as_ref().map_or("", |key| key.secret()));
    let found = given.as_ref().and_then(|key| keys.get(key.id()));
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

fn by_id(entries: Vec<KeyEntry>) -> HashMap<String, KeyEntry> {
    entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect()
}

impl Authenticate for Keys {
    fn authenticate<'a>(&'a self, ask: Ask<'a>) -> AuthFuture<'a> {
        Box::pin(std::future::ready(self.judge(ask)))
    }

    fn namespace(&self, headers: &HeaderMap) -> Namespace {
        let found = self.look();
        let Found::Keys(keys) = &*found else { return Namespace::default() };
        match recognize(keys, headers, self.clock.now()).map(|key| &key.namespace) {
            Some(Reach::One(namespace)) => namespace.clone(),
            Some(Reach::All) | None => Namespace::default(),
        }
    }

    fn trouble(&self) -> Option<String> {
        match &*self.look() {
            Found::Broken(_) => Some("the key file is not usable".to_owned()),
            Found::Nothing | Found::Keys(_) => None,
        }
    }
}
