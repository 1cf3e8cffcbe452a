//! Verification of signatures, and the ids of requests.
//!
//! Compares in constant time, and always with every secret (S3).

use std::time::Duration;

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use onward_core::{Name, Timestamp};
use serde_json::Value;
use sha2::Sha256;

use super::entry::{Secret, WebhookEntry};
use super::format::{Custom, Encoding, Format, IdAt, TimestampAt};
use crate::hex;

/// Maximum difference between the timestamp of a signature and the server's clock, in both directions (S31).
pub const WINDOW: Duration = Duration::from_secs(300);

/// Maximum number of signatures of a request that are checked: one per secret of a rotation, and a reserve.
const SIGNATURES_MAX: usize = 16;

const STANDARD_ID: &str = "webhook-id";

/// Prefix of a Standard Webhooks secret.
pub const WHSEC: &str = "whsec_";

/// Request to verify.
pub struct Signed<'a> {
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
}

/// Returns the id of a request that was signed with one of the webhook's secrets within the time window; `None` for any other
/// request.
pub fn verify(webhook: &WebhookEntry, request: &Signed<'_>, now: Timestamp) -> Option<String> {
    let parts = match &webhook.format {
        Format::Standard => standard(request),
        Format::Custom(custom) => custom_parts(custom, request),
    };
    // The HMAC is computed even if the result is known, so that timing reveals nothing.
    let unreadable = parts.is_none();
    let Parts { signatures, timestamp, content } = parts.unwrap_or_default();
    let mut signed = false;
    for secret in webhook.usable_secrets(now) {
        let key = key_of(&webhook.format, secret);
        for signature in signatures.iter().take(SIGNATURES_MAX) {
            signed |= matches(key.as_deref().unwrap_or_default(), &content, signature) && key.is_some();
        }
        if signatures.is_empty() {
            std::hint::black_box(matches(key.as_deref().unwrap_or_default(), &content, &[0; 32]));
        }
    }
    let in_time = timestamp.is_none_or(|at| at.since(now) <= WINDOW && now.since(at) <= WINDOW);
    if !signed || !in_time || unreadable {
        return None;
    }
    // The id becomes part of a name and must fit its limits.
    id_of(&webhook.format, request).filter(|id| Name::new(id).is_ok())
}

/// Returns the id of a verified request.
fn id_of(format: &Format, request: &Signed<'_>) -> Option<String> {
    let at = match format {
        Format::Standard => return one(request.headers, STANDARD_ID).map(str::to_owned),
        Format::Custom(custom) => &custom.id,
    };
    match at {
        IdAt::Pointer(pointer) => text_at(&serde_json::from_slice(request.body).ok()?, pointer.as_str()),
        IdAt::Body => Some(hex::sha256(request.body)),
    }
}

#[derive(Default)]
struct Parts {
    signatures: Vec<Vec<u8>>,
    timestamp: Option<Timestamp>,
    /// Signed text.
    content: Vec<u8>,
}

fn standard(request: &Signed<'_>) -> Option<Parts> {
    let id = one(request.headers, STANDARD_ID)?;
    let seconds = one(request.headers, "webhook-timestamp")?;
    let signatures = one(request.headers, "webhook-signature")?;
    let signatures = signatures.split(' ').filter_map(|text| STANDARD.decode(text.trim().strip_prefix("v1,")?).ok());
    let content = [id.as_bytes(), b".", seconds.as_bytes(), b".", request.body].concat();
    Some(Parts { signatures: signatures.collect(), timestamp: Some(time(seconds)?), content })
}

fn custom_parts(custom: &Custom, request: &Signed<'_>) -> Option<Parts> {
    let header = one(request.headers, &custom.signature_header)?;
    let fields = || header.split(',').map(str::trim);
    let decode = |text: &str| match custom.encoding {
        Encoding::Hex => hex::decode(text),
        Encoding::Base64 => STANDARD.decode(text).ok(),
    };
    let signatures = fields().filter_map(|field| decode(field.strip_prefix(custom.prefix.as_str())?)).collect();
    let seconds = match &custom.timestamp {
        None => None,
        Some(TimestampAt::Header(name)) => Some(one(request.headers, name)?),
        Some(TimestampAt::Field(word)) => Some(fields().find_map(|field| field.strip_prefix(word.as_str()))?),
    };
    let content = match seconds {
        None => request.body.to_vec(),
        Some(seconds) => [seconds.as_bytes(), b".", request.body].concat(),
    };
    let timestamp = match seconds {
        None => None,
        Some(seconds) => Some(time(seconds)?),
    };
    Some(Parts { signatures, timestamp, content })
}

/// Returns the text or integer at `pointer`.
pub fn text_at(document: &Value, pointer: &str) -> Option<String> {
    match document.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_u64() || number.is_i64() => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the value of the header; `None` unless there is exactly one.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut given = headers.get_all(name).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    value.to_str().ok()
}

fn time(seconds: &str) -> Option<Timestamp> {
    let digits = !seconds.is_empty() && seconds.len() <= 12 && seconds.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: u64 = seconds.parse().ok().filter(|_| digits)?;
    Some(Timestamp(seconds * 1_000))
}

/// Returns the bytes of the HMAC key; `None` if the secret does not fit the format.
pub fn key_of(format: &Format, secret: &Secret) -> Option<Vec<u8>> {
    let text = secret.reveal();
    match format {
        Format::Standard => STANDARD.decode(text.strip_prefix(WHSEC).unwrap_or(text)).ok(),
        Format::Custom(_) => Some(text.as_bytes().to_vec()),
    }
}

fn matches(key: &[u8], content: &[u8], signature: &[u8]) -> bool {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(content);
    mac.verify_slice(signature).is_ok()
}

#[cfg(test)]
mod tests;
