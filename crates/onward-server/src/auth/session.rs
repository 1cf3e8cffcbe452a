//! Sessions of the console: a cookie that stands for an API key, so that a browser does not have to store the key.
//!
//! The cookie is a token: the id of the key, and the key with the end of the session, encrypted with XChaCha20-Poly1305. The
//! encryption key is derived from the hash of the key's secret, which is in the key file. So every server with the same key file
//! accepts the token, and no server stores sessions.
//!
//! Invariants:
//! - CS1 (S2): a session has exactly the rights of its key at every request: the key in the token is checked like one in a
//!   header. It ends with the key, and after twelve hours.
//! - CS2 (S3): the token does not reveal the key, and the key file alone does not permit to make a token.
//! - CS3 (S19): sign-in, and requests with the cookie other than GET and HEAD, need the header `X-Onward-Console`, which a page
//!   can send only to its own server, and no foreign origin, whatever origins the server allows for requests with keys.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, HeaderName, ORIGIN, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Method};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload as Sealing};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use onward_core::{Name, Namespace, Timestamp};
use onward_wire::ApiKey;
use sha2::Sha256;

use crate::auth::keys::{Digest, Reach};
use crate::auth::{AuthRefusal, Scope};
use crate::handlers::prelude::*;
use crate::trace::Level;

/// Path at which sessions begin and end.
const PATH: &str = "/v1/session";

/// Name of the cookie.
const SESSION: &str = "onward_session";

/// Header of every request of the console.
const CONSOLE: HeaderName = HeaderName::from_static("x-onward-console");

const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Text from which the encryption key of tokens is derived, together with the hash of the secret.
const PURPOSE: &[u8] = b"onward console session 1";

/// Lengths of the nonce, and of the end of the session before the key.
const NONCE: usize = 24;
const END: usize = 8;

/// Returns the token of a session that begins now.
pub(super) fn seal(key: &ApiKey, now: Timestamp) -> String {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).expect("the system has randomness");
    let plain = [&now.after(LIFETIME).0.to_be_bytes()[..], key.reveal().as_bytes()].concat();
    let sealing = Sealing { msg: &plain, aad: key.id().as_bytes() };
    let sealed = cipher(&Digest::of(key.secret())).encrypt(&XNonce::from(nonce), sealing).expect("a short text is encrypted");
    format!("{}.{}", key.id(), URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
}

/// Returns the key of a token that was not changed and has not expired. `hash_of` returns the hash of a key's secret.
pub(super) fn open(token: &str, hash_of: impl Fn(&str) -> Option<Digest>, now: Timestamp) -> Option<ApiKey> {
    let (id, sealed) = token.split_once('.')?;
    let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    let cipher = cipher(&hash_of(id).unwrap_or(Digest::NONE));
    let plain = cipher.decrypt(&XNonce::from(*nonce), Sealing { msg: sealed, aad: id.as_bytes() }).ok()?;
    let (end, key) = plain.split_first_chunk::<END>()?;
    let key = ApiKey::parse(std::str::from_utf8(key).ok()?).ok()?;
    (now < Timestamp(u64::from_be_bytes(*end)) && key.id() == id).then_some(key)
}

fn cipher(hash: &Digest) -> XChaCha20Poly1305 {
    let mut mac = Hmac::<Sha256>::new_from_slice(hash.as_bytes()).expect("a key may have any length");
    mac.update(PURPOSE);
    let key: [u8; 32] = mac.finalize().into_bytes().into();
    XChaCha20Poly1305::new(&Key::from(key))
}

/// Returns the token of the session that the request uses: a header `Authorization` comes first.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    if headers.contains_key(AUTHORIZATION) {
        return None;
    }
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(';'));
    cookies.filter_map(|cookie| cookie.trim().split_once('=')).find(|(name, _)| *name == SESSION).map(|(_, token)| token)
}

/// Returns whether the request must come from the console: it begins a session, or uses one and may change something (CS3).
pub(crate) fn needs_console(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let begins = *method == Method::POST && path == PATH;
    begins || (!matches!(*method, Method::GET | Method::HEAD) && token(headers).is_some())
}

/// Returns whether the request has the header of the console.
pub(crate) fn is_of_console(headers: &HeaderMap) -> bool {
    headers.get(CONSOLE).is_some_and(|value| value == "1")
}

bodies! {
    struct SignIn {
        /// API key.
        key: String,
    }
}

documents! {
    struct Session<'a> {
        /// The server requires keys.
        needs_key: bool,
        /// The request has a valid key or session.
        signed_in: bool,
        key_name: Option<&'a Name>,
        /// Namespace of the request.
        namespace: &'a Namespace as NamespaceName,
        /// Namespaces that the key is for; null for all.
        namespaces: Option<Vec<String>>,
        scopes: Vec<String>,
        /// Kinds that the key is restricted to; null for all.
        kinds: Option<Vec<Name>>,
        /// Queues that the key is restricted to, the empty text for the default queue; null for all.
        queues: Option<Vec<String>>,
        version: &'a str,
        /// Id of the server.
        server: &'a Name,
    }
}

/// Handles `GET /v1/session`. An invalid key or session has the same response as none.
pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let key = match request.server.options().auth.key(&request.headers) {
        Ok(key) => Ok(key),
        Err(AuthRefusal::Unauthenticated) => Err(()),
        Err(refusal) => return Err(refusal.into()),
    };
    let entry = key.as_ref().ok().and_then(Option::as_ref);
    let texts = |scopes: &BTreeSet<Scope>| scopes.iter().map(Scope::to_string).collect();
    let document = Session {
        needs_key: !matches!(key, Ok(None)),
        signed_in: entry.is_some(),
        key_name: entry.map(|entry| &entry.name),
        namespace: &request.by.namespace,
        namespaces: match (&key, entry.map(|entry| &entry.namespace)) {
            (Err(()), _) => Some(Vec::new()),
            (_, Some(Reach::One(namespace))) => Some(vec![namespace.to_string()]),
            (_, Some(Reach::All) | None) => None,
        },
        scopes: match &key {
            Err(()) => Vec::new(),
            Ok(None) => texts(&BTreeSet::from(Scope::ALL)),
            Ok(Some(entry)) => texts(&entry.scopes),
        },
        kinds: entry.and_then(|entry| entry.bounds.kinds.as_ref()).map(|kinds| kinds.iter().cloned().collect()),
        queues: entry.and_then(|entry| entry.bounds.queues.as_ref()).map(|queues| queues.iter().cloned().collect()),
        version: env!("CARGO_PKG_VERSION"),
        server: &request.server.own().id,
    };
    Ok(json(StatusCode::OK, &document))
}

/// Handles `POST /v1/session`: exchanges an API key for a cookie. A server without keys has nothing to exchange.
pub(crate) async fn sign_in(mut request: Request) -> Result<Response, Problem> {
    let SignIn { key } = request.json::<SignIn>().await?;
    match request.server.options().auth.sign_in(key.trim())? {
        None => Ok(StatusCode::NO_CONTENT.into_response()),
        Some(SignedIn { name, token }) => {
            request.server.trace().log(Level::Info, "signed in to the console", &[("by", &name)]);
            Ok(with_cookie(&request, &token, LIFETIME))
        }
    }
}

/// New session.
pub struct SignedIn {
    /// Name of the key.
    pub name: Name,
    /// Value of the cookie.
    pub token: String,
}

/// Handles `DELETE /v1/session`: removes the cookie.
pub(crate) async fn sign_out(request: Request) -> Result<Response, Problem> {
    Ok(with_cookie(&request, "", Duration::ZERO))
}

/// Returns an empty response that sets the cookie. Scripts cannot read it, and browsers send it from pages of the same site only.
fn with_cookie(request: &Request, token: &str, lifetime: Duration) -> Response {
    // Behind a proxy that terminates TLS, only the origin of the page shows that the browser uses TLS.
    let origin = request.headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if request.server.options().tls.is_some() || origin { "; Secure" } else { "" };
    let seconds = lifetime.as_secs();
    let cookie = format!("{SESSION}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(SET_COOKIE, HeaderValue::from_str(&cookie).expect("a token is a header value"));
    response
}
