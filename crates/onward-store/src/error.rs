//! Errors of store operations.
//!
//! Every variant has a stable code with a page in `docs/errors/` and a [`Consequence`], so that callers do not match on variants
//! to decide how to react. Waiting and repeats are not errors.

use std::path::PathBuf;

use onward_core::root_run::root_run;
use onward_core::run::{Again, IdempotencyRecord, Refusal};
use onward_core::task::{StaleReport, TaskId};
use onward_core::{Index, RunKey, Status};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("run {key} not found")]
    RunNotFound { key: RunKey },
    #[error("run {key} already exists with a different kind or input")]
    RunExists { key: RunKey },
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another answer was recorded first (L12).
    #[error("run {key} already has this answer: `{winner}` came first, at event {index}")]
    SignalLost { key: RunKey, winner: String, index: Index },
    /// The id was used before with different content (L11).
    #[error("run {key} already has {what} with different content, at event {index}")]
    IdTaken { key: RunKey, what: String, index: Index },
    #[error("run {key} has no open approval or promise at {call_id}")]
    WaitNotFound { key: RunKey, call_id: String },
    #[error(transparent)]
    TaskAttemptOver(#[from] StaleReport),
    #[error("task {task} is not in quarantine")]
    TaskNotQuarantined { task: Box<TaskId> },
    #[error("run {key} cannot be deleted: {why}")]
    RunBusy { key: RunKey, why: String },
    #[error("run {key} is held by another worker")]
    RunHeld { key: RunKey },
    /// Recorded bytes do not match their checksum (L2).
    #[error("the log of run {key} is damaged at event {index}: {why}")]
    LogCorrupt { key: RunKey, index: Index, why: String },
    #[error("the log of run {key} is invalid: {why}")]
    LogInvalid { key: RunKey, why: String },
    #[error("damaged data: {why}")]
    Corrupt { why: String },
    /// Acknowledged writes are unreadable: the store refuses writes until the directory is repaired.
    #[error("the directory is damaged and read-only: {why}")]
    Damaged { why: String },
    #[error("a payload of {bytes} bytes is over the limit of {max}")]
    PayloadTooLarge { bytes: usize, max: usize },
    #[error("the disk is full")]
    DiskFull,
    #[error("{path} is in use by this or another process")]
    DirectoryLocked { path: PathBuf },
    #[error("{path} was written by a newer Onward: format {found}, this program reads up to {supported}")]
    DirectoryNewer { path: PathBuf, found: u32, supported: u32 },
    #[error("{path} is not an Onward directory: {why}")]
    DirectoryForeign { path: PathBuf, why: String },
    #[error("{path} cannot be used: {why}")]
    DirectoryUnusable { path: PathBuf, why: String },
    #[error("the database was migrated by a newer Onward: schema version {found}, this program supports up to {supported}")]
    DatabaseNewer { found: u32, supported: u32 },
    #[error("the database cannot be used: {why}")]
    DatabaseUnusable { why: String },
    /// The certificate was not accepted, or the server does not offer TLS and TLS was required.
    #[error("the database cannot be trusted: {why}")]
    DatabaseUntrusted { why: String },
    /// A sync failed: unacknowledged writes may or may not be durable, and no more are accepted.
    #[error("the store stopped accepting writes: {why}")]
    Stopped { why: String },
    #[error("the store was opened read-only")]
    ReadOnly,
    /// Parent and child would be in different shards (L19).
    #[error("run {child} cannot be a child of run {parent}: its id must begin with `{}/`", root_run(&parent.id))]
    RootRunDiffers { child: RunKey, parent: RunKey },
    /// The databases, or their order, are not those that the shards were created with.
    #[error("the databases do not match the shards: {why}")]
    DatabasesDiffer { why: String },
    #[error("invalid page cursor `{cursor}`")]
    CursorInvalid { cursor: String },
    #[error("the store cannot be reached: {why}")]
    Unavailable { why: String },
    /// An error that a server returned.
    #[error("{}", .0.message)]
    Elsewhere(Box<Elsewhere>),
}

/// An error received over the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    pub code: &'static str,
    pub message: String,
    pub hint: Option<&'static str>,
    pub consequence: Consequence,
}

/// The reaction that an error asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// The request cannot succeed; a retry changes nothing.
    TellCaller,
    /// The lease is lost: drop the cached run and stop working on it.
    StopRun,
    /// The same call may succeed later.
    Retry,
    /// The data of this run is damaged; other runs are not affected.
    IsolateRun,
    /// This process cannot write any more.
    StopProcess,
}

impl StoreError {
    /// Returns the stable code, which has a page `docs/errors/<code>.md`. Never reused, never renamed.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::RunNotFound { .. } => "run_not_found",
            StoreError::RunExists { .. } => "run_exists",
            StoreError::Refused(refusal) => match refusal {
                Refusal::Closed { .. } => "run_closed",
                Refusal::Fenced { .. } => "lease_lost",
                Refusal::Unread { .. } => "inputs_unread",
                Refusal::Paused { .. } => "run_paused",
                Refusal::NotPaused { .. } => "run_not_paused",
                Refusal::ApprovalNeeded { .. } => "approval_needed",
                Refusal::ChildBehindApproval { .. } => "child_behind_approval",
                Refusal::OutcomeUnknown { .. } => "outcome_unknown",
                Refusal::BudgetExhausted { .. } => "budget_exhausted",
                Refusal::BranchPending { .. } => "branch_pending",
                Refusal::IsTask { .. } => "run_is_task",
                Refusal::OtherGeneration { .. } => "run_continued",
                Refusal::Malformed { .. } => "commit_malformed",
                Refusal::NotFailed { .. } => "run_not_failed",
                Refusal::AlreadyReset { .. } => "run_reset",
                Refusal::FailureHandled { .. } => "failure_handled",
                Refusal::NoForkPoint { .. } => "fork_point_invalid",
                Refusal::External { .. } => "run_external",
                Refusal::NotExternal { .. } => "run_not_external",
                Refusal::LogConflict { .. } => "log_conflict",
            },
            StoreError::SignalLost { .. } => "signal_lost",
            StoreError::IdTaken { .. } => "id_taken",
            StoreError::WaitNotFound { .. } => "wait_not_found",
            StoreError::TaskAttemptOver(_) => "task_attempt_over",
            StoreError::TaskNotQuarantined { .. } => "task_not_quarantined",
            StoreError::RunBusy { .. } | StoreError::RunHeld { .. } => "run_busy",
            StoreError::LogCorrupt { .. } => "log_corrupt",
            StoreError::LogInvalid { .. } => "log_invalid",
            StoreError::Corrupt { .. } => "store_corrupt",
            StoreError::Damaged { .. } => "store_damaged",
            StoreError::PayloadTooLarge { .. } => "payload_too_large",
            StoreError::DiskFull => "disk_full",
            StoreError::DirectoryLocked { .. } => "directory_locked",
            StoreError::DirectoryNewer { .. } => "directory_newer",
            StoreError::DirectoryForeign { .. } => "directory_foreign",
            StoreError::DirectoryUnusable { .. } => "directory_unusable",
            StoreError::DatabaseNewer { .. } => "database_newer",
            StoreError::DatabaseUnusable { .. } => "database_unusable",
            StoreError::DatabaseUntrusted { .. } => "database_untrusted",
            StoreError::Stopped { .. } => "store_stopped",
            StoreError::ReadOnly => "store_read_only",
            StoreError::RootRunDiffers { .. } => "family_differs",
            StoreError::DatabasesDiffer { .. } => "databases_differ",
            StoreError::CursorInvalid { .. } => "cursor_invalid",
            StoreError::Unavailable { .. } => "store_unavailable",
            StoreError::Elsewhere(elsewhere) => elsewhere.code,
        }
    }

    /// Returns `Ok` if `once` repeats the act that its idempotency record holds as `token` since `index`, else the error that
    /// refuses it.
    pub fn of_slot(key: &RunKey, once: &IdempotencyRecord, token: &str, index: Index) -> Result<(), StoreError> {
        match once.again(token) {
            Again::Repeated => Ok(()), // L11
            Again::Other => Err(StoreError::IdTaken { key: key.clone(), what: once.describe(), index }),
            Again::Lost { winner } => Err(StoreError::SignalLost { key: key.clone(), winner, index }), // L12
        }
    }

    pub fn consequence(&self) -> Consequence {
        match self {
            StoreError::Refused(Refusal::Fenced { .. } | Refusal::OtherGeneration { .. }) => Consequence::StopRun,
            StoreError::Refused(Refusal::Unread { .. }) => Consequence::Retry,
            StoreError::LogCorrupt { .. } => Consequence::IsolateRun,
            StoreError::DiskFull | StoreError::Unavailable { .. } => Consequence::Retry,
            StoreError::Stopped { .. } | StoreError::Corrupt { .. } | StoreError::Damaged { .. } => Consequence::StopProcess,
            StoreError::Elsewhere(elsewhere) => elsewhere.consequence,
            _ => Consequence::TellCaller,
        }
    }

    /// Returns advice on how to proceed. Every local error has a hint; a remote one has the hint that was sent with it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            StoreError::RunNotFound { .. } => "list the runs of this store with `onward run list`",
            StoreError::RunExists { .. } => "use another id, or start with the same kind and input to get the existing run",
            StoreError::Refused(Refusal::Closed { status: Status::Failed, .. }) => {
                "continue the failed run with `onward run retry RUN`, then send it again"
            }
            StoreError::Refused(Refusal::Closed { .. }) => "a closed run takes no more inputs; start a new one",
            StoreError::Refused(Refusal::IsTask { .. }) => {
                "cancel it with POST /v1/tasks/ID/cancel; a standalone task takes no other input"
            }
            StoreError::Refused(Refusal::AlreadyReset { .. }) => {
                "reset the run that replaced it, or fork this one, which keeps both"
            }
            StoreError::Refused(Refusal::ApprovalNeeded { .. }) => {
                "decide them (`onward approval list`): the run continues once all are approved and stays paused if one is declined"
            }
            StoreError::Refused(Refusal::ChildBehindApproval { .. }) => {
                "reset to a point before that event to request the approval again, or fork and await the child"
            }
            StoreError::Refused(Refusal::OutcomeUnknown { .. }) => {
                "check whether the effect happened; execute it again with `--include-outcome-unknown` (`include_outcome_unknown`)"
            }
            StoreError::Refused(Refusal::BudgetExhausted { .. }) => {
                "raise the budget with `onward run resume ID --budget tokens=N`"
            }
            StoreError::Refused(Refusal::BranchPending { .. }) => {
                "wait until the agent has taken that branch (`onward run resume` if it is paused), read its conversation and retry"
            }
            StoreError::Refused(Refusal::NotFailed { .. }) => "use `onward run fork`, which continues any run from any point",
            StoreError::Refused(Refusal::FailureHandled { .. }) => {
                "use `onward run reset` to continue from a point that you choose; compensated steps are not repeated otherwise"
            }
            StoreError::Refused(Refusal::NoForkPoint { .. }) => "choose an event at which a commit ends (`onward run events`)",
            StoreError::LogInvalid { .. } => "check the source of the log; nothing was written",
            StoreError::Refused(Refusal::Paused { .. }) => {
                "see the reason with `onward run show`, then continue it with `onward run resume`"
            }
            StoreError::Refused(Refusal::NotPaused { .. }) => {
                "check its status with `onward run show`; only a paused run can be resumed"
            }
            StoreError::Refused(Refusal::Fenced { .. }) => "another worker has the run now; stop working on it",
            StoreError::Refused(Refusal::Unread { .. }) => "deliver the inputs from there on to the code first",
            StoreError::Refused(Refusal::OtherGeneration { .. }) => {
                "retry against the current generation; the run has begun a new log"
            }
            StoreError::Refused(Refusal::Malformed { .. }) => "fix the worker: it violates the protocol (docs/protocol.md)",
            StoreError::Refused(Refusal::External { .. }) => "use the engine that owns this run",
            StoreError::Refused(Refusal::NotExternal { .. }) => {
                "append only to external runs; the code of this run belongs to Onward"
            }
            StoreError::Refused(Refusal::LogConflict { .. }) => "read on from there and append again; another writer was first",
            StoreError::SignalLost { .. } => "the first answer stands; this one was not recorded",
            StoreError::WaitNotFound { .. } => "list the open approvals with `onward approval list`",
            StoreError::RunHeld { .. } => "retry once the run is waiting; the worker that holds it receives inputs meanwhile",
            StoreError::IdTaken { .. } => "use another id for different content; the recorded content stands",
            StoreError::TaskAttemptOver(_) => "stop the attempt; the task has another result or another worker",
            StoreError::TaskNotQuarantined { .. } => "wait: only a quarantined task needs a manual retry",
            StoreError::RunBusy { .. } => {
                "end it with `onward run terminate`, wait for its children, and retry; only a closed run can be deleted"
            }
            StoreError::LogCorrupt { .. } => {
                "check the store with `onward doctor`; `onward doctor --repair` keeps every record that verifies; or restore a backup, or discard this run with `onward run terminate`, then `onward run delete`"
            }
            StoreError::Corrupt { .. } | StoreError::Damaged { .. } => {
                "run `onward doctor --repair`, which keeps what is readable, lists what is lost and copies the damaged files; or restore a backup"
            }
            StoreError::PayloadTooLarge { .. } => "store large data elsewhere and pass a reference",
            StoreError::DiskFull => "free disk space; writes then resume without a restart",
            StoreError::DirectoryLocked { .. } => {
                "stop the process that has it open, or drop the other store; commands that only read work meanwhile"
            }
            StoreError::DirectoryNewer { .. } => "use the newer program; the directory was not changed",
            StoreError::DirectoryForeign { .. } => "choose an empty directory or one that Onward created",
            StoreError::DirectoryUnusable { .. } => "make the directory and its files readable and writable for this user",
            StoreError::DatabaseNewer { .. } => "use the newer program; the database was not changed",
            StoreError::DatabaseUnusable { .. } => {
                "check the address and the database name, and that the user may create a schema"
            }
            StoreError::DatabaseUntrusted { .. } => {
                "set `sslrootcert` to the CA file and use the host name of the certificate; `sslmode=require` encrypts without verifying the certificate"
            }
            StoreError::Stopped { .. } => "check the disk and restart; acknowledged writes are durable",
            StoreError::ReadOnly => "write through the process that opened the store for writing",
            StoreError::RootRunDiffers { .. } => {
                "begin the child's id with its parent's up to the first `/`, or omit the id to get a generated one"
            }
            StoreError::DatabasesDiffer { .. } => "pass the same databases as at creation, all of them and in the same order",
            StoreError::CursorInvalid { .. } => "start without a cursor; a cursor is valid only for the query that returned it",
            StoreError::Unavailable { .. } => "retry; a repeat with the same id is recorded once",
            StoreError::Elsewhere(elsewhere) => return elsewhere.hint,
        })
    }
}

#[cfg(test)]
mod tests {
    use onward_core::{CallId, Epoch, Namespace, RunId, Status};

    use super::*;

    /// Checks that no local error has an empty hint; `hint` itself matches every variant by name.
    #[test]
    fn every_error_of_this_process_has_a_hint() {
        let key = || RunKey::new(Namespace::default(), RunId::new("r").unwrap());
        let (why, path, index) = (|| "x".to_owned(), PathBuf::new, Index(1));
        let task = || Box::new(TaskId { run: key(), generation: 0, call_id: CallId::root(0), incarnation: None });
        let refusals = [
            Refusal::Closed { key: key(), status: Status::Completed },
            Refusal::Fenced { key: key(), epoch: Epoch(1), current: Epoch(2), n: 0, next: 1 },
            Refusal::Unread { key: key(), tail: index },
            Refusal::Paused { key: key() },
            Refusal::OtherGeneration { key: key() },
            Refusal::NotPaused { key: key() },
            Refusal::BranchPending { key: key(), index },
            Refusal::Malformed { key: key(), why: "x" },
            Refusal::External { key: key() },
            Refusal::NotExternal { key: key() },
            Refusal::LogConflict { key: key(), expected: index, next: index },
        ];
        let errors = [
            StoreError::RunNotFound { key: key() },
            StoreError::RunExists { key: key() },
            StoreError::SignalLost { key: key(), winner: why(), index },
            StoreError::IdTaken { key: key(), what: why(), index },
            StoreError::WaitNotFound { key: key(), call_id: why() },
            StoreError::TaskAttemptOver(StaleReport),
            StoreError::TaskNotQuarantined { task: task() },
            StoreError::RunBusy { key: key(), why: why() },
            StoreError::LogCorrupt { key: key(), index, why: why() },
            StoreError::Corrupt { why: why() },
            StoreError::Damaged { why: why() },
            StoreError::PayloadTooLarge { bytes: 2, max: 1 },
            StoreError::DiskFull,
            StoreError::DirectoryLocked { path: path() },
            StoreError::DirectoryNewer { path: path(), found: 2, supported: 1 },
            StoreError::DirectoryForeign { path: path(), why: why() },
            StoreError::DatabaseNewer { found: 2, supported: 1 },
            StoreError::DatabaseUnusable { why: why() },
            StoreError::DatabaseUntrusted { why: why() },
            StoreError::Stopped { why: why() },
            StoreError::ReadOnly,
            StoreError::RootRunDiffers { child: key(), parent: key() },
            StoreError::DatabasesDiffer { why: why() },
            StoreError::CursorInvalid { cursor: why() },
            StoreError::Unavailable { why: why() },
        ];
        for error in refusals.map(StoreError::Refused).into_iter().chain(errors) {
            assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{error}");
        }
    }
}
