//! A worker's stream: runs and tasks down, commits and results up.
//!
//! Both sides send frames, in order; several may travel in one message. A frame with a `request` number is answered by the
//! [`Reply`] of that number, in any order. A worker that loses its connection comes back with the same id and says what it
//! holds; what the server still leases to it goes on, everything else is lost.
//!
//! Rules, which a worker in any language keeps:
//! - V1: after `hello` a worker sends nothing before `welcome`.
//! - V2: a server sends no run and no task beyond the worker's credit. Credit ends with its connection.
//! - V3: a commit is repeated with its `commit_id` until it is answered; the first answer comes back (L5).
//! - V4: after `run_lost` a worker sends nothing more about that epoch, and nothing it sends is taken.
//! - V5: inputs of a run come in the order of its log; a gap is read with `read_log`.
//! - V6: a worker that cannot know that it was heard for two thirds of its lease stops working on everything it holds (F13).
//! - V7: a worker leaves when it has reported every attempt that it began; the others are given back as not begun, and cost nothing.

use onward_core::event::RunPaused;
use onward_core::run::{Commit, Committed};
use onward_core::stream::Speech;
use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{Epoch, Failure, Index, Name, Payload, Record, RunHead, RunKey, WorkerId, choice, message};

use crate::Problem;

message! {
    /// Several frames of a worker, in order.
    pub struct WorkerFrames {
        1 => frames: Vec<WorkerFrame>,
    }
}

message! {
    /// Several frames of a server, in order.
    pub struct ServerFrames {
        1 => frames: Vec<ServerFrame>,
    }
}

choice! {
    /// What a worker says.
    pub enum WorkerFrame {
        /// The first frame of every connection.
        1 => Hello / "hello": Hello,
        /// How much more the worker can take.
        2 => Credit / "credit": Credit,
        3 => Commit / "commit": CommitRun,
        /// Gives a lease back.
        4 => Release / "release": ReleaseRun,
        /// Makes a run stand still, because its code cannot go on.
        5 => Pause / "pause": PauseRun,
        6 => ReadLog / "read_log": ReadLog,
        7 => Report / "report": ReportTask,
        /// The answer to a question about a run.
        8 => Answer / "answer": Answer,
        /// Something for whoever watches the run; not recorded.
        9 => Emit / "emit": Emit,
        /// The worker is alive. Any other frame says so too; this one also asks whether the server heard it.
        10 => Heartbeat / "heartbeat": Heartbeat,
        /// The worker goes. What it has not given back goes to others at once; answered when that is done.
        11 => Leave / "leave": Leave,
        /// What an attempt of a task says to whoever reads the stream of its run; not recorded.
        12 => Speak / "speak": Speech,
    }
}

choice! {
    /// What a server says.
    pub enum ServerFrame {
        1 => Welcome / "welcome": Welcome,
        /// A run to work on. Inputs that come later are pushed.
        2 => Run / "run": Run,
        3 => Input / "input": Input,
        /// The lease is gone: drop the run's memory.
        4 => RunLost / "run_lost": RunLost,
        5 => Task / "task": TaskOffer,
        /// The attempt is over: canceled, timed out, or given to another worker.
        6 => TaskOver / "task_over": TaskOver,
        /// Asks a run's code something; nothing is recorded.
        7 => Question / "question": Question,
        8 => Reply / "reply": Reply,
        /// The server goes away: come back after a moment.
        9 => Goodbye / "goodbye": Goodbye,
    }
}

message! {
    pub struct Hello {
        1 => protocol: u32,
        /// One life of a worker process; never used again.
        2 => worker: WorkerId,
        3 => kinds: Vec<KindOffer>,
        4 => task_kinds: Vec<Name>,
        /// The empty text is the default queue.
        5 => queues: Vec<String>,
        /// How many runs the worker holds at a time, whether they are busy or rest in its memory.
        6 => runs_max: u32,
        /// What the worker has from an earlier connection.
        7 => runs: Vec<HeldRun>,
        8 => tasks: Vec<HeldTask>,
        /// Name and version of the SDK, for people.
        9 => sdk: String,
        /// Counts the worker's connections from 1; a hello that was overtaken by a later one is refused. 0 does not count.
        11 => connection: u64,
        /// What the task kinds take and give, and which of them are internal; those that are not here have no schemas and are offered to
        /// callers.
        #[serde(default)]
        12 => task_schemas: Vec<TaskSchemas>,
        /// The limits that calls of task kinds share with others; a kind that is not here is held back with its own name.
        #[serde(default)]
        13 => task_limits: Vec<TaskLimit>,
    }
}

message! {
    /// A kind the worker has code for.
    pub struct KindOffer {
        1 => kind: Name,
        /// The empty text stands for runs without a version.
        2 => versions: Vec<String>,
        /// The version that new runs are pinned to.
        3 => current: Option<Name>,
        /// JSON schemas, as JSON: for the current version, and for runs without one.
        4 => input_schema: Option<Payload>,
        5 => output_schema: Option<Payload>,
        /// Those of other versions; versions that are not here have none.
        #[serde(default)]
        6 => version_schemas: Vec<VersionSchemas>,
        /// Callers may not start runs of this kind: other runs start them.
        #[serde(default)]
        7 => is_internal: bool,
    }
}

message! {
    pub struct VersionSchemas {
        1 => version: Name,
        2 => input_schema: Option<Payload>,
        3 => output_schema: Option<Payload>,
    }
}

message! {
    pub struct TaskSchemas {
        1 => kind: Name,
        2 => input_schema: Option<Payload>,
        3 => output_schema: Option<Payload>,
        /// Callers may not queue tasks of this kind: runs queue them. Kinds that begin with `llm.` or `tool.` are internal in any case.
        #[serde(default)]
        4 => is_internal: bool,
    }
}

message! {
    /// What the attempts of a kind use up together with those of others, the key of a provider for example.
    pub struct TaskLimit {
        1 => kind: Name,
        /// Any name that is the same wherever the limit is, and that nobody knows who does not share it; never the key itself.
        2 => limit: Name,
    }
}

message! {
    pub struct HeldRun {
        1 => run: RunKey,
        2 => generation: u32,
        3 => epoch: Epoch,
        /// The first event the worker has not seen.
        4 => next_index: Index,
    }
}

message! {
    pub struct HeldTask {
        1 => task: TaskId,
        2 => claim: u64,
    }
}

message! {
    pub struct Credit {
        1 => runs: u32,
        2 => tasks: u32,
    }
}

message! {
    pub struct CommitRun {
        1 => request: u64,
        2 => commit: Commit,
    }
}

message! {
    pub struct ReleaseRun {
        1 => request: u64,
        2 => run: RunKey,
        3 => epoch: Epoch,
    }
}

message! {
    pub struct PauseRun {
        1 => request: u64,
        2 => run: RunKey,
        3 => generation: u32,
        4 => epoch: Epoch,
        5 => report: RunPaused,
    }
}

message! {
    pub struct ReadLog {
        1 => request: u64,
        2 => run: RunKey,
        /// The current generation unless another is named.
        3 => generation: Option<u32>,
        4 => from: Index,
        5 => limit: u32,
    }
}

message! {
    pub struct ReportTask {
        1 => request: u64,
        2 => task: TaskId,
        3 => claim: u64,
        4 => report: TaskReport,
    }
}

message! {
    pub struct Answer {
        1 => question: u64,
        /// Absent when the code knows no such query.
        2 => answer: Option<Result<Payload, Failure>>,
        /// The worker could not ask the code: somebody else is asked.
        3 => is_passed_on: bool,
    }
}

message! {
    pub struct Emit {
        1 => run: RunKey,
        2 => name: String,
        3 => value: Payload,
    }
}

message! {
    pub struct Heartbeat {
        /// Answered with `done`, so that the worker knows that it was heard; 0 wants no answer.
        1 => request: u64,
    }
}

message! {
    pub struct Leave {
        1 => request: u64,
    }
}

message! {
    pub struct Welcome {
        1 => protocol: u32,
        /// How long the worker may be silent before its runs and tasks go to others.
        2 => lease_ms: u64,
        /// Version of the server, for people.
        3 => server: String,
        /// The largest payload that is taken; a worker that knows it fails the step and not the commit.
        4 => payload_bytes_max: Option<u64>,
    }
}

message! {
    pub struct Run {
        /// With the epoch to commit under.
        1 => head: RunHead,
        /// The whole log; absent when it is long, then `read_log` has it.
        2 => log: Option<Log>,
    }
}

message! {
    pub struct Log {
        1 => records: Vec<Record>,
        /// There was no room for all that was asked for: read on behind the last record.
        2 => more: bool,
    }
}

message! {
    pub struct Input {
        1 => run: RunKey,
        2 => epoch: Epoch,
        3 => record: Record,
    }
}

message! {
    pub struct RunLost {
        1 => run: RunKey,
        2 => epoch: Epoch,
    }
}

message! {
    pub struct TaskOffer {
        1 => task: Task,
    }
}

message! {
    pub struct TaskOver {
        1 => task: TaskId,
        2 => claim: u64,
    }
}

message! {
    pub struct Question {
        1 => question: u64,
        2 => run: RunKey,
        3 => name: Name,
        4 => input: Payload,
    }
}

message! {
    pub struct Reply {
        1 => request: u64,
        2 => said: Said,
    }
}

choice! {
    pub enum Said {
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
