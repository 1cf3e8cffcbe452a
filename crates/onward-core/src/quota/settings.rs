//! The limits of a quota, which an administrator of the server may change while the namespace is used.
//!
//! They are one row of the table of kinds of the namespace, beside the settings of queues.

use crate::queue::{LimitPart, QueueRate};
use crate::spend::PicoDollars;
use crate::{KindSchemas, Name, NameError, Namespace, message};

/// The kind under which the quota of a namespace is stored. Workers cannot register it, and no queue has this name.
pub const QUOTA_KIND: &str = "quota:";

/// The largest limits: counting costs as much as the limit at most.
const RUNS_OPEN_MAX: u64 = 1_000_000;
const TASKS_RUNNING_MAX: u32 = 1_000_000;

/// The smallest limit of payloads: a smaller one would refuse what the engine itself writes.
const PAYLOAD_BYTES_MIN: u64 = 1_024;

/// The largest limit of costs: a million dollars.
const SPEND_MAX: PicoDollars = PicoDollars(1_000_000_000_000_000_000);

message! {
    /// The limits of a namespace. A limit that is absent does not apply.
    #[derive(Default, Eq)]
    #[serde(default, deny_unknown_fields)]
    pub struct QuotaSettings {
        /// The number of open runs, standalone tasks included, at which callers and schedules start no further one.
        #[serde(skip_serializing_if = "Option::is_none")]
        1 => runs_open_max: Option<u64>,
        /// How many runs callers and schedules may start in a period.
        #[serde(skip_serializing_if = "Option::is_none")]
        2 => start_rate: Option<QueueRate>,
        /// The maximum number of tasks that run at a time, over all queues.
        #[serde(skip_serializing_if = "Option::is_none")]
        3 => tasks_running_max: Option<u32>,
        /// The maximum size of one payload, in bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        4 => payload_bytes_max: Option<u64>,
        /// The recorded cost of a UTC day, in dollars, at which no further attempt with a cost begins.
        #[serde(skip_serializing_if = "Option::is_none")]
        5 => spend_per_day_max: Option<PicoDollars>,
        /// The part of the limits that one of several databases enforces; set by the store.
        #[serde(skip_serializing, skip_deserializing)]
        6 => part: Option<LimitPart>,
    }
}

impl QuotaSettings {
    /// Returns the first value that is invalid, with its field.
    pub fn problem(&self) -> Option<String> {
        if let Some(max) = self.runs_open_max.filter(|max| *max > RUNS_OPEN_MAX) {
            return Some(format!("`runs_open_max` is {max}; it must be from 0 to {RUNS_OPEN_MAX}"));
        }
        if let Some(problem) = self.start_rate.as_ref().and_then(|rate| rate.problem("start_rate")) {
            return Some(problem);
        }
        if let Some(max) = self.tasks_running_max.filter(|max| *max > TASKS_RUNNING_MAX) {
            return Some(format!("`tasks_running_max` is {max}; it must be from 0 to {TASKS_RUNNING_MAX}"));
        }
        if let Some(max) = self.payload_bytes_max.filter(|max| *max < PAYLOAD_BYTES_MIN) {
            return Some(format!("`payload_bytes_max` is {max}; it must be at least {PAYLOAD_BYTES_MIN}"));
        }
        let spend = self.spend_per_day_max.filter(|max| *max > SPEND_MAX);
        spend.map(|max| format!("`spend_per_day_max` is {max}; it must be from 0 to {SPEND_MAX} dollars"))
    }

    /// Returns the number of open runs at which this database starts no further one.
    pub fn open_max(&self) -> Option<u64> {
        self.runs_open_max.map(|max| self.own(max))
    }

    /// Returns the number of leases at which this database gives no further one.
    pub fn leases_max(&self) -> Option<u32> {
        self.tasks_running_max.map(|max| u32::try_from(self.own(u64::from(max))).unwrap_or(max))
    }

    /// Returns the starts that this database permits in a period.
    pub(super) fn own_starts(&self, rate: &QueueRate) -> u32 {
        u32::try_from(self.own(u64::from(rate.starts_max))).unwrap_or(rate.starts_max)
    }

    /// Returns the cost of a day at which this database begins no further attempt.
    pub(super) fn own_spend(&self) -> Option<PicoDollars> {
        self.spend_per_day_max.map(|max| PicoDollars(self.own(max.0)))
    }

    fn own(&self, limit: u64) -> u64 {
        self.part.as_ref().map_or(limit, |part| part.share(limit))
    }

    /// Returns the limits that the database at `position` of `count` enforces, or the name of a limit that is too small to be
    /// divided. Together the parts are the limit itself, so it holds over all databases. A limit of 0 is 0 everywhere.
    pub fn part(&self, position: u32, count: u32) -> Result<QuotaSettings, &'static str> {
        let limits = [
            ("runs_open_max", self.runs_open_max),
            ("start_rate.starts_max", self.start_rate.as_ref().map(|rate| u64::from(rate.starts_max))),
            ("tasks_running_max", self.tasks_running_max.map(u64::from)),
        ];
        let is_small = |limit: Option<u64>| limit.is_some_and(|limit| (1..u64::from(count)).contains(&limit));
        match limits.into_iter().find(|(_, limit)| is_small(*limit)) {
            Some((field, _)) => Err(field),
            None => Ok(QuotaSettings { part: Some(LimitPart { position, count }), ..self.clone() }),
        }
    }
}

/// Returns the name of the row that stores a quota.
pub fn quota_kind() -> Result<Name, NameError> {
    Name::new(QUOTA_KIND)
}

/// Returns the row that stores the quota of a namespace, or that removes it.
pub fn settings_row(namespace: Namespace, quota: Option<QuotaSettings>) -> Result<KindSchemas, NameError> {
    Ok(KindSchemas { quota: quota.map(Box::new), ..KindSchemas::empty(namespace, quota_kind()?, None) })
}
