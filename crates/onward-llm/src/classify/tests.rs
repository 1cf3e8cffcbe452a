//! Tests of the parent module.

use super::*;

#[track_caller]
fn check(status: u16, body: &str, code: &str) {
    let error = refusal(status, &HeaderMap::new(), body.as_bytes(), SystemTime::UNIX_EPOCH);
    assert_eq!(error.code(), code, "{error}");
}

#[test]
fn statuses_and_words_are_classified() {
    check(400, r#"{"error":{"message":"no such field","type":"invalid_request_error"}}"#, "model_request_refused");
    check(400, r#"{"error":{"message":"m","code":"context_length_exceeded"}}"#, "context_too_long");
    let anthropic = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8 tokens"}}"#;
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
fn an_error_inside_a_success_is_an_empty_answer_unless_its_code_is_known() {
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
fn messages_are_cut_in_whole_characters() {
    assert_eq!(cut("żółw", 3), "ż…");
}
