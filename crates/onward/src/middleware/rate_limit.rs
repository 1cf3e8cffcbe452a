//! Limits how many attempts begin in a time, by key.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use onward_core::{ErrorCode, Failure};
use onward_store::sync::lock;
use tokio::time::Instant;

use super::{AttemptCall, Middleware, MiddlewareFuture, NextAttempt};

/// Default of the longest wait.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The number of keys above which those that have recovered are removed.
const KEYS_KEPT: usize = 1024;

type KeyOf = Box<dyn Fn(&AttemptCall) -> Option<String> + Send + Sync>;

/// Limits how many attempts with the same key begin in a time, in this process. It is a token bucket: after a pause, the whole
/// number may begin at once.
///
/// An attempt over the limit waits for its turn. If the wait would be too long, it is refused: it fails with
/// `attempt_rate_limited`, which the policy of its call retries after that time. A refused attempt counts as one.
///
/// Several processes have a limit each; divide the number by theirs.
pub struct RateLimit {
    buckets: Mutex<Buckets>,
    wait_max: Duration,
    key: KeyOf,
}

impl RateLimit {
    /// Allows `count` attempts in each span of `per` for each key. The key is the name of the attempt, if nothing else is set.
    pub fn new(count: u32, per: Duration) -> RateLimit {
        let key: KeyOf = Box::new(|call| Some(call.name.clone()));
        RateLimit { buckets: Mutex::new(Buckets::new(count, per)), wait_max: WAIT_MAX, key }
    }

    /// Sets the key of an attempt; `None` is not limited.
    pub fn key(self, key: impl Fn(&AttemptCall) -> Option<String> + Send + Sync + 'static) -> RateLimit {
        RateLimit { key: Box::new(key), ..self }
    }

    /// Sets how long an attempt waits for its turn before it is refused; default 10 seconds. Zero refuses at once. A task that waits
    /// uses a place of [`crate::Builder::tasks_max`].
    pub fn wait_max(self, wait_max: Duration) -> RateLimit {
        RateLimit { wait_max, ..self }
    }
}

impl Middleware for RateLimit {
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        Box::pin(async move {
            if let Some(key) = (self.key)(&call) {
                let turn = lock(&self.buckets).take(&key, Instant::now(), self.wait_max);
                match turn {
                    Ok(Duration::ZERO) => {}
                    Ok(wait) => tokio::time::sleep(wait).await,
                    Err(wait) => return Err(refused(&key, wait)),
                }
            }
            next.run(call).await
        })
    }
}

fn refused(key: &str, wait: Duration) -> Failure {
    let message = format!("the rate limit of `{key}` is exceeded; the next attempt may begin in {wait:?}");
    Failure::new(ErrorCode::AttemptRateLimited, message).with_retry_after(wait)
}

/// The bucket of each key. An entry has the time at which the bucket is full again; a key without one has a full bucket.
struct Buckets {
    /// The time in which one token returns.
    interval: Duration,
    /// The time in which an empty bucket fills.
    fills_in: Duration,
    full_at: HashMap<String, Instant>,
    keys_max: usize,
}

impl Buckets {
    fn new(count: u32, per: Duration) -> Buckets {
        let interval = per / count.max(1);
        Buckets { interval, fills_in: interval * count.max(1), full_at: HashMap::new(), keys_max: KEYS_KEPT }
    }

    /// Takes a token; returns how long to wait before it may be used. Takes none if that is longer than `wait_max`, and returns it
    /// as an error.
    fn take(&mut self, key: &str, now: Instant, wait_max: Duration) -> Result<Duration, Duration> {
        let full_at = self.full_at.get(key).map_or(now, |full_at| (*full_at).max(now)) + self.interval;
        let wait = full_at.duration_since(now).saturating_sub(self.fills_in);
        if wait > wait_max {
            return Err(wait);
        }
        self.full_at.insert(key.to_owned(), full_at);
        if self.full_at.len() > self.keys_max {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.keys_max = KEYS_KEPT.max(2 * self.full_at.len());
        }
        Ok(wait)
    }
}

#[cfg(test)]
mod tests;
