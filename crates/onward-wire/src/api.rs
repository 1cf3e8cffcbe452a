//! What callers ask about runs, one message per verb.

use onward_core::budget::Budget;
use onward_core::conversation::{Entry, PendingEntry};
use onward_core::ledger::{SpendBy, SpendRow};
use onward_core::run::Wait;
use onward_core::stream::StreamFrame;
use onward_core::task::{Task, TaskCount, TaskOptions};
use onward_core::{
    Attribute, AttributeMatch, Failure, Hash, Index, Name, Namespace, Payload, Record, RunHead, RunId, RunKey, Status, Timestamp,
    WorkerId, message,
};

use crate::Problem;
use crate::grpc::service;

service! {
    "Runs", methods {
        /// Starts a run, or finds it: the same id with the same kind and input is the same run.
        StartRun: StartRequest => StartReply,
        ReadRun: RunRequest => RunReply,
        /// Queues a task without a workflow, or finds it: the same id with the same kind and input is the same task.
        StartTask: StartTaskRequest => StartReply,
        ReadTask: RunRequest => TaskReply,
        /// Takes a standalone task back; it ends at once.
        CancelTask: ReasonRequest => AppendReply,
        /// Why a pending run is not being worked on.
        WhyPending: RunRequest => WhyPendingReply,
        /// Why tasks that a run waits for are not being worked on.
        ReadHindrances: RunRequest => HindrancesReply,
        ListDeleted: DeletedRequest => DeletedReply,
        ReadLog: LogRequest => LogReply,
        /// A page of the conversation of an agent.
        ReadEntries: EntriesRequest => EntriesReply,
        /// Appends an entry to the conversation of an agent, which takes it in when its next turn begins.
        AppendEntry: AppendEntryRequest => AppendEntryReply,
        /// Goes on from an earlier entry of the conversation of an agent: what follows it is left, and stays readable.
        BranchRun: BranchRunRequest => AppendReply,
        /// Puts a message into the mailbox of an agent: a signal, `message` unless it is named otherwise.
        SendMessage: MessageRequest => AppendReply,
        /// Keeps bytes that messages to agents name by their hash.
        PutAttachment: PutAttachmentRequest => PutAttachmentReply,
        /// Goes on with an agent that nobody works on, by a worker that has a connection. Of all who want to, one succeeds.
        ResumeAgent: ResumeAgentRequest => ResumeAgentReply,
        /// Waits until a run has grown or ended, or the time is over. Whoever waits for the ends of many uses AwaitEnds.
        WatchRun: WatchRequest => WatchReply,
        /// What is said about a run while it goes on, behind an offset; waits for more, for as long as the caller wants.
        ReadStream: StreamRequest => StreamReply,
        ListRuns: ListRequest => ListReply,
        /// How many open runs need which version of the code.
        ListVersions: VersionsRequest => VersionsReply,
        ReadSpend: SpendRequest => SpendReply,
        SignalRun: SignalRequest => AppendReply,
        CancelRun: ReasonRequest => AppendReply,
        TerminateRun: ReasonRequest => AppendReply,
        PauseRun: ReasonRequest => AppendReply,
        ResumeRun: ResumeRequest => AppendReply,
        /// Lets a failed run go on: what it failed over is done again.
        RetryRun: RetryRequest => ReopenReply,
        /// Begins a run that goes on from a point of this one's log.
        ForkRun: ForkRequest => ReopenReply,
        /// Like a fork, and ends the original.
        ResetRun: ForkRequest => ReopenReply,
        /// Does one batch of a verb for the runs that a filter finds: `cancel`, `terminate`, `pause`, `resume` or `retry`.
        BulkRuns: BulkRequest => BulkReply,
        /// Like that, for `delete`.
        BulkDelete: BulkRequest => BulkReply,
        /// Deletes a closed run with all its generations.
        DeleteRun: ReasonRequest => DoneReply,
        /// Asks a run for a change and waits for its recorded answer.
        UpdateRun: AskRequest => AnswerReply,
        /// Asks a run's code; nothing is recorded.
        QueryRun: AskRequest => AnswerReply,
        ListApprovals: WaitsRequest => WaitsReply,
        /// Gives one very run to a worker that has a connection, with what is brought to it; the run comes over the connection.
        DriveRun: DriveRequest => DriveReply,
        DecideApproval: DecideRequest => AppendReply,
        ResolvePromise: ResolveRequest => AppendReply,
        /// The workers of a namespace.
        ListWorkers: NamespaceRequest => WorkersReply,
        /// Tasks that worker after worker vanished over.
        ListQuarantined: WaitsRequest => TasksReply,
        /// Puts one of those back on its queue.
        RetryTask: TaskRequest => DoneReply,
        /// What waits in the queues of a namespace, and how many work on it.
        ListQueues: NamespaceRequest => QueuesReply,
    }
}

message! {
    pub struct StartRequest {
        1 => run: RunKey,
        2 => kind: Name,
        /// The version of the code the run is pinned to.
        3 => version: Option<Name>,
        4 => input: Payload,
        /// Where the run's chance derives from; any number.
        5 => seed: u64,
        /// Delivered with the start, in one write, also when the run exists already.
        6 => signal: Option<Signal>,
        /// The trace that the caller stands in, as a `traceparent`; otherwise the header of this name.
        7 => trace: Option<String>,
        /// What the run is found by.
        8 => attributes: Vec<Attribute>,
        /// What the run may spend, its children included.
        9 => budget: Option<Budget>,
    }
}

message! {
    pub struct ResumeRequest {
        1 => run: RunKey,
        /// Limits in the place of those that there were.
        2 => budget: Option<Budget>,
    }
}

message! {
    pub struct StartTaskRequest {
        /// The task's id is that of a run.
        1 => task: RunKey,
        2 => kind: Name,
        3 => input: Payload,
        4 => options: TaskOptions,
        /// The trace that the caller stands in, as a `traceparent`; otherwise the header of this name.
        5 => trace: Option<String>,
    }
}

message! {
    /// A standalone task as it stands.
    pub struct TaskReply {
        1 => head: RunHead,
        2 => kind: Name,
        3 => input: Payload,
        4 => options: TaskOptions,
        /// `queued`, `running`, `quarantined`, `completed`, `failed`, `canceled` or `terminated`.
        5 => state: String,
        6 => attempts: u32,
        7 => last_failure: Option<Failure>,
        8 => progress: Option<Payload>,
        9 => outcome: Option<Result<Payload, Failure>>,
    }
}

message! {
    pub struct Signal {
        1 => name: Name,
        2 => payload: Payload,
        /// The same id again is the same signal.
        3 => signal_id: Option<String>,
    }
}

message! {
    pub struct StartReply {
        /// False when the run existed already.
        1 => created: bool,
        2 => head: RunHead,
        3 => signal: Option<AppendReply>,
    }
}

message! {
    #[derive(Copy)]
    pub struct AppendReply {
        1 => index: Index,
        2 => at: Timestamp,
        /// The very same input was taken before; this is the first answer.
        3 => repeated: bool,
        /// The run was waiting and has something to do now.
        4 => woke: bool,
    }
}

message! {
    pub struct RunRequest {
        1 => run: RunKey,
    }
}

message! {
    pub struct RunReply {
        1 => head: RunHead,
    }
}

message! {
    pub struct WhyPendingReply {
        /// `no_compatible_worker` or `queued`; absent for a run that is not pending.
        1 => why: Option<String>,
    }
}

message! {
    pub struct HindrancesReply {
        1 => hindrances: Vec<HindranceLine>,
    }
}

message! {
    /// What keeps a task of a run from being worked on.
    pub struct HindranceLine {
        /// `RUN~GENERATION~PLACE`.
        1 => task: String,
        2 => kind: Name,
        /// `no_worker`, `limit_closed`, `quarantined` or `retries`.
        3 => why: String,
        /// Since when it is in quarantine.
        4 => since: Option<Timestamp>,
        /// When it goes on by itself.
        5 => until: Option<Timestamp>,
        /// How many workers in a row vanished over it.
        6 => lost_workers: u32,
        /// What its last attempt failed with.
        7 => failure_code: Option<String>,
    }
}

message! {
    pub struct DeletedRequest {
        1 => namespace: Namespace,
        2 => run: Option<RunKey>,
        3 => limit: u32,
        /// Whether a list without the runs of databases that are down will do.
        4 => partly: bool,
    }
}

message! {
    pub struct DeletedReply {
        1 => runs: Vec<Deleted>,
        /// The databases whose runs are missing, where that was allowed.
        2 => missing: Vec<String>,
    }
}

message! {
    /// What is left of a run that somebody deleted.
    pub struct Deleted {
        1 => run: RunKey,
        2 => kind: Name,
        3 => reason: String,
        4 => deleted_at: Timestamp,
    }
}

message! {
    pub struct LogRequest {
        1 => run: RunKey,
        /// The current generation unless another is named.
        2 => generation: Option<u32>,
        3 => from: Index,
        4 => limit: u32,
    }
}

message! {
    pub struct LogReply {
        1 => records: Vec<Record>,
        /// There was no room for all that was asked for: read on behind the last record.
        2 => more: bool,
    }
}

message! {
    pub struct EntriesRequest {
        1 => run: RunKey,
        /// The conversation that ends in this entry, by its id; the current one otherwise.
        2 => leaf: Option<String>,
        /// What the page behind said is before it: the page ends with that entry.
        3 => before: Option<String>,
        /// 0 means the server's default.
        4 => limit: u32,
    }
}

message! {
    pub struct EntriesReply {
        /// Oldest first.
        1 => entries: Vec<Entry>,
        /// What to ask for to read on; absent at the beginning of the conversation.
        2 => before: Option<String>,
        /// The last entry of the conversation.
        3 => leaf: Option<Hash>,
        /// How many entries the conversation has, where that is known.
        4 => depth: Option<u64>,
        /// What was appended from outside and is not in the conversation yet.
        5 => pending: Vec<PendingEntry>,
    }
}

message! {
    pub struct AppendEntryRequest {
        1 => run: RunKey,
        2 => role: Name,
        3 => content: Payload,
        /// The same key again is the same entry; with another role or content it is `entry_key_taken`.
        4 => idempotency_key: Option<String>,
        /// The caller has looked for the key in the conversation, which only it can read.
        5 => is_looked_up: bool,
    }
}

message! {
    pub struct AppendEntryReply {
        /// There was an entry under this key before, and it says the same.
        1 => already_existed: bool,
        /// The run was waiting and takes note of it.
        2 => woke: bool,
        /// The entry's id, where the code has taken it in already.
        3 => entry: Option<Hash>,
        /// Where it stands as an input.
        4 => index: Option<Index>,
        5 => at: Option<Timestamp>,
    }
}

message! {
    pub struct BranchRunRequest {
        1 => run: RunKey,
        /// The entry behind which the conversation goes on; without one it is the beginning.
        2 => from: Option<String>,
        /// Who says something there at once.
        3 => role: Option<Name>,
        /// What is said; needs a role.
        4 => content: Option<Payload>,
        /// The same key again is the same branch.
        5 => idempotency_key: Option<String>,
    }
}

message! {
    pub struct MessageRequest {
        1 => run: RunKey,
        /// A text, or an object with `text` or `blocks`.
        2 => content: Payload,
        /// The same id again is the same message.
        3 => message_id: Option<String>,
        /// The signal that the agent waits for; `message` otherwise.
        4 => signal: Option<Name>,
    }
}

message! {
    pub struct PutAttachmentRequest {
        /// The bytes; their type is of no account, the message that names them says it.
        1 => content: Payload,
    }
}

message! {
    pub struct PutAttachmentReply {
        /// The SHA-256 of the bytes in hex, by which a message names them.
        1 => hash: String,
        2 => bytes: u64,
    }
}

message! {
    pub struct ResumeAgentRequest {
        1 => run: RunKey,
        /// Who goes on with it, as its `hello` says.
        2 => worker: WorkerId,
        /// What wakes an agent that waits.
        3 => signal: Option<Signal>,
    }
}

message! {
    pub struct ResumeAgentReply {
        /// The run is on its way to the worker. For everybody else it is false, and no error.
        1 => success: bool,
        /// Why not: `held`, `waiting`, `paused` or `closed`.
        2 => why: Option<String>,
        3 => head: RunHead,
        /// The answer to what was brought.
        4 => appended: Option<AppendReply>,
    }
}

message! {
    pub struct WatchRequest {
        1 => run: RunKey,
        /// What the caller knows already: anything past it is news.
        2 => generation: u32,
        3 => next_index: Index,
        /// How long to wait for news.
        5 => wait_ms: u64,
    }
}

message! {
    pub struct WatchReply {
        1 => generation: u32,
        2 => next_index: Index,
        3 => status: Status,
        /// Present once the run is closed.
        4 => outcome: Option<Result<Payload, Failure>>,
    }
}

message! {
    pub struct StreamRequest {
        1 => run: RunKey,
        /// Of the last frame that the caller knows; absent, the answer begins with what is not final yet.
        2 => offset: Option<String>,
        /// How long to wait for more.
        3 => wait_ms: u64,
    }
}

message! {
    pub struct StreamReply {
        1 => frames: Vec<StreamFrame>,
        /// Where to go on.
        2 => next: String,
    }
}

message! {
    /// Whose ends the caller of AwaitEnds awaits from now on, and whose no more. A run may be named again.
    #[derive(Default)]
    pub struct AwaitFrame {
        1 => runs: Vec<RunKey>,
        2 => forget: Vec<RunKey>,
    }
}

message! {
    pub struct EndsFrame {
        1 => ends: Vec<End>,
    }
}

message! {
    /// How one awaited run ended, or why that cannot be said. It is awaited no more.
    pub struct End {
        1 => run: RunKey,
        /// Absent where there is a problem.
        2 => outcome: Option<Result<Payload, Failure>>,
        3 => problem: Option<Problem>,
    }
}

message! {
    pub struct ListRequest {
        1 => namespace: Namespace,
        2 => kind: Option<Name>,
        /// Empty means any.
        3 => status: Vec<Status>,
        4 => created_from: Option<Timestamp>,
        5 => created_until: Option<Timestamp>,
        /// 0 means the server's default.
        6 => limit: u32,
        7 => cursor: Option<String>,
        /// Empty means any.
        8 => version: Vec<VersionMatch>,
        /// All of these must match.
        9 => attributes: Vec<AttributeMatch>,
        /// Whether a list without the runs of databases that are down will do.
        10 => partly: bool,
    }
}

message! {
    pub struct VersionMatch {
        /// Absent for runs without a version.
        1 => version: Option<Name>,
    }
}

message! {
    pub struct VersionsRequest {
        1 => namespace: Namespace,
    }
}

message! {
    pub struct VersionsReply {
        1 => versions: Vec<OpenRuns>,
    }
}

message! {
    /// How many open runs need a version of the code.
    pub struct OpenRuns {
        1 => kind: Name,
        2 => version: Option<Name>,
        3 => open: u64,
    }
}

message! {
    pub struct SpendRequest {
        1 => namespace: Namespace,
        2 => by: SpendBy,
        /// Attempts that began on the day of this moment or later, in UTC.
        3 => from: Option<Timestamp>,
        /// Attempts that began before this moment, or later on its day.
        4 => until: Option<Timestamp>,
        /// Only the tree that this run is of.
        5 => tree: Option<RunId>,
        /// 0 means the server's default.
        6 => limit: u32,
    }
}

message! {
    pub struct SpendReply {
        /// The newest day first, or else what cost most.
        1 => rows: Vec<SpendRow>,
    }
}

message! {
    pub struct ListReply {
        1 => runs: Vec<RunHead>,
        2 => next: Option<String>,
        /// The databases whose runs are missing, where that was allowed.
        3 => missing: Vec<String>,
    }
}

message! {
    pub struct SignalRequest {
        1 => run: RunKey,
        2 => signal: Signal,
    }
}

message! {
    pub struct ReasonRequest {
        1 => run: RunKey,
        2 => reason: String,
    }
}

message! {
    pub struct RetryRequest {
        1 => run: RunKey,
        /// The same id again is the same request.
        2 => request_id: String,
        3 => reason: String,
        /// Execute again also what failed with `outcome_unknown`.
        4 => include_outcome_unknown: bool,
    }
}

message! {
    pub struct ForkRequest {
        1 => run: RunKey,
        /// The id of the new run. The same fork again is the same run. Without one, all resets of a run to one point are one.
        2 => id: Option<RunId>,
        /// The current generation unless another is named.
        3 => generation: Option<u32>,
        /// The last event to copy; the end of the last commit if it is absent.
        4 => index: Option<Index>,
        /// Leave out the signals that came behind the point.
        5 => drop_signals: bool,
        /// Start children again that had not answered at the point; otherwise their result is awaited together with the original.
        6 => restart_children: bool,
        /// Another version of the code than the original is pinned to.
        7 => version: Option<Name>,
        /// Where the run's chance derives from behind the point; any number.
        8 => seed: u64,
        9 => reason: String,
    }
}

message! {
    pub struct ReopenReply {
        /// False when the same was asked for before.
        1 => created: bool,
        2 => head: RunHead,
    }
}

message! {
    pub struct BulkRequest {
        1 => verb: String,
        /// Its limit is the size of the batch, its cursor where the batch before ended.
        2 => filter: ListRequest,
        /// The filter may find every run of the namespace.
        3 => all: bool,
        /// Only count.
        4 => dry_run: bool,
        /// The same for all batches and repeats of one request.
        5 => bulk_id: String,
        6 => reason: String,
        /// A retry executes again also what failed with `outcome_unknown`.
        7 => include_outcome_unknown: bool,
    }
}

message! {
    pub struct BulkReply {
        1 => matched: u64,
        2 => done: u64,
        3 => refused: Vec<Refused>,
        /// Some of the runs that were found, for a count.
        4 => sample: Vec<RunId>,
        /// Where the next batch begins; absent after the last.
        5 => next: Option<String>,
    }
}

message! {
    /// A run to which the verb does not apply any more.
    pub struct Refused {
        1 => run: RunId,
        2 => code: String,
    }
}

message! {
    pub struct DoneReply {}
}

message! {
    pub struct AskRequest {
        1 => run: RunKey,
        2 => name: Name,
        3 => payload: Payload,
        /// For updates: the same id again gets the same answer.
        4 => update_id: String,
    }
}

message! {
    pub struct AnswerReply {
        /// Absent when the code knows no such query.
        1 => answer: Option<Result<Payload, Failure>>,
    }
}

message! {
    /// Something that a run's code said for whoever listens; not recorded.
    pub struct EmittedValue {
        1 => name: String,
        2 => value: Payload,
    }
}

message! {
    pub struct WaitsRequest {
        1 => namespace: Namespace,
        2 => run: Option<RunKey>,
        3 => limit: u32,
        /// Whether a list without the runs of databases that are down will do.
        4 => partly: bool,
        /// With `run`: also what the runs below it ask.
        5 => below: bool,
    }
}

message! {
    pub struct WaitsReply {
        1 => waits: Vec<Wait>,
        /// The databases whose runs are missing, where that was allowed.
        2 => missing: Vec<String>,
    }
}

message! {
    pub struct DecideRequest {
        1 => namespace: Namespace,
        /// `RUN~GENERATION~PLACE`.
        2 => approval: String,
        3 => approved: bool,
        4 => feedback: Option<String>,
        5 => decided_by: Option<String>,
        /// The same id again is the same decision; another one has lost.
        6 => decision_id: String,
    }
}

message! {
    pub struct DriveRequest {
        1 => run: RunKey,
        /// Who drives it, as its `hello` says.
        2 => worker: WorkerId,
        3 => signal: Option<Signal>,
        /// The decision of one of the run's approvals.
        4 => decision: Option<DecideRequest>,
    }
}

message! {
    pub struct DriveReply {
        1 => head: RunHead,
        /// The run is on its way to the worker. Otherwise it has nothing to do.
        2 => is_given: bool,
        /// The answer to what was brought.
        3 => appended: Option<AppendReply>,
    }
}

message! {
    pub struct ResolveRequest {
        1 => namespace: Namespace,
        /// `RUN~GENERATION~PLACE`.
        2 => promise: String,
        3 => result: Result<Payload, Failure>,
        /// The same id again is the same answer; another one has lost.
        4 => resolution_id: String,
    }
}

message! {
    pub struct NamespaceRequest {
        1 => namespace: Namespace,
    }
}

message! {
    pub struct TaskRequest {
        1 => namespace: Namespace,
        /// Its run, generation and place: `order-1~0~2`.
        2 => task: String,
    }
}

message! {
    pub struct QueuesReply {
        1 => queues: Vec<QueueLine>,
    }
}

message! {
    pub struct QueueLine {
        1 => count: TaskCount,
        /// How many workers take tasks of this kind from this queue.
        2 => workers: u64,
    }
}

message! {
    pub struct WorkersReply {
        1 => workers: Vec<WorkerLine>,
    }
}

message! {
    /// A worker as others see it.
    pub struct WorkerLine {
        1 => id: WorkerId,
        2 => kinds: Vec<KnownKind>,
        3 => task_kinds: Vec<Name>,
        /// The queues it works on besides the default one.
        4 => queues: Vec<Name>,
        /// It works on the default queue too.
        5 => default_queue: bool,
        6 => runs: u64,
        7 => runs_max: u64,
        /// Absent for a worker in the server's own process.
        8 => heard_at: Option<Timestamp>,
    }
}

message! {
    /// A workflow and a version that a worker has code for.
    pub struct KnownKind {
        1 => kind: Name,
        2 => version: Option<Name>,
    }
}

message! {
    pub struct TasksReply {
        1 => tasks: Vec<Task>,
        /// The databases whose runs are missing, where that was allowed.
        2 => missing: Vec<String>,
    }
}
