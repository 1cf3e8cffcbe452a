//! Which of the waiting keys are handed how many tasks.

use super::{QueueSettings, QueueStarts};
use crate::{Name, Timestamp};

/// A key with waiting tasks, as a store finds it.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingKey {
    /// `None` for tasks without a key.
    pub key: Option<Name>,
    /// The number of its tasks that could be handed out; a store need not count beyond one more than the room.
    pub waiting: u32,
    /// The number of its leases; a store need not count beyond the limit.
    pub held: u32,
    /// What began lately, if there is a rate for keys.
    pub starts: Option<QueueStarts>,
}

/// Whose turn it is: the key that was served last, and what is left of its turn (QL5). A turn that is lost costs one turn of
/// fairness and nothing else, so it is kept in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    /// The empty text stands for tasks without a key.
    pub key: String,
    pub left: u32,
}

/// The room of a queue during one claim.
#[derive(Debug)]
pub struct Grants<'s> {
    settings: &'s QueueSettings,
    now: Timestamp,
    /// How many more tasks the queue may hand out.
    room: u32,
}

impl<'s> Grants<'s> {
    /// Begins a claim of up to `wanted` tasks of a queue that holds `held` leases.
    pub fn new(
        settings: &'s QueueSettings,
        held: u32,
        starts: Option<&QueueStarts>,
        wanted: usize,
        now: Timestamp,
    ) -> Grants<'s> {
        let mut room = u32::try_from(wanted).unwrap_or(u32::MAX);
        if let Some(limit) = settings.concurrency_max {
            room = room.min(settings.own(limit).saturating_sub(held)); // QL1
        }
        if let Some(rate) = &settings.rate {
            let starts_max = settings.own(rate.starts_max);
            room = room.min(starts.map_or(starts_max, |starts| starts.room(rate, starts_max, now))); // QL2
        }
        if settings.paused {
            room = 0; // QL4
        }
        Grants { settings, now, room }
    }

    /// Returns how many more tasks the queue may hand out.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Takes back grants that could not be carried out.
    pub fn give_back(&mut self, count: u32) {
        self.room = self.room.saturating_add(count);
    }

    /// Returns how many tasks of a key may begin, whoever else waits.
    fn key_room(&self, of: &WaitingKey) -> u32 {
        let mut room = of.waiting;
        if of.key.is_none() {
            return room;
        }
        if let Some(limit) = self.settings.key_concurrency_max {
            room = room.min(self.settings.own(limit).saturating_sub(of.held)); // QL1
        }
        if let Some(rate) = &self.settings.key_rate {
            let starts_max = self.settings.own(rate.starts_max);
            let starts = of.starts.as_ref();
            room = room.min(starts.map_or(starts_max, |starts| starts.room(rate, starts_max, self.now))); // QL2
        }
        room
    }

    /// Grants tasks to keys in turns, beginning with `turn`, until the queue or the keys have no more room; returns the number
    /// for each key. The keys come in the order of their names, from the key of `turn` on.
    pub fn grant(&mut self, keys: &[WaitingKey], turn: &mut Turn) -> Vec<u32> {
        let rooms: Vec<u32> = keys.iter().map(|key| self.key_room(key)).collect();
        let mut granted = vec![0; keys.len()];
        loop {
            let before = self.room;
            for (at, of) in keys.iter().enumerate() {
                if self.room == 0 {
                    return granted;
                }
                let key = of.key.as_ref().map_or("", Name::as_str);
                let left = if turn.key == key && turn.left > 0 { turn.left } else { self.settings.weight(key) };
                let give = left.min(rooms[at] - granted[at]).min(self.room);
                if give == 0 {
                    continue;
                }
                granted[at] += give;
                self.room -= give;
                // A key that has no more room gives up the rest of its turn.
                let left = if granted[at] < rooms[at] { left - give } else { 0 };
                *turn = Turn { key: key.to_owned(), left };
            }
            if self.room == before {
                return granted;
            }
        }
    }
}
