//! The inputs of cells, their answers, and their refusals.

use super::head::{HoldAdded, HoldOpened, HoldReplaced, PolicyChange, RunOptions, StartSkipped};
use super::policy::StartPolicy;
use super::{BATCH_SIZE_MAX, INPUT_BYTES_MAX, KEY_BYTES_MAX};
use crate::run::IdempotencyRecord;
use crate::schedule::Ended;
use crate::{Name, Payload, RunId, Timestamp, choice, error_enum, message, numbered};

message! {
    /// A start with a policy.
    pub struct PolicyAsk {
        1 => policy: StartPolicy,
        /// The id of the run, if this start is the first of it.
        2 => run: RunId,
        3 => options: RunOptions,
        4 => input: Payload,
        /// Idempotency key: a repeat with the same id is the same start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => request_id: Option<Name>,
    }

    /// The timer of the cell is due.
    pub struct PolicyDue {}
}

choice! {
    /// An input of a cell.
    pub enum PolicyInput {
        1 => Ask / "ask": Box<PolicyAsk>,
        2 => Due / "due": PolicyDue,
        3 => Ended / "ended": Ended,
    }
}

numbered! {
    /// What a start with a policy did.
    pub enum StartOutcome {
        /// The run starts now.
        0 => Started / "started",
        /// A run of the key is open: the start has no run of its own.
        1 => Skipped / "skipped",
        /// The start is held: the run starts later.
        2 => Held / "held",
    }
}

message! {
    /// The answer to a start with a policy.
    #[derive(Eq)]
    pub struct StartAnswer {
        1 => run: RunId,
        2 => outcome: StartOutcome,
        /// The time at which a held run starts, if no later start changes it; absent if it waits for the end of a run.
        3 => due_at: Option<Timestamp>,
    }
}

error_enum! {
    /// A rejected start. Nothing changes.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum StartPolicyRefusal {
        #[error("the key of a start policy has between 1 and {KEY_BYTES_MAX} bytes, not {bytes}")]
        Key { bytes: usize } => StartPolicyInvalid hint() "use a short key, such as the id of the object that the run is about",
        #[error("{part} is {ms}: a window has between a millisecond and 30 days")]
        Window { part: &'static str, ms: u64 } => StartPolicyInvalid hint() "use a schedule or a timer for longer times",
        #[error("debounce.max_wait_ms is {max_wait_ms}, which is less than the window of {window_ms}")]
        MaxWait { max_wait_ms: u64, window_ms: u64 } => StartPolicyInvalid hint() "the longest wait is at least one window",
        #[error("batch.size_max is {size_max}: a batch has between 1 and {BATCH_SIZE_MAX} inputs")]
        Size { size_max: u32 } => StartPolicyInvalid hint() "start several runs, or let a run start children",
        #[error("the input has {bytes} bytes; with a start policy it has at most {INPUT_BYTES_MAX}")]
        Input { bytes: usize } => StartPolicyInvalid hint() "store the data elsewhere and pass a reference to it",
        #[error("a start with a policy has an `id`, but the engine chooses the id of the run")]
        FixedId => StartPolicyInvalid hint() "omit `id`; `request_id` makes a repeat the same start",
        #[error("a start with a policy has a signal")]
        Signal => StartPolicyInvalid hint() "send the signal to the run in the answer, when it is started",
        #[error("a start has {count} policies")]
        SeveralPolicies { count: usize } => StartPolicyInvalid hint() "give one of `singleton`, `debounce` and `batch`",
        #[error("a start without a policy has a `request_id`")]
        RequestIdAlone => StartPolicyInvalid hint() "use `id`: a repeat with the same id, kind and input is the same run",
        #[error("an input of a batch is JSON or encrypted, not `{content_type}`")]
        BatchInput { content_type: String } => StartPolicyInvalid hint() "the run gets a list of the inputs: pass JSON",
    }
}

impl PolicyAsk {
    /// Refuses limits of the policy, and inputs that a cell cannot hold.
    pub fn check(&self) -> Result<(), StartPolicyRefusal> {
        self.policy.check()?;
        let bytes = self.input.data().len();
        if bytes > INPUT_BYTES_MAX {
            return Err(StartPolicyRefusal::Input { bytes });
        }
        let is_listable = self.input.is_json() || self.input.sealed_with().is_some();
        if matches!(self.policy, StartPolicy::Batch(_)) && !is_listable {
            return Err(StartPolicyRefusal::BatchInput { content_type: self.input.content_type().to_owned() });
        }
        Ok(())
    }

    /// Returns the idempotency record of the start, if it has an id.
    pub fn once(&self) -> Option<IdempotencyRecord> {
        self.request_id.as_ref().map(|id| IdempotencyRecord::start(self, id))
    }

    /// Returns the answer to this start, from what was decided about it.
    pub fn answer(&self, changes: &[PolicyChange]) -> Option<StartAnswer> {
        let held = |run: &RunId, due_at: Option<Timestamp>| {
            let is_started = changes.iter().any(|change| matches!(change, PolicyChange::Started(started) if started.run == *run));
            match is_started {
                true => StartAnswer { run: run.clone(), outcome: StartOutcome::Started, due_at: None },
                false => StartAnswer { run: run.clone(), outcome: StartOutcome::Held, due_at },
            }
        };
        changes.iter().find_map(|change| match change {
            PolicyChange::Skipped(StartSkipped { run }) => {
                Some(StartAnswer { run: run.clone(), outcome: StartOutcome::Skipped, due_at: None })
            }
            PolicyChange::Opened(HoldOpened { run, due_at, .. }) | PolicyChange::Replaced(HoldReplaced { run, due_at, .. }) => {
                Some(held(run, *due_at))
            }
            PolicyChange::Added(HoldAdded { run, due_at }) => Some(held(run, Some(*due_at))),
            _ => None,
        })
    }
}
