//! Classifies error responses of providers by status, headers and text.

use std::time::{Duration, SystemTime};

use hyper::HeaderMap;
use serde_json::value::RawValue;

use crate::error::{CallError, Cause};
use crate::transport::json::Object;

/// Maximum size of the provider's message that is kept.
const DETAIL_BYTES_MAX: usize = 2_000;

/// Maximum wait that a header can request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Phrases of providers for a conversation that does not fit, if they have no code for it.
const TOO_LONG: &[&str] = &[
    "prompt is too long",
    "maximum context length",
    "context window",
    "context length",
    "input is too long",
    "exceeds the model's maximum",
];

/// Classifies a response with an error status.
pub(crate) fn refusal(status: u16, headers: &HeaderMap, body: &[u8], now: SystemTime) -> CallError {
    let error = ProviderError::read(body);
    let retry_after = retry_after(headers, now);
    let cause = cause(status, &error, retry_after).unwrap_or(Cause::ServerError { retry_after });
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    CallError {
        status: Some(status),
        request_id: header("x-request-id").or(header("request-id")).map(|id| cut(id, 200)),
        should_retry: header("x-should-retry").and_then(|value| value.parse().ok()),
        ..CallError::new(cause, format!("status {status}")).with_provider_message(error.message)
    }
}

/// Classifies an error inside a success response: an empty response, unless its type or code is more specific.
pub(crate) fn inside_success(error: &RawValue) -> CallError {
    let provider_error = ProviderError::of(error.get());
    let status = provider_error.kinds.iter().find_map(|kind| kind.parse().ok()).unwrap_or(0);
    let cause = cause(status, &provider_error, None).filter(|cause| !matches!(cause, Cause::ServerError { .. }));
    CallError::new(cause.unwrap_or(Cause::Empty), "an error in a success response").with_provider_message(provider_error.message)
}

fn cause(status: u16, error: &ProviderError, retry_after: Option<Duration>) -> Option<Cause> {
    if status == 402 || error.is(&["insufficient_quota", "billing_error"]) {
        return Some(Cause::QuotaExhausted);
    }
    let too_long = matches!(status, 0 | 400 | 422) && error.contains_any(TOO_LONG);
    if status == 413 || too_long || error.is(&["context_length_exceeded", "request_too_large"]) {
        return Some(Cause::ContextTooLong);
    }
    let by_status = match status {
        401 | 403 => Some(Cause::Auth),
        408 => Some(Cause::Timeout),
        429 => Some(Cause::RateLimited { retry_after }),
        503 | 529 => Some(Cause::Overloaded { retry_after }),
        409 | 425 | 500..=599 => Some(Cause::ServerError { retry_after }),
        300..=499 => Some(Cause::BadRequest),
        _ => None,
    };
    by_status.or_else(|| {
        let words: [(&[&str], Cause); 4] = [
            (&["rate_limit_error", "rate_limit_exceeded"], Cause::RateLimited { retry_after }),
            (&["overloaded_error", "engine_overloaded"], Cause::Overloaded { retry_after }),
            (&["authentication_error", "permission_error", "invalid_api_key"], Cause::Auth),
            (&["invalid_request_error", "not_found_error"], Cause::BadRequest),
        ];
        words.into_iter().find(|(words, _)| error.is(words)).map(|(_, cause)| cause)
    })
}

/// A provider's error: the codes for programs, and the message for people.
struct ProviderError {
    kinds: Vec<String>,
    message: String,
}

impl ProviderError {
    /// Reads a whole body: `{"error": …}`, or anything else.
    fn read(body: &[u8]) -> ProviderError {
        let text = String::from_utf8_lossy(body);
        let object: Option<Object> = serde_json::from_str(&text).ok();
        let inner = object.as_ref().and_then(|object| object.get("error"));
        ProviderError::of(inner.map_or(&*text, RawValue::get))
    }

    /// Reads the value of `error`: an object, or only a text.
    fn of(text: &str) -> ProviderError {
        let Ok(object) = serde_json::from_str::<Object>(text) else {
            let message = serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned());
            return ProviderError { kinds: Vec::new(), message: cut(&message, DETAIL_BYTES_MAX) };
        };
        let kinds = ["type", "code"].iter().filter_map(|name| object.get(name)).map(|raw| raw.get().trim_matches('"').to_owned());
        let message = ["message", "detail"].iter().find_map(|name| object.text(name)).unwrap_or_else(|| text.to_owned());
        ProviderError { kinds: kinds.collect(), message: cut(&message, DETAIL_BYTES_MAX) }
    }

    fn is(&self, words: &[&str]) -> bool {
        self.kinds.iter().any(|kind| words.contains(&kind.as_str()))
    }

    fn contains_any(&self, phrases: &[&str]) -> bool {
        let message = self.message.to_lowercase();
        phrases.iter().any(|phrase| message.contains(phrase))
    }
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number =
        |text: &str, unit: f64| text.trim().parse::<f64>().ok().and_then(|value| Duration::try_from_secs_f64(value * unit).ok());
    let date = |text: &str| httpdate::parse_http_date(text).ok().map(|at| at.duration_since(now).unwrap_or_default());
    let milliseconds = header("retry-after-ms").and_then(|text| number(text, 0.001));
    let delay = milliseconds.or_else(|| header("retry-after").and_then(|text| number(text, 1.0).or_else(|| date(text))));
    delay.map(|delay| delay.min(RETRY_AFTER_MAX))
}

/// Truncates a text at a character boundary.
pub(crate) fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes_max)])
}

#[cfg(test)]
mod tests;
