//! Webhooks in: requests of others that are believed for their signature, and become a run or a signal.
//!
//! A hook has a name, a namespace, secrets and a target, in a file that the command line writes and a running server follows, like keys
//! (ADR 0026). No key is asked for: the signature is the credential.
//!
//! Invariants:
//! - HK1 (S3, S31): an unknown hook, a wrong or missing signature and a time outside of the window get one and the same answer, after
//!   the same body and the same kind of work, and nothing is written. What is sent to an unknown hook is not kept while it arrives.
//! - HK2 (S1): a hook file that cannot be read or understood lets no hook through.
//! - HK3: a request that was taken is taken once: the same id again gets the first answer, for as long as its run is kept. An id is
//!   part of what is signed, or made of it: nobody can give an old request a new one.
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
use hmac::{Hmac, KeyInit, Mac};
use onward_core::Name;
use sha2::Sha256;
use tokio::time::Instant;

use crate::auth::whole_file::Stamp;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::{Request, Rules};
use crate::serve::Standing;
use crate::trace::{Level, Trace};

pub use entry::{HookEntry, HookSecret, Named, Pointer, Secret, Target};
pub use file::{HOOKS, HookFile, HookFileError, NewHook};
pub use format::{Custom, Encoding, Format, IdAt, TimestampAt};

/// How old what we know of the file may be when a request comes.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The hooks of one server.
pub struct Hooks {
    file: HookFile,
    trace: Trace,
    known: Mutex<Known>,
    /// Stands for every hook that there is not.
    decoy: Hmac<Sha256>,
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

    /// The hook of that name, if there is one.
    fn find(&self, name: &str) -> Result<Option<HookEntry>, Problem> {
        match &*self.look() {
            Found::Hooks(hooks) => Ok(Name::new(name).ok().and_then(|name| hooks.get(&name)).cloned()),
            Found::Broken(_) => Err(RequestError::NotReady { why: "its hooks cannot be read".to_owned() }.into()),
        }
    }
}

/// The work of a signature that nobody can make.
fn decoy() -> Hmac<Sha256> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).expect("the system has randomness");
    Hmac::new_from_slice(&bits).expect("a key may have any length")
}

/// `POST /v1/hooks/{name}`.
pub(crate) async fn receive(mut request: Request) -> Result<Response, Problem> {
    // Without hooks there is nothing to hide, and no body to wait for.
    let Some(hooks) = request.server.options().hooks.clone() else { return Err(RequestError::HookRefused.into()) };
    let hook = hooks.find(request.id.as_deref().unwrap_or_default())?;
    let namespace = hook.as_ref().map(|hook| hook.namespace.clone()).unwrap_or_default();
    let rules = Rules::of_hooks(&request.server, namespace);
    let Some(hook) = hook else {
        let mut work = hooks.decoy.clone();
        request.pass_over(rules, |data| work.update(data)).await?;
        std::hint::black_box(work.verify_slice(&[0; 32]).is_ok());
        return Err(RequestError::HookRefused.into()); // HK1
    };
    let body = request.read_bytes(rules).await?;
    let now = request.server.runtime().clock().now();
    let signed = signature::Signed { headers: &request.headers, body: &body };
    let id = signature::verify(&hook, &signed, now).ok_or(RequestError::HookRefused)?; // HK1
    request.standing.iter().for_each(Standing::believe);
    deliver::deliver(&request.server, &hook, &id, &body).await
}
