//! The facts a log holds, in the past tense.
//!
//! Owns the event vocabulary, its numbers and its text form. An event is either an *input*, which came from outside
//! the code, or part of a *commit*, written by the one worker that holds the run's lease.
//!
//! Invariants:
//! - E1: an event number or field number is never reused (golden logs replay for ever).
//! - E2: every input that answers a call names the call's [`Place`].

mod agent;
mod checkpoint;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::agent::conversation::OutsideEntry;
use crate::log::codec::{DecodeError, Field, Message, Raw, Reader, put_nested};
use crate::log::external::ExternalAppended;
use crate::log::schema::{FieldLine, Proto, Schema};
use crate::run::Once;
pub use crate::run::ancestry::Origin;
pub use crate::run::attribute::{Attribute, AttributeValue};
use crate::spend::budget::{Budget, BudgetGone, BudgetHead, BudgetUse};
use crate::spend::{Spend, SpendTotals};
use crate::task::TaskOptions;
use crate::{Failure, Hash, Index, Name, Payload, Place, RunId, RunKey, Timestamp, message, numbered};
pub use agent::{CallAdopted, EntryAppended, Quote, SegmentAbandoned};
pub use checkpoint::{Checkpoint, EntryKey, Kept, Tally};

/// How an event holds what it says: itself, unless it would make every other event as large as it is.
macro_rules! held {
    ($name:ident) => {
        $name
    };
    ($name:ident $held:ty) => {
        $held
    };
}

macro_rules! events {
    ($($(#[$meta:meta])* $number:literal => $name:ident $(in $held:ty)? | $text:literal,)*) => {
        /// One fact in a log.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        pub enum Event { $($(#[$meta])* $name(held!($name $($held)?)),)* }

        impl Event {
            /// The event's name on every door.
            pub fn name(&self) -> &'static str {
                match self { $(Event::$name(_) => $text,)* }
            }

            fn lines(schema: &mut Schema) -> Vec<FieldLine> {
                vec![$(FieldLine { number: $number, name: $text, docs: &[], proto: $name::proto(schema) },)*]
            }

            pub fn encode(&self, out: &mut Vec<u8>) {
                match self { $(Event::$name(event) => put_nested($number, out, |out| event.encode_fields(out)),)* }
            }

            /// Reads one event; an unknown kind is an error, because what the log says may not be ignored.
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
                #[derive(Deserialize)]
                struct Tag<'a> { #[serde(borrow)] r#type: std::borrow::Cow<'a, str> }
                fn custom<E: serde::de::Error>(error: serde_json::Error) -> E {
                    E::custom(error)
                }
                // The raw text keeps payloads byte for byte, which a buffered tagged enum would not.
                let raw = Box::<RawValue>::deserialize(deserializer)?;
                let tag: Tag = serde_json::from_str(raw.get()).map_err(custom)?;
                match &*tag.r#type {
                    $($text => serde_json::from_str::<$name>(raw.get()).map(Event::from).map_err(custom),)*
                    other => Err(serde::de::Error::custom(format!("unknown event type `{other}`"))),
                }
            }
        }
    };
}

events! {
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
}

impl Field for Event {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_nested(number, out, |out| Event::encode(self, out));
    }
    fn decode(raw: Raw<'_>) -> Result<Event, DecodeError> {
        Event::decode(raw.bytes("event")?)
    }
    fn proto(schema: &mut Schema) -> Proto {
        schema.one_of("Event", &["doc = \"One fact in a log.\""], "event", Event::lines)
    }
}

impl Event {
    /// The place of the call that an event of a commit is about; none for inputs, and for what is no call's.
    pub fn place(&self) -> Option<&Place> {
        use Event::*;
        Some(match self {
            StepCompleted(event) => &event.place,
            StepFailed(event) => &event.place,
            TaskScheduled(event) => &event.place,
            TaskCanceled(event) => &event.place,
            TimerStarted(event) => &event.place,
            SignalAwaited(event) => &event.place,
            SignalConsumed(event) => &event.place,
            ApprovalRequested(event) => &event.place,
            PromiseCreated(event) => &event.place,
            WaitCanceled(event) => &event.place,
            StateSet(event) => &event.place,
            StateCleared(event) => &event.place,
            ChildStarted(event) => &event.place,
            ChildAwaited(event) => &event.place,
            ChildCanceled(event) => &event.place,
            SignalSent(event) => &event.place,
            EntryAppended(event) => &event.place,
            CallAdopted(event) => &event.place,
            BudgetSet(event) => &event.place,
            AttributeSet(event) => &event.place,
            _ => return None,
        })
    }

    /// Whether the event came from outside the code.
    pub fn is_input(&self) -> bool {
        use Event::*;
        matches!(
            self,
            RunStarted(_)
                | SignalReceived(_)
                | ApprovalDecided(_)
                | PromiseResolved(_)
                | UpdateReceived(_)
                | TaskCompleted(_)
                | TaskFailed(_)
                | TimerFired(_)
                | ChildCompleted(_)
                | ChildFailed(_)
                | CancelRequested(_)
                | TerminateRequested(_)
                | RunPaused(_)
                | RunResumed(_)
                | RetryRequested(_)
                | RunForked(_)
                | ResultRequested(_)
                | BranchRequested(_)
                | TaskAttempted(_)
                | TaskAttemptEnded(_)
                | ChildSettled(_)
                | ExternalAppended(_)
        )
    }

    /// Whether the event is kept for the books alone: nobody waits for it, and the code learns nothing by it.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Event::TaskAttempted(_) | Event::TaskAttemptEnded(_) | Event::ChildSettled(_))
    }

    /// Whether the event reports what a step did; every other event of a commit is something the code asked for.
    pub fn is_step_result(&self) -> bool {
        matches!(self, Event::StepCompleted(_) | Event::StepFailed(_))
    }

    /// Whether the head of a run remembers what the event says, and not only that it came.
    pub fn is_kept_in_head(&self) -> bool {
        match self {
            Event::AttributeSet(_) | Event::ResultRequested(_) | Event::BudgetSet(_) | Event::BranchRequested(_) => true,
            // Which approvals are asked again, and whether a cost without a price was reported.
            Event::ApprovalDecided(_) | Event::RunPaused(_) => true,
            Event::RunResumed(event) => event.budget.is_some(),
            // A budget has slices out.
            Event::ChildStarted(_) | Event::ChildCompleted(_) | Event::ChildFailed(_) => true,
            _ => self.is_quiet(),
        }
    }

    /// The failure that the event tells, if it tells one.
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

    /// Whether nothing may follow this event in its log.
    pub fn ends_log(&self) -> bool {
        use Event::*;
        matches!(self, RunCompleted(_) | RunFailed(_) | RunCanceled(_) | RunContinued(_) | TerminateRequested(_))
    }
}

message! {
    /// The call of the parent that a child run answers.
    pub struct ParentLink {
        1 => run: RunKey,
        2 => generation: u32,
        3 => place: Place,
        4 => on_parent_close: OnParentClose,
        /// Which life of the parent made the call (see [`crate::RunHead::life`]); unknown in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => life: Option<u64>,
        /// The child belongs to the run and not to one of its generations; whoever wants its result asks for it ([`ChildAwaited`]).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        9 => is_spawned: bool,
    }
}

impl ParentLink {
    /// Whether both are one call: the child of an earlier run under the parent's id is not this one's (R10).
    pub fn is_same_call(&self, other: &ParentLink) -> bool {
        (&self.run, self.generation, &self.place) == (&other.run, other.generation, &other.place)
            && is_same_life(self.life, other.life)
    }
}

/// Whether two runs of one id may be one: older logs do not say.
pub(crate) fn is_same_life(one: Option<u64>, other: Option<u64>) -> bool {
    one.is_none() || other.is_none() || one == other
}

numbered! {
    /// What happens to a child when its parent ends first.
    pub enum OnParentClose {
        /// The child is asked to stop and may compensate.
        0 => Cancel,
        /// The child ends at once.
        1 => Terminate,
        /// The child goes on by itself.
        2 => Abandon,
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
}

message! {
    pub struct RunStarted {
        1 => kind: Name,
        /// The version of the code the run is pinned to; `None` where the kind has no versions.
        2 => version: Option<Name>,
        3 => input: Payload,
        /// Where `uuid()` and `random()` derive from.
        4 => seed: u64,
        5 => parent: Option<ParentLink>,
        /// How often the run has continued as new.
        6 => generation: u32,
        7 => mailbox: Vec<CarriedSignal>,
        /// Why the run is to stop, when the generation before was asked to and its code had not seen it when it continued as new.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => cancel_reason: Option<String>,
        /// Whose log this one goes on from, earliest first; none for a run that began with its own log (see [`crate::run::ancestry`]).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        9 => origins: Vec<Origin>,
        /// What the run is found by, as it was started.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        10 => attributes: Vec<Attribute>,
        /// The run is a standalone task: no code of a workflow, but this one task, whose end is the run's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        11 => task: Option<StandaloneTask>,
        /// An outside engine keeps its log here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        12 => is_external: bool,
        /// The trace that whoever started the run stood in, as a `traceparent`; only in the first generation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        13 => trace: Option<String>,
        /// The updates that nobody had answered when the generation before continued as new, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        14 => updates: Vec<UpdateReceived>,
        /// Where the code of an agent goes on: what the segment before was closed with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        15 => checkpoint: Option<Box<Checkpoint>>,
        /// What the generations before have cost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        16 => spend: Option<Box<SpendTotals>>,
        /// What the run may spend; from the second generation on, with what is gone of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        17 => budget: Option<Box<BudgetHead>>,
        /// What the run was started as, where it was handed over to another kind since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        24 => first_kind: Option<Name>,
        /// How many runs are above this one: its parent, whose child that is, and so on. None if nobody's code has started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        25 => nesting: Option<u32>,
        /// The seed of the run's first generation, where this is a later one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        26 => first_seed: Option<u64>,
        /// When the first generation began; only in later ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        27 => created_at: Option<Timestamp>,
        /// The log up to this event was imported and asks for calls of tools: a copy of it makes none of those (U7).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        28 => imported_until: Option<Index>,
        /// Who has started the run, or the run above it: the name of a credential.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        29 => requester: Option<String>,
    }
}

impl RunStarted {
    /// A run by itself: the first generation, without a version, a parent or anything it was handed over.
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
        }
    }

    /// The seed of the run's first generation, if it is known: older logs of later ones do not say.
    pub fn origin_seed(&self) -> Option<u64> {
        self.first_seed.or((self.generation == 0).then_some(self.seed))
    }
}

message! {
    /// What a standalone task is besides its input.
    pub struct StandaloneTask {
        1 => kind: Name,
        2 => options: TaskOptions,
    }
}

message! {
    pub struct SignalReceived {
        1 => name: Name,
        2 => payload: Payload,
        3 => signal_id: Option<String>,
        4 => sender: Option<RunKey>,
    }
}

message! {
    pub struct ApprovalDecided {
        1 => place: Place,
        2 => approved: bool,
        3 => feedback: Option<String>,
        4 => decided_by: Option<String>,
        5 => decision_id: String,
    }
}

message! {
    pub struct PromiseResolved {
        1 => place: Place,
        2 => result: Result<Payload, Failure>,
        3 => resolution_id: String,
    }
}

message! {
    pub struct UpdateReceived {
        1 => update_id: String,
        2 => name: Name,
        3 => payload: Payload,
    }
}

message! {
    pub struct TaskCompleted {
        1 => place: Place,
        2 => output: Payload,
        3 => attempts: u32,
    }
}

message! {
    pub struct TaskFailed {
        1 => place: Place,
        2 => failure: Failure,
        3 => attempts: u32,
    }
}

message! {
    /// An attempt of a task is about to begin: recorded before anybody works on it.
    pub struct TaskAttempted {
        1 => place: Place,
        2 => attempt: u32,
        /// The name under which the ledger has it as unknown, until it says what it cost; nothing for tasks that cost nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => stands_as: Option<String>,
        /// When it was handed out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => began_at: Option<Timestamp>,
    }
}

message! {
    /// What an attempt of a task has cost: in one record with the outcome of its task, or by itself where there is none, or none any more.
    pub struct TaskAttemptEnded {
        1 => place: Place,
        /// Of the task: it may be an earlier one than the log's.
        2 => generation: u32,
        3 => attempt: u32,
        /// Which claim of the task it was: an attempt whose worker was lost is made again.
        4 => claim: u64,
        5 => began_at: Timestamp,
        /// The name under which the ledger had it as unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => stands_as: Option<String>,
        /// Why it did not succeed, where its worker knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        7 => failure_code: Option<String>,
        /// One line for each model; none if the attempt was given back before it began.
        8 => spend: Vec<Spend>,
    }
}

message! {
    pub struct TimerFired {
        1 => place: Place,
    }
}

message! {
    pub struct ChildCompleted {
        1 => place: Place,
        2 => output: Payload,
        /// Which child, where the call only asked for the result of one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => child: Option<RunId>,
        /// What it has spent, with its children, if it had a budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => spent: Option<BudgetUse>,
    }
}

message! {
    pub struct ChildFailed {
        1 => place: Place,
        2 => failure: Failure,
        /// Which child, where the call only asked for the result of one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => child: Option<RunId>,
        /// What it has spent, with its children, if it had a budget.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => spent: Option<BudgetUse>,
    }
}

message! {
    pub struct CancelRequested {
        1 => reason: String,
    }
}

message! {
    pub struct TerminateRequested {
        1 => reason: String,
        /// The run that goes on in the place of this one, from an earlier point.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => reset_to: Option<RunId>,
    }
}

message! {
    /// A child that is started again in the place of the one that the log names.
    pub struct ChildAgain {
        1 => place: Place,
        2 => child: RunId,
        /// What it may spend of what its parent may.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => budget: Option<Budget>,
    }
}

message! {
    /// The run failed, and somebody wants it to go on from there: the failures that ended it are set aside (see [`crate::run::reopen`]).
    pub struct RetryRequested {
        /// The same id again is the same request.
        1 => request_id: String,
        2 => reason: String,
        3 => children: Vec<ChildAgain>,
        /// What the run had cost by then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        4 => spend: Option<Box<SpendTotals>>,
        /// What whoever asked may let a run spend; the run goes on with the lower limits (BG8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => budget_max: Option<Budget>,
    }
}

message! {
    /// This run goes on from a copy of another one's log; what comes before this event is the copy.
    pub struct RunForked {
        1 => from: RunKey,
        2 => generation: u32,
        /// The last event that was copied.
        3 => index: Index,
        /// The other run was ended for this one.
        4 => is_reset: bool,
        5 => request_id: String,
        6 => reason: String,
        7 => children: Vec<ChildAgain>,
        /// What was gone of the budget where the copy ends; nothing if there was none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => gone: Option<BudgetGone>,
        /// What whoever asked may let a run spend; the run goes on with the lower limits (BG8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        9 => budget_max: Option<Budget>,
    }
}

message! {
    /// A spawned child has ended. Who wants its result asks for it; this only says what it has spent of what it was given.
    pub struct ChildSettled {
        1 => child: RunId,
        2 => spent: BudgetUse,
    }
}

impl ChildSettled {
    pub fn once(&self) -> Once {
        Once::new(format!("settled:{}", self.child))
    }
}

message! {
    /// Another run goes on from a copy of the parent's log and wants to hear how this child ends, too.
    pub struct ResultRequested {
        1 => by: ParentLink,
    }
}

message! {
    /// Somebody goes on from an earlier entry of an agent's conversation: the open segment is left, and the agent resumes from a checkpoint
    /// before it.
    pub struct BranchRequested {
        /// The entry behind which the conversation goes on; `None` is its beginning.
        1 => from: Option<Hash>,
        /// How many entries the conversation has up to there.
        2 => depth: u64,
        /// What is said there at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        3 => entry: Option<OutsideEntry>,
        /// The last one whose leaf is on the way to `from`.
        4 => checkpoint: Box<Checkpoint>,
        /// What the generation that began with the checkpoint was given.
        5 => input: Payload,
        /// The same id again is the same request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        6 => request_id: Option<String>,
    }
}

numbered! {
    /// Why a run stands still until somebody resumes it.
    pub enum PauseReason {
        /// Somebody asked for it.
        0 => Requested,
        /// The code asked for something the log does not say.
        1 => Diverged,
        /// The code panicked, awaited something foreign, or could not be started.
        2 => ActivationFailed,
        /// The recorded version of a change is below what the code still supports.
        3 => VersionTooOld,
        /// An agent's code left one way of going on after the other, and the limit is reached.
        4 => UnstableSegment,
        /// An agent's code has left something behind that has had an effect, and wants to go on without it.
        5 => EffectAbandoned,
        /// What the run may spend is spent, and it wanted to spend more.
        6 => BudgetExhausted,
        /// An agent has recorded more since its last checkpoint than it may.
        7 => SegmentTooLong,
        /// The run goes on from a copy, and what was approved in it is asked again.
        8 => ApprovalNeeded,
    }
}

message! {
    /// Where code and log disagree, for a person to read.
    pub struct Divergence {
        /// The event the code did not ask for, or the place it would have taken.
        1 => index: Index,
        2 => recorded: String,
        3 => asked: String,
        /// The last call on which both agreed.
        4 => nearest: Option<String>,
        5 => hint: String,
    }
}

message! {
    pub struct RunPaused {
        1 => reason: PauseReason,
        2 => message: String,
        3 => divergence: Option<Divergence>,
        /// What the code of an agent has left, as it is named in the message: whoever resumes the run accepts this and nothing else.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        4 => left: Vec<Place>,
        /// Approvals that are asked again: the run is not resumed before each of them was given (Z8).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        5 => asks: Vec<Place>,
    }
}

impl RunPaused {
    /// A pause with nothing to say but why.
    pub fn because(reason: PauseReason, message: impl Into<String>) -> RunPaused {
        RunPaused { reason, message: message.into(), divergence: None, left: Vec::new(), asks: Vec::new() }
    }
}

message! {
    #[derive(Default)]
    pub struct RunResumed {
        /// Limits in the place of those that there were.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        1 => budget: Option<Budget>,
    }
}

message! {
    pub struct StepCompleted {
        1 => place: Place,
        2 => name: Name,
        3 => input_hash: Option<Hash>,
        4 => output: Payload,
        5 => attempt: u32,
        6 => took_ms: u64,
    }
}

message! {
    pub struct StepFailed {
        1 => place: Place,
        2 => name: Name,
        3 => input_hash: Option<Hash>,
        4 => failure: Failure,
        5 => attempt: u32,
        6 => took_ms: u64,
        /// When the next attempt is due; `None` makes the failure final.
        7 => retry_at: Option<Timestamp>,
    }
}

message! {
    pub struct TaskScheduled {
        1 => place: Place,
        2 => kind: Name,
        3 => input_hash: Hash,
        4 => input: Payload,
        5 => options: TaskOptions,
    }
}

message! {
    pub struct TaskCanceled {
        1 => place: Place,
    }
}

message! {
    pub struct TimerStarted {
        1 => place: Place,
        2 => due_at: Timestamp,
    }
}

message! {
    pub struct SignalAwaited {
        1 => place: Place,
        /// The name, or a pattern with `*`.
        2 => name: Name,
        3 => deadline: Option<Timestamp>,
        4 => is_pattern: bool,
    }
}

message! {
    pub struct SignalConsumed {
        1 => place: Place,
        2 => name: Name,
        /// The index of the `signal_received` (or of the `run_started` that carried the signal over).
        3 => index: Index,
    }
}

message! {
    pub struct ApprovalRequested {
        1 => place: Place,
        2 => name: Name,
        3 => title: String,
        4 => description: Option<String>,
        5 => show: Option<Payload>,
        6 => deciders: Vec<String>,
        7 => deadline: Option<Timestamp>,
        /// Hash of what the decision is bound to beyond what is shown: a question with another hash is another question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => bound_to: Option<Hash>,
        /// Whether the requester of the run may not decide it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        9 => not_by_requester: bool,
    }
}

message! {
    pub struct PromiseCreated {
        1 => place: Place,
        2 => name: Name,
        3 => deadline: Option<Timestamp>,
    }
}

message! {
    /// The code gave up waiting: a timer, signal, approval or promise it no longer looks at.
    pub struct WaitCanceled {
        1 => place: Place,
    }
}

message! {
    pub struct StateSet {
        1 => place: Place,
        2 => key: Name,
        3 => value: Payload,
    }
}

message! {
    pub struct StateCleared {
        1 => place: Place,
        2 => key: Name,
    }
}

message! {
    pub struct ChildStarted {
        1 => place: Place,
        2 => child: RunId,
        3 => kind: Name,
        4 => version: Option<Name>,
        5 => input_hash: Hash,
        6 => input: Payload,
        7 => on_parent_close: OnParentClose,
        /// What the child may spend of what its parent may: no more than there is when it is started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        8 => budget: Option<Budget>,
        /// The child belongs to the run and not to this generation of it; nothing waits for it here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        9 => is_spawned: bool,
    }
}

message! {
    /// The code wants to know how a child ends that was spawned here or in an earlier generation.
    pub struct ChildAwaited {
        1 => place: Place,
        2 => child: RunId,
    }
}

message! {
    pub struct ChildCanceled {
        1 => place: Place,
        2 => child: RunId,
    }
}

message! {
    pub struct SignalSent {
        1 => place: Place,
        2 => to: RunId,
        3 => name: Name,
        4 => payload: Payload,
    }
}

message! {
    pub struct VersionChosen {
        1 => change: Name,
        2 => version: u32,
    }
}

message! {
    pub struct UpdateAnswered {
        1 => update_id: String,
        2 => result: Result<Payload, Failure>,
    }
}

numbered! {
    /// Why a commit has no event of its own.
    pub enum SuspendReason {
        /// The code looked into its mailbox; what it saw is durable before anything follows from it.
        0 => Polled,
        /// The code took note of inputs without asking for anything.
        1 => Settled,
        /// The code has asked to continue as new, and inputs came before that was recorded. What it saw and asked for until then stands
        /// in this commit; the end follows in a later one, which takes the inputs along.
        2 => Continuing,
    }
}

message! {
    pub struct RunSuspended {
        1 => reason: SuspendReason,
    }
}

message! {
    pub struct RunCompleted {
        1 => output: Payload,
        /// Of a standalone task: how many attempts it took.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => attempts: Option<u32>,
    }
}

message! {
    pub struct RunFailed {
        1 => failure: Failure,
        /// Of a standalone task: how many attempts were made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => attempts: Option<u32>,
    }
}

message! {
    pub struct RunCanceled {
        1 => failure: Failure,
    }
}

message! {
    /// The run goes on with a fresh log; the signals it had not consumed go with it.
    pub struct RunContinued {
        1 => input: Payload,
        /// Of an agent: the segment is closed with this, and everything in it is final.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => checkpoint: Option<Box<Checkpoint>>,
    }
}

message! {
    /// What the run may spend where nobody has said it: of no account for a run that has a budget.
    pub struct BudgetSet {
        1 => place: Place,
        2 => budget: Budget,
    }
}

message! {
    /// What the run is found by, as of now.
    pub struct AttributeSet {
        1 => place: Place,
        2 => name: Name,
        /// `None` takes the attribute away.
        3 => value: Option<AttributeValue>,
    }
}
