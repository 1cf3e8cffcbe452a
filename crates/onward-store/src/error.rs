//! Why a store did not do what it was asked.
//!
//! Every variant has a stable code with a page in `docs/errors/` and a consequence, so that no caller has to match on
//! variants to decide what to do. Waiting is not an error, and neither is a repeat.

use std::path::PathBuf;

use onward_core::family::family;
use onward_core::run::{Again, Once, Refusal};
use onward_core::task::{StaleReport, TaskId};
use onward_core::{Index, RunKey, Status};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("there is no run {key}")]
    RunNotFound { key: RunKey },
    #[error("run {key} exists already, with another kind or input")]
    RunExists { key: RunKey },
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another answer came first (L12).
    #[error("run {key} has this answer already: `{winner}` came first, at event {index}")]
    SignalLost { key: RunKey, winner: String, index: Index },
    /// The id was used for something else before (L11).
    #[error("run {key} has taken {what} already, at event {index}, and it said something else")]
    IdTaken { key: RunKey, what: String, index: Index },
    #[error("run {key} has no open question at {place}")]
    WaitNotFound { key: RunKey, place: String },
    #[error(transparent)]
    TaskAttemptOver(#[from] StaleReport),
    #[error("task {task} is not in quarantine")]
    TaskNotQuarantined { task: Box<TaskId> },
    #[error("run {key} cannot be deleted: {why}")]
    RunBusy { key: RunKey, why: String },
    #[error("run {key} is being worked on by somebody else")]
    RunHeld { key: RunKey },
    /// Recorded bytes do not have the checksum they were written with (L2).
    #[error("the log of run {key} is damaged at event {index}: {why}")]
    LogCorrupt { key: RunKey, index: Index, why: String },
    #[error("the log of run {key} cannot be taken: {why}")]
    LogInvalid { key: RunKey, why: String },
    #[error("damaged data: {why}")]
    Corrupt { why: String },
    /// Acknowledged writes cannot be read any more: nothing is written until the directory is repaired.
    #[error("the directory is damaged and can only be read: {why}")]
    Damaged { why: String },
    #[error("a payload of {bytes} bytes is over the limit of {max}")]
    PayloadTooLarge { bytes: usize, max: usize },
    #[error("the disk is full")]
    DiskFull,
    #[error("{path} is in use by this or another process")]
    DirectoryLocked { path: PathBuf },
    #[error("{path} was written by a newer Onward: it has format {found}, this program reads up to {supported}")]
    DirectoryNewer { path: PathBuf, found: u32, supported: u32 },
    #[error("{path} is not an Onward directory: {why}")]
    DirectoryForeign { path: PathBuf, why: String },
    #[error("{path} cannot be used: {why}")]
    DirectoryUnusable { path: PathBuf, why: String },
    #[error("the database was changed by a newer Onward: it has version {found}, this program knows up to {supported}")]
    DatabaseNewer { found: u32, supported: u32 },
    #[error("the database cannot be used: {why}")]
    DatabaseUnusable { why: String },
    /// Its certificate is not believed, or it speaks no TLS where that was asked for.
    #[error("the database cannot be trusted: {why}")]
    DatabaseUntrusted { why: String },
    /// A sync failed: what was not acknowledged may or may not be there, and nothing more is written.
    #[error("the store has stopped taking writes: {why}")]
    Stopped { why: String },
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// Parent and child would lie in two databases (L19).
    #[error("run {child} cannot be a child of run {parent}: its id must begin with `{}/`", family(&parent.id))]
    FamilyDiffers { child: RunKey, parent: RunKey },
    /// The databases are not the ones that the runs were spread over, or stand in another order.
    #[error("the runs are spread over other databases: {why}")]
    DatabasesDiffer { why: String },
    #[error("the page cursor `{cursor}` is not one of ours")]
    CursorInvalid { cursor: String },
    #[error("the store cannot be reached: {why}")]
    Unavailable { why: String },
    /// A server said so; what it is about, only the server knows.
    #[error("{}", .0.message)]
    Elsewhere(Box<Elsewhere>),
}

/// An error as it came over a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    pub code: &'static str,
    pub message: String,
    pub hint: Option<&'static str>,
    pub consequence: Consequence,
}

/// What a caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// The caller asked for something that cannot be; asking again changes nothing.
    TellCaller,
    /// The lease is lost: drop the run's memory and stop working on it.
    StopRun,
    /// The same call may succeed later.
    Retry,
    /// This run's data is damaged; the others go on.
    IsolateRun,
    /// Nothing more can be written by this process.
    StopProcess,
}

impl StoreError {
    /// Stable name; has a page `docs/errors/<code>.md`. Never reused, never renamed.
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
            StoreError::FamilyDiffers { .. } => "family_differs",
            StoreError::DatabasesDiffer { .. } => "databases_differ",
            StoreError::CursorInvalid { .. } => "cursor_invalid",
            StoreError::Unavailable { .. } => "store_unavailable",
            StoreError::Elsewhere(elsewhere) => elsewhere.code,
        }
    }

    /// What becomes of `once` when its slot holds `token` since `index`: nothing if it is a repeat, else why it is refused.
    pub fn of_slot(key: &RunKey, once: &Once, token: &str, index: Index) -> Result<(), StoreError> {
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

    /// What to try. Every error of this process has a hint; one that came over a network has what was sent with it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            StoreError::RunNotFound { .. } => "`onward run list` shows the runs of this store",
            StoreError::RunExists { .. } => "use another id, or start it with the same input to get the existing run",
            StoreError::Refused(Refusal::Closed { status: Status::Failed, .. }) => {
                "`onward run retry RUN` lets a failed run go on from where it failed; then send it again"
            }
            StoreError::Refused(Refusal::Closed { .. }) => "a closed run takes no more inputs; start a new one",
            StoreError::Refused(Refusal::IsTask { .. }) => {
                "POST /v1/tasks/ID/cancel ends it; signals and the like are for workflows"
            }
            StoreError::Refused(Refusal::AlreadyReset { .. }) => {
                "reset the run that goes on in its place, or fork this one, which keeps both"
            }
            StoreError::Refused(Refusal::ApprovalNeeded { .. }) => {
                "`onward approval list` shows them; the run goes on when all are approved, and stays paused if one is declined"
            }
            StoreError::Refused(Refusal::ChildBehindApproval { .. }) => {
                "`onward run reset` to a point before that event asks for the approval again; a fork may await the child instead"
            }
            StoreError::Refused(Refusal::OutcomeUnknown { .. }) => {
                "find out whether the effect happened; `--include-outcome-unknown` (`include_outcome_unknown`) executes it again"
            }
            StoreError::Refused(Refusal::BudgetExhausted { .. }) => "`onward run resume ID --budget tokens=N` lets it spend more",
            StoreError::Refused(Refusal::BranchPending { .. }) => {
                "wait until the agent has taken that one (`onward run resume` if it is paused), look at its conversation, and ask again"
            }
            StoreError::Refused(Refusal::NotFailed { .. }) => "`onward run fork` goes on from any point of any run",
            StoreError::Refused(Refusal::FailureHandled { .. }) => {
                "what was undone is not done again by itself; `onward run reset` goes on from a point that you choose"
            }
            StoreError::Refused(Refusal::NoForkPoint { .. }) => "`onward run events` shows where commits end",
            StoreError::LogInvalid { .. } => "nothing was written",
            StoreError::Refused(Refusal::Paused { .. }) => {
                "`onward run show` says why it is paused; `onward run resume` lets it go on"
            }
            StoreError::Refused(Refusal::NotPaused { .. }) => {
                "only a paused run can be resumed; `onward run show` says where it stands"
            }
            StoreError::Refused(Refusal::Fenced { .. }) => "another worker has the run now; stop working on it",
            StoreError::Refused(Refusal::Unread { .. }) => "read the log on from there, and let the code see it before it ends",
            StoreError::Refused(Refusal::OtherGeneration { .. }) => {
                "the run has begun a new log since; ask it again, in its current generation"
            }
            StoreError::Refused(Refusal::Malformed { .. }) => "the worker breaks the protocol: docs/protocol.md has its rules",
            StoreError::Refused(Refusal::External { .. }) => "ask the engine that keeps its log here",
            StoreError::Refused(Refusal::NotExternal { .. }) => {
                "only an outside engine's run takes events at an index; this one has code here"
            }
            StoreError::Refused(Refusal::LogConflict { .. }) => "somebody else appended first: read on from there",
            StoreError::SignalLost { .. } => "the first answer stands; the run was not harmed",
            StoreError::WaitNotFound { .. } => "`onward approval list` shows the open questions",
            StoreError::RunHeld { .. } => "who works on it gets what is sent to it; drive it again when it waits",
            StoreError::IdTaken { .. } => "the first one stands; use another id for something else",
            StoreError::TaskAttemptOver(_) => "stop the attempt; another result counts, or another worker has the task",
            StoreError::TaskNotQuarantined { .. } => {
                "only a task that lost too many workers is retried by hand; this one goes on by itself"
            }
            StoreError::RunBusy { .. } => {
                "only a closed run is deleted: end it with `onward run terminate`, wait for its children, and try again"
            }
            StoreError::LogCorrupt { .. } => {
                "`onward doctor` says which runs can be read, and `onward doctor --repair` keeps all that verifies; or restore the directory from a backup, or give this run up with `onward run terminate`, then `onward run delete`"
            }
            StoreError::Corrupt { .. } | StoreError::Damaged { .. } => {
                "`onward doctor --repair` keeps all that can be read, lists what is lost and keeps a copy of the damaged files; or restore the directory from a backup"
            }
            StoreError::PayloadTooLarge { .. } => "keep large data elsewhere and pass a reference",
            StoreError::DiskFull => "free some space; writes go on by themselves",
            StoreError::DirectoryLocked { .. } => {
                "end whatever has it open first, a process or a store that was not dropped; reading commands work meanwhile"
            }
            StoreError::DirectoryNewer { .. } => "use the newer program; the directory was left untouched",
            StoreError::DirectoryForeign { .. } => "choose an empty directory or one that Onward made",
            StoreError::DirectoryUnusable { .. } => {
                "whoever runs this must be able to read and write the directory and all that is in it"
            }
            StoreError::DatabaseNewer { .. } => "use the newer program; the database was left untouched",
            StoreError::DatabaseUnusable { .. } => {
                "check the address and the name, and that the user may make a schema in the database"
            }
            StoreError::DatabaseUntrusted { .. } => {
                "name the file of its CA with `sslrootcert` and the host as its certificate does; `sslmode=require` encrypts without looking at the certificate"
            }
            StoreError::Stopped { .. } => "check the disk and restart; what was acknowledged is safe",
            StoreError::ReadOnly => "open it for writing, in the one process that may",
            StoreError::FamilyDiffers { .. } => {
                "begin the child's id with its parent's up to the first `/`, or leave the id out: it gets one that fits"
            }
            StoreError::DatabasesDiffer { .. } => "name the same databases as the first time, all of them and in the same order",
            StoreError::CursorInvalid { .. } => "begin again without a cursor; a cursor belongs to the query whose page gave it",
            StoreError::Unavailable { .. } => "try again; a repeat with the same id is taken once",
            StoreError::Elsewhere(elsewhere) => return elsewhere.hint,
        })
    }
}

#[cfg(test)]
mod tests {
    use onward_core::{Epoch, Namespace, Place, RunId, Status};

    use super::*;

    /// `hint` matches every variant by name; this checks that none is without words, but for what came without any.
    #[test]
    fn every_error_of_this_process_has_a_hint() {
        let key = || RunKey::new(Namespace::default(), RunId::new("r").unwrap());
        let (why, path, index) = (|| "x".to_owned(), PathBuf::new, Index(1));
        let task = || Box::new(TaskId { run: key(), generation: 0, place: Place::root(0), life: None });
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
            StoreError::WaitNotFound { key: key(), place: why() },
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
            StoreError::FamilyDiffers { child: key(), parent: key() },
            StoreError::DatabasesDiffer { why: why() },
            StoreError::CursorInvalid { cursor: why() },
            StoreError::Unavailable { why: why() },
        ];
        for error in refusals.map(StoreError::Refused).into_iter().chain(errors) {
            assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{error}");
        }
    }
}
