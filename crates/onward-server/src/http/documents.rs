//! JSON documents: runs, responses, open approvals and conversations, for the HTTP API and the command line.
//!
//! Field names are those of the log. Payloads are `{"json": …}` with their exact text, or `{"base64": …, "type": …}` if they are
//! not JSON. The documents are structs and not `Value`s, because a `Value` would parse numbers and sort keys.

use std::collections::BTreeMap;

use onward_core::api::{Appended, AppendedEntry, Blocker, DeletedRun, EntryPage, QueueInfo};
use onward_core::budget::Budget;
use onward_core::conversation::{Entry, PendingEntry};
use onward_core::event::{ParentLink, RunPaused};
use onward_core::ledger::{SpendBy, SpendRow};
use onward_core::run::Wait;
use onward_core::spend::SpendTotals;
use onward_core::task::{Task, TaskCount, TaskState};
use onward_core::view::{Awaited, ForkedFrom, RunCounts, RunView, Undelivered};
use onward_core::{Event, Failure, Hash, Index, Name, Namespace, Payload, RunHead, RunId, Timestamp};
use onward_runtime::CallRef;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::handlers::attributes::PlainValue;

/// Declares documents that are made `From` a value: a row is `field: type = expression`.
macro_rules! documents {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident<$life:lifetime>($source:ident: $type:ty) {
        $($(#[$field_meta:meta])* $field:ident: $field_type:ty = $value:expr,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(serde::Serialize)]
        $vis struct $name<$life> { $($(#[$field_meta])* $field: $field_type,)* }

        impl<$life> From<$type> for $name<$life> {
            fn from($source: $type) -> $name<$life> {
                $name { $($field: $value,)* }
            }
        }
    )*};
}
pub(crate) use documents;

documents! {
    /// Run in a list.
    pub struct Run<'a>(head: &'a RunHead) {
        id: &'a RunId = &head.key.id,
        namespace: &'a Namespace = &head.key.namespace,
        kind: &'a Name = &head.kind,
        version: Option<&'a Name> = head.version.as_ref(),
        status: &'static str = head.status.as_str(),
        generation: u32 = head.generation,
        event_count: Index = head.next_index,
        parent: Option<&'a ParentLink> = head.parent.as_ref(),
        /// An external engine stores its log here.
        external: bool = head.external.is_some(),
        created_at: Timestamp = head.created_at,
        updated_at: Timestamp = head.updated_at,
        paused_at: Option<Timestamp> = head.paused_at,
        ended_at: Option<Timestamp> = head.ended_at,
        attributes: BTreeMap<&'a Name, PlainValue> =
            head.attributes.iter().map(|attribute| (&attribute.name, attribute.value.clone().into())).collect(),
        /// Cost of its own attempts, in all generations.
        spend: Option<&'a SpendTotals> = head.spend.as_deref(),
        /// Limits of what it may spend, its children included.
        budget: Option<&'a Budget> = head.budget.as_ref().map(|budget| &budget.limit),
    }

    /// Runs that were deleted by request.
    pub struct DeletedRuns<'a>(runs: &'a [DeletedRun]) {
        deleted: Vec<Gone<'a>> = runs.iter().map(Gone::from).collect(),
    }

    struct Gone<'a>(run: &'a DeletedRun) {
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
        /// Absent if the run is shown as of an earlier time.
        #[serde(skip_serializing_if = "Option::is_none")]
        blocked_on: Option<Vec<OneBlocker<'a>>> = None,
        state: &'a BTreeMap<Name, Payload> = &view.state,
        outcome: Option<Outcome<'a>> = view.outcome.as_ref().map(Outcome::from),
        undelivered: &'a [Undelivered] = &view.undelivered,
        pause: Option<&'a RunPaused> = view.pause.as_ref(),
        cancel_reason: Option<&'a str> = view.cancel_reason.as_deref(),
        counts: RunCounts = view.counts,
        /// Name of the key that started the run or its root run.
        requester: Option<&'a str> = view.head.requester.as_deref(),
        /// Names of the keys that forked, reset or retried it.
        copied_by: &'a [String] = &view.head.copied_by,
        forked_from: Option<&'a ForkedFrom> = view.forked_from.as_ref(),
        reset_to: Option<&'a RunId> = view.reset_to.as_ref(),
    }

    /// Reason why a run or one of its tasks is blocked.
    pub(crate) struct OneBlocker<'a>(blocker: &'a Blocker) {
        task: Option<String> = blocker.task_ref(),
        kind: &'a Name = &blocker.kind,
        why: &'static str = blocker.why.as_str(),
        since: Option<Timestamp> = blocker.since,
        until: Option<Timestamp> = blocker.until,
        lost_workers: u32 = blocker.lost_workers,
        failure_code: Option<&'a str> = blocker.failure_code.as_deref(),
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
        /// Requesters of the run may not decide.
        not_by_requester: bool = wait.not_by_requester,
        requested_at: Timestamp = wait.requested_at,
        deadline: Option<Timestamp> = wait.deadline,
    }

    /// Queues of a namespace.
    pub struct Queues<'a>(queues: &'a [QueueInfo]) {
        queues: Vec<Queue<'a>> = queues.iter().map(Queue::from).collect(),
    }

    struct Queue<'a>(queue: &'a QueueInfo) {
        #[serde(flatten)]
        count: &'a TaskCount = &queue.count,
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
        state: &'static str = match task.state {
            TaskState::Queued => "queued",
            TaskState::Leased => "running",
            TaskState::Quarantined => "quarantined",
        },
        attempt: u32 = task.attempt,
        lost_workers: u32 = task.lost_workers,
        last_failure: Option<&'a Failure> = task.last_failure.as_ref(),
    }

    struct ShownEntry<'a>(entry: &'a Entry) {
        id: Hash = entry.id,
        parent: Option<Hash> = entry.parent,
        role: &'a Name = &entry.role,
        content: &'a Payload = &entry.content,
        idempotency_key: Option<&'a str> = entry.idempotency_key.as_deref(),
        generation: u32 = entry.generation,
        index: Index = entry.index,
        at: Timestamp = entry.at,
        is_abandoned: bool = entry.is_abandoned,
    }
}

impl<'a> View<'a> {
    /// Adds what the run and its tasks are blocked on now.
    pub fn with(self, blocked_on: &'a [Blocker]) -> View<'a> {
        View { blocked_on: Some(blocked_on.iter().map(OneBlocker::from).collect()), ..self }
    }
}

#[derive(Serialize)]
pub struct Approvals<'a> {
    pub approvals: Vec<Approval<'a>>,
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
#[derive(Serialize)]
pub struct Entries<'a> {
    run: &'a RunId,
    /// Oldest first.
    entries: Vec<ShownEntry<'a>>,
    before: Option<String>,
    leaf: Option<Hash>,
    depth: Option<u64>,
    pending: &'a [PendingEntry],
}

impl<'a> Entries<'a> {
    pub fn new(run: &'a RunId, page: &'a EntryPage) -> Entries<'a> {
        let EntryPage { entries, before, leaf, depth, pending } = page;
        let (entries, before) = (entries.iter().map(ShownEntry::from).collect(), before.map(|before| before.to_string()));
        Entries { run, entries, before, leaf: *leaf, depth: *depth, pending }
    }
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
pub struct PauseFrame<'a> {
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
