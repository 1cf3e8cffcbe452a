//! When to ask again. A decision, not a loop: the engine makes it when an attempt has failed, records it, and waits durably.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{CallError, Cause};
use crate::reply::{ModelReply, Usage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included.
    pub attempts_max: u32,
    /// The same while the provider only asks for patience: waiting costs no tokens.
    pub patient_attempts_max: u32,
    /// Doubled after every attempt.
    pub first_delay: Duration,
    /// Nothing is waited for longer, unless the provider asks for it.
    pub delay_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        let [first_delay, delay_max] = [1, 60].map(Duration::from_secs);
        RetryPolicy { attempts_max: 3, patient_attempts_max: 10, first_delay, delay_max }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next attempt may begin after this delay.
    Again {
        delay: Duration,
    },
    GiveUp,
}

impl RetryPolicy {
    /// What follows from the failure of attempt number `attempt`, counted from 1.
    pub fn after(&self, attempt: u32, error: &CallError) -> Next {
        if !error.is_retryable() || attempt >= self.attempts_max_for(error) {
            return Next::GiveUp;
        }
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let delay = self.first_delay.saturating_mul(doubled).min(self.delay_max);
        Next::Again { delay: delay.max(error.retry_after().unwrap_or_default()) }
    }

    fn attempts_max_for(&self, error: &CallError) -> u32 {
        match error.cause {
            Cause::RateLimited { .. } | Cause::Overloaded { .. } => self.patient_attempts_max.max(self.attempts_max),
            _ => self.attempts_max,
        }
    }

    /// What readers of the stream see, and what a warning has as its fields.
    pub fn notice(&self, attempt: u32, error: &CallError) -> AttemptFailed {
        let delay = match self.after(attempt, error) {
            Next::Again { delay } => Some(delay),
            Next::GiveUp => None,
        };
        AttemptFailed {
            attempt,
            attempts_max: self.attempts_max_for(error),
            code: error.code().to_owned(),
            message: error.to_string(),
            next_delay_ms: delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            model: error.arrived.model.clone(),
            block_count: error.arrived.blocks.len() as u64,
            usage: error.arrived.usage,
        }
    }
}

/// "Attempt n of m failed": a frame of the stream and the fields of a warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailed {
    pub attempt: u32,
    pub attempts_max: u32,
    pub code: String,
    pub message: String,
    /// `None` when there is no further attempt.
    pub next_delay_ms: Option<u64>,
    pub model: String,
    pub block_count: u64,
    pub usage: Option<Usage>,
}

/// What a call ends with whose every attempt was answered with nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the model answered nothing, {attempts} times")]
pub struct EmptyModelResponse {
    pub attempts: u32,
    pub last_response: Box<ModelReply>,
}

impl EmptyModelResponse {
    /// If that is what the last attempt failed with.
    pub fn after(attempts: u32, last: &CallError) -> Option<EmptyModelResponse> {
        matches!(last.cause, Cause::Empty).then(|| EmptyModelResponse { attempts, last_response: last.arrived.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Next {
        Next::Again { delay: Duration::from_secs(secs) }
    }

    #[test]
    fn an_empty_answer_is_asked_for_three_times_with_doubling_delays() {
        let (policy, error) = (RetryPolicy::default(), CallError::new(Cause::Empty, ""));
        assert_eq!([1, 2, 3].map(|attempt| policy.after(attempt, &error)), [secs(1), secs(2), Next::GiveUp]);
        let notice = policy.notice(2, &error);
        assert_eq!((notice.attempt, notice.attempts_max, notice.next_delay_ms), (2, 3, Some(2_000)));
        assert_eq!(EmptyModelResponse::after(3, &error).unwrap().attempts, 3);
        assert!(EmptyModelResponse::after(3, &CallError::new(Cause::Timeout, "")).is_none());
    }

    #[test]
    fn a_provider_that_asks_for_patience_gets_it() {
        let policy = RetryPolicy::default();
        let limited = CallError::new(Cause::RateLimited { retry_after: Some(Duration::from_secs(300)) }, "");
        assert_eq!(policy.after(1, &limited), secs(300));
        assert_eq!(policy.after(9, &limited), secs(300));
        assert_eq!(policy.after(10, &limited), Next::GiveUp);
        let overloaded = CallError::new(Cause::Overloaded { retry_after: None }, "");
        assert_eq!(policy.after(9, &overloaded), secs(60));
    }

    #[test]
    fn what_cannot_succeed_is_not_tried_again_and_a_provider_may_say_so() {
        let policy = RetryPolicy::default();
        for cause in [Cause::Auth, Cause::BadRequest, Cause::ContextTooLong, Cause::QuotaExhausted, Cause::TooLarge] {
            assert_eq!(policy.after(1, &CallError::new(cause, "")), Next::GiveUp);
        }
        let failed = CallError::new(Cause::ServerError { retry_after: None }, "");
        let told = CallError { status: Some(500), provider_says_retry: Some(false), ..failed };
        assert_eq!(policy.after(1, &told), Next::GiveUp);
    }
}
