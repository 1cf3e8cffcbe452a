//! Incoming webhooks: requests that are authenticated by a signature and start a run or send a signal.
//!
//! A webhook has a name, a namespace, secrets and a target. Like keys, webhooks are in a file that the command line writes and a
//! running server reads again after a change (ADR 0026). Requests need no API key: the signature is the credential.
//!
//! Invariants:
//! - HK1 (S3, S31): an unknown webhook, a wrong or missing signature and a timestamp outside the window get the same response,
//!   after reading the same body and the same kind of work, and nothing is written. The body for an unknown webhook is not
//!   buffered.
//! - HK2 (S1): with a webhook file that cannot be read or parsed every webhook request is refused.
//! - HK3: a request is accepted once: a repeat with the same id gets the first response, for as long as its run exists. The id is
//!   part of the signed text or derived from it, so an old request cannot be given a new id.
//! - HK4 (S12): a secret is in the webhook file and is shown once when it is created; it is in no other file, log line, error or
//!   response.

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
use crate::serve::RequestTrust;
use crate::trace::{Level, Trace};

pub use entry::{Named, Pointer, Secret, WebhookEntry, WebhookSecret, WebhookTarget};
pub use file::{NewWebhook, WEBHOOKS_FILE, WebhookFile, WebhookFileError};
pub use format::{Custom, Encoding, Format, IdAt, TimestampAt};

/// Maximum age of the webhooks in memory when a request arrives.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Webhooks of one server.
pub struct Webhooks {
    file: WebhookFile,
    trace: Trace,
    known: Mutex<Known>,
    /// Key for the HMAC of requests to unknown webhooks.
    decoy: Hmac<Sha256>,
}

struct Known {
    webhooks: Arc<Found>,
    stamp: Option<Stamp>,
    looked: Option<Instant>,
}

enum Found {
    Webhooks(HashMap<Name, WebhookEntry>),
    Broken(String),
}

impl Webhooks {
    /// Opens the webhook file, which may be missing: then there are no webhooks. Fails if it exists and is not usable.
    pub fn open(path: &Path, trace: Trace) -> Result<Webhooks, WebhookFileError> {
        let file = WebhookFile::at(path);
        match file.read() {
            Err(error) if !error.is_missing() => return Err(error),
            _ => {}
        }
        let known = Known { webhooks: Arc::new(Found::Webhooks(HashMap::new())), stamp: None, looked: None };
        Ok(Webhooks { file, trace, known: Mutex::new(known), decoy: decoy() })
    }

    /// Returns the webhooks as of at most a second ago.
    fn look(&self) -> Arc<Found> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.is_none_or(|looked| looked.elapsed() >= LOOK_PAUSE) {
            known.looked = Some(Instant::now());
            self.look_again(&mut known);
        }
        known.webhooks.clone()
    }

    fn look_again(&self, known: &mut Known) {
        let stamp = self.file.stamp().ok();
        if stamp.is_some() && stamp == known.stamp && matches!(*known.webhooks, Found::Webhooks(_)) {
            return;
        }
        match self.file.read_with_stamp() {
            Ok((webhooks, stamp)) => {
                self.trace.say(Level::Info, "webhooks read", &[("webhooks", &webhooks.len())]);
                let webhooks = webhooks.into_iter().map(|webhook| (webhook.name.clone(), webhook)).collect();
                (known.webhooks, known.stamp) = (Arc::new(Found::Webhooks(webhooks)), Some(stamp));
            }
            // A missing file means no webhooks, so no request is accepted.
            Err(error) if error.is_missing() => {
                (known.webhooks, known.stamp) = (Arc::new(Found::Webhooks(HashMap::new())), None);
            }
            Err(error) => {
                let why = error.to_string();
                if !matches!(&*known.webhooks, Found::Broken(before) if *before == why) {
                    self.trace.say(Level::Error, "the webhook file is not usable; all webhooks are refused", &[("error", &why)]);
                }
                (known.webhooks, known.stamp) = (Arc::new(Found::Broken(why)), None);
            }
        }
    }

    /// Returns the webhook with this name.
    fn find(&self, name: &str) -> Result<Option<WebhookEntry>, Problem> {
        match &*self.look() {
            Found::Webhooks(webhooks) => Ok(Name::new(name).ok().and_then(|name| webhooks.get(&name)).cloned()),
            Found::Broken(_) => Err(RequestError::NotReady { why: "the webhooks cannot be read".to_owned() }.into()),
        }
    }
}

/// Returns an HMAC with a random key, so that no signature can match it.
fn decoy() -> Hmac<Sha256> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits).expect("the system has randomness");
    Hmac::new_from_slice(&bits).expect("a key may have any length")
}

/// Handles `POST /v1/webhooks/{name}`.
pub(crate) async fn receive(mut request: Request) -> Result<Response, Problem> {
    // Without a webhook file there are no names to hide, so the body is not read.
    let Some(webhooks) = request.server.options().webhooks.clone() else { return Err(RequestError::WebhookRefused.into()) };
    let webhook = webhooks.find(request.id.as_deref().unwrap_or_default())?;
    let namespace = webhook.as_ref().map(|webhook| webhook.namespace.clone()).unwrap_or_default();
    let rules = Rules::of_webhooks(&request.server, namespace);
    let Some(webhook) = webhook else {
        let mut work = webhooks.decoy.clone();
        request.pass_over(rules, |data| work.update(data)).await?;
        std::hint::black_box(work.verify_slice(&[0; 32]).is_ok());
        return Err(RequestError::WebhookRefused.into()); // HK1
    };
    let body = request.read_bytes(rules).await?;
    let now = request.server.runtime().clock().now();
    let signed = signature::Signed { headers: &request.headers, body: &body };
    let id = signature::verify(&webhook, &signed, now).ok_or(RequestError::WebhookRefused)?; // HK1
    request.trust.iter().for_each(RequestTrust::believe);
    deliver::deliver(&request.server, &webhook, &id, &body).await
}
