//! The policies, and their limits.

use std::time::Duration;

use super::input::StartPolicyRefusal;
use super::{BATCH_SIZE_MAX, KEY_BYTES_MAX, WINDOW_MAX};
use crate::time::millis;
use crate::{choice, message, numbered};

numbered! {
    /// The type of a policy.
    pub enum PolicyType {
        0 => Singleton / "singleton",
        1 => Debounce / "debounce",
        2 => Batch / "batch",
    }
}

numbered! {
    /// What a start does while a run of its key is open.
    #[derive(Default)]
    pub enum OnConflict {
        /// The start answers with the open run.
        #[default]
        0 => Skip / "skip",
        /// The open run is canceled, and the new one starts when it has ended.
        1 => Cancel / "cancel",
    }
}

message! {
    /// At most one open run of a kind and key.
    #[derive(Eq)]
    #[serde(deny_unknown_fields)]
    pub struct Singleton {
        1 => key: String,
        #[serde(default)]
        2 => on_conflict: OnConflict,
    }

    /// One run for starts that follow each other closely, with the last input.
    #[derive(Eq)]
    #[serde(deny_unknown_fields)]
    pub struct Debounce {
        1 => key: String,
        /// The time from the last start to the run.
        2 => window_ms: u64,
        /// The longest time from the first start to the run; ten windows if absent.
        #[serde(default)]
        3 => max_wait_ms: Option<u64>,
    }

    /// One run for several inputs.
    #[derive(Eq)]
    #[serde(deny_unknown_fields)]
    pub struct Batch {
        1 => key: String,
        /// The number of inputs at which the run starts.
        2 => size_max: u32,
        /// The longest time from the first start to the run.
        3 => window_ms: u64,
    }
}

choice! {
    /// How a start is combined with other starts of its kind and key.
    pub enum StartPolicy {
        1 => Singleton / "singleton": Singleton,
        2 => Debounce / "debounce": Debounce,
        3 => Batch / "batch": Batch,
    }
}

impl Singleton {
    /// Returns a policy that skips starts while a run of the key is open.
    pub fn new(key: impl Into<String>) -> Singleton {
        Singleton { key: key.into(), on_conflict: OnConflict::Skip }
    }

    /// Cancels the open run instead; the new one starts when it has ended.
    #[must_use]
    pub fn cancel(self) -> Singleton {
        Singleton { on_conflict: OnConflict::Cancel, ..self }
    }
}

impl From<&str> for Singleton {
    fn from(key: &str) -> Singleton {
        Singleton::new(key)
    }
}

impl From<String> for Singleton {
    fn from(key: String) -> Singleton {
        Singleton::new(key)
    }
}

impl Batch {
    /// Returns a policy that starts a run for `size_max` inputs, or `window` after the first of them.
    pub fn new(key: impl Into<String>, size_max: u32, window: Duration) -> Batch {
        Batch { key: key.into(), size_max, window_ms: millis(window) }
    }
}

impl Debounce {
    /// Returns a policy that starts a run `window` after the last start, at most ten windows after the first.
    pub fn new(key: impl Into<String>, window: Duration) -> Debounce {
        Debounce { key: key.into(), window_ms: millis(window), max_wait_ms: None }
    }

    /// Sets the longest time from the first start to the run.
    #[must_use]
    pub fn with_max_wait(self, max_wait: Duration) -> Debounce {
        Debounce { max_wait_ms: Some(millis(max_wait)), ..self }
    }

    /// Returns the longest time from the first start to the run, in milliseconds.
    pub fn max_wait(&self) -> u64 {
        self.max_wait_ms.unwrap_or(self.window_ms.saturating_mul(10).min(millis(WINDOW_MAX)))
    }
}

impl StartPolicy {
    pub fn policy_type(&self) -> PolicyType {
        match self {
            StartPolicy::Singleton(_) => PolicyType::Singleton,
            StartPolicy::Debounce(_) => PolicyType::Debounce,
            StartPolicy::Batch(_) => PolicyType::Batch,
        }
    }

    pub fn key(&self) -> &str {
        match self {
            StartPolicy::Singleton(policy) => &policy.key,
            StartPolicy::Debounce(policy) => &policy.key,
            StartPolicy::Batch(policy) => &policy.key,
        }
    }

    /// Returns true if the start may cancel a run.
    pub fn cancels(&self) -> bool {
        matches!(self, StartPolicy::Singleton(Singleton { on_conflict: OnConflict::Cancel, .. }))
    }

    /// Refuses keys and numbers outside of their limits.
    pub fn check(&self) -> Result<(), StartPolicyRefusal> {
        let key = self.key();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(StartPolicyRefusal::Key { bytes: key.len() });
        }
        let window = |part, ms: u64| match (1..=millis(WINDOW_MAX)).contains(&ms) {
            true => Ok(()),
            false => Err(StartPolicyRefusal::Window { part, ms }),
        };
        match self {
            StartPolicy::Singleton(_) => Ok(()),
            StartPolicy::Debounce(policy) => {
                window("debounce.window_ms", policy.window_ms)?;
                window("debounce.max_wait_ms", policy.max_wait())?;
                if policy.max_wait() < policy.window_ms {
                    return Err(StartPolicyRefusal::MaxWait { max_wait_ms: policy.max_wait(), window_ms: policy.window_ms });
                }
                Ok(())
            }
            StartPolicy::Batch(policy) => {
                window("batch.window_ms", policy.window_ms)?;
                match (1..=BATCH_SIZE_MAX).contains(&policy.size_max) {
                    true => Ok(()),
                    false => Err(StartPolicyRefusal::Size { size_max: policy.size_max }),
                }
            }
        }
    }
}
