//! Tests of the parent module.

use super::*;

fn secs(secs: u64) -> Next {
    Next::Again { delay: Duration::from_secs(secs) }
}

/// Returns the decisions after these failures, in order.
fn after(retries: &ModelRetries, causes: impl IntoIterator<Item = Cause>) -> Vec<Next> {
    let mut failures = Failures::default();
    causes.into_iter().map(|cause| retries.after(&mut failures, &CallError::new(cause, ""))).collect()
}

const LIMITED: Cause = Cause::RateLimited { retry_after: None };
const FAILED: Cause = Cause::ServerError { retry_after: None };

#[test]
fn an_empty_answer_is_requested_three_times_with_doubling_delays() {
    assert_eq!(after(&ModelRetries::default(), [Cause::Empty, Cause::Empty, Cause::Empty]), [secs(1), secs(2), Next::GiveUp]);
    let mut failures = Failures::default();
    for cause in [FAILED, Cause::Empty, FAILED, Cause::Empty, Cause::Empty] {
        ModelRetries::default().after(&mut failures, &CallError::new(cause, ""));
    }
    let empty = EmptyModelResponse::after(&failures, &CallError::new(Cause::Empty, "")).unwrap();
    assert_eq!(empty.attempts, 3, "as many as were empty");
    assert!(EmptyModelResponse::after(&failures, &CallError::new(Cause::Timeout, "")).is_none());
}

#[test]
fn a_retry_waits_for_the_requested_time() {
    let cause = Cause::RateLimited { retry_after: Some(Duration::from_secs(2)) };
    let next = after(&ModelRetries::default(), std::iter::repeat_n(cause, 14));
    assert!(next[..11].iter().all(|next| *next == secs(2)), "{next:?}");
    assert_eq!(next[11..], [secs(4), secs(8), secs(16)]);
}

/// LR1.
#[test]
fn causes_are_counted_apart() {
    let next = after(&ModelRetries::default(), [LIMITED, LIMITED, LIMITED, FAILED, Cause::Empty, Cause::Malformed, LIMITED]);
    assert_eq!(next, [secs(1), secs(2), secs(4), secs(1), secs(1), secs(1), secs(8)]);
}

#[test]
fn an_outage_is_waited_out_for_minutes() {
    for cause in [FAILED, Cause::Unreachable, Cause::Disconnected] {
        let next = after(&ModelRetries::default(), std::iter::repeat_n(cause, 20));
        assert_eq!(next[..8], [1, 2, 4, 8, 16, 32, 60, 60].map(secs));
        assert_eq!((next[18], next[19]), (secs(60), Next::GiveUp));
    }
}

#[test]
fn a_requested_delay_is_observed_for_as_long_as_a_call_may_wait() {
    let limited = |secs| Cause::RateLimited { retry_after: Some(Duration::from_secs(secs)) };
    let next = after(&ModelRetries::default(), std::iter::repeat_n(limited(300), 7));
    assert_eq!(next[..6], [secs(300); 6]);
    assert_eq!(next[6], Next::GiveUp, "half an hour is over");
    assert_eq!(after(&ModelRetries::default(), [limited(86_400)]), [Next::GiveUp], "a shorter wait would be refused again");
    let patient = ModelRetries { wait_max: Duration::from_secs(100_000), ..ModelRetries::default() };
    assert_eq!(after(&patient, [limited(86_400)]), [secs(86_400)]);
}

/// LR2.
#[test]
fn a_permanent_error_is_not_retried_and_a_provider_may_declare_one() {
    let retries = ModelRetries::default();
    for cause in [Cause::Auth, Cause::BadRequest, Cause::ContextTooLong, Cause::QuotaExhausted, Cause::TooLarge] {
        assert_eq!(after(&retries, [cause]), [Next::GiveUp]);
    }
    let error = CallError { status: Some(500), should_retry: Some(false), ..CallError::new(FAILED, "") };
    assert_eq!(retries.after(&mut Failures::default(), &error), Next::GiveUp);
}

#[test]
fn counts_go_along_as_json() {
    let mut failures = Failures::default();
    ModelRetries::default().after(&mut failures, &CallError::new(FAILED, ""));
    let text = serde_json::to_string(&failures).unwrap();
    assert_eq!(text, r#"{"counts":{"model_failed":1},"waited_ms":1000}"#);
    assert_eq!(serde_json::from_str::<Failures>(&text).unwrap(), failures);
}
