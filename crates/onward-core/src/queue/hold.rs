//! Which limit of a queue holds a task back, for people who look at it.
//!
//! Claims are decided by [`Grants`](super::Grants) alone; a test shows that both agree. In a sharded store each database enforces
//! its part of a limit, so a task may wait there although the sums of all databases are below the limit.

use super::{QueueRate, QueueSettings, QueueStarts};
use crate::task::TaskOptions;
use crate::{Name, Timestamp, message, numbered};

numbered! {
    /// A setting of a queue that holds tasks back.
    pub enum QueueLimit {
        /// The queue is paused.
        0 => Paused / "paused",
        /// As many of its tasks run as may run at a time.
        1 => Concurrency / "concurrency",
        /// As many attempts began as may begin in a period.
        2 => Rate / "rate",
        /// As many tasks of the key run as may run at a time.
        3 => KeyConcurrency / "key_concurrency",
        /// As many attempts of tasks of the key began as may begin in a period.
        4 => KeyRate / "key_rate",
    }
}

message! {
    /// The limit that holds a task back, with its place.
    #[derive(Eq)]
    pub struct HeldBack {
        1 => by: QueueLimit,
        /// Absent for the default queue.
        2 => queue: Option<Name>,
        3 => key: Option<Name>,
    }
}

/// What holds a task back, and until when if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub by: QueueLimit,
    pub until: Option<Timestamp>,
}

/// What a queue and some of its keys use of their limits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueUse {
    /// The slots that the leases of the queue hold.
    pub held: u64,
    /// What began lately in the queue, if it has a rate.
    pub starts: Option<QueueStarts>,
    pub keys: Vec<KeyUse>,
}

/// What one key uses of its limits.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyUse {
    pub key: Name,
    pub held: u64,
    pub starts: Option<QueueStarts>,
}

impl QueueUse {
    /// Adds what the same queue uses in another database.
    pub fn add(&mut self, other: QueueUse) {
        self.held += other.held;
        add_starts(&mut self.starts, other.starts);
        for key in other.keys {
            match self.keys.iter_mut().find(|own| own.key == key.key) {
                Some(own) => {
                    own.held += key.held;
                    add_starts(&mut own.starts, key.starts);
                }
                None => self.keys.push(key),
            }
        }
    }

    /// Returns the limit of the queue as a whole that holds all of its tasks back.
    pub fn hold(&self, settings: &QueueSettings, now: Timestamp) -> Option<Hold> {
        if settings.paused {
            return Some(Hold { by: QueueLimit::Paused, until: None }); // QL4
        }
        if settings.concurrency_max.is_some_and(|limit| self.held >= u64::from(limit)) {
            return Some(Hold { by: QueueLimit::Concurrency, until: None }); // QL1
        }
        let until = opens_at(settings.rate.as_ref(), self.starts.as_ref(), now)?; // QL2
        Some(Hold { by: QueueLimit::Rate, until: Some(until) })
    }

    /// Returns the limit that holds a task with these options back: of the queue, or of its key, which must be among those that were
    /// read.
    pub fn hold_of(&self, task: &TaskOptions, settings: &QueueSettings, now: Timestamp) -> Option<Hold> {
        if let Some(hold) = self.hold(settings, now) {
            return Some(hold);
        }
        let is_full = |held: u64, limit: u32| held + u64::from(task.slots().min(limit)) > u64::from(limit);
        if settings.concurrency_max.is_some_and(|limit| is_full(self.held, limit)) {
            return Some(Hold { by: QueueLimit::Concurrency, until: None }); // QL1
        }
        let of = self.keys.iter().find(|of| Some(&of.key) == task.key.as_ref())?;
        if settings.key_concurrency_max.is_some_and(|limit| is_full(of.held, limit)) {
            return Some(Hold { by: QueueLimit::KeyConcurrency, until: None }); // QL1
        }
        let until = opens_at(settings.key_rate.as_ref(), of.starts.as_ref(), now)?; // QL2
        Some(Hold { by: QueueLimit::KeyRate, until: Some(until) })
    }

    /// Returns how many starts count for the rate of the queue, if it has one.
    pub fn rate_used(&self, settings: &QueueSettings, now: Timestamp) -> Option<u32> {
        let rate = settings.rate.as_ref()?;
        let room = self.starts.as_ref().map_or(rate.starts_max, |starts| starts.room(rate, rate.starts_max, now));
        Some(rate.starts_max - room)
    }
}

fn opens_at(rate: Option<&QueueRate>, starts: Option<&QueueStarts>, now: Timestamp) -> Option<Timestamp> {
    let (rate, starts) = rate.zip(starts)?;
    starts.opens_at(rate, rate.starts_max, now)
}

fn add_starts(own: &mut Option<QueueStarts>, other: Option<QueueStarts>) {
    match (own, other) {
        (Some(own), Some(other)) => own.begun.extend(other.begun),
        (own, other @ Some(_)) => *own = other,
        (_, None) => {}
    }
}
