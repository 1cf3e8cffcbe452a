//! JSON documents: runs, responses, open approvals and conversations, for the HTTP API and the command line.
//!
//! Field names are those of the log. Payloads are `{"json": …}` with their exact text, or `{"base64": …, "type": …}` if they are
//! not JSON. The documents are structs and not `Value`s, because a `Value` would parse numbers and sort keys.

use std::collections::BTreeMap;

use onward_core::api::{
    Appended, AppendedEntry, BlockReason, Blocker, DeletedRun, EntryPage, QueueInfo, QueueLimits, RunsOfQueue,
};
use onward_core::budget::Budget;
use onward_core::doing::{Doing, doing};
use onward_core::event::{ParentLink, RunPaused};
use onward_core::ledger::{SpendBy, SpendRow};
use onward_core::live;
use onward_core::moment::Moment;
use onward_core::run::Wait;
use onward_core::spend::SpendTotals;
use onward_core::task::{Task, TaskCount, TaskState};
use onward_core::view::{Awaited, ForkedFrom, RunCounts, RunView, Undelivered};
use onward_core::{CallId, Event, Failure, Hash, Index, Name, Namespace, Payload, RunHead, RunId, Status, Timestamp};
use onward_runtime::CallRef;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::handlers::attributes::PlainValue;
use crate::handlers::runs::live::ActiveCall;
use crate::http::declare::{documents, words};

pub use crate::handlers::schedules::{Schedule, Schedules, Slots as ScheduleSlots, Triggered as TriggeredRun};

documents! {
    /// Run.
    pub struct Run<'a>(head: &'a RunHead) {
        id: &'a RunId = &head.key.id,
        namespace: &'a Namespace = &head.key.namespace,
        kind: &'a Name = &head.kind,
        version: Option<&'a Name> = head.version.as_ref(),
        status: Status = head.status,
        generation: u32 = head.generation,
        event_count: Index = head.next_index,
        parent: Option<&'a ParentLink> = head.parent.as_ref(),
        /// Whether it is an external run, whose engine stores its log here.
        external: bool = head.external.is_some(),
        created_at: Timestamp = head.created_at,
        updated_at: Timestamp = head.updated_at,
        paused_at: Option<Timestamp> = head.paused_at,
        ended_at: Option<Timestamp> = head.ended_at,
        attributes: BTreeMap<&'a Name, PlainValue> as Attributes =
            head.attributes.iter().map(|attribute| (&attribute.name, attribute.value.clone().into())).collect(),
        /// Cost of its own attempts, in all generations.
        spend: Option<&'a SpendTotals> = head.spend.as_deref(),
        /// Limits of what it may spend, its children included.
        budget: Option<&'a Budget> = head.budget.as_ref().map(|budget| &budget.limit),
        /// Time at which it is canceled; later by the time that it is paused.
        deadline_at: Option<Timestamp> = head.deadline_at,
        /// Time from which on its code may begin; absent once it has begun.
        starts_at: Option<Timestamp> = head.starts_at,
        /// Queue whose slot it waits for, or holds since its code has begun.
        queue: Option<&'a Name> = head.queue.as_ref().map(|queue| &queue.name),
        /// Key in that queue.
        key: Option<&'a Name> = head.queue.as_ref().and_then(|queue| queue.key.as_ref()),
    }

    /// Runs that were deleted by request.
    pub struct DeletedRuns<'a>(runs: &'a [DeletedRun]) {
        deleted: Vec<Gone<'a>> = runs.iter().map(Gone::from).collect(),
    }

    struct Gone<'a> as DeletedRun(run: &'a DeletedRun) {
        id: &'a RunId = &run.key.id,
        namespace: &'a Namespace = &run.key.namespace,
        kind: &'a Name = &run.kind,
        deleted_at: Timestamp = run.deleted_at,
        reason: &'a str = &run.reason,
    }

    /// Run with all details.
    pub struct View<'a>(view: &'a RunView) {
        #[serde(flatten)]
        run: Run<'a> = Run::from(&view.head),
        input: &'a Payload = &view.input,
        awaiting: &'a [Awaited] = &view.awaiting,
        state: &'a BTreeMap<Name, Payload> = &view.state,
        outcome: Option<Outcome<'a>> = view.outcome.as_ref().map(Outcome::from),
        undelivered: &'a [Undelivered] = &view.undelivered,
        pause: Option<&'a RunPaused> = view.pause.as_ref(),
        cancel_reason: Option<&'a str> = view.cancel_reason.as_deref(),
        counts: RunCounts = view.counts,
        /// Name of the key that started the run or its root run.
        requester: Option<&'a str> = view.head.requester.as_deref(),
        /// Names of the keys that forked, reset or retried it; they are requesters, too.
        copied_by: &'a [String] = &view.head.copied_by,
        forked_from: Option<&'a ForkedFrom> = view.forked_from.as_ref(),
        /// Run that continues instead of this one.
        reset_to: Option<&'a RunId> = view.reset_to.as_ref(),
    }

    /// Run with all details, what it and its tasks are blocked on now, and what is under way.
    pub struct BlockedView<'a> as RunView {
        #[serde(flatten)]
        view: View<'a>,
        /// What it is doing or waiting for, as a sentence.
        doing: String,
        doing_since: Timestamp,
        blocked_on: Vec<OneBlocker<'a>>,
        /// Steps and tasks that workers execute now; null without `active=true`.
        active: Option<Vec<ActiveCall<'a>>>,
    }

    /// What a pending run, or a task that the run waits for, is blocked on.
    pub(crate) struct OneBlocker<'a> as Blocker(blocker: &'a Blocker) {
        /// `RUN~GENERATION~CALL`; null if it is the run that is blocked.
        task: Option<String> = blocker.task_ref(),
        kind: &'a Name = &blocker.kind,
        why: BlockReason = blocker.why,
        /// Time since which it is in quarantine.
        since: Option<Timestamp> = blocker.since,
        /// Time at which it continues by itself.
        until: Option<Timestamp> = blocker.until,
        /// Number of workers in a row that were lost while executing it.
        lost_workers: u32 = blocker.lost_workers,
        /// Failure code of its last attempt.
        failure_code: Option<&'a str> = blocker.failure_code.as_deref(),
        /// What an operator has to do, if anything.
        hint: Option<String> = blocker.hint(),
    }

    /// Open approval.
    pub struct Approval<'a>(wait: &'a Wait) {
        id: String = CallRef::from(wait).to_string(),
        run: &'a RunId = &wait.run.id,
        name: &'a Name = &wait.name,
        title: &'a str = &wait.title,
        description: Option<&'a str> = wait.description.as_deref(),
        show: Option<&'a Payload> = wait.show.as_ref(),
        deciders: &'a [String] = &wait.deciders,
        /// Requesters of the run may not decide: see `requester` and `copied_by` of the run.
        not_by_requester: bool = wait.not_by_requester,
        requested_at: Timestamp = wait.requested_at,
        deadline: Option<Timestamp> = wait.deadline,
        /// JSON schema of the answer that an approving decision needs; null if it needs none.
        answer_schema: Option<&'a Payload> = wait.answer_schema.as_ref(),
    }

    /// Queues of a namespace.
    pub struct Queues<'a> as QueueList(of: (&'a [QueueInfo], &'a [QueueLimits], &'a [RunsOfQueue])) {
        queues: Vec<Queue<'a>> = of.0.iter().map(Queue::from).collect(),
        /// The queues with settings, also those without tasks and workers.
        settings: &'a [QueueLimits] = of.1,
        /// The queues with runs that wait or hold a slot.
        runs: &'a [RunsOfQueue] = of.2,
    }

    struct Queue<'a> as QueueInfo(queue: &'a QueueInfo) {
        #[serde(flatten)]
        count: &'a TaskCount = &queue.count,
        /// Number of workers for tasks of this kind from this queue.
        workers: u64 = queue.workers,
    }

    /// Open tasks, of workflows and standalone.
    pub struct OpenTasks<'a>(tasks: &'a [Task]) {
        tasks: Vec<OpenTask<'a>> = tasks.iter().map(OpenTask::from).collect(),
    }

    struct OpenTask<'a>(task: &'a Task) {
        id: String = CallRef::from(task.id.clone()).to_string(),
        run: &'a RunId = &task.id.run.id,
        kind: &'a Name = &task.kind,
        /// `null` is the default queue.
        queue: Option<&'a Name> = task.options.queue.as_ref(),
        state: OpenState = task.state.into(),
        attempt: u32 = task.attempt,
        lost_workers: u32 = task.lost_workers,
        last_failure: Option<&'a Failure> = task.last_failure.as_ref(),
    }

    pub struct Approvals<'a> as ApprovalList {
        pub approvals: Vec<Approval<'a>>,
    }

    /// Page of runs.
    pub struct Runs<'a> as RunPage {
        pub runs: Vec<Run<'a>>,
        /// Cursor of the next page.
        pub next: Option<&'a str>,
    }

    /// Sums of what was spent.
    pub struct Spend<'a> as SpendReport {
        by: SpendBy,
        rows: &'a [SpendRow],
        /// There may be more rows: repeat with a larger `limit`.
        more: bool,
    }

    /// Run that was started, now or earlier.
    pub struct StartedRun<'a> {
        #[serde(flatten)]
        pub run: Run<'a>,
        pub created: bool,
        /// Receipt of the signal that was sent with the start.
        pub signal: Option<Receipt<'a>>,
    }

    /// One event of a log.
    pub struct LoggedEvent<'a> {
        pub generation: u32,
        pub index: Index,
        pub at: Timestamp,
        /// Number of the commit that it is part of; inputs are part of none.
        pub commit: Option<u64>,
        pub event: &'a Event,
    }

    /// Page of a log.
    pub struct EventPage<'a> {
        pub run: &'a RunId,
        pub events: Vec<&'a RawValue> as Vec<LoggedEvent<'a>>,
        /// Position to continue from, also if there are no more events yet. Null after the last event of a closed run.
        pub next: Option<LogPosition>,
    }

    /// Position in the logs of a run.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct LogPosition {
        pub generation: u32,
        pub from: Index,
    }

    /// Run as of an event of its log.
    pub struct RunAt<'a>(moment: &'a Moment) {
        run: &'a RunId = &moment.run,
        generation: u32 = moment.generation,
        index: Index = moment.index,
        at: Timestamp = moment.at,
        event: LoggedEvent<'a> = LoggedEvent {
            generation: moment.generation,
            index: moment.index,
            at: moment.at,
            commit: moment.commit,
            event: &moment.event,
        },
        status: Status = moment.status,
        state: BTreeMap<&'a Name, &'a Payload> = moment.state.iter().map(|value| (&value.name, &value.value)).collect(),
        awaiting: &'a [Awaited] = &moment.awaiting,
        /// Calls of the code without an answer.
        open_calls: &'a [CallId] as Vec<String> = &moment.open_calls,
        counts: RunCounts = moment.counts,
        pause: Option<&'a RunPaused> = moment.pause.as_ref(),
        cancel_reason: Option<&'a str> = moment.cancel_reason.as_deref(),
        outcome: Option<Outcome<'a>> = moment.outcome.as_ref().map(Outcome::from),
        attributes: BTreeMap<&'a Name, PlainValue> as Attributes =
            moment.attributes.iter().map(|attribute| (&attribute.name, attribute.value.clone().into())).collect(),
        /// Last entry of an agent's conversation.
        leaf: Option<Hash> = moment.leaf,
        /// Number of entries up to there.
        entries: u64 = moment.entries,
    }

    /// Event for an attached reader when the run waits or is paused.
    pub struct PauseFrame<'a> {
        pub status: Status,
        pub awaiting: &'a [Awaited],
        pub pause: Option<&'a RunPaused>,
        pub next: LogPosition,
    }

    /// Status of a run, and its outcome if it is closed.
    pub struct RunResult<'a> {
        pub id: &'a RunId,
        pub status: Status,
        pub outcome: Option<Outcome<'a>>,
    }

    /// Response to an update; without an outcome, it is not answered yet.
    pub struct UpdateAnswer<'a> {
        pub run: &'a RunId,
        pub update_id: &'a str,
        pub outcome: Option<Outcome<'a>>,
    }

    /// Result of a request to delete runs.
    pub struct Deleted<'a> {
        pub deleted: Vec<&'a str>,
        pub refused: Vec<&'a str>,
    }
}

words! {
    /// State of an open task.
    #[derive(Serialize)]
    pub(crate) enum OpenState as TaskState { Queued / "queued", Running / "running", Quarantined / "quarantined" }
}

impl From<TaskState> for OpenState {
    fn from(state: TaskState) -> OpenState {
        match state {
            TaskState::Queued => OpenState::Queued,
            TaskState::Leased => OpenState::Running,
            TaskState::Quarantined => OpenState::Quarantined,
        }
    }
}

impl<'a> BlockedView<'a> {
    /// Creates the document with what the run is doing, what it and its tasks are blocked on, and what is under way now.
    pub fn new(view: &'a RunView, blocked_on: &'a [Blocker], active: Option<&'a [live::ActiveCall]>) -> BlockedView<'a> {
        let Doing { sentence, since } = doing(view, blocked_on, active.unwrap_or_default());
        let blocked_on = blocked_on.iter().map(OneBlocker::from).collect();
        let active = active.map(|active| active.iter().map(ActiveCall::from).collect());
        BlockedView { view: View::from(view), doing: sentence, doing_since: since, blocked_on, active }
    }
}

/// List, with the databases whose rows are missing from it.
#[derive(Serialize)]
pub struct Partly<T> {
    #[serde(flatten)]
    pub list: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_databases: Vec<String>,
}

impl<T> Partly<T> {
    pub fn new(list: T, missing_databases: Vec<String>) -> Partly<T> {
        Partly { list, missing_databases }
    }
}

impl<'a> Spend<'a> {
    /// Creates the document from the rows of a query with this limit.
    pub fn new(by: SpendBy, rows: &'a [SpendRow], limit: usize) -> Spend<'a> {
        Spend { by, rows, more: rows.len() >= limit }
    }
}

/// Result of a closed run: `{"output": …}` or `{"failure": …}`.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<'a> {
    Output(&'a Payload),
    Failure(&'a Failure),
}

impl<'a> From<&'a Result<Payload, Failure>> for Outcome<'a> {
    fn from(result: &'a Result<Payload, Failure>) -> Outcome<'a> {
        match result {
            Ok(output) => Outcome::Output(output),
            Err(failure) => Outcome::Failure(failure),
        }
    }
}

/// Value with the id of the run that it is about.
#[derive(Serialize)]
pub struct OfRun<'a, T> {
    run: &'a RunId,
    #[serde(flatten)]
    of: &'a T,
}

impl<'a, T> OfRun<'a, T> {
    pub fn new(run: &'a RunId, of: &'a T) -> OfRun<'a, T> {
        OfRun { run, of }
    }
}

/// Response to a request that appended to a run's log.
pub type Receipt<'a> = OfRun<'a, Appended>;

/// Response to an appended entry.
pub type EntryAnswer<'a> = OfRun<'a, AppendedEntry>;

/// Page of a conversation.
pub type Entries<'a> = OfRun<'a, EntryPage>;
