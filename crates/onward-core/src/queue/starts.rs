//! The attempts that began lately, for rates.
//!
//! Times are rounded up to a part of the period, so that the list stays short: a start counts for at least one period and for at
//! most a 64th of it longer. So a rate is never exceeded in any span of a period (QL2).

use std::time::Duration;

use super::QueueRate;
use crate::{Name, Namespace, Timestamp, message};

/// The parts of a period that are counted by themselves.
const PARTS: u64 = 64;

message! {
    /// The starts of a queue or of one of its keys that may still count, with its stored name.
    #[derive(Eq)]
    pub struct QueueStarts {
        1 => namespace: Namespace,
        2 => queue: Option<Name>,
        /// `None` counts all tasks of the queue.
        3 => key: Option<Name>,
        /// In order of their times.
        4 => begun: Vec<StartCount>,
        /// From this time on none of them counts.
        5 => until: Timestamp,
    }

    /// Starts that count from one time on.
    #[derive(Eq)]
    pub struct StartCount {
        1 => at: Timestamp,
        2 => count: u32,
    }
}

impl QueueRate {
    fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms.max(1))
    }

    /// Returns the time at which a start at `now` is counted.
    fn counted_at(&self, now: Timestamp) -> Timestamp {
        let part = (self.period_ms / PARTS).max(1);
        Timestamp(now.0.div_ceil(part).saturating_mul(part))
    }
}

impl QueueStarts {
    pub fn new(namespace: Namespace, queue: Option<Name>, key: Option<Name>) -> QueueStarts {
        QueueStarts { namespace, queue, key, begun: Vec::new(), until: Timestamp(0) }
    }

    /// Returns how many more attempts may begin at `now`, if the database may start `starts_max` of them in a period.
    pub fn room(&self, rate: &QueueRate, starts_max: u32, now: Timestamp) -> u32 {
        let counted = self.begun.iter().filter(|of| of.at.after(rate.period()) > now).map(|of| u64::from(of.count)).sum::<u64>();
        u32::try_from(u64::from(starts_max).saturating_sub(counted)).unwrap_or_default()
    }

    /// Returns the time from which on another attempt may begin; `None` if one may begin at `now`.
    pub fn opens_at(&self, rate: &QueueRate, starts_max: u32, now: Timestamp) -> Option<Timestamp> {
        let mut counting: Vec<&StartCount> = self.begun.iter().filter(|of| of.at.after(rate.period()) > now).collect();
        counting.sort_by_key(|of| of.at);
        let mut counted: u64 = counting.iter().map(|of| u64::from(of.count)).sum();
        let mut opens_at = None;
        for of in counting {
            if counted < u64::from(starts_max) {
                break;
            }
            counted -= u64::from(of.count);
            opens_at = Some(of.at.after(rate.period()));
        }
        opens_at
    }

    /// Records starts, and forgets those that no longer count.
    pub fn add(&mut self, rate: &QueueRate, count: u32, now: Timestamp) {
        self.begun.retain(|of| of.at.after(rate.period()) > now);
        let at = rate.counted_at(now);
        match self.begun.iter_mut().find(|of| of.at == at) {
            Some(of) => of.count = of.count.saturating_add(count),
            None => self.begun.push(StartCount { at, count }),
        }
        self.until = self.until.max(at.after(rate.period()));
    }
}
