//! The decision on an input of a cell.

use std::time::Duration;

use super::head::{
    CellClosed, HoldAdded, HoldOpened, HoldReplaced, HoldStarted, NextWake, OpenRunCanceled, PolicyChange, PolicyHead,
    StartSkipped,
};
use super::input::{PolicyAsk, PolicyInput, StartPolicyRefusal};
use super::policy::{Batch, Debounce, OnConflict, Singleton, StartPolicy};
use super::{BATCH_BYTES_MAX, KEPT_FOR};
use crate::schedule::Ended;
use crate::{RunId, Timestamp};

/// The changes that follow from an input, and the head after them.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyDecision {
    pub changes: Vec<PolicyChange>,
    pub head: PolicyHead,
}

impl PolicyHead {
    /// Decides on an input at `now`.
    ///
    /// # Errors
    /// A start whose policy or input is outside of the limits.
    pub fn decide(&self, input: &PolicyInput, now: Timestamp) -> Result<PolicyDecision, StartPolicyRefusal> {
        let mut draft = Draft { head: self.clone(), input, now, changes: Vec::new() };
        match input {
            PolicyInput::Ask(ask) => {
                ask.check()?;
                draft.ask(ask);
            }
            PolicyInput::Due(_) => draft.start_if_due(),
            PolicyInput::Ended(ended) => draft.end(ended),
        }
        draft.rest();
        Ok(PolicyDecision { changes: draft.changes, head: draft.head })
    }

    /// Returns true if the cell holds no start and has no open run.
    pub fn is_idle(&self) -> bool {
        self.held.is_none() && self.open.is_none()
    }
}

/// A decision that is being made.
struct Draft<'a> {
    head: PolicyHead,
    input: &'a PolicyInput,
    now: Timestamp,
    changes: Vec<PolicyChange>,
}

impl Draft<'_> {
    fn change(&mut self, change: PolicyChange) {
        self.head.apply(self.input, &change, self.now);
        self.changes.push(change);
    }

    fn ask(&mut self, ask: &PolicyAsk) {
        match &ask.policy {
            StartPolicy::Singleton(policy) => self.ask_singleton(policy, ask),
            StartPolicy::Debounce(policy) => self.ask_debounce(policy, ask),
            StartPolicy::Batch(policy) => self.ask_batch(policy, ask),
        }
    }

    fn open(&mut self, run: &RunId, due_at: Option<Timestamp>, latest_at: Option<Timestamp>) {
        self.change(PolicyChange::Opened(HoldOpened { run: run.clone(), due_at, latest_at }));
    }

    /// Starts the run of what is held.
    fn start(&mut self) {
        let Some(held) = &self.head.held else { return };
        let started = HoldStarted { number: self.head.next_number, run: held.run.clone() };
        self.change(PolicyChange::Started(started));
    }

    fn ask_singleton(&mut self, policy: &Singleton, ask: &PolicyAsk) {
        let held = self.head.held.as_ref().map(|held| held.run.clone());
        match (self.head.open.clone(), held, policy.on_conflict) {
            (None, ..) => {
                self.open(&ask.run, None, None);
                self.start(); // SP1
            }
            (Some(open), held, OnConflict::Skip) => {
                self.change(PolicyChange::Skipped(StartSkipped { run: held.unwrap_or(open.run) }));
            }
            // The run that is held has not begun: it gets the later input (SP2).
            (Some(_), Some(run), OnConflict::Cancel) => {
                self.change(PolicyChange::Replaced(HoldReplaced { run, due_at: None, latest_at: None }));
            }
            (Some(open), None, OnConflict::Cancel) => {
                self.open(&ask.run, None, None);
                self.change(PolicyChange::Canceled(OpenRunCanceled { number: open.number, run: open.run }));
            }
        }
    }

    fn ask_debounce(&mut self, policy: &Debounce, ask: &PolicyAsk) {
        let due_at = self.now.after(Duration::from_millis(policy.window_ms));
        let wait = Duration::from_millis(policy.max_wait());
        match self.head.held.as_deref() {
            None => self.open(&ask.run, Some(due_at), Some(self.now.after(wait))),
            Some(held) => {
                let own_latest = held.first_at.min(self.now).after(wait);
                let latest_at = held.latest_at.map_or(own_latest, |latest| latest.min(own_latest)); // SP3
                let (run, due_at) = (held.run.clone(), Some(due_at.min(latest_at)));
                self.change(PolicyChange::Replaced(HoldReplaced { run, due_at, latest_at: Some(latest_at) }));
            }
        }
        self.start_if_due();
    }

    fn ask_batch(&mut self, policy: &Batch, ask: &PolicyAsk) {
        let window = Duration::from_millis(policy.window_ms);
        let fits = self
            .head
            .held
            .as_ref()
            .is_some_and(|held| held.options.is_same(&ask.options) && held.bytes + ask.input.data().len() <= BATCH_BYTES_MAX);
        if !fits {
            self.start(); // SP4, SP5
        }
        match self.head.held.as_deref() {
            None => self.open(&ask.run, Some(self.now.after(window)), None),
            Some(held) => {
                let own = held.first_at.min(self.now).after(window);
                let added = HoldAdded { run: held.run.clone(), due_at: held.due_at.map_or(own, |due_at| due_at.min(own)) };
                self.change(PolicyChange::Added(added));
            }
        }
        if self.head.held.as_ref().is_some_and(|held| held.inputs.len() >= policy.size_max as usize) {
            self.start();
        }
        self.start_if_due();
    }

    /// Starts what is held if its time has come (SP7).
    fn start_if_due(&mut self) {
        if self.head.held.as_ref().and_then(|held| held.due_at).is_some_and(|due_at| due_at <= self.now) {
            self.start();
        }
    }

    fn end(&mut self, ended: &Ended) {
        if self.head.open.as_ref().is_none_or(|open| open.number != ended.number) {
            return; // SP7
        }
        self.change(PolicyChange::Ended(ended.clone()));
        self.start();
    }

    /// Sets the timer, or ends a cell that is idle (SP8).
    fn rest(&mut self) {
        let until = self.head.created_at.after(KEPT_FOR);
        let is_idle = self.head.is_idle();
        let is_over = is_idle && until <= self.now;
        let due_at = self.head.held.as_ref().and_then(|held| held.due_at);
        let at = due_at.or((is_idle && !is_over).then_some(until));
        if at != self.head.wake_at {
            self.change(PolicyChange::Wake(NextWake { at }));
        }
        if is_over {
            self.change(PolicyChange::Closed(CellClosed {}));
        }
    }
}
