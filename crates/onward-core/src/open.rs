//! What a log leaves open: the timers, tasks and waits of a run, from its log alone.
//!
//! Owns the proof that a store's rows of these are views (L16). A store asks when a row of its own cannot be trusted. Must never be
//! needed otherwise. What a log does not say is how often a task was handed out: a task that is made again from its log begins with
//! its first attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::run::{Effect, Wait};
use crate::task::Task;
use crate::{Event, Place, Record, RunHead, RunKey, Timestamp};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Open {
    pub timers: BTreeMap<Place, OpenTimer>,
    pub tasks: BTreeMap<Place, Task>,
    pub waits: BTreeMap<Place, Wait>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTimer {
    pub due_at: Timestamp,
    /// Its run is paused; the timer keeps its remaining time.
    pub frozen: bool,
}

impl Open {
    /// What the log of a run leaves open, and its head; `None` if it does not begin as a log does.
    pub fn of(key: RunKey, records: &[Record]) -> Option<(RunHead, Open)> {
        let (first, rest) = records.split_first()?;
        let Some(Event::RunStarted(started)) = first.events.first() else { return None };
        let (mut head, _) = RunHead::start(key, started.clone(), first.at);
        let mut open = Open::default();
        for record in rest {
            let effects = head.effects_of(record);
            head.follow(record);
            open.settle(record);
            effects.into_iter().for_each(|effect| open.carry_out(effect));
        }
        Some((head, open))
    }

    /// A timer that fired and a task that ended are gone with the input that says so.
    fn settle(&mut self, record: &Record) {
        match record.events.first().filter(|_| record.commit.is_none()) {
            Some(Event::TimerFired(event)) => drop(self.timers.remove(&event.place)),
            Some(Event::TaskCompleted(event)) => drop(self.tasks.remove(&event.place)),
            Some(Event::TaskFailed(event)) => drop(self.tasks.remove(&event.place)),
            _ => {}
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::StartTimer { place, due_at } => drop(self.timers.insert(place, OpenTimer { due_at, frozen: false })),
            Effect::StopTimer { place } => drop(self.timers.remove(&place)),
            Effect::AddTask(task) => drop(self.tasks.insert(task.id.place.clone(), *task)),
            Effect::CancelTask { place } => drop(self.tasks.remove(&place)),
            Effect::OpenWait(wait) => drop(self.waits.insert(wait.place.clone(), *wait)),
            Effect::CloseWait { place, .. } => drop(self.waits.remove(&place)),
            Effect::Send(_) => {}
            Effect::Freeze { at } => {
                self.timers.values_mut().for_each(|timer| timer.frozen = true);
                self.tasks.values_mut().for_each(|task| task.freeze(at));
            }
            Effect::Thaw { shift } => self.thaw(shift),
            Effect::EndRun => *self = Open::default(),
        }
    }

    fn thaw(&mut self, shift: Duration) {
        let thawed = |timer: &OpenTimer| OpenTimer { due_at: timer.due_at.after(shift), frozen: false };
        self.timers.values_mut().for_each(|timer| *timer = thawed(timer));
        self.tasks.values_mut().for_each(|task| task.thaw(shift));
    }
}
