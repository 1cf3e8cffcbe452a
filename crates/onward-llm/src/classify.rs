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
    let told = Told::read(body);
    let retry_after = retry_after(headers, now);
    let cause = cause(status, &told, retry_after).unwrap_or(Cause::ServerError { retry_after });
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    CallError {
        status: Some(status),
        request_id: header("x-request-id").or(header("request-id")).map(|id| cut(id, 200)),
        provider_says_retry: header("x-should-retry").and_then(|says| says.parse().ok()),
        ..CallError::new(cause, format!("status {status}")).saying(told.message)
    }
}

/// Classifies an error inside a success response: an empty response, unless its type or code is more specific.
pub(crate) fn inside_success(error: &RawValue) -> CallError {
    let told = Told::of(error.get());
    let status = told.kinds.iter().find_map(|kind| kind.parse().ok()).unwrap_or(0);
    let cause = cause(status, &told, None).filter(|cause| !matches!(cause, Cause::ServerError { .. }));
    CallError::new(cause.unwrap_or(Cause::Empty), "an error in a success response").saying(told.message)
}

fn cause(status: u16, told: &Told, retry_after: Option<Duration>) -> Option<Cause> {
    if status == 402 || told.is(&["insufficient_quota", "billing_error"]) {
        return Some(Cause::QuotaExhausted);
    }
    let too_long = matches!(status, 0 | 400 | 422) && told.says(TOO_LONG);
    if status == 413 || too_long || told.is(&["context_length_exceeded", "request_too_large"]) {
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
        words.into_iter().find(|(words, _)| told.is(words)).map(|(_, cause)| cause)
    })
}

/// A provider's error: the codes for programs, and the message for people.
struct Told {
    kinds: Vec<String>,
    message: String,
}

impl Told {
    /// Reads a whole body: `{"error": …}`, or anything else.
    fn read(body: &[u8]) -> Told {
        let text = String::from_utf8_lossy(body);
        let object: Option<Object> = serde_json::from_str(&text).ok();
        let inner = object.as_ref().and_then(|object| object.get("error"));
        Told::of(inner.map_or(&*text, RawValue::get))
    }

    /// Reads the value of `error`: an object, or only a text.
    fn of(text: &str) -> Told {
        let Ok(object) = serde_json::from_str::<Object>(text) else {
            let message = serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned());
            return Told { kinds: Vec::new(), message: cut(&message, DETAIL_BYTES_MAX) };
        };
        let kinds = ["type", "code"].iter().filter_map(|name| object.get(name)).map(|raw| raw.get().trim_matches('"').to_owned());
        let message = ["message", "detail"].iter().find_map(|name| object.text(name)).unwrap_or_else(|| text.to_owned());
        Told { kinds: kinds.collect(), message: cut(&message, DETAIL_BYTES_MAX) }
    }

    fn is(&self, words: &[&str]) -> bool {
        self.kinds.iter().any(|kind| words.contains(&kind.as_str()))
    }

    fn says(&self, phrases: &[&str]) -> bool {
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
    let told = milliseconds.or_else(|| header("retry-after").and_then(|text| number(text, 1.0).or_else(|| date(text))));
    told.map(|delay| delay.min(RETRY_AFTER_MAX))
}

/// Truncates a text at a character boundary.
pub(crate) fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes_max)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, code: &str) {
        let error = refusal(status, &HeaderMap::new(), body.as_bytes(), SystemTime::UNIX_EPOCH);
        assert_eq!(error.code(), code, "{error}");
    }

    #[test]
    fn statuses_and_words_say_what_happened() {
        check(400, r#"{"error":{"message":"no such field","type":"invalid_request_error"}}"#, "model_request_refused");
        check(400, r#"{"error":{"message":"m","code":"context_length_exceeded"}}"#, "context_too_long");
        let anthropic =
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8 tokens"}}"#;
        check(400, anthropic, "context_too_long");
        check(401, r#"{"error":"no"}"#, "model_key_refused");
        check(402, "", "model_quota_exhausted");
        check(404, "<html>", "model_request_refused");
        check(429, r#"{"error":{"message":"m","code":"insufficient_quota"}}"#, "model_quota_exhausted");
        check(429, "", "model_rate_limited");
        check(500, "oh", "model_failed");
        check(529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, "model_overloaded");
        check(302, "", "model_request_refused");
    }

    #[test]
    fn an_error_inside_a_success_is_an_empty_answer_unless_it_says_more() {
        let code = |text: &str| inside_success(serde_json::from_str(text).unwrap()).code();
        assert_eq!(code(r#"{"message":"upstream died","code":502}"#), "empty_model_response");
        assert_eq!(code(r#"{"type":"api_error","message":"m"}"#), "empty_model_response");
        assert_eq!(code(r#""oh""#), "empty_model_response");
        assert_eq!(code(r#"{"code":429,"message":"slow down"}"#), "model_rate_limited");
        assert_eq!(code(r#"{"type":"overloaded_error","message":"Overloaded"}"#), "model_overloaded");
    }

    #[test]
    fn a_delay_is_seconds_milliseconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 15 Nov 2026 20:00:00 GMT").unwrap();
        let delay = |name: &'static str, text: &str| {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), text.parse().unwrap())]);
            retry_after(&headers, now).map(|delay| delay.as_millis())
        };
        assert_eq!(delay("retry-after", "7"), Some(7_000));
        assert_eq!(delay("retry-after", "0.5"), Some(500));
        assert_eq!(delay("retry-after-ms", "1500"), Some(1_500));
        assert_eq!(delay("retry-after", "Sun, 15 Nov 2026 20:01:00 GMT"), Some(60_000));
        assert_eq!(delay("retry-after", "Sun, 15 Nov 2026 19:00:00 GMT"), Some(0));
        assert_eq!(delay("retry-after", "99999999999"), Some(RETRY_AFTER_MAX.as_millis()));
        assert_eq!(["-1", "soon", "NaN", "inf"].map(|text| delay("retry-after", text)), [None; 4]);
    }

    #[test]
    fn what_is_said_is_cut_in_whole_characters() {
        assert_eq!(cut("żółw", 3), "ż…");
    }
}
