//! The settings of a queue, which an operator may change while it is used.
//!
//! They are stored as a row of the table of kinds, beside live defaults. A change applies to the next claim of every server.

use std::time::Duration;

use crate::{KindSchemas, Name, NameError, Namespace, message};

/// The prefix under which the settings of queues are stored among the kinds; the name of the queue follows. Workers cannot
/// register it.
pub const QUEUE_KIND_PREFIX: &str = "queue:";

/// The name of the default queue in requests about settings.
pub const DEFAULT_QUEUE: &str = "default";

/// The maximum number of keys with a weight of their own.
const WEIGHTS_MAX: usize = 1_000;

/// The maximum weight of a key.
const WEIGHT_MAX: u32 = 1_000;

/// The maximum of a rate, and its longest period.
const STARTS_MAX: u32 = 1_000_000;
const PERIOD_MAX: Duration = Duration::from_secs(31 * 24 * 3_600);

message! {
    /// The limits of a queue. A limit that is absent does not apply.
    #[derive(Default, Eq)]
    #[serde(default, deny_unknown_fields)]
    pub struct QueueSettings {
        /// The maximum number of its tasks that run at a time.
        #[serde(skip_serializing_if = "Option::is_none")]
        1 => concurrency_max: Option<u32>,
        /// The maximum number of tasks of one key that run at a time; tasks without a key do not count.
        #[serde(skip_serializing_if = "Option::is_none")]
        2 => key_concurrency_max: Option<u32>,
        /// How many attempts of its tasks may begin in a period.
        #[serde(skip_serializing_if = "Option::is_none")]
        3 => rate: Option<QueueRate>,
        /// How many attempts of tasks of one key may begin in a period; tasks without a key do not count.
        #[serde(skip_serializing_if = "Option::is_none")]
        4 => key_rate: Option<QueueRate>,
        /// The number of waiting tasks at which it takes no further standalone task; 0 drains the queue.
        #[serde(skip_serializing_if = "Option::is_none")]
        5 => depth_max: Option<u64>,
        /// Hands out nothing.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        6 => paused: bool,
        /// Keys with another weight than 1.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        7 => weights: Vec<KeyWeight>,
        /// The part of the limits that one of several databases enforces; set by the store.
        #[serde(skip_serializing, skip_deserializing)]
        8 => part: Option<LimitPart>,
    }

    /// So many starts in a period.
    #[derive(Eq)]
    #[serde(deny_unknown_fields)]
    pub struct QueueRate {
        1 => starts_max: u32,
        2 => period_ms: u64,
    }

    /// The tasks that a key gets in each turn.
    #[derive(Eq)]
    #[serde(deny_unknown_fields)]
    pub struct KeyWeight {
        1 => key: Name,
        2 => weight: u32,
    }

    /// One of several databases among which the tasks of a queue are divided.
    #[derive(Eq, Default)]
    pub struct LimitPart {
        /// Counted from 0.
        1 => position: u32,
        2 => count: u32,
    }
}

impl QueueSettings {
    /// Returns the first value that is invalid, with its field.
    pub fn problem(&self) -> Option<String> {
        if self.concurrency_max == Some(0) || self.key_concurrency_max == Some(0) {
            return Some("a concurrency limit is at least 1; set `paused` to stop the queue".to_owned());
        }
        for (field, rate) in [("rate", &self.rate), ("key_rate", &self.key_rate)] {
            if let Some(problem) = rate.as_ref().and_then(|rate| rate.problem(field)) {
                return Some(problem);
            }
        }
        if self.weights.len() > WEIGHTS_MAX {
            return Some(format!("`weights` has {} keys; {WEIGHTS_MAX} may have a weight of their own", self.weights.len()));
        }
        let wrong = self.weights.iter().enumerate().find(|(_, of)| !(1..=WEIGHT_MAX).contains(&of.weight));
        wrong.map(|(at, of)| format!("`weights[{at}].weight` is {}; it must be from 1 to {WEIGHT_MAX}", of.weight))
    }

    /// Returns the weight of a key.
    pub fn weight(&self, key: &str) -> u32 {
        self.weights.iter().find(|of| of.key == *key).map_or(1, |of| of.weight.max(1))
    }

    /// Returns the limits that the database at `position` of `count` enforces, or the name of a limit that is too small to be
    /// divided. Together the parts are the limit itself, so it holds over all databases (QL1, QL2).
    pub fn part(&self, position: u32, count: u32) -> Result<QueueSettings, &'static str> {
        let rate = |rate: &Option<QueueRate>| rate.as_ref().map(|rate| rate.starts_max);
        let limits = [
            ("concurrency_max", self.concurrency_max),
            ("key_concurrency_max", self.key_concurrency_max),
            ("rate.starts_max", rate(&self.rate)),
            ("key_rate.starts_max", rate(&self.key_rate)),
        ];
        match limits.into_iter().find(|(_, limit)| limit.is_some_and(|limit| limit < count)) {
            Some((field, _)) => Err(field),
            None => Ok(QueueSettings { part: Some(LimitPart { position, count }), ..self.clone() }),
        }
    }

    /// Returns the part of a limit that applies in this database.
    pub(super) fn own(&self, limit: u32) -> u32 {
        let share = self.part.as_ref().map_or(u64::from(limit), |part| part.share(u64::from(limit)));
        u32::try_from(share).unwrap_or(limit)
    }

    /// Returns the number of waiting tasks at which this database takes no further one: its part of the depth, and at least one
    /// unless the queue is drained.
    pub fn own_depth(&self) -> Option<u64> {
        let share = |depth| self.part.as_ref().map_or(depth, |part| part.share(depth));
        self.depth_max.map(|depth| share(depth).max(u64::from(depth > 0)))
    }
}

impl QueueRate {
    /// Returns what is invalid, with the name of the field that has the rate.
    pub fn problem(&self, field: &str) -> Option<String> {
        let QueueRate { starts_max, period_ms } = self;
        if !(1..=STARTS_MAX).contains(starts_max) {
            return Some(format!("`{field}.starts_max` is {starts_max}; it must be from 1 to {STARTS_MAX}"));
        }
        if !(1..=crate::time::millis(PERIOD_MAX)).contains(period_ms) {
            return Some(format!("`{field}.period_ms` is {period_ms}; it must be from 1 to 31 days"));
        }
        None
    }
}

impl LimitPart {
    /// Returns the part of a limit that applies in this database; the parts of all databases add up to the limit.
    pub fn share(&self, limit: u64) -> u64 {
        let (position, count) = (u64::from(self.position), u64::from(self.count.max(1)));
        limit / count + u64::from(position < limit % count)
    }
}

/// Returns the kind under which the settings of a queue are stored.
pub fn settings_kind(queue: Option<&Name>) -> Result<Name, NameError> {
    Name::new(format!("{QUEUE_KIND_PREFIX}{}", queue.map_or("", Name::as_str)))
}

/// Returns the queue that a row of the table of kinds has settings of.
pub fn settings_queue(kind: &Name) -> Option<Option<Name>> {
    let queue = kind.as_str().strip_prefix(QUEUE_KIND_PREFIX)?;
    if queue.is_empty() { Some(None) } else { Name::new(queue).ok().map(Some) }
}

/// Returns the row that stores these settings, or that removes them.
pub fn settings_row(
    namespace: Namespace,
    queue: Option<&Name>,
    settings: Option<QueueSettings>,
) -> Result<KindSchemas, NameError> {
    Ok(KindSchemas { queue: settings.map(Box::new), ..KindSchemas::empty(namespace, settings_kind(queue)?, None) })
}
