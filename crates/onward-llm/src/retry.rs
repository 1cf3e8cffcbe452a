//! Retry decisions for model calls. There is no loop here: the caller passes a failure, and the engine waits durably.
//!
//! Invariants:
//! - LR1: failures of one cause never use up the attempts of another cause.
//! - LR2: a call that cannot succeed is not retried, and the total wait of a call is bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{CallError, Cause};
use crate::reply::ModelReply;

/// Maximum attempts and delays of a call, by the cause of the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelRetries {
    /// Maximum failures of one cause for rate limits and overload. Waiting costs no tokens.
    pub busy_max: u32,
    /// Maximum failures of one cause if the provider is unreachable or fails.
    pub outage_max: u32,
    /// Maximum failures of one cause for an empty, broken or late response, which may be billed.
    pub answer_max: u32,
    /// Doubled with every failure of the same cause.
    pub first_delay: Duration,
    /// Maximum delay, unless the provider asks for a longer one.
    pub delay_max: Duration,
    /// Maximum total delay of a call.
    pub wait_max: Duration,
}

impl Default for ModelRetries {
    fn default() -> ModelRetries {
        let [first_delay, delay_max, wait_max] = [1, 60, 30 * 60].map(Duration::from_secs);
        ModelRetries { busy_max: 100, outage_max: 20, answer_max: 3, first_delay, delay_max, wait_max }
    }
}

/// Number of rate-limited attempts that use exactly the provider's delay, before delays grow.
const PROMPT_MAX: u32 = 10;

/// The failures of a call so far. Passed on from attempt to attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// By error code.
    pub counts: BTreeMap<String, u32>,
    /// Total delay.
    pub waited_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next attempt may start after this delay.
    Again {
        delay: Duration,
    },
    GiveUp,
}

impl ModelRetries {
    /// Counts one more failure and returns what follows from it.
    pub fn after(&self, failures: &mut Failures, error: &CallError) -> Next {
        let count = failures.counts.entry(error.code().to_owned()).or_default(); // LR1
        *count = count.saturating_add(1);
        if !error.is_retryable() || *count >= self.max_for(&error.cause) {
            return Next::GiveUp;
        }
        // A call with a `retry-after` is retried at that time, together with all others that wait for the key. A later retry
        // would be overtaken by calls that were never refused. Delays grow only if the key stays rate-limited.
        let prompt = if matches!(error.cause, Cause::RateLimited { retry_after: Some(_) }) { PROMPT_MAX } else { 1 };
        let doubled = 2_u32.saturating_pow(count.saturating_sub(prompt));
        let delay = self.first_delay.saturating_mul(doubled).min(self.delay_max).max(error.retry_after().unwrap_or_default());
        let waited = Duration::from_millis(failures.waited_ms).saturating_add(delay);
        if waited > self.wait_max {
            return Next::GiveUp; // LR2
        }
        failures.waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        Next::Again { delay }
    }

    fn max_for(&self, cause: &Cause) -> u32 {
        match cause {
            Cause::RateLimited { .. } | Cause::Overloaded { .. } => self.busy_max,
            Cause::ServerError { .. } | Cause::Unreachable | Cause::Disconnected | Cause::AttachmentUnreadable => self.outage_max,
            _ => self.answer_max,
        }
    }
}

/// The final error of a call with too many empty responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the model returned an empty response {attempts} times")]
pub struct EmptyModelResponse {
    /// Number of empty responses; failures of other causes do not count (LR1).
    pub attempts: u32,
    pub last_response: Box<ModelReply>,
}

impl EmptyModelResponse {
    /// Returns the error if the last attempt failed with an empty response; `failures` includes that attempt.
    pub fn after(failures: &Failures, last: &CallError) -> Option<EmptyModelResponse> {
        let attempts = failures.counts.get(last.code()).copied().unwrap_or(1);
        matches!(last.cause, Cause::Empty).then(|| EmptyModelResponse { attempts, last_response: last.arrived.clone() })
    }
}

#[cfg(test)]
mod tests {
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
    fn an_empty_answer_is_asked_for_three_times_with_doubling_delays() {
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
    fn whoever_is_told_when_to_come_again_comes_then() {
        let told = Cause::RateLimited { retry_after: Some(Duration::from_secs(2)) };
        let next = after(&ModelRetries::default(), std::iter::repeat_n(told, 14));
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
    fn a_provider_that_asks_for_patience_gets_it_for_as_long_as_a_call_may_wait() {
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
    fn what_cannot_succeed_is_not_tried_again_and_a_provider_may_say_so() {
        let retries = ModelRetries::default();
        for cause in [Cause::Auth, Cause::BadRequest, Cause::ContextTooLong, Cause::QuotaExhausted, Cause::TooLarge] {
            assert_eq!(after(&retries, [cause]), [Next::GiveUp]);
        }
        let told = CallError { status: Some(500), provider_says_retry: Some(false), ..CallError::new(FAILED, "") };
        assert_eq!(retries.after(&mut Failures::default(), &told), Next::GiveUp);
    }

    #[test]
    fn counts_go_along_as_json() {
        let mut failures = Failures::default();
        ModelRetries::default().after(&mut failures, &CallError::new(FAILED, ""));
        let text = serde_json::to_string(&failures).unwrap();
        assert_eq!(text, r#"{"counts":{"model_failed":1},"waited_ms":1000}"#);
        assert_eq!(serde_json::from_str::<Failures>(&text).unwrap(), failures);
    }
}
