//! What a machine returns: the calls to make and to cancel, progress, and the end of the run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::{Action, MemoScope};

/// What the names of the state of a run begin with under which the [`Progress`] of a step is kept: `flow/<step>`.
pub const PROGRESS_PREFIX: &str = "flow/";

/// The number of a call of one run, counted from 0 in the order in which the machine makes them. A call that is made and canceled in
/// one turn is never shown, so numbers may be missing.
pub type CallId = u32;

/// What the machine wants after the start or an answer, in this order: cancel calls, make calls, report, or end.
#[derive(Debug, Default, PartialEq)]
pub struct Turn {
    /// Open calls whose answers are no longer needed. The machine expects no answer of them.
    pub cancels: Vec<CallId>,
    pub calls: Vec<Call>,
    /// Steps whose progress has changed.
    pub progress: Vec<Progress>,
    /// Whether compensation begins in this turn. Cancellation of the run no longer interrupts the calls from here on.
    pub undoes: bool,
    /// The end of the run.
    pub end: Option<Result<Value, FlowFailure>>,
}

/// A call that the machine makes. Exactly one answer follows, unless it is canceled.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub id: CallId,
    /// The name of the step, with the index or key of the item if it runs for several: `search[3]`. Sleeps before another attempt
    /// end with `.retry`, sleeps beside a call with `.timeout`, and compensation with `.undo`.
    pub label: String,
    pub request: CallRequest,
    /// How the result of a task, an action or a model is used again.
    pub memo: Option<CallMemo>,
}

/// The memo of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallMemo {
    pub ttl_ms: u64,
    /// Without a key, calls with the same input have the same result.
    pub key: Option<String>,
    pub scope: MemoScope,
}

/// What a call does.
#[derive(Debug, Clone, PartialEq)]
pub enum CallRequest {
    /// A task on a worker. The engine retries it and limits its time.
    Task {
        kind: String,
        input: Value,
        queue: Option<String>,
        retry: Option<RetryRule>,
        timeout_ms: Option<u64>,
    },
    /// A built-in action, as a step of the run. The engine retries it and limits its time.
    Action {
        action: Action,
        arguments: Value,
        retry: Option<RetryRule>,
        timeout_ms: Option<u64>,
    },
    /// A call of a model, or of the default model. The answer is its text.
    Model {
        model: Option<String>,
        system: Option<String>,
        prompt: String,
    },
    /// A run of another kind, an agent for example. The answer is its output.
    Child {
        kind: String,
        input: Value,
        is_agent: bool,
    },
    /// A decision of a person. The result is `{approved, decider, feedback}`, and `answer` if it is approved and has a schema.
    Approval {
        name: String,
        title: String,
        show: Option<Value>,
        deciders: Vec<String>,
        /// The JSON Schema of the answer.
        answer: Option<Value>,
        within_ms: Option<u64>,
    },
    /// A signal. The answer is its payload. Without one in time, the call fails with `timed_out`.
    Signal {
        name: String,
        within_ms: Option<u64>,
    },
    Sleep {
        ms: u64,
    },
}

/// How the engine retries a task or an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryRule {
    pub attempts: u32,
    pub backoff_ms: u64,
    pub backoff_max_ms: Option<u64>,
}

/// The failure of a call or of the flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowFailure {
    pub code: String,
    pub message: String,
    /// Whether another attempt may help.
    pub retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// The step in which it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// How far a step is. A turn has at most one for each step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub step: String,
    pub state: ProgressState,
    /// How often the step has begun, in loops and branches.
    pub times: u32,
    /// Items that are done, and all items, of a step with `each`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
    /// The steps that came next (`end` included), if the step is over: one, or several after `next: {all: ..}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressState {
    Running,
    Done,
    Skipped,
    Failed,
    /// The path of the step was canceled.
    Canceled,
}
