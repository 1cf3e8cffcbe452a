//! Requests and replies about one run.

use crate::budget::Budget;
use crate::live::{ActiveCall, Audience};
use crate::stream::{StreamContent, StreamFrame};
use crate::{
    Attribute, Failure, Index, Name, Namespace, Payload, Record, RunHead, RunId, RunKey, Status, Timestamp, WorkerId, message,
};

message! {
    pub struct StartRequest {
        1 => run: RunKey,
        2 => kind: Name,
        /// The code version that the run is pinned to.
        3 => version: Option<Name>,
        4 => input: Payload,
        /// Seed of the run's random numbers.
        5 => seed: u64,
        /// Delivered in the same write as the start, also if the run exists already.
        6 => signal: Option<Signal>,
        /// Trace context of the caller, as a `traceparent`; by default the header of this name. An invalid value is ignored.
        7 => trace: Option<String>,
        /// Search attributes of the run; ignored if the run exists already.
        8 => attributes: Vec<Attribute>,
        /// Budget of the run and its children; ignored if the run exists already.
        9 => budget: Option<Budget>,
        /// Cancel the run this long after its start or `start_at`, pauses not counted; ignored if the run exists already.
        10 => deadline_ms: Option<u64>,
        /// Begin the code at this time, not before; ignored if the run exists already.
        11 => start_at: Option<Timestamp>,
        /// Begin the code this long after the start, instead of `start_at`; ignored if the run exists already.
        12 => start_after_ms: Option<u64>,
        /// Begin the code when this queue lets the run in; ignored if the run exists already.
        20 => queue: Option<Name>,
        /// The key whose limits and share of the queue apply to the run.
        21 => key: Option<Name>,
        /// Higher begins first, 0 by default; one level is worth a minute of waiting.
        22 => priority: Option<i32>,
    }

    pub struct Signal {
        1 => name: Name,
        2 => payload: Payload,
        /// Idempotency key: a repeat with the same id is the same signal.
        3 => signal_id: Option<String>,
    }

    pub struct StartReply {
        /// False if the run existed already.
        1 => created: bool,
        2 => head: RunHead,
        /// The receipt of the signal that was sent with the start.
        3 => signal: Option<Appended>,
    }

    /// The receipt of an input.
    #[derive(Copy, Eq)]
    pub struct Appended {
        /// Its index in the log.
        1 => index: Index,
        2 => at: Timestamp,
        /// The same input was accepted before; this is its first receipt.
        3 => repeated: bool,
        /// The run was waiting and has something to do now.
        4 => woke: bool,
    }

    pub struct RunRequest { 1 => run: RunKey }
}

impl StartRequest {
    /// Returns a start of the current version, without any option.
    pub fn new(run: RunKey, kind: Name, input: Payload, seed: u64) -> StartRequest {
        StartRequest {
            run,
            kind,
            version: None,
            input,
            seed,
            signal: None,
            trace: None,
            attributes: Vec::new(),
            budget: None,
            deadline_ms: None,
            start_at: None,
            start_after_ms: None,
            queue: None,
            key: None,
            priority: None,
        }
    }
}

impl From<RunKey> for RunRequest {
    fn from(run: RunKey) -> RunRequest {
        RunRequest { run }
    }
}

message! {
    pub struct LogRequest {
        1 => run: RunKey,
        /// The current generation if absent.
        2 => generation: Option<u32>,
        3 => from: Index,
        4 => limit: usize,
    }

    pub struct LogPage {
        1 => records: Vec<Record>,
        /// Not all requested records fit: read on after the last one.
        2 => more: bool,
    }

    pub struct ChangeRequest {
        1 => run: RunKey,
        /// The position that the caller knows already.
        2 => generation: u32,
        3 => next_index: Index,
        /// How long to wait for a later position.
        5 => wait_ms: u64,
    }

    pub struct ChangeReply {
        1 => generation: u32,
        2 => next_index: Index,
        3 => status: Status,
        /// Present if the run is closed.
        4 => outcome: Option<Result<Payload, Failure>>,
    }

    /// A request for the live view of a run.
    pub struct WatchRequest {
        1 => run: RunKey,
        /// The generation to begin with; the current one if absent.
        2 => generation: Option<u32>,
        /// The first event.
        3 => from: Index,
        /// Begins at the end of the log.
        4 => from_end: bool,
    }

    pub struct ActiveReply { 1 => active: Vec<ActiveCall> }

    pub struct StreamRequest {
        1 => run: RunKey,
        /// The offset of the last frame that the caller has; if absent, the reply begins with what is not final yet.
        2 => offset: Option<String>,
        /// How long to wait for more.
        3 => wait_ms: u64,
    }

    /// A page of a stream.
    pub struct StreamPage {
        1 => frames: Vec<StreamFrame>,
        /// The offset of the next page.
        2 => next: String,
    }
}

impl From<RunKey> for WatchRequest {
    fn from(run: RunKey) -> WatchRequest {
        WatchRequest { run, generation: None, from: Index(0), from_end: false }
    }
}

impl StreamPage {
    /// Returns true if the run is closed and no frame follows.
    pub fn ends(&self) -> bool {
        self.frames.last().is_some_and(|frame| matches!(frame.content, StreamContent::End(_)))
    }
}

impl Emitted {
    /// Returns a public value without meta data.
    pub fn new(name: impl Into<String>, value: Payload) -> Emitted {
        Emitted { name: name.into(), value, audience: Audience::Public, meta: None }
    }
}

message! {
    /// A value that a run's code emitted for listeners; not recorded.
    pub struct Emitted {
        1 => name: String,
        2 => value: Payload,
        #[serde(default)]
        3 => audience: Audience,
        /// Free data about the value; a JSON object.
        4 => meta: Option<Payload>,
    }

    pub struct SignalRequest { 1 => run: RunKey, 2 => signal: Signal }
    pub struct ReasonRequest { 1 => run: RunKey, 2 => reason: String }

    pub struct ResumeRequest {
        1 => run: RunKey,
        /// Limits that replace the current ones.
        2 => budget: Option<Budget>,
    }

    pub struct RetryRequest {
        1 => run: RunKey,
        /// Idempotency key: a repeat with the same id is the same request.
        2 => request_id: String,
        3 => reason: String,
        /// Also executes calls again that failed with `outcome_unknown`.
        4 => include_outcome_unknown: bool,
    }

    pub struct ForkRequest {
        1 => run: RunKey,
        /// The id of the new run. A repeat of the same fork is the same run. Without an id, all resets of a run to one point
        /// are one run.
        2 => id: Option<RunId>,
        /// The current generation if absent.
        3 => generation: Option<u32>,
        /// The last event to copy; the end of the last commit if absent.
        4 => index: Option<Index>,
        /// Leaves out the signals that came after the point.
        5 => drop_signals: bool,
        /// Starts children again that had no result at the point; otherwise the new run awaits them together with the original.
        6 => restart_children: bool,
        /// The code version of the new run; that of the original if absent.
        7 => version: Option<Name>,
        /// Seed of the new run's random numbers after the point.
        8 => seed: u64,
        9 => reason: String,
        /// Accepts that calls after the point whose outcome is unknown are executed again.
        10 => include_outcome_unknown: bool,
    }
}

impl ForkRequest {
    /// Returns a fork at the end of the last commit that keeps signals. A fork awaits the children of the original; a reset
    /// needs `restart_children`.
    pub fn new(run: RunKey, seed: u64) -> ForkRequest {
        ForkRequest {
            run,
            id: None,
            generation: None,
            index: None,
            drop_signals: false,
            restart_children: false,
            version: None,
            seed,
            reason: String::new(),
            include_outcome_unknown: false,
        }
    }
}

message! {
    /// A run that continues from a copy of a log.
    pub struct Restored {
        /// False if the same request was accepted before.
        1 => created: bool,
        2 => head: RunHead,
    }

    pub struct DoneReply {}

    /// An update or a query.
    pub struct AskRequest {
        1 => run: RunKey,
        2 => name: Name,
        3 => payload: Payload,
        /// For updates: a repeat with the same id returns the same result.
        4 => update_id: String,
    }

    pub struct AskReply {
        /// Absent if the code has no such query, or if an update has no result yet.
        1 => answer: Option<Result<Payload, Failure>>,
    }

    pub struct DecideRequest {
        1 => namespace: Namespace,
        /// `RUN~GENERATION~CALL`.
        2 => approval: String,
        3 => decide: Decide,
    }

    /// A person's decision of an approval.
    #[derive(Eq)]
    pub struct Decide {
        1 => approved: bool,
        2 => feedback: Option<String>,
        /// Must be one of the deciders, if the approval names any. The name of the caller's credential replaces it.
        3 => decided_by: Option<String>,
        /// Idempotency key: a repeat with the same id is the same decision; another id loses.
        4 => decision_id: String,
        /// The structured answer that the approval requires; only with `approved`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => answer: Option<Payload>,
    }

    pub struct ResolveRequest {
        1 => namespace: Namespace,
        /// `RUN~GENERATION~CALL`.
        2 => promise: String,
        3 => result: Result<Payload, Failure>,
        /// Idempotency key: a repeat with the same id is the same resolution; another id loses.
        4 => resolution_id: String,
    }

    pub struct DriveRequest {
        1 => run: RunKey,
        /// The worker that gets the run, by the id in its `hello`.
        2 => worker: WorkerId,
        3 => signal: Option<Signal>,
        /// A decision of one of the run's approvals.
        4 => decision: Option<DecideRequest>,
    }

    pub struct DriveReply {
        1 => head: RunHead,
        /// The run is on its way to the worker. If false, it has nothing to do.
        2 => is_given: bool,
        /// The receipt of the delivered input.
        3 => appended: Option<Appended>,
    }
}
