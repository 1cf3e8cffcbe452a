//! Which of the waiting keys are handed how many tasks.

use super::{QueueSettings, QueueStarts};
use crate::{Name, Timestamp};

/// A key with waiting tasks, as a store finds it.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingKey {
    /// `None` for tasks without a key.
    pub key: Option<Name>,
    /// The slots that each of its first tasks needs, by rank; a store need not read beyond one task more than the room.
    pub needs: Vec<u32>,
    /// The slots that its leases hold; a store need not count beyond the limit.
    pub held: u32,
    /// What began lately, if there is a rate for keys.
    pub starts: Option<QueueStarts>,
}

impl WaitingKey {
    /// Returns the number of tasks that were found.
    pub fn waiting(&self) -> u32 {
        self.needs.len() as u32
    }

    /// Returns the slots that the first `count` tasks need.
    pub fn slots_of(&self, count: u32) -> u32 {
        self.needs.iter().take(count as usize).fold(0, |sum, need| sum.saturating_add(*need))
    }
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
    /// How many more slots they may hold; `None` without a limit.
    slots: Option<Slots>,
    /// A task whose turn it is needs more slots than are free (QL9).
    is_waiting_for_slots: bool,
}

/// The slots of a queue, or of a key.
#[derive(Debug, Clone, Copy)]
struct Slots {
    limit: u32,
    free: u32,
}

impl Slots {
    fn new(limit: u32, held: u32) -> Slots {
        Slots { limit, free: limit.saturating_sub(held) }
    }

    /// Returns what is free after a task that needs so many; `None` if it does not fit. A task that needs more than the limit,
    /// which was lowered, needs all of them (QL8).
    fn after(self, need: u32) -> Option<Slots> {
        Some(Slots { free: self.free.checked_sub(need.min(self.limit))?, ..self })
    }
}

impl<'s> Grants<'s> {
    /// Begins a claim of up to `wanted` tasks of a queue whose leases hold `held` slots.
    pub fn new(
        settings: &'s QueueSettings,
        held: u32,
        starts: Option<&QueueStarts>,
        wanted: usize,
        now: Timestamp,
    ) -> Grants<'s> {
        let mut room = u32::try_from(wanted).unwrap_or(u32::MAX);
        if let Some(rate) = &settings.rate {
            let starts_max = settings.own(rate.starts_max);
            room = room.min(starts.map_or(starts_max, |starts| starts.room(rate, starts_max, now))); // QL2
        }
        if settings.paused {
            room = 0; // QL4
        }
        let slots = settings.concurrency_max.map(|limit| Slots::new(settings.own(limit), held)); // QL1
        Grants { settings, now, room, slots, is_waiting_for_slots: false }
    }

    /// Returns how many more tasks the queue may hand out, if each needs one slot.
    pub fn room(&self) -> u32 {
        match self.slots {
            _ if self.is_waiting_for_slots => 0,
            Some(slots) => self.room.min(slots.free),
            None => self.room,
        }
    }

    /// Returns true if a task whose turn it is waits for more slots than are free; its turn is not given up (QL9).
    pub fn is_waiting_for_slots(&self) -> bool {
        self.is_waiting_for_slots
    }

    /// Takes back grants that could not be carried out, and their slots.
    pub fn give_back(&mut self, count: u32, slots: u32) {
        self.room = self.room.saturating_add(count);
        if let Some(of_queue) = &mut self.slots {
            of_queue.free = of_queue.free.saturating_add(slots).min(of_queue.limit);
        }
    }

    /// Returns how many tasks of a key may begin, without regard to other keys.
    fn key_room(&self, of: &WaitingKey) -> u32 {
        let mut room = of.waiting();
        if of.key.is_none() {
            return room;
        }
        if let Some(limit) = self.settings.key_concurrency_max {
            let mut slots = Some(Slots::new(self.settings.own(limit), of.held)); // QL1
            room = of
                .needs
                .iter()
                .take_while(|need| {
                    slots = slots.and_then(|slots| slots.after(**need));
                    slots.is_some()
                })
                .count() as u32;
        }
        if let Some(rate) = &self.settings.key_rate {
            let starts_max = self.settings.own(rate.starts_max);
            let starts = of.starts.as_ref();
            room = room.min(starts.map_or(starts_max, |starts| starts.room(rate, starts_max, self.now))); // QL2
        }
        room
    }

    /// Takes the slots of the next tasks of a key, up to `count`; returns how many got theirs.
    fn take(&mut self, needs: &[u32], count: u32) -> u32 {
        let Some(mut slots) = self.slots else { return count };
        let mut taken = 0;
        for need in &needs[..count as usize] {
            match slots.after(*need) {
                Some(after) => slots = after,
                None => break,
            }
            taken += 1;
        }
        self.slots = Some(slots);
        self.is_waiting_for_slots = taken < count && slots.free > 0;
        taken
    }

    /// Grants tasks to keys in turns, beginning with `turn`, until the queue or the keys have no more room; returns the number
    /// for each key. The keys come in the order of their names, from the key of `turn` on.
    pub fn grant(&mut self, keys: &[WaitingKey], turn: &mut Turn) -> Vec<u32> {
        let rooms: Vec<u32> = keys.iter().map(|key| self.key_room(key)).collect();
        let mut granted = vec![0; keys.len()];
        loop {
            let before = self.room;
            for (at, of) in keys.iter().enumerate() {
                if self.room() == 0 {
                    return granted;
                }
                let key = of.key.as_ref().map_or("", Name::as_str);
                let left = if turn.key == key && turn.left > 0 { turn.left } else { self.settings.weight(key) };
                let fits = left.min(rooms[at] - granted[at]).min(self.room);
                if fits == 0 {
                    continue;
                }
                let give = self.take(&of.needs[granted[at] as usize..], fits);
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
