//! A worker's stream: runs and tasks down, commits and results up.
//!
//! Both sides send frames, in order; one message may contain several. A frame with a `request` number is answered by the
//! [`Reply`] with that number; replies come in any order. A worker that loses its connection reconnects with the same id and
//! lists what it holds; what the server still leases to it continues, everything else is lost.
//!
//! Rules for workers in any language:
//! - V1: after `hello` a worker sends nothing before `welcome`.
//! - V2: a server sends no run and no task beyond the worker's credit. Credit ends with its connection.
//! - V3: a commit is repeated with its `commit_id` until it is answered; a repeat returns the first reply (L5).
//! - V4: after `run_lost` a worker sends nothing more for that epoch, and the server accepts nothing for it.
//! - V5: inputs of a run come in the order of its log; a gap is read with `read_log`.
//! - V6: a worker without a reply of the server for two thirds of its lease stops everything it holds (F13).
//! - V7: an attempt that a worker has received and not reported counts as begun, whatever ends the worker's session. Only
//!   offers after [`Received::offer`] of its hello or leave, and those that the server never sent, are known not to have
//!   started.

use onward_core::event::RunPaused;
use onward_core::live::{Audience, StepsReport};
use onward_core::run::{Commit, Committed};
use onward_core::stream::TaskFrames;
use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{
    Epoch, Failure, Index, KindDefaults, Name, NamedSchema, Payload, Record, RunHead, RunKey, WorkerId, choice, message,
};

use crate::Problem;

message! {
    /// Several frames of a worker, in order.
    pub struct WorkerFrames { 1 => frames: Vec<WorkerFrame> }

    /// Several frames of a server, in order.
    pub struct ServerFrames { 1 => frames: Vec<ServerFrame> }
}

choice! {
    /// A frame of a worker.
    pub enum WorkerFrame {
        /// The first frame of every connection.
        1 => Hello / "hello": Hello,
        /// Capacity for more runs and tasks.
        2 => Credit / "credit": Credit,
        3 => Commit / "commit": CommitRun,
        /// Returns a lease.
        4 => Release / "release": ReleaseRun,
        /// Pauses a run whose code cannot continue.
        5 => Pause / "pause": PauseRun,
        6 => ReadLog / "read_log": ReadLog,
        7 => Report / "report": ReportTask,
        /// The answer to a question.
        8 => Answer / "answer": AnswerQuery,
        /// A value for the listeners of a run; not recorded.
        9 => Emit / "emit": Emit,
        /// A sign of life. Any other frame counts as one too; this one also has a reply.
        10 => Heartbeat / "heartbeat": Heartbeat,
        /// The worker leaves. The server gives what it has not returned to other workers at once, then replies.
        11 => Leave / "leave": Leave,
        /// Output of an attempt for readers of the stream of its run; not recorded.
        12 => TaskFrames / "task_frames": TaskFrames,
        /// The steps of a watched run; not recorded.
        13 => Steps / "steps": StepsReport,
    }
}

choice! {
    /// A frame of a server.
    pub enum ServerFrame {
        1 => Welcome / "welcome": Welcome,
        /// A run to execute. Later inputs are pushed.
        2 => Run / "run": Run,
        3 => Input / "input": Input,
        /// The lease is lost: drop the run's memory.
        4 => RunLost / "run_lost": RunLost,
        5 => Task / "task": TaskOffer,
        /// The attempt has ended: canceled, timed out, or claimed by another worker.
        6 => TaskOver / "task_over": TaskOver,
        /// A query to a run's code; not recorded.
        7 => Question / "question": Question,
        8 => Reply / "reply": Reply,
        /// The server stops: reconnect after a moment.
        9 => Goodbye / "goodbye": Goodbye,
        /// Readers of a run exist or are gone; only for workers that report steps.
        10 => Watch / "watch": Watch,
    }
}

/// Returns the JSON default of queues (the default queue) and of versions (runs without a version).
fn unnamed() -> Vec<String> {
    vec![String::new()]
}

/// Returns the JSON default of a page size: as much as the server sends at a time.
fn no_limit() -> u32 {
    u32::MAX
}

message! {
    pub struct Hello {
        1 => protocol: u32,
        /// Id of one worker process; never reused.
        2 => worker: WorkerId,
        #[serde(default)]
        3 => kinds: Vec<KindOffer>,
        #[serde(default)]
        4 => task_kinds: Vec<Name>,
        /// The empty text is the default queue.
        #[serde(default = "unnamed")]
        5 => queues: Vec<String>,
        /// Maximum number of runs that the worker holds, executing or cached.
        #[serde(default)]
        6 => runs_max: u32,
        /// The runs and tasks that the worker holds from an earlier connection.
        #[serde(default)]
        7 => runs: Vec<HeldRun>,
        #[serde(default)]
        8 => tasks: Vec<HeldTask>,
        /// Name and version of the SDK, for people.
        #[serde(default)]
        9 => sdk: String,
        /// Number of the connection, from 1; a hello that arrives after a later one is refused. 0 is not checked.
        #[serde(default)]
        11 => connection: u64,
        /// Schemas of the task kinds, and which of them are internal; a kind that is not listed has no schemas and can be
        /// started by callers.
        #[serde(default)]
        12 => task_schemas: Vec<TaskSchemas>,
        /// The rate-limited keys that task kinds use; a kind that is not listed is limited by its own name.
        #[serde(default)]
        13 => task_limits: Vec<TaskLimit>,
        /// The task offers that have arrived; absent on the first connection.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        14 => received: Option<Received>,
        /// The worker answers `watch` with the steps under way, and then reports each step that starts while the run is watched.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        15 => reports_steps: bool,
        /// The claims that the worker dropped since the last welcome because no server answered: it is alive.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        16 => dropped: Vec<DroppedRun>,
    }

    /// A run that a worker stopped when its lease was about to end.
    pub struct DroppedRun { 1 => run: RunKey, 2 => epoch: Epoch }

    /// The task offers that have arrived at the worker. It starts none that arrives later on an earlier connection (V7).
    pub struct Received {
        /// From the latest `welcome`.
        1 => session: u64,
        /// The highest number of an offer that arrived in this session.
        2 => offer: u64,
    }

    /// A kind that the worker has code for.
    pub struct KindOffer {
        1 => kind: Name,
        /// The empty text stands for runs without a version.
        #[serde(default = "unnamed")]
        2 => versions: Vec<String>,
        /// The version that new runs are pinned to.
        3 => current: Option<Name>,
        /// JSON schemas, as JSON: for the current version, and for runs without one.
        4 => input_schema: Option<Payload>,
        5 => output_schema: Option<Payload>,
        /// Schemas of other versions; a version that is not listed has none.
        #[serde(default)]
        6 => version_schemas: Vec<VersionSchemas>,
        /// Only other runs may start runs of this kind, not callers.
        #[serde(default)]
        7 => is_internal: bool,
        /// Options of its calls that a call does not set itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        20 => defaults: Option<Box<KindDefaults>>,
        /// Schemas of the signals and updates that callers send to its runs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        21 => signals: Vec<NamedSchema>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        22 => updates: Vec<NamedSchema>,
        /// Schemas of the answers of its updates; the worker compares them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        23 => update_answers: Vec<NamedSchema>,
    }

    pub struct VersionSchemas {
        1 => version: Name,
        2 => input_schema: Option<Payload>,
        3 => output_schema: Option<Payload>,
        /// Options of its calls that a call does not set itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        20 => defaults: Option<Box<KindDefaults>>,
        /// Schemas of the signals and updates that callers send to its runs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        21 => signals: Vec<NamedSchema>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        22 => updates: Vec<NamedSchema>,
        /// Schemas of the answers of its updates; the worker compares them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        23 => update_answers: Vec<NamedSchema>,
    }

    pub struct TaskSchemas {
        1 => kind: Name,
        2 => input_schema: Option<Payload>,
        3 => output_schema: Option<Payload>,
        /// Only runs may queue tasks of this kind, not callers. Kinds that begin with `llm.` or `tool.` are always internal.
        #[serde(default)]
        4 => is_internal: bool,
        /// Options of its calls that a call does not set itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        20 => defaults: Option<Box<KindDefaults>>,
    }

    /// A rate limit that attempts of a kind share with others, such as that of a provider's key.
    pub struct TaskLimit {
        1 => kind: Name,
        /// A name that is the same for all who share the limit and unknown to all others; never the key itself.
        2 => limit: Name,
    }

    pub struct HeldRun {
        1 => run: RunKey,
        2 => generation: u32,
        3 => epoch: Epoch,
        /// The first event that the worker has not seen.
        4 => next_index: Index,
    }

    pub struct HeldTask { 1 => task: TaskId, 2 => claim: u64 }

    #[serde(default)]
    #[derive(Default)]
    pub struct Credit { 1 => runs: u32, 2 => tasks: u32 }

    pub struct CommitRun { 1 => request: u64, 2 => commit: Commit }
    pub struct ReleaseRun { 1 => request: u64, 2 => run: RunKey, 3 => epoch: Epoch }
    pub struct PauseRun { 1 => request: u64, 2 => run: RunKey, 3 => generation: u32, 4 => epoch: Epoch, 5 => report: RunPaused }

    pub struct ReadLog {
        1 => request: u64,
        2 => run: RunKey,
        /// The current generation if absent.
        3 => generation: Option<u32>,
        #[serde(default)]
        4 => from: Index,
        #[serde(default = "no_limit")]
        5 => limit: u32,
    }

    pub struct ReportTask { 1 => request: u64, 2 => task: TaskId, 3 => claim: u64, 4 => report: TaskReport }

    pub struct AnswerQuery {
        1 => question: u64,
        /// Absent if the code has no such query.
        2 => answer: Option<Result<Payload, Failure>>,
        /// The worker could not query the code: the server retries elsewhere.
        #[serde(default)]
        3 => is_passed_on: bool,
    }

    pub struct Emit {
        1 => run: RunKey,
        2 => name: String,
        3 => value: Payload,
        #[serde(default, skip_serializing_if = "Audience::is_public")]
        4 => audience: Audience,
        /// Free data about the value; a JSON object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        5 => meta: Option<Payload>,
    }

    pub struct Heartbeat {
        /// Answered with `done`, so that the worker knows that it arrived; 0 requests no reply.
        #[serde(default)]
        1 => request: u64,
    }

    pub struct Leave {
        1 => request: u64,
        /// The task offers that have arrived; the worker starts none that arrives later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        2 => received: Option<Received>,
    }

    pub struct Welcome {
        1 => protocol: u32,
        /// The lease duration: the runs and tasks of a worker that is silent for longer go to other workers.
        2 => lease_ms: u64,
        /// Version of the server, for people.
        3 => server: String,
        /// Maximum size of a payload; a worker that knows it fails the step instead of the commit.
        4 => payload_bytes_max: Option<u64>,
        /// The session of the worker, for [`Received`].
        #[serde(default)]
        5 => session: u64,
    }

    pub struct Run {
        /// With the epoch for commits.
        1 => head: RunHead,
        /// The whole log; absent if it is long, then use `read_log`.
        2 => log: Option<Log>,
    }

    pub struct Log {
        1 => records: Vec<Record>,
        /// Not all requested records fit: read on after the last one.
        2 => more: bool,
    }

    pub struct Watch { 1 => run: RunKey, 2 => on: bool }
    pub struct Input { 1 => run: RunKey, 2 => epoch: Epoch, 3 => record: Record }
    pub struct RunLost { 1 => run: RunKey, 2 => epoch: Epoch }

    pub struct TaskOffer {
        1 => task: Task,
        /// Number of the offer in the session, from 1.
        #[serde(default)]
        2 => number: u64,
    }

    pub struct TaskOver { 1 => task: TaskId, 2 => claim: u64 }
    pub struct Question { 1 => question: u64, 2 => run: RunKey, 3 => name: Name, 4 => input: Payload }
    pub struct Reply { 1 => request: u64, 2 => outcome: ReplyOutcome }
}

choice! {
    pub enum ReplyOutcome {
        1 => Committed / "committed": Committed,
        2 => Done / "done": Done,
        3 => Log / "log": Log,
        4 => Problem / "problem": Problem,
    }
}

message! {
    pub struct Done {}
}

message! {
    pub struct Goodbye {}
}
