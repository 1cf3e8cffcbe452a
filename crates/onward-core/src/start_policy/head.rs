//! The state of a cell, and the changes that it consists of.
//!
//! [`PolicyHead`] is a fold over changes. A change about the input of a start does not repeat it: the event has the input once (SP6).

use super::cell::PolicyCell;
use super::input::{PolicyAsk, PolicyInput};
use crate::budget::BudgetHead;
use crate::schedule::Ended;
use crate::{Attribute, Name, Payload, RunId, Timestamp, choice, message};

message! {
    /// Everything that a start sets about its run beside the input.
    #[derive(Default)]
    #[serde(default)]
    pub struct RunOptions {
        /// The version that the caller requested; without one, the current version when the run starts.
        1 => version: Option<Name>,
        2 => attributes: Vec<Attribute>,
        3 => deadline_ms: Option<u64>,
        4 => trace: Option<String>,
        /// The name of the credential that started it.
        5 => requester: Option<String>,
        /// The budget that was granted to that credential.
        6 => granted: Option<Box<BudgetHead>>,
    }

    /// Starts that were accepted and whose run is not started.
    pub struct HeldStart {
        1 => run: RunId,
        2 => first_at: Timestamp,
        /// The time of the start; `None` if it waits for the end of a run.
        3 => due_at: Option<Timestamp>,
        /// The latest time of the start, whatever follows.
        4 => latest_at: Option<Timestamp>,
        5 => options: RunOptions,
        /// One input, or those of a batch, oldest first.
        6 => inputs: Vec<Payload>,
        /// The length of the inputs.
        7 => bytes: usize,
    }

    /// The open run of a singleton.
    #[derive(Eq)]
    pub struct OpenRun {
        1 => number: u32,
        2 => run: RunId,
        3 => started_at: Timestamp,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        4 => is_canceled: bool,
    }

    /// The start is the first of a run.
    #[derive(Eq)]
    pub struct HoldOpened { 1 => run: RunId, 2 => due_at: Option<Timestamp>, 3 => latest_at: Option<Timestamp> }

    /// The start replaces the one that is held.
    #[derive(Eq)]
    pub struct HoldReplaced { 1 => run: RunId, 2 => due_at: Option<Timestamp>, 3 => latest_at: Option<Timestamp> }

    /// The input is added to the batch.
    #[derive(Eq)]
    pub struct HoldAdded { 1 => run: RunId, 2 => due_at: Timestamp }

    /// The run of what is held starts. Its number is never used again.
    #[derive(Eq)]
    pub struct HoldStarted { 1 => number: u32, 2 => run: RunId }

    /// The start has no run of its own, because this run is open or held.
    #[derive(Eq)]
    pub struct StartSkipped { 1 => run: RunId }

    /// The open run is canceled for a later start.
    #[derive(Eq)]
    pub struct OpenRunCanceled { 1 => number: u32, 2 => run: RunId }

    /// The time of the next decision; none if an input decides.
    #[derive(Eq)]
    pub struct NextWake { 1 => at: Option<Timestamp> }

    /// The cell ends: it holds nothing.
    #[derive(Eq)]
    pub struct CellClosed {}
}

choice! {
    /// One change of a head.
    pub enum PolicyChange {
        1 => Opened / "opened": HoldOpened,
        2 => Replaced / "replaced": HoldReplaced,
        3 => Added / "added": HoldAdded,
        4 => Started / "started": HoldStarted,
        5 => Skipped / "skipped": StartSkipped,
        6 => Canceled / "canceled": OpenRunCanceled,
        7 => Ended / "ended": Ended,
        8 => Wake / "wake": NextWake,
        9 => Closed / "closed": CellClosed,
    }
}

message! {
    /// The state of a cell.
    pub struct PolicyHead {
        1 => cell: PolicyCell,
        2 => created_at: Timestamp,
        3 => next_number: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => held: Option<Box<HeldStart>>,
        /// Of a singleton only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => open: Option<OpenRun>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => wake_at: Option<Timestamp>,
    }
}

choice! {
    /// What the log of a cell begins with.
    pub enum PolicyStart {
        1 => New / "new": Box<PolicyCell>,
        /// The head at the end of the generation before.
        2 => Continued / "continued": Box<PolicyHead>,
    }
}

impl PolicyStart {
    /// Returns the head at the start of the log.
    pub(crate) fn head(&self, at: Timestamp) -> PolicyHead {
        match self {
            PolicyStart::New(cell) => PolicyHead::new((**cell).clone(), at),
            PolicyStart::Continued(head) => (**head).clone(),
        }
    }
}

impl RunOptions {
    /// Returns true if both start runs with the same rights and settings. The trace is that of one request.
    pub fn is_same(&self, other: &RunOptions) -> bool {
        let RunOptions { version, attributes, deadline_ms, trace: _, requester, granted } = self;
        (version, attributes, deadline_ms, requester, granted)
            == (&other.version, &other.attributes, &other.deadline_ms, &other.requester, &other.granted)
    }
}

impl PolicyHead {
    pub fn new(cell: PolicyCell, at: Timestamp) -> PolicyHead {
        PolicyHead { cell, created_at: at, next_number: 0, held: None, open: None, wake_at: None }
    }

    /// Applies a change that was decided about `input` at `at` (SP6).
    pub fn apply(&mut self, input: &PolicyInput, change: &PolicyChange, at: Timestamp) {
        match (change, input) {
            (PolicyChange::Opened(opened), PolicyInput::Ask(ask)) => {
                self.held = Some(Box::new(HeldStart {
                    run: opened.run.clone(),
                    first_at: at,
                    due_at: opened.due_at,
                    latest_at: opened.latest_at,
                    options: ask.options.clone(),
                    inputs: vec![ask.input.clone()],
                    bytes: ask.input.data().len(),
                }));
            }
            (PolicyChange::Replaced(replaced), PolicyInput::Ask(ask)) => self.replace(replaced, ask),
            (PolicyChange::Added(added), PolicyInput::Ask(ask)) => {
                if let Some(held) = &mut self.held {
                    held.due_at = Some(added.due_at);
                    held.bytes += ask.input.data().len();
                    held.inputs.push(ask.input.clone());
                }
            }
            (PolicyChange::Started(started), _) => self.start(started, at),
            (PolicyChange::Canceled(canceled), _) => {
                let open = self.open.iter_mut().filter(|open| open.number == canceled.number);
                open.for_each(|open| open.is_canceled = true);
            }
            (PolicyChange::Ended(ended), _) => self.open = self.open.take().filter(|open| open.number != ended.number),
            (PolicyChange::Wake(wake), _) => self.wake_at = wake.at,
            _ => {}
        }
    }

    fn replace(&mut self, replaced: &HoldReplaced, ask: &PolicyAsk) {
        if let Some(held) = &mut self.held {
            (held.due_at, held.latest_at) = (replaced.due_at, replaced.latest_at);
            held.options = ask.options.clone();
            (held.bytes, held.inputs) = (ask.input.data().len(), vec![ask.input.clone()]);
        }
    }

    fn start(&mut self, started: &HoldStarted, at: Timestamp) {
        self.held = None;
        self.next_number = self.next_number.max(started.number.saturating_add(1));
        if self.cell.policy == super::PolicyType::Singleton {
            self.open = Some(OpenRun { number: started.number, run: started.run.clone(), started_at: at, is_canceled: false });
        }
    }
}
