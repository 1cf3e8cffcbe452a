//! Errors of store operations.
//!
//! Every variant has a row in the table of error codes and thus a [`Consequence`], so that callers do not match on variants
//! to decide how to react. Waiting and repeats are not errors.

use std::path::PathBuf;

use onward_core::root_run::root_run;
use onward_core::run::{Again, IdempotencyRecord, Refusal};
use onward_core::task::{StaleReport, TaskId};
use onward_core::{Consequence, ErrorCode, Index, RunKey, Status};

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

/// Matches an error to its row of the error table. The variants before the semicolon have rows of the same name.
macro_rules! rows {
    (match $error:ident as $type:ident { $($same:ident)*; $($other:tt)* }) => {
        match $error { $($type::$same { .. } => ErrorCode::$same,)* $($other)* }
    };
}

impl StoreError {
    /// Returns the row of the error table, or the error of a server, which brought its own.
    fn row(&self) -> Result<ErrorCode, &Elsewhere> {
        Ok(rows! {
            match self as StoreError {
                RunNotFound RunExists SignalLost IdTaken WaitNotFound TaskAttemptOver TaskNotQuarantined LogCorrupt LogInvalid
                PayloadTooLarge DiskFull DirectoryLocked DirectoryNewer DirectoryForeign DirectoryUnusable DatabaseNewer
                DatabaseUnusable DatabaseUntrusted DatabasesDiffer CursorInvalid;
                StoreError::Refused(refusal) => rows! {
                    match refusal as Refusal {
                        ApprovalNeeded ChildBehindApproval OutcomeUnknown BudgetExhausted BranchPending FailureHandled LogConflict;
                        Refusal::Closed { .. } => ErrorCode::RunClosed,
                        Refusal::Fenced { .. } => ErrorCode::LeaseLost,
                        Refusal::Unread { .. } => ErrorCode::InputsUnread,
                        Refusal::Paused { .. } => ErrorCode::RunPaused,
                        Refusal::NotPaused { .. } => ErrorCode::RunNotPaused,
                        Refusal::IsTask { .. } => ErrorCode::RunIsTask,
                        Refusal::OtherGeneration { .. } => ErrorCode::RunContinued,
                        Refusal::Malformed { .. } => ErrorCode::CommitMalformed,
                        Refusal::NotFailed { .. } => ErrorCode::RunNotFailed,
                        Refusal::AlreadyReset { .. } => ErrorCode::RunReset,
                        Refusal::NoForkPoint { .. } => ErrorCode::ForkPointInvalid,
                        Refusal::External { .. } => ErrorCode::RunExternal,
                        Refusal::NotExternal { .. } => ErrorCode::RunNotExternal,
                    }
                },
                StoreError::RunBusy { .. } | StoreError::RunHeld { .. } => ErrorCode::RunBusy,
                StoreError::Corrupt { .. } => ErrorCode::StoreCorrupt,
                StoreError::Damaged { .. } => ErrorCode::StoreDamaged,
                StoreError::Stopped { .. } => ErrorCode::StoreStopped,
                StoreError::ReadOnly => ErrorCode::StoreReadOnly,
                StoreError::RootRunDiffers { .. } => ErrorCode::RootRunDiffers,
                StoreError::Unavailable { .. } => ErrorCode::StoreUnavailable,
                StoreError::Elsewhere(elsewhere) => return Err(elsewhere),
            }
        })
    }

    /// Returns the stable code, which `docs/errors` describes.
    pub fn code(&self) -> &'static str {
        self.row().map_or_else(|elsewhere| elsewhere.code, ErrorCode::as_str)
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
        self.row().map_or_else(|elsewhere| elsewhere.consequence, ErrorCode::consequence)
    }

    /// Returns advice on how to proceed. Every local error has a hint; a remote one has the hint that was sent with it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            StoreError::Refused(Refusal::Closed { status: Status::Failed, .. }) => {
                Some("continue the failed run with `onward run retry RUN`, then send it again")
            }
            StoreError::RunHeld { .. } => {
                Some("retry once the run is waiting; the worker that holds it receives inputs meanwhile")
            }
            _ => self.row().map_or_else(|elsewhere| elsewhere.hint, ErrorCode::hint),
        }
    }
}
