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
const UNDELAYED_MAX: u32 = 10;

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
        let prompt = if matches!(error.cause, Cause::RateLimited { retry_after: Some(_) }) { UNDELAYED_MAX } else { 1 };
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
mod tests;
