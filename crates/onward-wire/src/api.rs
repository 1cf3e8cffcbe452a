//! The API verbs, with one message for each request and reply.

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
        /// Starts a run, or returns the existing one: the same id with the same kind and input is the same run.
        StartRun: StartRequest => StartReply,
        ReadRun: RunRequest => RunReply,
        /// Queues a task without a workflow, or returns the existing one: the same id with the same kind and input is the same
        /// task.
        StartTask: StartTaskRequest => StartReply,
        ReadTask: RunRequest => TaskReply,
        /// Cancels a standalone task; it ends at once.
        CancelTask: ReasonRequest => AppendReply,
        /// Returns why a pending run is not running.
        PendingReason: RunRequest => WhyPendingReply,
        /// Returns why tasks of a run are not executed.
        ReadBlockedOn: RunRequest => BlockersReply,
        ListDeleted: DeletedRequest => DeletedReply,
        ReadLog: LogRequest => LogReply,
        /// Reads a page of an agent's conversation.
        ReadEntries: EntriesRequest => EntriesReply,
        /// Appends an entry to the conversation of an agent, which takes it in when its next turn starts.
        AppendEntry: AppendEntryRequest => AppendEntryReply,
        /// Continues an agent's conversation from an earlier entry; later entries are abandoned and stay readable.
        BranchRun: BranchRunRequest => AppendReply,
        /// Puts a message into the mailbox of an agent: a signal, named `message` by default.
        SendMessage: MessageRequest => AppendReply,
        /// Stores bytes that messages to agents refer to by their hash.
        PutAttachment: PutAttachmentRequest => PutAttachmentReply,
        /// Resumes an agent that no worker holds, by a connected worker. If several compete, one succeeds.
        ResumeAgent: ResumeAgentRequest => ResumeAgentReply,
        /// Waits until a run has grown or ended, or the time is over. To wait for the ends of many runs, use AwaitEnds.
        WatchRun: WatchRequest => WatchReply,
        /// Reads the stream of a run after an offset; waits for more up to the given time.
        ReadStream: StreamRequest => StreamReply,
        ListRuns: ListRequest => ListReply,
        /// Counts the open runs for each version of the code.
        ListVersions: VersionsRequest => VersionsReply,
        ReadSpend: SpendRequest => SpendReply,
        SignalRun: SignalRequest => AppendReply,
        CancelRun: ReasonRequest => AppendReply,
        TerminateRun: ReasonRequest => AppendReply,
        PauseRun: ReasonRequest => AppendReply,
        ResumeRun: ResumeRequest => AppendReply,
        /// Continues a failed run: calls that caused the failure are executed again.
        RetryRun: RetryRequest => ReopenReply,
        /// Starts a run that continues from a point of this run's log.
        ForkRun: ForkRequest => ReopenReply,
        /// Forks a run and ends the original.
        ResetRun: ForkRequest => ReopenReply,
        /// Applies one batch of a verb to the runs that match a filter: `cancel`, `terminate`, `pause`, `resume` or `retry`.
        BulkRuns: BulkRequest => BulkReply,
        /// Deletes one batch of the runs that match a filter.
        BulkDelete: BulkRequest => BulkReply,
        /// Deletes a closed run with all its generations.
        DeleteRun: ReasonRequest => DoneReply,
        /// Sends an update to a run and waits for its recorded result.
        UpdateRun: AskRequest => AnswerReply,
        /// Queries a run's code; not recorded.
        QueryRun: AskRequest => AnswerReply,
        ListApprovals: WaitsRequest => WaitsReply,
        /// Claims a specific run for a connected worker and delivers an input to it; the run arrives over the worker's
        /// connection.
        DriveRun: DriveRequest => DriveReply,
        DecideApproval: DecideRequest => AppendReply,
        ResolvePromise: ResolveRequest => AppendReply,
        /// Lists the workers of a namespace.
        ListWorkers: NamespaceRequest => WorkersReply,
        /// Lists quarantined tasks.
        ListQuarantined: WaitsRequest => TasksReply,
        /// Puts a quarantined task back on its queue.
        RetryTask: TaskRequest => DoneReply,
        /// Lists the queues of a namespace with their tasks and the number of their workers.
        ListQueues: NamespaceRequest => QueuesReply,
    }
}

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
        /// Trace context of the caller, as a `traceparent`; by default the header of this name.
        7 => trace: Option<String>,
        /// Search attributes of the run.
        8 => attributes: Vec<Attribute>,
        /// Budget of the run and its children.
        9 => budget: Option<Budget>,
    }
}

message! {
    pub struct ResumeRequest {
        1 => run: RunKey,
        /// Limits that replace the current ones.
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
        /// Trace context of the caller, as a `traceparent`; by default the header of this name.
        5 => trace: Option<String>,
    }
}

message! {
    /// The current view of a standalone task.
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
        /// Idempotency key: a repeat with the same id is the same signal.
        3 => signal_id: Option<String>,
    }
}

message! {
    pub struct StartReply {
        /// False if the run existed already.
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
        /// The same input was accepted before; this is its first receipt.
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
    pub struct BlockersReply {
        1 => blocked_on: Vec<BlockerLine>,
    }
}

message! {
    /// The reason why a task of a run is not executed.
    pub struct BlockerLine {
        /// `RUN~GENERATION~PLACE`.
        1 => task: String,
        2 => kind: Name,
        /// `no_worker`, `limit_closed`, `quarantined` or `retries`.
        3 => why: String,
        /// When the task was quarantined.
        4 => since: Option<Timestamp>,
        /// When the task continues without intervention.
        5 => until: Option<Timestamp>,
        /// How many workers in a row were lost during this task.
        6 => lost_workers: u32,
        /// Failure code of the last attempt.
        7 => failure_code: Option<String>,
    }
}

message! {
    pub struct DeletedRequest {
        1 => namespace: Namespace,
        2 => run: Option<RunKey>,
        3 => limit: u32,
        /// Permits a list without the runs of databases that are down.
        4 => partly: bool,
    }
}

message! {
    pub struct DeletedReply {
        1 => runs: Vec<Deleted>,
        /// The databases whose runs are missing, if that was permitted.
        2 => missing: Vec<String>,
    }
}

message! {
    /// The remaining data of a deleted run.
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
        /// The current generation if absent.
        2 => generation: Option<u32>,
        3 => from: Index,
        4 => limit: u32,
    }
}

message! {
    pub struct LogReply {
        1 => records: Vec<Record>,
        /// Not all requested records fit: read on after the last one.
        2 => more: bool,
    }
}

message! {
    pub struct EntriesRequest {
        1 => run: RunKey,
        /// The last entry of the conversation to read; absent for the current conversation.
        2 => leaf: Option<String>,
        /// The `before` of the page that was read last: this page ends with that entry.
        3 => before: Option<String>,
        /// 0 means the server's default.
        4 => limit: u32,
    }
}

message! {
    pub struct EntriesReply {
        /// Oldest first.
        1 => entries: Vec<Entry>,
        /// The cursor of the next page; absent at the beginning of the conversation.
        2 => before: Option<String>,
        /// The last entry of the conversation.
        3 => leaf: Option<Hash>,
        /// Number of entries of the conversation, if known.
        4 => depth: Option<u64>,
        /// Entries from outside that the code has not taken in yet.
        5 => pending: Vec<PendingEntry>,
    }
}

message! {
    pub struct AppendEntryRequest {
        1 => run: RunKey,
        2 => role: Name,
        3 => content: Payload,
        /// A repeat with the same key is the same entry; with another role or content it fails with `entry_key_taken`.
        4 => idempotency_key: Option<String>,
        /// The caller has searched the conversation for the key, because only the caller can decrypt it.
        5 => is_looked_up: bool,
    }
}

message! {
    pub struct AppendEntryReply {
        /// An entry with this key, role and content existed before.
        1 => already_existed: bool,
        /// The run was waiting and was woken.
        2 => woke: bool,
        /// The entry's id, if the code has taken it in already.
        3 => entry: Option<Hash>,
        /// The position of the entry as an input.
        4 => index: Option<Index>,
        5 => at: Option<Timestamp>,
    }
}

message! {
    pub struct BranchRunRequest {
        1 => run: RunKey,
        /// The entry after which the conversation continues; its beginning if absent.
        2 => from: Option<String>,
        /// Role of the first entry of the branch.
        3 => role: Option<Name>,
        /// Content of the first entry of the branch; needs a role.
        4 => content: Option<Payload>,
        /// A repeat with the same key is the same branch.
        5 => idempotency_key: Option<String>,
    }
}

message! {
    pub struct MessageRequest {
        1 => run: RunKey,
        /// A text, or an object with `text` or `blocks`.
        2 => content: Payload,
        /// Idempotency key: a repeat with the same id is the same message.
        3 => message_id: Option<String>,
        /// The signal that the agent waits for; `message` if absent.
        4 => signal: Option<Name>,
    }
}

message! {
    pub struct PutAttachmentRequest {
        /// The bytes; their media type is ignored, because each message that refers to them has one.
        1 => content: Payload,
    }
}

message! {
    pub struct PutAttachmentReply {
        /// The SHA-256 of the bytes in hex, by which messages refer to them.
        1 => hash: String,
        2 => bytes: u64,
    }
}

message! {
    pub struct ResumeAgentRequest {
        1 => run: RunKey,
        /// The worker that resumes the agent, by the id in its `hello`.
        2 => worker: WorkerId,
        /// A signal that wakes a waiting agent.
        3 => signal: Option<Signal>,
    }
}

message! {
    pub struct ResumeAgentReply {
        /// The run is on its way to the worker. False, without an error, if another worker got it.
        1 => success: bool,
        /// The reason if not: `held`, `waiting`, `paused` or `closed`.
        2 => why: Option<String>,
        3 => head: RunHead,
        /// The receipt of the signal.
        4 => appended: Option<AppendReply>,
    }
}

message! {
    pub struct WatchRequest {
        1 => run: RunKey,
        /// The position that the caller knows already.
        2 => generation: u32,
        3 => next_index: Index,
        /// How long to wait for a later position.
        5 => wait_ms: u64,
    }
}

message! {
    pub struct WatchReply {
        1 => generation: u32,
        2 => next_index: Index,
        3 => status: Status,
        /// Present if the run is closed.
        4 => outcome: Option<Result<Payload, Failure>>,
    }
}

message! {
    pub struct StreamRequest {
        1 => run: RunKey,
        /// The offset of the last frame that the caller has; if absent, the reply begins with what is not final yet.
        2 => offset: Option<String>,
        /// How long to wait for more.
        3 => wait_ms: u64,
    }
}

message! {
    pub struct StreamReply {
        1 => frames: Vec<StreamFrame>,
        /// The offset for the next request.
        2 => next: String,
    }
}

message! {
    /// Runs that the caller of AwaitEnds awaits from now on, and runs that it no longer awaits. A run may be repeated.
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
    /// The outcome of one awaited run, or the error of reading it. The run is no longer awaited.
    pub struct End {
        1 => run: RunKey,
        /// Absent if there is a problem.
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
        /// Permits a list without the runs of databases that are down.
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
    /// The number of open runs that need a version of the code.
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
        /// Attempts that began on the day of this time or later, in UTC.
        3 => from: Option<Timestamp>,
        /// Attempts that began before this time, or later on its day.
        4 => until: Option<Timestamp>,
        /// Only the tree of this run.
        5 => tree: Option<RunId>,
        /// 0 means the server's default.
        6 => limit: u32,
    }
}

message! {
    pub struct SpendReply {
        /// The newest day first, or the highest cost first.
        1 => rows: Vec<SpendRow>,
    }
}

message! {
    pub struct ListReply {
        1 => runs: Vec<RunHead>,
        2 => next: Option<String>,
        /// The databases whose runs are missing, if that was permitted.
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
        /// Idempotency key: a repeat with the same id is the same request.
        2 => request_id: String,
        3 => reason: String,
        /// Also executes calls again that failed with `outcome_unknown`.
        4 => include_outcome_unknown: bool,
    }
}

message! {
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

message! {
    pub struct ReopenReply {
        /// False if the same request was accepted before.
        1 => created: bool,
        2 => head: RunHead,
    }
}

message! {
    pub struct BulkRequest {
        1 => verb: String,
        /// Its limit is the size of the batch, its cursor the end of the batch before.
        2 => filter: ListRequest,
        /// Permits a filter that matches every run of the namespace.
        3 => all: bool,
        /// Only counts the runs.
        4 => dry_run: bool,
        /// The same for all batches and repeats of one request.
        5 => bulk_id: String,
        6 => reason: String,
        /// A retry also executes calls again that failed with `outcome_unknown`.
        7 => include_outcome_unknown: bool,
    }
}

message! {
    pub struct BulkReply {
        1 => matched: u64,
        2 => done: u64,
        3 => refused: Vec<Refused>,
        /// Some of the matching runs, for a dry run.
        4 => sample: Vec<RunId>,
        /// The cursor of the next batch; absent after the last.
        5 => next: Option<String>,
    }
}

message! {
    /// A run to which the verb no longer applies.
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
        /// For updates: a repeat with the same id returns the same result.
        4 => update_id: String,
    }
}

message! {
    pub struct AnswerReply {
        /// Absent if the code has no such query.
        1 => answer: Option<Result<Payload, Failure>>,
    }
}

message! {
    /// A value that a run's code emitted for listeners; not recorded.
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
        /// Permits a list without the runs of databases that are down.
        4 => partly: bool,
        /// With `run`: also lists the approvals of the runs below it.
        5 => below: bool,
    }
}

message! {
    pub struct WaitsReply {
        1 => waits: Vec<Wait>,
        /// The databases whose runs are missing, if that was permitted.
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
        /// Idempotency key: a repeat with the same id is the same decision; another id loses.
        6 => decision_id: String,
    }
}

message! {
    pub struct DriveRequest {
        1 => run: RunKey,
        /// The worker that gets the run, by the id in its `hello`.
        2 => worker: WorkerId,
        3 => signal: Option<Signal>,
        /// A decision of one of the run's approvals.
        4 => decision: Option<DecideRequest>,
    }
}

message! {
    pub struct DriveReply {
        1 => head: RunHead,
        /// The run is on its way to the worker. If false, it has nothing to do.
        2 => is_given: bool,
        /// The receipt of the delivered input.
        3 => appended: Option<AppendReply>,
    }
}

message! {
    pub struct ResolveRequest {
        1 => namespace: Namespace,
        /// `RUN~GENERATION~PLACE`.
        2 => promise: String,
        3 => result: Result<Payload, Failure>,
        /// Idempotency key: a repeat with the same id is the same resolution; another id loses.
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
        /// Its run, generation and call id: `order-1~0~2`.
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
        /// Number of workers that take tasks of this kind from this queue.
        2 => workers: u64,
    }
}

message! {
    pub struct WorkersReply {
        1 => workers: Vec<WorkerLine>,
    }
}

message! {
    /// A worker in a list.
    pub struct WorkerLine {
        1 => id: WorkerId,
        2 => kinds: Vec<KnownKind>,
        3 => task_kinds: Vec<Name>,
        /// The queues that it serves besides the default one.
        4 => queues: Vec<Name>,
        /// It also serves the default queue.
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
        /// The databases whose runs are missing, if that was permitted.
        2 => missing: Vec<String>,
    }
}
