//! The output of the demo: new log events, executed steps, starts and kills of workers, and a summary.
//!
//! Reads the directory like any other process: read-only, beside the worker.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use onward_core::{Event, Index, RunKey, Timestamp};
use onward_runtime::Runtime;
use onward_store::StoreError;
use onward_store_embedded::EmbeddedStore;

use super::worker::{Effect, read_effects};
use crate::directory::runtime;
use crate::output::{EventFormatter, Style, TextTable, cells, clip, print, time, width};

/// Polling interval of the log.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Line width if stdout is not a terminal.
const WIDTH: usize = 80;

/// The one step that is running when its worker is killed.
const INTERRUPTED: &str = "reserve";

/// Page size; the log of the demo is shorter.
const PAGE: usize = 1_000;

pub struct Stage {
    data: PathBuf,
    key: RunKey,
    effects: PathBuf,
    begun_at: Timestamp,
    /// Opened once the worker has created the directory.
    log: Option<Runtime>,
    next: Index,
    event_formatter: EventFormatter,
    /// Events of the log, in order.
    pub events: Vec<(Index, Timestamp, Event)>,
    /// Executed effects, in order.
    pub done: Vec<Effect>,
    style: Style,
}

/// One line of output.
enum StageLine {
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
            event_formatter: EventFormatter::default(),
            events: Vec::new(),
            done: Vec::new(),
            style: Style::stdout(),
        }
    }

    /// Shows new lines until `until` is true.
    pub async fn watch(&mut self, until: impl Fn(&Stage) -> bool) -> Result<()> {
        loop {
            self.show_new_events().await?;
            if until(self) {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Shows new events and effects, sorted by time.
    pub async fn show_new_events(&mut self) -> Result<()> {
        let mut lines = self.new_events().await?;
        lines.extend(self.new_effects());
        lines.sort_by_key(|(at, _)| *at);
        for (at, line) in lines {
            match line {
                StageLine::Log(index, event) => self.show_event(at, index, *event)?,
                StageLine::Effect(effect) => self.show_effect(effect)?,
            }
        }
        Ok(())
    }

    async fn new_events(&mut self) -> Result<Vec<(Timestamp, StageLine)>> {
        if self.log.is_none() {
            self.log = self.open()?;
        }
        let Some(log) = &self.log else { return Ok(Vec::new()) };
        let records = match log.store().read_log(self.key.clone(), None, self.next, PAGE).await {
            Err(StoreError::RunNotFound { .. }) => return Ok(Vec::new()), // the worker has not started the run yet
            records => records?,
        };
        self.next = records.last().map_or(self.next, |record| record.next_index());
        let lines = records.iter().flat_map(|record| {
            record.indexed().map(|(index, event)| (record.at, StageLine::Log(index, Box::new(event.clone()))))
        });
        Ok(lines.collect())
    }

    fn open(&self) -> Result<Option<Runtime>> {
        match EmbeddedStore::open_read_only(&self.data) {
            Ok(store) => Ok(Some(runtime(store))),
            Err(StoreError::DirectoryForeign { .. }) => Ok(None), // not created yet
            Err(error) => Err(error.into()),
        }
    }

    fn new_effects(&self) -> Vec<(Timestamp, StageLine)> {
        let effects = read_effects(&self.effects).split_off(self.done.len());
        effects.into_iter().map(|effect| (effect.at, StageLine::Effect(effect))).collect()
    }

    fn show_event(&mut self, at: Timestamp, index: Index, event: Event) -> Result<()> {
        let what = self.event_formatter.format(at, &event);
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

    /// Shows a start, kill or exit of a process.
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

    /// Prints an explanation between the lines.
    pub fn note(&self, text: &str) -> Result<()> {
        Ok(print(&format!("\n{}\n", self.style.bold(text)))?)
    }

    pub fn has(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(_, _, event)| wanted(event))
    }

    /// Returns the recorded steps and tasks, with index and time of their result.
    pub fn recorded(&self) -> BTreeMap<String, (Index, Timestamp)> {
        let mut tasks = BTreeMap::new();
        let mut recorded = BTreeMap::new();
        for (index, at, event) in &self.events {
            match event {
                Event::TaskScheduled(event) => drop(tasks.insert(event.call_id.clone(), event.kind.to_string())),
                Event::StepCompleted(event) => drop(recorded.insert(event.name.to_string(), (*index, *at))),
                Event::TaskCompleted(event) => {
                    if let Some(kind) = tasks.get(&event.call_id) {
                        recorded.insert(kind.clone(), (*index, *at));
                    }
                }
                _ => {}
            }
        }
        recorded
    }

    /// Prints how often each step ran, and which event recorded its result. Returns whether each step ran as often as expected:
    /// the interrupted one twice, all others once.
    pub fn print_summary(&self) -> Result<bool> {
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        self.done.iter().for_each(|effect| *times.entry(&effect.name).or_default() += 1);
        let mut recorded: Vec<_> = self.recorded().into_iter().collect();
        recorded.sort_by_key(|(_, (index, _))| *index);
        let mut table = TextTable::new(&["STEP", "TIMES RUN", "RECORDED", "WHY"]).indent("  ");
        let mut holds = true;
        for (name, (index, at)) in &recorded {
            let count = times.get(name.as_str()).copied().unwrap_or_default();
            holds &= count == if name == INTERRUPTED { 2 } else { 1 };
            let after = at.since(self.begun_at).as_secs_f64();
            let why = if count > 1 { "was running when killed" } else { "" };
            table.row(cells![name, count, format!("event {index}, after {after:.1} s"), why]);
        }
        let verdict = self.style.bold("Two kills, four processes, one order: no recorded step ran again.");
        print(&format!("\n{verdict}\n\n{}", table.take()))?;
        Ok(holds)
    }
}

/// Shortens an idempotency key for display.
fn short(key: &str) -> String {
    key.chars().take(8).collect()
}
