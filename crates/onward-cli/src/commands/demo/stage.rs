//! What the audience sees: the log as it grows, what is really done, and what happens to the workers.
//!
//! Reads the directory the way any other process may: read-only, beside the worker. Nothing here takes part in the work.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use onward_core::{Event, Index, RunKey, Timestamp};
use onward_runtime::Runtime;
use onward_store::StoreError;
use onward_store_embedded::EmbeddedStore;

use super::world::{Effect, read_effects};
use crate::directory::runtime;
use crate::output::{Narrator, Style, clip, print, time, width};

/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How wide a line may be where nobody says.
const WIDTH: usize = 80;

/// How many records are read at a time; the demo's log is short.
const PAGE: usize = 1_000;

pub struct Stage {
    data: PathBuf,
    key: RunKey,
    effects: PathBuf,
    begun_at: Timestamp,
    /// Open as soon as the worker has made the directory.
    log: Option<Runtime>,
    next: Index,
    narrator: Narrator,
    /// What stands in the log, in order.
    pub events: Vec<(Index, Timestamp, Event)>,
    /// What was really done, in order.
    pub done: Vec<Effect>,
    style: Style,
}

/// One line of the performance.
enum Line {
    Log(Index, Box<Event>),
    Effect(Effect),
}

impl Stage {
    pub fn new(data: PathBuf, key: RunKey, effects: PathBuf) -> Stage {
        Stage {
            data,
            key,
            effects,
            begun_at: time::now(),
            log: None,
            next: Index(0),
            narrator: Narrator::default(),
            events: Vec::new(),
            done: Vec::new(),
            style: Style::stdout(),
        }
    }

    /// Shows what comes until `until` is true of the log.
    pub async fn watch(&mut self, until: impl Fn(&Stage) -> bool) -> Result<()> {
        loop {
            self.look().await?;
            if until(self) {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Shows what has come since the last look, by the time it happened.
    pub async fn look(&mut self) -> Result<()> {
        let mut lines = self.new_events().await?;
        lines.extend(self.new_effects());
        lines.sort_by_key(|(at, _)| *at);
        for (at, line) in lines {
            match line {
                Line::Log(index, event) => self.show_event(at, index, *event)?,
                Line::Effect(effect) => self.show_effect(effect)?,
            }
        }
        Ok(())
    }

    async fn new_events(&mut self) -> Result<Vec<(Timestamp, Line)>> {
        if self.log.is_none() {
            self.log = self.open()?;
        }
        let Some(log) = &self.log else { return Ok(Vec::new()) };
        let records = match log.store().read_log(self.key.clone(), None, self.next, PAGE).await {
            Err(StoreError::RunNotFound { .. }) => return Ok(Vec::new()), // the worker has not come that far
            records => records?,
        };
        self.next = records.last().map_or(self.next, |record| record.next_index());
        let lines = records
            .iter()
            .flat_map(|record| record.indexed().map(|(index, event)| (record.at, Line::Log(index, Box::new(event.clone())))));
        Ok(lines.collect())
    }

    fn open(&self) -> Result<Option<Runtime>> {
        match EmbeddedStore::open_read_only(&self.data) {
            Ok(store) => Ok(Some(runtime(store))),
            Err(StoreError::DirectoryForeign { .. }) => Ok(None), // not made yet
            Err(error) => Err(error.into()),
        }
    }

    fn new_effects(&self) -> Vec<(Timestamp, Line)> {
        let effects = read_effects(&self.effects).split_off(self.done.len());
        effects.into_iter().map(|effect| (effect.at, Line::Effect(effect))).collect()
    }

    fn show_event(&mut self, at: Timestamp, index: Index, event: Event) -> Result<()> {
        let what = self.narrator.tell(at, &event);
        let head = format!("log {:<3}", index.to_string());
        self.show(at, &head, Style::cyan, &format!("{:<18} {what}", event.name()))?;
        self.events.push((index, at, event));
        Ok(())
    }

    fn show_effect(&mut self, effect: Effect) -> Result<()> {
        let before = self.done.iter().filter(|done| done.name == effect.name).count();
        let note =
            if before > 0 { format!(" again: no result was recorded (same key {})", short(&effect.key)) } else { String::new() };
        self.show(effect.at, "does", Style::yellow, &format!("{}{note}", effect.name))?;
        self.done.push(effect);
        Ok(())
    }

    /// Shows what happened to a process.
    pub fn process(&self, head: &str, text: &str) -> Result<()> {
        let paint = if head == "kill -9" { Style::red } else { Style::green };
        self.show(time::now(), head, paint, text)
    }

    fn show(&self, at: Timestamp, head: &str, paint: fn(Style, &str) -> String, text: &str) -> Result<()> {
        let seconds = at.since(self.begun_at).as_secs_f64();
        let clock = format!("{seconds:>5.1}s");
        let room = width().unwrap_or(WIDTH).saturating_sub(18);
        let line = format!("{}  {} {}", self.style.dim(&clock), paint(self.style, &format!("{head:<9}")), clip(text, room));
        Ok(print(line.trim_end())?)
    }

    /// A paragraph for the audience.
    pub fn note(&self, text: &str) -> Result<()> {
        Ok(print(&format!("\n{}\n", self.style.bold(text)))?)
    }

    pub fn has(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(_, _, event)| wanted(event))
    }

    /// Steps and tasks whose results are recorded, with the event that says so.
    pub fn recorded(&self) -> BTreeMap<String, (Index, Timestamp)> {
        let mut tasks = BTreeMap::new();
        let mut recorded = BTreeMap::new();
        for (index, at, event) in &self.events {
            match event {
                Event::TaskScheduled(event) => drop(tasks.insert(event.place.clone(), event.kind.to_string())),
                Event::StepCompleted(event) => drop(recorded.insert(event.name.to_string(), (*index, *at))),
                Event::TaskCompleted(event) => {
                    if let Some(kind) = tasks.get(&event.place) {
                        recorded.insert(kind.clone(), (*index, *at));
                    }
                }
                _ => {}
            }
        }
        recorded
    }

    pub fn seconds(&self, at: Timestamp) -> String {
        format!("{:.1} s", at.since(self.begun_at).as_secs_f64())
    }
}

/// The beginning of a key, enough to compare.
fn short(key: &str) -> String {
    key.chars().take(8).collect()
}
