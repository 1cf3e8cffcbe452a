//! The events of a log, named in the past tense.
//!
//! Owns the event vocabulary, its numbers and its text form. An event is either an *input*, which came from outside
//! the code, or part of a *commit*, written by the one worker that holds the run's lease.
//!
//! Invariants:
//! - E1: an event number or field number is never reused (golden logs must replay forever).
//! - E2: every input that answers a call names the call's [`CallId`].

mod agent;
mod memo;
mod schedule;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::agent::conversation::OutsideEntry;
use crate::log::codec::{DecodeError, Field, Message, Raw, Reader, put_nested};
use crate::log::external::ExternalAppended;
use crate::log::schema::{FieldLine, Proto, Schema};
use crate::run::IdempotencyRecord;
pub use crate::run::ancestry::Origin;
pub use crate::run::attribute::{Attribute, AttributeValue};
use crate::run::memo::MemoCell;
use crate::run::run_queue::RunQueue;
use crate::schedule::ScheduleStart;
use crate::spend::budget::{Budget, BudgetGone, BudgetHead, BudgetUse};
use crate::spend::{Spend, SpendTotals};
use crate::task::TaskOptions;
use crate::{CallId, Epoch, Failure, Hash, Index, Name, Payload, RunId, RunKey, Timestamp, WorkerId, message, numbered};
pub use agent::{CallAdopted, Checkpoint, EntryAppended, EntryKey, EntryLocation, Quote, SegmentAbandoned, Tally};
pub use memo::{
    MemoAnswered, MemoAsked, MemoHit, MemoInvalidated, MemoReleased, MemoRequested, MemoReturned, MemoSettled, MemoStored,
};
pub use schedule::ScheduleDecided;

/// The storage of an event's content: inline, or boxed if it would enlarge every other event.
macro_rules! held {
    ($name:ident) => {
        $name
    };
    ($name:ident $held:ty) => {
        $held
    };
}

macro_rules! events {
    (inputs { $($input:tt)* } commits { $($commit:tt)* }) => {
        events! { @all $($input)* $($commit)* }
        events! { @inputs $($input)* }
    };
    (@inputs $($number:literal => $name:ident $(in $held:ty)? | $text:literal,)*) => {
        impl Event {
            /// Returns true if the event came from outside the code.
            pub fn is_input(&self) -> bool {
                matches!(self, $(Event::$name(_))|*)
            }
        }
    };
    (@all $($number:literal => $name:ident $(in $held:ty)? | $text:literal,)*) => {
        /// One fact in a log.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        pub enum Event { $($name(held!($name $($held)?)),)* }

        impl Event {
            /// Returns the event's name, the same in every API.
            pub fn name(&self) -> &'static str {
                match self { $(Event::$name(_) => $text,)* }
            }

            #[inline]
            fn lines(schema: &mut Schema) -> Vec<FieldLine> {
                vec![$(FieldLine::new($number, $text, $name::proto(schema)),)*]
            }

            /// Returns the call id of a commit event; `None` for inputs and for events that belong to no call.
            pub fn call_id(&self) -> Option<&CallId> {
                if self.is_input() {
                    return None;
                }
                match self { $(Event::$name(event) => event.call_id(),)* }
            }

            /// Calls `visit` with each payload of the event, in the order of its fields.
            pub fn visit_payloads<'a>(&'a self, visit: &mut dyn FnMut(&'a Payload)) {
                match self { $(Event::$name(event) => Field::visit_payloads(event, visit),)* }
            }

            /// Calls `visit` with each payload of the event, to change it.
            pub fn visit_payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
                match self { $(Event::$name(event) => Field::visit_payloads_mut(event, visit),)* }
            }

            /// Reads an event from JSON. Not generic, so that its code exists once.
            fn from_json(text: &str) -> serde_json::Result<Event> {
                #[derive(Deserialize)]
                struct Tag<'a> { #[serde(borrow)] r#type: std::borrow::Cow<'a, str> }
                let tag: Tag = serde_json::from_str(text)?;
                match &*tag.r#type {
                    $($text => serde_json::from_str::<$name>(text).map(Event::from),)*
                    other => Err(serde::de::Error::custom(format!("unknown event type `{other}`"))),
                }
            }

            pub fn encode(&self, out: &mut Vec<u8>) {
                match self { $(Event::$name(event) => put_nested($number, out, |out| event.encode_fields(out)),)* }
            }

            /// Decodes one event. An unknown kind is an error, because an event of the log must not be ignored.
            pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
                let (number, raw) = Reader::new(bytes).field()?.ok_or(DecodeError::Truncated)?;
                match number {
                    $($number => Ok(Event::$name($name::decode_fields(raw.bytes($text)?)?.into())),)*
                    number => Err(DecodeError::UnknownEvent { number }),
                }
            }
        }

        $(impl From<$name> for Event {
            fn from(event: $name) -> Event {
                Event::$name(event.into())
            }
        })*

        impl<'de> Deserialize<'de> for Event {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // Raw text keeps payloads byte for byte; a buffered tagged enum would not.
                let raw = Box::<RawValue>::deserialize(deserializer)?;
                Event::from_json(raw.get()).map_err(serde::de::Error::custom)
            }
        }
    };
}

events! {
    inputs {
        1 => RunStarted in Box<RunStarted> | "run_started",
        2 => SignalReceived | "signal_received",
        3 => ApprovalDecided | "approval_decided",
        4 => PromiseResolved | "promise_resolved",
        5 => UpdateReceived | "update_received",
        6 => TaskCompleted | "task_completed",
        7 => TaskFailed | "task_failed",
        8 => TimerFired | "timer_fired",
        9 => ChildCompleted | "child_completed",
        10 => ChildFailed | "child_failed",
        11 => CancelRequested | "cancel_requested",
        12 => TerminateRequested | "terminate_requested",
        13 => RetryRequested | "retry_requested",
        14 => RunPaused | "run_paused",
        15 => RunResumed | "run_resumed",
        16 => RunForked | "run_forked",
        17 => ResultRequested | "result_requested",
        18 => TaskAttempted | "task_attempted",
        19 => TaskAttemptEnded | "task_attempt_ended",
        21 => BranchRequested in Box<BranchRequested> | "branch_requested",
        24 => ExternalAppended | "external_appended",
        25 => ChildSettled | "child_settled",
        26 => MemoAnswered | "memo_answered",
        27 => MemoAsked | "memo_asked",
        28 => MemoSettled | "memo_settled",
        29 => MemoReturned | "memo_returned",
        30 => MemoInvalidated | "memo_invalidated",
        31 => ScheduleDecided in Box<ScheduleDecided> | "schedule_decided",
        63 => RunBegun | "run_begun",
    }
    commits {
        32 => StepCompleted | "step_completed",
        33 => StepFailed | "step_failed",
        34 => TaskScheduled | "task_scheduled",
        35 => TaskCanceled | "task_canceled",
        36 => TimerStarted | "timer_started",
        37 => SignalAwaited | "signal_awaited",
        38 => SignalConsumed | "signal_consumed",
        39 => ApprovalRequested | "approval_requested",
        40 => PromiseCreated | "promise_created",
        41 => WaitCanceled | "wait_canceled",
        42 => StateSet | "state_set",
        43 => StateCleared | "state_cleared",
        44 => ChildStarted | "child_started",
        45 => ChildCanceled | "child_canceled",
        46 => SignalSent | "signal_sent",
        47 => VersionChosen | "version_chosen",
        48 => UpdateAnswered | "update_answered",
        49 => RunSuspended | "run_suspended",
        50 => RunCompleted | "run_completed",
        51 => RunFailed | "run_failed",
        52 => RunCanceled | "run_canceled",
        53 => RunContinued | "run_continued",
        54 => AttributeSet | "attribute_set",
        55 => EntryAppended | "entry_appended",
        56 => SegmentAbandoned in Box<SegmentAbandoned> | "segment_abandoned",
        57 => CallAdopted | "call_adopted",
        58 => ChildAwaited | "child_awaited",
        59 => BudgetSet | "budget_set",
        60 => MemoRequested | "memo_requested",
        61 => MemoStored | "memo_stored",
        62 => MemoReleased | "memo_released",
    }
}

impl Field for Event {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_nested(number, out, |out| Event::encode(self, out));
    }
    fn decode(raw: Raw<'_>) -> Result<Event, DecodeError> {
        Event::decode(raw.bytes("event")?)
    }
    #[inline]
    fn proto(schema: &mut Schema) -> Proto {
        let docs = &["doc = \"One fact in a log.\""];
        let proto = schema.one_of("Event", docs, "event", Vec::new(), Event::lines);
        let choices = Event::lines(schema);
        schema.set_json_tagged("Event", docs, &choices);
        proto
    }
    fn visit_payloads<'a>(&'a self, visit: &mut dyn FnMut(&'a Payload)) {
        Event::visit_payloads(self, visit);
    }
    fn visit_payloads_mut(&mut self, visit: &mut dyn FnMut(&mut Payload)) {
        Event::visit_payloads_mut(self, visit);
    }
}

impl Event {
    /// Returns true for accounting events: no call waits for them and the code does not observe them.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Event::TaskAttempted(_) | Event::TaskAttemptEnded(_) | Event::ChildSettled(_))
    }

    /// Returns true for the result of a step; all other events of a commit are calls of the code.
    pub fn is_step_result(&self) -> bool {
        matches!(self, Event::StepCompleted(_) | Event::StepFailed(_))
    }

    /// Returns the call id of the wait, task or child that the event cancels.
    pub fn canceled_call(&self) -> Option<&CallId> {
        let cancels = matches!(self, Event::WaitCanceled(_) | Event::TaskCanceled(_) | Event::ChildCanceled(_));
        self.call_id().filter(|_| cancels)
    }

    /// Returns the result of the run if the event ends it; `None` if the run continues as its next generation.
    pub fn outcome(&self) -> Option<Result<Payload, Failure>> {
        match self {
            Event::RunCompleted(event) => Some(Ok(event.output.clone())),
            Event::RunFailed(event) => Some(Err(event.failure.clone())),
            Event::RunCanceled(event) => Some(Err(event.failure.clone())),
            Event::TerminateRequested(TerminateRequested { reason, .. }) => {
                let colon = if reason.is_empty() { "" } else { ": " };
                let failure = Failure::new("terminated", format!("the run was terminated{colon}{reason}"));
                Some(Err(Failure { retryable: false, ..failure }))
            }
            _ => None,
        }
    }

    /// Returns true if the run's head stores the content of the event, and not only its arrival.
    pub fn is_kept_in_head(&self) -> bool {
        match self {
            Event::AttributeSet(_) | Event::ResultRequested(_) | Event::BudgetSet(_) | Event::BranchRequested(_) => true,
            // Needed for approvals that are asked for again, and for unpriced costs that were reported.
            Event::ApprovalDecided(_) | Event::RunPaused(_) => true,
            Event::RunResumed(event) => event.budget.is_some(),
            Event::CancelRequested(event) => event.is_deadline,
            // They change the slices that the budget has lent to children.
            Event::ChildStarted(_) | Event::ChildCompleted(_) | Event::ChildFailed(_) => true,
            // They open or end memos.
            Event::MemoRequested(_) | Event::MemoAnswered(_) | Event::MemoStored(_) | Event::MemoReleased(_) => true,
            Event::TaskFailed(_) | Event::TaskCanceled(_) | Event::SegmentAbandoned(_) => true,
            Event::StepFailed(event) => event.retry_at.is_none(),
            Event::MemoAsked(_) | Event::MemoSettled(_) | Event::MemoReturned(_) | Event::MemoInvalidated(_) => true,
            Event::ScheduleDecided(_) | Event::RunBegun(_) => true,
            _ => self.is_quiet(),
        }
    }

    /// Returns the failure in the event, if any.
    pub fn failure_mut(&mut self) -> Option<&mut Failure> {
        match self {
            Event::StepFailed(event) => Some(&mut event.failure),
            Event::TaskFailed(event) => Some(&mut event.failure),
            Event::ChildFailed(event) => Some(&mut event.failure),
            Event::RunFailed(event) => Some(&mut event.failure),
            Event::RunCanceled(event) => Some(&mut event.failure),
            Event::PromiseResolved(event) => event.result.as_mut().err(),
            Event::UpdateAnswered(event) => event.result.as_mut().err(),
            _ => None,
        }
    }

    /// Returns true if no event may follow this one in its log.
    pub fn ends_log(&self) -> bool {
        use Event::*;
        matches!(self, RunCompleted(_) | RunFailed(_) | RunCanceled(_) | RunContinued(_) | TerminateRequested(_))
    }
}

message! {
    /// The call of the parent that the child run belongs to.
    pub struct ParentLink {
        1 => run: RunKey,
        2 => generation: u32,
        3 => call_id: CallId,
        4 => on_parent_close: OnParentClose,
        /// The incarnation of the parent that made the call (see [`crate::RunHead::incarnation`]); `None` in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::log::text_number")]
        5 => incarnation: Option<u64>,
        /// The child belongs to the run and not to one of its generations; its result is requested with [`ChildAwaited`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        9 => is_spawned: bool,
    }
}

impl ParentLink {
    /// Returns true if both are the same call. The child of an earlier incarnation of the parent is a different one (R10).
    pub fn is_same_call(&self, other: &ParentLink) -> bool {
        (&self.run, self.generation, &self.call_id) == (&other.run, other.generation, &other.call_id)
            && is_same_incarnation(self.incarnation, other.incarnation)
    }
}

/// Returns true if both may be the same incarnation of a run; `None` is an unknown one.
pub(crate) fn is_same_incarnation(one: Option<u64>, other: Option<u64>) -> bool {
    one.is_none() || other.is_none() || one == other
}

numbered! {
    /// The effect of a parent's end on an open child.
    pub enum OnParentClose {
        /// The child is canceled and may compensate.
        0 => Cancel / "cancel",
        /// The child is terminated at once.
        1 => Terminate / "terminate",
        /// The child continues on its own.
        2 => Abandon / "abandon",
    }
}

message! {
    /// A signal that a run had not consumed when it continued as new.
    pub struct CarriedSignal {
        1 => name: Name,
        2 => payload: Payload,
        3 => signal_id: Option<String>,
        4 => sender: Option<RunKey>,
    }

    pub struct RunStarted {
        1 => kind: Name,
        /// The version of the code that the run is pinned to; `None` if the kind has no versions.
        2 => version: Option<Name>,
        3 => input: Payload,
        /// The seed of `uuid()` and `random()`.
        #[serde(with = "crate::log::text_number")]
        4 => seed: u64,
        5 => parent: Option<ParentLink>,
        /// The number of the generation: 0, 1, 2, …
        6 => generation: u32,
        7 => mailbox: Vec<CarriedSignal>,
        /// The reason of a cancellation request that the code of the generation before had not observed when it continued as new.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => cancel_reason: Option<String>,
        /// The logs that this one is a copy of, earliest first; empty for a run that began with its own log (see
        /// [`crate::run::ancestry`]).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        9 => origins: Vec<Origin>,
        /// The attributes that the run was started with.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        10 => attributes: Vec<Attribute>,
        /// Set for a standalone task: the run has no workflow code, and its end is that of the task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        11 => task: Option<StandaloneTask>,
        /// The log belongs to an external engine.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        12 => is_external: bool,
        /// The trace context of the start request, as a `traceparent`; only in the first generation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        13 => trace: Option<String>,
        /// The updates that were unanswered when the generation before continued as new, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        14 => updates: Vec<UpdateReceived>,
        /// The checkpoint of the segment before, from which an agent's code resumes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        15 => checkpoint: Option<Box<Checkpoint>>,
        /// The cost of the generations before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        16 => spend: Option<Box<SpendTotals>>,
        /// The budget of the run; from the second generation on, with its use so far.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        17 => budget: Option<Box<BudgetHead>>,
        /// The kind that the run was started as, if it was handed over to another one since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        24 => first_kind: Option<Name>,
        /// The number of ancestors: parent, grandparent and so on. `None` for a run that no other run started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        25 => nesting: Option<u32>,
        /// The seed of the run's first generation; only in later ones.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::log::text_number")]
        26 => first_seed: Option<u64>,
        /// The start of the first generation; only in later ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        27 => created_at: Option<Timestamp>,
        /// The log up to this event was imported and has tool calls, which a copy of it does not execute (U7).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        28 => imported_until: Option<Index>,
        /// The name of the credential that started the run or its root run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        29 => requester: Option<String>,
        /// The names of the credentials that forked, reset or retried the run, its root run or the run that it is a copy of (Z10).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        30 => copied_by: Vec<String>,
        /// The time limit of the run, from this record on or from `run_begun`; in a later generation, what is left of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        31 => deadline_ms: Option<u64>,
        /// The run is the cell of this memo.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        32 => cell: Option<Box<MemoCell>>,
        /// The run keeps this schedule.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        33 => schedule: Option<Box<ScheduleStart>>,
        /// The code begins at this time (see [`crate::run::delayed_start`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        34 => start_at: Option<Timestamp>,
        /// The code begins this long after this record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        35 => start_after_ms: Option<u64>,
        /// The code begins when this queue lets the run in (see [`crate::run::run_queue`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        40 => queue: Option<Box<RunQueue>>,
    }
}

impl RunStarted {
    /// Returns a first generation without version, parent or carried state.
    pub fn new(kind: Name, input: Payload, seed: u64) -> RunStarted {
        RunStarted {
            kind,
            version: None,
            input,
            seed,
            parent: None,
            generation: 0,
            mailbox: Vec::new(),
            cancel_reason: None,
            origins: Vec::new(),
            attributes: Vec::new(),
            task: None,
            is_external: false,
            trace: None,
            updates: Vec::new(),
            checkpoint: None,
            spend: None,
            budget: None,
            first_kind: None,
            nesting: None,
            first_seed: None,
            created_at: None,
            imported_until: None,
            requester: None,
            copied_by: Vec::new(),
            deadline_ms: None,
            cell: None,
            schedule: None,
            start_at: None,
            start_after_ms: None,
            queue: None,
        }
    }

    /// Returns the seed of the run's first generation, if known: older logs of later generations do not record it.
    pub fn origin_seed(&self) -> Option<u64> {
        self.first_seed.or((self.generation == 0).then_some(self.seed))
    }
}

message! {
    /// Kind and options of a standalone task; its input is that of the run.
    pub struct StandaloneTask { 1 => kind: Name, 2 => options: TaskOptions }

    pub struct SignalReceived {
        1 => name: Name,
        2 => payload: Payload,
        3 => signal_id: Option<String>,
        4 => sender: Option<RunKey>,
    }

    pub struct ApprovalDecided {
        1 => call_id: CallId,
        2 => approved: bool,
        3 => feedback: Option<String>,
        4 => decided_by: Option<String>,
        5 => decision_id: String,
        /// The structured answer, if the approval requires one and was approved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => answer: Option<Payload>,
    }

    pub struct PromiseResolved { 1 => call_id: CallId, 2 => result: Result<Payload, Failure>, 3 => resolution_id: String }
    pub struct UpdateReceived { 1 => update_id: String, 2 => name: Name, 3 => payload: Payload }

    pub struct TaskCompleted {
        1 => call_id: CallId,
        2 => output: Payload,
        3 => attempts: u32,
        /// The last attempt; `None` in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => ran: Option<AttemptRan>,
    }

    pub struct TaskFailed {
        1 => call_id: CallId,
        2 => failure: Failure,
        3 => attempts: u32,
        /// The last attempt; `None` in older logs, and if the task failed while it was queued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => ran: Option<AttemptRan>,
    }

    /// The start of an attempt and its worker.
    #[derive(Eq)]
    pub struct AttemptRan { 1 => started_at: Timestamp, 2 => worker: Option<WorkerId> }

    /// The start of a task's attempt, recorded before a worker gets it.
    pub struct TaskAttempted {
        1 => call_id: CallId,
        2 => attempt: u32,
        /// The ledger name under which the attempt counts as unknown until its cost is reported; `None` for tasks without cost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => ledger_name: Option<String>,
        /// The time at which a worker got it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => began_at: Option<Timestamp>,
    }

    /// The cost of a task's attempt: in one record with the result of the task, or alone if the task has no result or had it
    /// before.
    pub struct TaskAttemptEnded {
        1 => call_id: CallId,
        /// The generation of the task, which may be earlier than that of the log.
        2 => generation: u32,
        3 => attempt: u32,
        /// The claim of the task: an attempt whose worker was lost is repeated under another claim.
        4 => claim: u64,
        5 => began_at: Timestamp,
        /// The ledger name under which the attempt counted as unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => ledger_name: Option<String>,
        /// The failure code of the attempt, if its worker reported one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        7 => failure_code: Option<String>,
        /// One line per model; empty if the attempt was released before it began.
        8 => spend: Vec<Spend>,
    }

    /// The start time of the run has come, and its queue lets it in: its code begins.
    #[derive(Default)]
    pub struct RunBegun {
        /// How long the run waited, if the log before has code of it: the log continues from a copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        1 => waited_ms: Option<u64>,
    }

    pub struct TimerFired { 1 => call_id: CallId }

    pub struct ChildCompleted {
        1 => call_id: CallId,
        2 => output: Payload,
        /// The child, if the call only awaited the result of a spawned one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => child: Option<RunId>,
        /// The use of its budget, children included; `None` if it had no budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => spent: Option<BudgetUse>,
    }

    pub struct ChildFailed {
        1 => call_id: CallId,
        2 => failure: Failure,
        /// The child, if the call only awaited the result of a spawned one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => child: Option<RunId>,
        /// The use of its budget, children included; `None` if it had no budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => spent: Option<BudgetUse>,
    }

    pub struct CancelRequested {
        1 => reason: String,
        /// The deadline of the run has passed; nothing else requested it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        2 => is_deadline: bool,
    }

    pub struct TerminateRequested {
        1 => reason: String,
        /// The fork that continues instead of this run, from an earlier point.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => reset_to: Option<RunId>,
    }

    /// A restarted child that replaces the one in the log.
    pub struct ChildAgain {
        1 => call_id: CallId,
        2 => child: RunId,
        /// Its share of the parent's budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => budget: Option<Budget>,
    }

    /// A request to retry a failed run: the failures that ended it are set aside (see [`crate::run::reopen`]).
    pub struct RetryRequested {
        /// Idempotency key: a repeat with the same id is the same request.
        1 => request_id: String,
        2 => reason: String,
        3 => children: Vec<ChildAgain>,
        /// The cost of the run at that time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => spend: Option<Box<SpendTotals>>,
        /// The requester's budget ceiling; the run continues with the lower limits (BG8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => budget_max: Option<Budget>,
    }

    /// The run continues from a copy of another run's log; the events before this one are the copy.
    pub struct RunForked {
        1 => from: RunKey,
        2 => generation: u32,
        /// The last copied event.
        3 => index: Index,
        /// The original was ended in favor of this run.
        4 => is_reset: bool,
        5 => request_id: String,
        6 => reason: String,
        7 => children: Vec<ChildAgain>,
        /// The budget used up to the end of the copy; `None` if there was no budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => gone: Option<BudgetGone>,
        /// The requester's budget ceiling; the run continues with the lower limits (BG8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        9 => budget_max: Option<Budget>,
    }

    /// The end of a spawned child: reports the use of its budget only. The code requests the result with `child_awaited`.
    pub struct ChildSettled { 1 => child: RunId, 2 => spent: BudgetUse }
}

impl CancelRequested {
    /// Returns a request of a caller.
    pub fn new(reason: String) -> CancelRequested {
        CancelRequested { reason, is_deadline: false }
    }
}

impl ChildSettled {
    pub fn once(&self) -> IdempotencyRecord {
        IdempotencyRecord::new(format!("settled:{}", self.child))
    }
}

message! {
    /// A request of a run that continues from a copy of the parent's log, to receive the result of this child as well.
    pub struct ResultRequested { 1 => by: ParentLink }

    /// A request to branch from an earlier entry of an agent's conversation: the open segment is abandoned, and the agent resumes
    /// from a checkpoint before it.
    pub struct BranchRequested {
        /// The entry after which the conversation continues; `None` is its beginning.
        1 => from: Option<Hash>,
        /// The number of entries up to there.
        2 => depth: u64,
        /// An entry to append there at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => entry: Option<OutsideEntry>,
        /// The latest checkpoint whose leaf is `from` or one of its ancestors.
        4 => checkpoint: Box<Checkpoint>,
        /// The input of the generation that began with the checkpoint.
        5 => input: Payload,
        /// Idempotency key: a repeat with the same id is the same request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => request_id: Option<String>,
    }
}

numbered! {
    /// The reason why a run is paused.
    pub enum PauseReason {
        /// A request.
        0 => Requested / "requested",
        /// The code made a call that is not in the log.
        1 => Diverged / "diverged",
        /// The code panicked, awaited a foreign future, or could not be started.
        2 => ActivationFailed / "activation_failed",
        /// The recorded version of a change is below what the code still supports.
        3 => VersionTooOld / "version_too_old",
        /// An agent's code abandoned its segment too often.
        4 => UnstableSegment / "unstable_segment",
        /// An agent's code abandoned a call that had an effect, and would continue without it.
        5 => EffectAbandoned / "effect_abandoned",
        /// A limit of the budget is reached, and the run would spend more.
        6 => BudgetExhausted / "budget_exhausted",
        /// An agent has recorded too many events since its last checkpoint.
        7 => SegmentTooLong / "segment_too_long",
        /// The run continues from a copy, and its approvals must be given again.
        8 => ApprovalNeeded / "approval_needed",
        /// Its workers were lost one after the other while they executed it.
        9 => WorkerCrashed / "worker_crashed",
    }
}

message! {
    /// The difference between code and log, for people to read.
    pub struct Divergence {
        /// The recorded event that the code did not reproduce, or the index that an extra call would have had.
        1 => index: Index,
        2 => recorded: String,
        3 => attempted: String,
        /// The last call on which code and log agreed.
        4 => nearest: Option<String>,
        5 => hint: String,
    }

    pub struct RunPaused {
        1 => reason: PauseReason,
        2 => message: String,
        3 => divergence: Option<Divergence>,
        /// The abandoned calls that the message lists: resuming the run accepts these and no others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        4 => abandoned_calls: Vec<CallId>,
        /// Approvals that must be given again before the run resumes (Z8).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        5 => asks: Vec<CallId>,
        /// The workers that were lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => lost_workers: Option<LostWorkers>,
    }

    /// The workers that a run lost in a row, without a commit in between (CW1).
    #[derive(Eq)]
    pub struct LostWorkers {
        1 => count: u32,
        /// The number of the commit that none of them made.
        2 => next_commit: u64,
        /// The last event of the run when the last of them was lost.
        3 => last_index: Index,
        /// The latest ones, oldest first.
        4 => latest: Vec<LostWorker>,
    }

    /// A worker that was lost while it executed a run.
    #[derive(Eq)]
    pub struct LostWorker {
        1 => worker: WorkerId,
        /// The epoch of its claim.
        2 => epoch: Epoch,
        /// The time at which its lease ended.
        3 => at: Timestamp,
    }
}

impl RunPaused {
    /// Returns a pause with a reason and a message only.
    pub fn because(reason: PauseReason, message: impl Into<String>) -> RunPaused {
        RunPaused {
            reason,
            message: message.into(),
            divergence: None,
            abandoned_calls: Vec::new(),
            asks: Vec::new(),
            lost_workers: None,
        }
    }
}

/// Returns the attempt of a step in a JSON event without one.
fn first_attempt() -> u32 {
    1
}

fn cancel_child() -> OnParentClose {
    OnParentClose::Cancel
}

message! {
    #[derive(Default)]
    pub struct RunResumed {
        /// Limits that replace the current ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        1 => budget: Option<Budget>,
    }

    pub struct StepCompleted {
        1 => call_id: CallId,
        2 => name: Name,
        3 => input_hash: Option<Hash>,
        4 => output: Payload,
        #[serde(default = "first_attempt")]
        5 => attempt: u32,
        #[serde(default)]
        6 => took_ms: u64,
        /// The recorded input, for people; it is not compared on replay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        7 => input: Option<Payload>,
    }

    pub struct StepFailed {
        1 => call_id: CallId,
        2 => name: Name,
        3 => input_hash: Option<Hash>,
        4 => failure: Failure,
        #[serde(default = "first_attempt")]
        5 => attempt: u32,
        #[serde(default)]
        6 => took_ms: u64,
        /// The time of the next attempt; `None` makes the failure final.
        7 => retry_at: Option<Timestamp>,
        /// The recorded input, for people; it is not compared on replay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => input: Option<Payload>,
    }

    pub struct TaskScheduled {
        1 => call_id: CallId,
        2 => kind: Name,
        #[serde(default)]
        3 => input_hash: Hash,
        4 => input: Payload,
        #[serde(default)]
        5 => options: TaskOptions,
    }

    pub struct TaskCanceled { 1 => call_id: CallId }
    pub struct TimerStarted { 1 => call_id: CallId, 2 => due_at: Timestamp }

    pub struct SignalAwaited {
        1 => call_id: CallId,
        /// The name, or a pattern with `*`.
        2 => name: Name,
        3 => deadline: Option<Timestamp>,
        #[serde(default)]
        4 => is_pattern: bool,
    }

    pub struct SignalConsumed {
        1 => call_id: CallId,
        2 => name: Name,
        /// The index of the `signal_received` (or of the `run_started` that carried the signal over).
        3 => index: Index,
    }

    pub struct ApprovalRequested {
        1 => call_id: CallId,
        2 => name: Name,
        3 => title: String,
        4 => description: Option<String>,
        5 => show: Option<Payload>,
        #[serde(default)]
        6 => deciders: Vec<String>,
        7 => deadline: Option<Timestamp>,
        /// A hash of data beyond `show` that the decision is bound to: a request with another hash is another request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => bound_to: Option<Hash>,
        /// The requester of the run may not decide.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        9 => not_by_requester: bool,
        /// The JSON schema of the answer that an approving decision needs; `None` if it needs none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        10 => answer_schema: Option<Payload>,
    }

    pub struct PromiseCreated { 1 => call_id: CallId, 2 => name: Name, 3 => deadline: Option<Timestamp> }

    /// The code no longer waits for this timer, signal, approval or promise.
    pub struct WaitCanceled { 1 => call_id: CallId }

    pub struct StateSet { 1 => call_id: CallId, 2 => key: Name, 3 => value: Payload }
    pub struct StateCleared { 1 => call_id: CallId, 2 => key: Name }

    pub struct ChildStarted {
        1 => call_id: CallId,
        2 => child: RunId,
        3 => kind: Name,
        4 => version: Option<Name>,
        #[serde(default)]
        5 => input_hash: Hash,
        6 => input: Payload,
        #[serde(default = "cancel_child")]
        7 => on_parent_close: OnParentClose,
        /// The child's share of the parent's budget: at most what is left when it is started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => budget: Option<Budget>,
        /// The child belongs to the run and not to this generation; no call waits for it here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        9 => is_spawned: bool,
        /// The child begins when this queue lets it in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        20 => queue: Option<Box<RunQueue>>,
    }

    /// A call that waits for the end of a child spawned here or in an earlier generation.
    pub struct ChildAwaited { 1 => call_id: CallId, 2 => child: RunId }

    pub struct ChildCanceled { 1 => call_id: CallId, 2 => child: RunId }
    pub struct SignalSent { 1 => call_id: CallId, 2 => to: RunId, 3 => name: Name, 4 => payload: Payload }
    pub struct VersionChosen { 1 => change: Name, 2 => version: u32 }
    pub struct UpdateAnswered { 1 => update_id: String, 2 => result: Result<Payload, Failure> }
}

numbered! {
    /// The reason for a commit without other events.
    pub enum SuspendReason {
        /// The code polled its mailbox; what it observed is durable before anything follows from it.
        0 => Polled / "polled",
        /// The code consumed inputs without making a call.
        1 => Settled / "settled",
        /// The code called continue as new, and inputs arrived before that was recorded. This commit has the calls up to then;
        /// the end follows in a later one, which carries the inputs.
        2 => Continuing / "continuing",
    }
}

message! {
    pub struct RunSuspended { 1 => reason: SuspendReason }

    pub struct RunCompleted {
        1 => output: Payload,
        /// The number of attempts of a standalone task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => attempts: Option<u32>,
    }

    pub struct RunFailed {
        1 => failure: Failure,
        /// The number of attempts of a standalone task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => attempts: Option<u32>,
    }

    pub struct RunCanceled { 1 => failure: Failure }

    /// The run continues with a fresh log, which carries the unconsumed signals.
    pub struct RunContinued {
        1 => input: Payload,
        /// The checkpoint of an agent: it closes the segment, and everything in it is final.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => checkpoint: Option<Box<Checkpoint>>,
    }

    /// Limits that the code sets; they lower the run's limits, except for granted ones (BG4).
    pub struct BudgetSet { 1 => call_id: CallId, 2 => budget: Budget }

    /// An attribute that the code set.
    pub struct AttributeSet {
        1 => call_id: CallId,
        2 => name: Name,
        /// `None` removes the attribute.
        3 => value: Option<AttributeValue>,
    }
}
