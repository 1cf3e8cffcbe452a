//! Webhooks in: requests of others that are believed for their signature, and become a run or a signal.
//!
//! A hook has a name, a namespace, secrets and a target, in a file that the command line writes and a running server follows, like keys
//! (ADR 0025). No key is asked for: the signature is the credential.
//!
//! Invariants:
//! - HK1 (S3, S31): an unknown hook, a wrong or missing signature and a time outside of the window get one and the same answer, after
//!   the same kind of work, and nothing is written.
//! - HK2 (S1): a hook file that cannot be read or understood lets no hook through.
//! - HK3: a request that was taken is taken once: the same id again gets the first answer, for as long as its run is kept.
//! - HK4 (S12): a secret is in the hook file, and once on the screen of whoever made it; in no other file, log line, error or answer.

mod deliver;
mod entry;
mod file;
mod format;
mod signature;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::Response;
use onward_core::{Name, Namespace, Timestamp};
use tokio::time::Instant;

use crate::problem::{Problem, RequestError};
use crate::request::Request;
use crate::trace::{Level, Trace};
use crate::whole_file::Stamp;

pub use entry::{HookEntry, HookSecret, Named, Pointer, Secret, Target};
pub use file::{HOOKS, HookFile, HookFileError, NewHook};
pub use format::{Custom, Encoding, Format, IdAt, TimestampAt};

/// How old what we know of the file may be when a request comes.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The largest body, since anybody may send one.
const HOOK_BYTES_MAX: usize = 1024 * 1024;

/// The hooks of one server.
pub struct Hooks {
    file: HookFile,
    trace: Trace,
    known: Mutex<Known>,
    /// Stands for every hook that there is not.
    decoy: HookEntry,
}

struct Known {
    hooks: Arc<Found>,
    stamp: Option<Stamp>,
    looked: Option<Instant>,
}

enum Found {
    Hooks(HashMap<Name, HookEntry>),
    Broken(String),
}

impl Hooks {
    /// The hooks of this file; until there is one, there are none. A file that is there must be usable now.
    pub fn open(path: &Path, trace: Trace) -> Result<Hooks, HookFileError> {
        let file = HookFile::at(path);
        match file.read() {
            Err(error) if !error.is_missing() => return Err(error),
            _ => {}
        }
        let known = Known { hooks: Arc::new(Found::Hooks(HashMap::new())), stamp: None, looked: None };
        Ok(Hooks { file, trace, known: Mutex::new(known), decoy: decoy() })
    }

    /// What the file says, as it was at most a second ago.
    fn look(&self) -> Arc<Found> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.is_none_or(|looked| looked.elapsed() >= LOOK_PAUSE) {
            known.looked = Some(Instant::now());
            self.look_again(&mut known);
        }
        known.hooks.clone()
    }

    fn look_again(&self, known: &mut Known) {
        let stamp = self.file.stamp().ok();
        if stamp.is_some() && stamp == known.stamp && matches!(*known.hooks, Found::Hooks(_)) {
            return;
        }
        match self.file.read_with_stamp() {
            Ok((hooks, stamp)) => {
                self.trace.say(Level::Info, "hooks read", &[("hooks", &hooks.len())]);
                let hooks = hooks.into_iter().map(|hook| (hook.name.clone(), hook)).collect();
                (known.hooks, known.stamp) = (Arc::new(Found::Hooks(hooks)), Some(stamp));
            }
            // No file, no hooks: nobody is let in by that.
            Err(error) if error.is_missing() => {
                (known.hooks, known.stamp) = (Arc::new(Found::Hooks(HashMap::new())), None);
            }
            Err(error) => {
                let why = error.to_string();
                if !matches!(&*known.hooks, Found::Broken(before) if *before == why) {
                    self.trace.say(Level::Error, "the hook file is not usable, no hook is let through", &[("error", &why)]);
                }
                (known.hooks, known.stamp) = (Arc::new(Found::Broken(why)), None);
            }
        }
    }

    /// The hook and the id of a request that is to be believed.
    fn judge(&self, name: &str, request: &signature::Signed<'_>, now: Timestamp) -> Result<(HookEntry, String), Problem> {
        let found = self.look();
        let Found::Hooks(hooks) = &*found else {
            return Err(RequestError::NotReady { why: "its hooks cannot be read".to_owned() }.into());
        };
        let hook = Name::new(name).ok().and_then(|name| hooks.get(&name));
        let id = signature::verify(hook.unwrap_or(&self.decoy), request, now);
        match (hook, id) {
            (Some(hook), Some(id)) => Ok((hook.clone(), id)),
            _ => Err(RequestError::HookRefused.into()), // HK1
        }
    }
}

/// A hook that nobody can sign for.
fn decoy() -> HookEntry {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).expect("the system has randomness");
    let name = Name::new("decoy").expect("a constant name");
    let text: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    HookEntry {
        target: Target::Start { kind: name.clone(), version: None, run_id: None },
        name,
        namespace: Namespace::default(),
        format: Format::Standard,
        secrets: vec![HookSecret { secret: Secret::new(text), created_at: Timestamp(0), expires_at: None }],
        created_at: Timestamp(0),
    }
}

/// `POST /v1/hooks/{name}`.
pub(crate) async fn receive(mut request: Request) -> Result<Response, Problem> {
    let body = request.raw_body(HOOK_BYTES_MAX).await?;
    let Some(hooks) = request.server.options().hooks.clone() else { return Err(RequestError::HookRefused.into()) };
    let now = request.server.runtime().clock().now();
    let name = request.id.clone().unwrap_or_default();
    let signed = signature::Signed { headers: &request.headers, body: &body };
    let (hook, id) = hooks.judge(&name, &signed, now)?;
    deliver::deliver(request.server.runtime(), &hook, &id, &body).await
}
