//! JSON documents: runs, responses and open approvals, for the HTTP API and the command line.
//!
//! Field names are those of the log. Payloads are `{"json": …}` with their exact text, or `{"base64": …, "type": …}` if they are
//! not JSON. The documents are structs and not `Value`s, because a `Value` would parse numbers and sort keys.

mod entries;

use std::collections::BTreeMap;

use onward_core::api::{Appended, Blocker, DeletedRun, PendingReason, QueueInfo};
use onward_core::budget::Budget;
use onward_core::event::{ParentLink, RunPaused};
use onward_core::ledger::{SpendBy, SpendRow};
use onward_core::run::Wait;
use onward_core::spend::SpendTotals;
use onward_core::task::{Task, TaskState};
use onward_core::view::{Awaited, ForkedFrom, RunCounts, RunView, Undelivered};
use onward_core::{Event, Failure, Index, Name, Namespace, Payload, RunHead, RunId, Timestamp};
use onward_runtime::{AppendedExternal, CallRef, ExternalRun};
use onward_store::ServerInfo;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::handlers::attributes::ShownValue;

pub use entries::{Entries, EntryAnswer};

/// Run in a list.
#[derive(Serialize)]
pub struct Run<'a> {
    id: &'a RunId,
    namespace: &'a Namespace,
    kind: &'a Name,
    version: Option<&'a Name>,
    status: &'static str,
    generation: u32,
    event_count: Index,
    parent: Option<&'a ParentLink>,
    /// An external engine stores its log here.
    external: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    paused_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    attributes: BTreeMap<&'a Name, ShownValue<'a>>,
    /// Cost of its own attempts, in all generations.
    spend: Option<&'a SpendTotals>,
    /// Limits of what it may spend, its children included.
    budget: Option<&'a Budget>,
}

impl<'a> From<&'a RunHead> for Run<'a> {
    fn from(head: &'a RunHead) -> Run<'a> {
        Run {
            id: &head.key.id,
            namespace: &head.key.namespace,
            kind: &head.kind,
            version: head.version.as_ref(),
            status: head.status.as_str(),
            generation: head.generation,
            event_count: head.next_index,
            parent: head.parent.as_ref(),
            external: head.external.is_some(),
            created_at: head.created_at,
            updated_at: head.updated_at,
            paused_at: head.paused_at,
            ended_at: head.ended_at,
            attributes: head.attributes.iter().map(|attribute| (&attribute.name, (&attribute.value).into())).collect(),
            spend: head.spend.as_deref(),
            budget: head.budget.as_ref().map(|budget| &budget.limit),
        }
    }
}

/// Page of runs.
#[derive(Serialize)]
pub struct Runs<'a> {
    pub runs: Vec<Run<'a>>,
    /// Cursor of the next page.
    pub next: Option<&'a str>,
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

/// Sums of what was spent.
#[derive(Serialize)]
pub struct Spend<'a> {
    by: &'static str,
    rows: &'a [SpendRow],
    /// There may be more rows.
    more: bool,
}

impl<'a> Spend<'a> {
    /// Creates the document from the rows of a query with this limit.
    pub fn new(by: SpendBy, rows: &'a [SpendRow], limit: usize) -> Spend<'a> {
        Spend { by: by.as_str(), rows, more: rows.len() >= limit }
    }
}

/// Runs that were deleted by request.
#[derive(Serialize)]
pub struct DeletedRuns<'a> {
    deleted: Vec<Gone<'a>>,
}

#[derive(Serialize)]
struct Gone<'a> {
    id: &'a RunId,
    namespace: &'a Namespace,
    kind: &'a Name,
    deleted_at: Timestamp,
    reason: &'a str,
}

impl<'a> From<&'a [DeletedRun]> for DeletedRuns<'a> {
    fn from(runs: &'a [DeletedRun]) -> DeletedRuns<'a> {
        let gone = |run: &'a DeletedRun| Gone {
            id: &run.key.id,
            namespace: &run.key.namespace,
            kind: &run.kind,
            deleted_at: run.deleted_at,
            reason: &run.reason,
        };
        DeletedRuns { deleted: runs.iter().map(gone).collect() }
    }
}

/// Run with all details.
#[derive(Serialize)]
pub struct View<'a> {
    #[serde(flatten)]
    run: Run<'a>,
    input: &'a Payload,
    awaiting: &'a [Awaited],
    /// Absent if the run is shown as of an earlier time.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_on: Option<Vec<OneBlocker<'a>>>,
    /// Absent if the run is shown as of an earlier time; null if the run is not pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_pending: Option<Option<&'static str>>,
    state: &'a BTreeMap<Name, Payload>,
    outcome: Option<Outcome<'a>>,
    undelivered: &'a [Undelivered],
    pause: Option<&'a RunPaused>,
    cancel_reason: Option<&'a str>,
    counts: RunCounts,
    /// Name of the key that started the run or its root run.
    requester: Option<&'a str>,
    /// Names of the keys that forked, reset or retried it.
    copied_by: &'a [String],
    forked_from: Option<&'a ForkedFrom>,
    reset_to: Option<&'a RunId>,
}

impl<'a> From<&'a RunView> for View<'a> {
    fn from(view: &'a RunView) -> View<'a> {
        View {
            run: Run::from(&view.head),
            input: &view.input,
            awaiting: &view.awaiting,
            blocked_on: None,
            why_pending: None,
            state: &view.state,
            outcome: view.outcome.as_ref().map(Outcome::from),
            undelivered: &view.undelivered,
            pause: view.pause.as_ref(),
            cancel_reason: view.cancel_reason.as_deref(),
            counts: view.counts,
            requester: view.head.requester.as_deref(),
            copied_by: &view.head.copied_by,
            forked_from: view.forked_from.as_ref(),
            reset_to: view.reset_to.as_ref(),
        }
    }
}

impl<'a> View<'a> {
    /// Adds what the run and its tasks are blocked on now.
    pub fn with(self, blocked_on: &'a [Blocker], why_pending: Option<PendingReason>) -> View<'a> {
        let why_pending = Some(why_pending.map(PendingReason::as_str));
        View { why_pending, blocked_on: Some(blocked_on.iter().map(OneBlocker::from).collect()), ..self }
    }
}

/// Reason why a task of a run is blocked.
#[derive(Serialize)]
pub(crate) struct OneBlocker<'a> {
    task: String,
    kind: &'a Name,
    why: &'static str,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    lost_workers: u32,
    failure_code: Option<&'a str>,
    hint: Option<String>,
}

impl<'a> From<&'a Blocker> for OneBlocker<'a> {
    fn from(blocker: &'a Blocker) -> OneBlocker<'a> {
        OneBlocker {
            task: blocker.task_ref(),
            kind: &blocker.kind,
            why: blocker.why.as_str(),
            since: blocker.since,
            until: blocker.until,
            lost_workers: blocker.lost_workers,
            failure_code: blocker.failure_code.as_deref(),
            hint: blocker.hint(),
        }
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

/// Response to a request that appended to a run's log.
#[derive(Serialize)]
pub struct Receipt<'a> {
    run: &'a RunId,
    index: Index,
    at: Timestamp,
    repeated: bool,
    woke: bool,
}

impl<'a> Receipt<'a> {
    pub fn new(run: &'a RunId, appended: &Appended) -> Receipt<'a> {
        Receipt { run, index: appended.index, at: appended.at, repeated: appended.repeated, woke: appended.woke }
    }
}

/// Open approval.
#[derive(Serialize)]
pub struct Approval<'a> {
    id: String,
    run: &'a RunId,
    name: &'a Name,
    title: &'a str,
    description: Option<&'a str>,
    show: Option<&'a Payload>,
    deciders: &'a [String],
    /// Requesters of the run may not decide.
    not_by_requester: bool,
    requested_at: Timestamp,
    deadline: Option<Timestamp>,
}

impl<'a> From<&'a Wait> for Approval<'a> {
    fn from(wait: &'a Wait) -> Approval<'a> {
        Approval {
            id: CallRef::from(wait).to_string(),
            run: &wait.run.id,
            name: &wait.name,
            title: &wait.title,
            description: wait.description.as_deref(),
            show: wait.show.as_ref(),
            deciders: &wait.deciders,
            not_by_requester: wait.not_by_requester,
            requested_at: wait.requested_at,
            deadline: wait.deadline,
        }
    }
}

#[derive(Serialize)]
pub struct Approvals<'a> {
    pub approvals: Vec<Approval<'a>>,
}

/// Run that was started, now or earlier.
#[derive(Serialize)]
pub struct StartedRun<'a> {
    #[serde(flatten)]
    pub run: Run<'a>,
    pub created: bool,
    /// Receipt of the signal that was sent with the start.
    pub signal: Option<Receipt<'a>>,
}

/// One event of a log.
#[derive(Serialize)]
pub struct LoggedEvent<'a> {
    pub generation: u32,
    pub index: Index,
    pub at: Timestamp,
    /// Number of its commit; inputs are part of none.
    pub commit: Option<u64>,
    pub event: &'a Event,
}

/// Page of a log.
#[derive(Serialize)]
pub struct EventPage<'a> {
    pub run: &'a RunId,
    pub events: Vec<&'a RawValue>,
    /// Position to continue from, also if there are no more events yet. `None` after the last event of a closed run.
    pub next: Option<LogPosition>,
}

/// Position in the logs of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LogPosition {
    pub generation: u32,
    pub from: Index,
}

/// Event for an attached reader when the run waits or is paused.
#[derive(Serialize)]
pub struct Standstill<'a> {
    pub status: &'static str,
    pub awaiting: &'a [Awaited],
    pub pause: Option<&'a RunPaused>,
    pub next: LogPosition,
}

/// Status of a run, and its outcome if it is closed.
#[derive(Serialize)]
pub struct RunResult<'a> {
    pub id: &'a RunId,
    pub status: &'static str,
    pub outcome: Option<Outcome<'a>>,
}

/// Response to an update; without an outcome, it is not answered yet.
#[derive(Serialize)]
pub struct UpdateAnswer<'a> {
    pub run: &'a RunId,
    pub update_id: &'a str,
    pub outcome: Option<Outcome<'a>>,
}

/// Result of a request to delete runs.
#[derive(Serialize)]
pub struct Deleted<'a> {
    pub deleted: Vec<&'a str>,
    pub refused: Vec<&'a str>,
}

/// External run.
#[derive(Serialize)]
pub struct ExternalView<'a> {
    id: &'a RunId,
    namespace: &'a Namespace,
    kind: &'a Name,
    version: Option<&'a Name>,
    status: &'static str,
    /// Index of its engine's next event.
    next_index: Index,
    /// Data that its engine stored; `None` if it has only appended events.
    data: Option<Box<RawValue>>,
    created_at: Timestamp,
    updated_at: Timestamp,
    ended_at: Option<Timestamp>,
}

impl<'a> ExternalView<'a> {
    pub fn new(run: &'a ExternalRun, data: Option<Box<RawValue>>) -> ExternalView<'a> {
        let head = &run.head;
        ExternalView {
            id: &head.key.id,
            namespace: &head.key.namespace,
            kind: &head.kind,
            version: head.version.as_ref(),
            status: head.status.as_str(),
            next_index: run.next_index(),
            data,
            created_at: head.created_at,
            updated_at: head.updated_at,
            ended_at: head.ended_at,
        }
    }
}

/// Event of an external engine.
#[derive(Serialize)]
pub struct ExternalEvent {
    pub index: Index,
    pub at: Timestamp,
    pub event: Box<RawValue>,
}

/// Page of an external engine's log.
#[derive(Serialize)]
pub struct ExternalEvents<'a> {
    pub run: &'a RunId,
    pub events: Vec<&'a RawValue>,
    /// First index of the next page; `None` on the last page.
    pub next: Option<Index>,
    /// Index of the engine's next event.
    pub next_index: Index,
}

/// Response to an append by an external engine.
#[derive(Serialize)]
pub struct ExternalAnswer<'a> {
    run: &'a RunId,
    next_index: Index,
    at: Timestamp,
    repeated: bool,
    created: bool,
}

impl<'a> ExternalAnswer<'a> {
    pub fn new(run: &'a RunId, appended: &AppendedExternal) -> ExternalAnswer<'a> {
        let AppendedExternal { next_index, at, repeated, created } = *appended;
        ExternalAnswer { run, next_index, at, repeated, created }
    }
}

/// Queues of a namespace.
#[derive(Serialize)]
pub struct Queues<'a> {
    queues: Vec<Queue<'a>>,
}

#[derive(Serialize)]
struct Queue<'a> {
    /// `null` is the default queue.
    queue: Option<&'a Name>,
    kind: &'a Name,
    queued: u64,
    running: u64,
    quarantined: u64,
    oldest_at: Option<Timestamp>,
    workers: u64,
}

impl<'a> From<&'a [QueueInfo]> for Queues<'a> {
    fn from(queues: &'a [QueueInfo]) -> Queues<'a> {
        let queue = |QueueInfo { count, workers }: &'a QueueInfo| Queue {
            queue: count.queue.as_ref(),
            kind: &count.kind,
            queued: count.queued,
            running: count.running,
            quarantined: count.quarantined,
            oldest_at: count.oldest_at,
            workers: *workers,
        };
        Queues { queues: queues.iter().map(queue).collect() }
    }
}

/// Open tasks, of workflows and standalone.
#[derive(Serialize)]
pub struct OpenTasks<'a> {
    tasks: Vec<OpenTask<'a>>,
}

#[derive(Serialize)]
struct OpenTask<'a> {
    id: String,
    run: &'a RunId,
    kind: &'a Name,
    /// `null` is the default queue.
    queue: Option<&'a Name>,
    state: &'static str,
    attempt: u32,
    lost_workers: u32,
    last_failure: Option<&'a Failure>,
}

impl<'a> From<&'a [Task]> for OpenTasks<'a> {
    fn from(tasks: &'a [Task]) -> OpenTasks<'a> {
        let task = |task: &'a Task| OpenTask {
            id: CallRef::from(task.id.clone()).to_string(),
            run: &task.id.run.id,
            kind: &task.kind,
            queue: task.options.queue.as_ref(),
            state: match task.state {
                TaskState::Queued => "queued",
                TaskState::Leased => "running",
                TaskState::Quarantined => "quarantined",
            },
            attempt: task.attempt,
            lost_workers: task.lost_workers,
            last_failure: task.last_failure.as_ref(),
        };
        OpenTasks { tasks: tasks.iter().map(task).collect() }
    }
}

/// Servers that share a store.
#[derive(Serialize)]
pub struct Servers<'a> {
    servers: Vec<OneServer<'a>>,
}

#[derive(Serialize)]
struct OneServer<'a> {
    id: &'a Name,
    url: &'a str,
    version: &'a str,
    started_at: Timestamp,
    heard_at: Timestamp,
    /// Is the server that responds.
    is_this: bool,
}

impl<'a> Servers<'a> {
    pub fn new(servers: &'a [ServerInfo], this: &Name) -> Servers<'a> {
        let server = |server: &'a ServerInfo| OneServer {
            id: &server.id,
            url: &server.url,
            version: &server.version,
            started_at: server.started_at,
            heard_at: server.heard_at,
            is_this: server.id == *this,
        };
        Servers { servers: servers.iter().map(server).collect() }
    }
}
