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

pub(crate) mod deliver;
mod entry;
mod file;
mod format;
mod signature;

use std::path::Path;

use axum::response::Response;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::auth::secret_file::{FileState, FollowedFile, SecretFileError};
use crate::http::problem::{Problem, RequestError};
use crate::http::request::{Request, Rules};
use crate::trace::Trace;

pub use entry::{Named, Pointer, Secret, WebhookEntry, WebhookSecret, WebhookTarget};
pub use file::{NewWebhook, WEBHOOKS_FILE, WebhookFile};
pub use format::{Custom, Encoding, Format, IdAt, TimestampAt};

/// Webhooks of one server.
pub struct Webhooks {
    webhooks: FollowedFile<WebhookEntry>,
    /// Key for the HMAC of requests to unknown webhooks.
    dummy_hmac: Hmac<Sha256>,
}

impl Webhooks {
    /// Opens the webhook file, which may be missing: then there are no webhooks. Fails if it exists and is not usable.
    pub fn open(path: &Path, trace: Trace) -> Result<Webhooks, SecretFileError> {
        let webhooks = FollowedFile::open(WebhookFile::at(path), true, true, trace)?;
        Ok(Webhooks { webhooks, dummy_hmac: dummy_hmac() })
    }

    /// Returns the webhook with this name.
    fn find(&self, name: &str) -> Result<Option<WebhookEntry>, Problem> {
        match &*self.webhooks.current() {
            FileState::Absent => Ok(None),
            FileState::Entries(webhooks) => Ok(webhooks.get(name).cloned()),
            FileState::Broken(_) => Err(RequestError::NotReady { why: "the webhooks cannot be read".to_owned() }.into()),
        }
    }
}

/// Returns an HMAC with a random key, so that no signature can match it.
fn dummy_hmac() -> Hmac<Sha256> {
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
        let mut work = webhooks.dummy_hmac.clone();
        request.pass_over(rules, |data| work.update(data)).await?;
        std::hint::black_box(work.verify_slice(&[0; 32]).is_ok());
        return Err(RequestError::WebhookRefused.into()); // HK1
    };
    let body = request.read_bytes(rules).await?;
    let now = request.server.runtime().clock().now();
    let signed = signature::Signed { headers: &request.headers, body: &body };
    let id = signature::verify(&webhook, &signed, now).ok_or(RequestError::WebhookRefused)?; // HK1
    request.trust.iter().for_each(|trust| trust.set_authenticated(true));
    deliver::deliver(&request.server, &webhook, &id, &body).await
}
