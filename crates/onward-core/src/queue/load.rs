//! What waits in a queue, key by key, for people who look at it.

use super::{QueueSettings, QueueStarts};
use crate::{Name, Timestamp, message, numbered};

message! {
    /// The tasks of one key of a queue.
    #[derive(Eq)]
    pub struct KeyLoad {
        /// `None` for tasks without a key.
        1 => key: Option<Name>,
        /// Tasks that could be handed out.
        2 => waiting: u64,
        3 => running: u64,
        /// When the first waiting task became visible.
        4 => oldest_at: Option<Timestamp>,
        /// What began lately, if there is a rate for keys.
        5 => starts: Option<QueueStarts>,
        /// The slots that the running tasks hold.
        6 => held: u64,
    }

    /// The tasks of one key, and why none of them is handed out.
    #[derive(Eq)]
    pub struct KeyView {
        /// `null` for tasks without a key.
        1 => key: Option<Name>,
        2 => waiting: u64,
        3 => running: u64,
        4 => oldest_at: Option<Timestamp>,
        /// The limit of the key that holds its tasks back; absent if none does.
        #[serde(skip_serializing_if = "Option::is_none")]
        5 => held_back_by: Option<KeyLimit>,
        /// When its rate permits another attempt.
        #[serde(skip_serializing_if = "Option::is_none")]
        6 => opens_at: Option<Timestamp>,
    }
}

numbered! {
    /// A limit of a key.
    pub enum KeyLimit {
        0 => Concurrency / "concurrency",
        1 => Rate / "rate",
    }
}

impl KeyLoad {
    /// Adds the tasks of the same key in another database.
    pub fn add(&mut self, other: KeyLoad) {
        self.waiting += other.waiting;
        self.running += other.running;
        self.held += other.held;
        self.oldest_at = [self.oldest_at, other.oldest_at].into_iter().flatten().min();
        self.starts = match (self.starts.take(), other.starts) {
            (Some(mut own), Some(other)) => {
                own.begun.extend(other.begun);
                Some(own)
            }
            (own, other) => own.or(other),
        };
    }

    /// Returns what the limits of keys mean for this one.
    pub fn view(self, settings: &QueueSettings, now: Timestamp) -> KeyView {
        let KeyLoad { key, waiting, running, oldest_at, starts, held } = self;
        let is_limited = key.is_some() && waiting > 0;
        let is_full = settings.key_concurrency_max.is_some_and(|limit| held >= u64::from(limit));
        let opens_at =
            settings.key_rate.as_ref().zip(starts).and_then(|(rate, starts)| starts.opens_at(rate, rate.starts_max, now));
        let held_back_by = match opens_at {
            _ if !is_limited => None,
            _ if is_full => Some(KeyLimit::Concurrency),
            Some(_) => Some(KeyLimit::Rate),
            None => None,
        };
        KeyView { key, waiting, running, oldest_at, held_back_by, opens_at: opens_at.filter(|_| is_limited) }
    }
}
