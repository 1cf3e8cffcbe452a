//! The plain reference of the model: it keeps every start and computes everything again from all of them.

use crate::start_policy::{BATCH_BYTES_MAX, OnConflict, StartPolicy};

/// A start that was accepted.
#[derive(Debug, Clone)]
pub struct PlainAsk {
    pub at: u64,
    pub policy: StartPolicy,
    pub input: String,
    /// The credential, with its budget.
    pub options: (Option<String>, Option<u64>),
}

/// A run that is to start. Groups are numbered in the order of their first starts.
#[derive(Debug, Clone, PartialEq)]
pub struct PlainRun {
    pub group: usize,
    pub input: String,
    pub options: (Option<String>, Option<u64>),
}

/// The expected answer: the group, and whether its run starts now, is there, or is due.
#[derive(Debug, Clone, PartialEq)]
pub enum PlainAnswer {
    Started(usize),
    Skipped(usize),
    Held(usize, Option<u64>),
}

#[derive(Default)]
pub struct Plain {
    held: Vec<PlainAsk>,
    held_group: usize,
    /// The group of the open run of a singleton.
    pub open: Option<usize>,
    pub canceled: Vec<usize>,
    next_group: usize,
    pub runs: Vec<PlainRun>,
}

impl Plain {
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.open.is_none()
    }

    /// Returns the time at which what is held starts.
    pub fn due(&self) -> Option<u64> {
        let (first, last) = (self.held.first()?, self.held.last()?);
        let earliest = |waits: &dyn Fn(&PlainAsk) -> Option<u64>| {
            self.held.iter().filter_map(|ask| Some(ask.at.min(first.at) + waits(ask)?)).min()
        };
        match &last.policy {
            StartPolicy::Singleton(_) => None,
            StartPolicy::Debounce(policy) => {
                let wait =
                    |ask: &PlainAsk| if let StartPolicy::Debounce(policy) = &ask.policy { Some(policy.max_wait()) } else { None };
                Some(earliest(&wait)?.min(last.at + policy.window_ms))
            }
            StartPolicy::Batch(_) => {
                earliest(&|ask| if let StartPolicy::Batch(policy) = &ask.policy { Some(policy.window_ms) } else { None })
            }
        }
    }

    fn start(&mut self) {
        let Some(last) = self.held.last().cloned() else { return };
        let is_batch = matches!(last.policy, StartPolicy::Batch(_));
        let inputs: Vec<String> = self.held.iter().map(|ask| ask.input.clone()).collect();
        let input = if is_batch { format!("[{}]", inputs.join(",")) } else { last.input };
        self.runs.push(PlainRun { group: self.held_group, input, options: last.options });
        if matches!(last.policy, StartPolicy::Singleton(_)) {
            self.open = Some(self.held_group);
        }
        self.held.clear();
    }

    fn hold(&mut self, ask: PlainAsk) {
        if self.held.is_empty() {
            self.held_group = self.next_group;
            self.next_group += 1;
        }
        self.held.push(ask);
    }

    pub fn ask(&mut self, ask: PlainAsk) -> PlainAnswer {
        let (at, policy) = (ask.at, ask.policy.clone());
        match &policy {
            StartPolicy::Singleton(policy) => match self.open {
                Some(open) if policy.on_conflict == OnConflict::Skip => {
                    return PlainAnswer::Skipped(if self.held.is_empty() { open } else { self.held_group });
                }
                Some(open) => {
                    self.hold(ask);
                    self.canceled.push(open);
                }
                None => {
                    self.hold(ask);
                    self.start();
                }
            },
            StartPolicy::Debounce(_) => self.hold(ask),
            StartPolicy::Batch(policy) => {
                let bytes: usize = self.held.iter().chain([&ask]).map(|ask| ask.input.len()).sum();
                if bytes > BATCH_BYTES_MAX || self.held.first().is_some_and(|first| first.options != ask.options) {
                    self.start();
                }
                self.hold(ask);
                if self.held.len() >= policy.size_max as usize {
                    let group = self.held_group;
                    self.start();
                    return PlainAnswer::Started(group);
                }
            }
        }
        let group = self.held_group;
        self.pass(at);
        if self.held.is_empty() { PlainAnswer::Started(group) } else { PlainAnswer::Held(group, self.due()) }
    }

    /// Lets the timer look at the clock.
    pub fn pass(&mut self, now: u64) {
        if self.due().is_some_and(|due| due <= now) {
            self.start();
        }
    }

    pub fn end(&mut self, group: usize) {
        if self.open == Some(group) {
            self.open = None;
            self.start();
        }
    }
}
