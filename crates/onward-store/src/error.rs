//! Errors of store operations.
//!
//! Every variant has a row in the table of error codes and thus a consequence, so that callers do not match on variants to
//! decide how to react. Waiting and repeats are not errors.

use std::path::PathBuf;

use onward_core::quota::Exceeded;
use onward_core::root_run::root_run;
use onward_core::run::{Again, IdempotencyRecord, Refusal};
use onward_core::task::{StaleReport, TaskId};
use onward_core::{ErrorInfo, Index, Name, Namespace, RunKey, error_enum};

/// Time after which a task that a full queue refused may be queued: workers that have room claim within a second.
const FULL_QUEUE_WAIT_MS: u64 = 1_000;

error_enum! {
    #[derive(Debug, thiserror::Error)]
    #[non_exhaustive]
    pub enum StoreError {
        #[error("run {key} not found")]
        RunNotFound { key: RunKey } => RunNotFound,
        #[error("run {key} already exists with a different kind or input")]
        RunExists { key: RunKey } => RunExists,
        #[error(transparent)]
        Refused(#[from] Refusal) => (refusal),
        /// Another answer was recorded first (L12).
        #[error("run {key} already has this answer: `{winner}` came first, at event {index}")]
        SignalLost { key: RunKey, winner: String, index: Index } => SignalLost,
        /// The id was used before with different content (L11).
        #[error("run {key} already has {what} with different content, at event {index}")]
        IdTaken { key: RunKey, what: String, index: Index } => IdTaken,
        #[error("run {key} has no open approval or promise at {call_id}")]
        WaitNotFound { key: RunKey, call_id: String } => WaitNotFound,
        #[error(transparent)]
        TaskAttemptOver(#[from] StaleReport) => TaskAttemptOver,
        #[error("task {task} is not in quarantine")]
        TaskNotQuarantined { task: Box<TaskId> } => TaskNotQuarantined,
        #[error("run {key} cannot be deleted: {why}")]
        RunBusy { key: RunKey, why: String } => RunBusy,
        #[error("run {key} is held by another worker")]
        RunHeld { key: RunKey } => RunBusy
            hint() "retry once the run is waiting; the worker that holds it receives inputs meanwhile",
        /// Recorded bytes do not match their checksum (L2).
        #[error("the log of run {key} is damaged at event {index}: {why}")]
        LogCorrupt { key: RunKey, index: Index, why: String } => LogCorrupt,
        #[error("the log of run {key} is invalid: {why}")]
        LogInvalid { key: RunKey, why: String } => LogInvalid,
        #[error("damaged data: {why}")]
        Corrupt { why: String } => StoreCorrupt,
        /// Acknowledged writes are unreadable: the store refuses writes until the directory is repaired.
        #[error("the directory is damaged and read-only: {why}")]
        Damaged { why: String } => StoreDamaged,
        #[error("a payload of {bytes} bytes is over the limit of {max}")]
        PayloadTooLarge { bytes: usize, max: usize } => PayloadTooLarge,
        /// The caller may retry once tasks of the queue have ended.
        #[error("queue {} is full: it may have {depth_max} waiting tasks", queue.as_ref().map_or("default", |queue| queue.as_str()))]
        QueueFull { queue: Option<Name>, depth_max: u64 } => QueueFull,
        #[error("queue limit `{field}` is less than the number of databases, {count}")]
        LimitTooSmall { field: &'static str, count: u32 } => QueueInvalid,
        /// Nothing was started; the namespace may start again later (NQ1, NQ2).
        #[error("namespace `{namespace}` has reached its quota: {exceeded}")]
        QuotaExceeded { namespace: Namespace, exceeded: Exceeded } => QuotaExceeded,
        #[error("limit `{field}` of a quota is less than the number of databases, {count}")]
        QuotaTooSmall { field: &'static str, count: u32 } => QuotaInvalid,
        #[error("the disk is full")]
        DiskFull => DiskFull,
        #[error("{path} is in use by this or another process")]
        DirectoryLocked { path: PathBuf } => DirectoryLocked,
        #[error("{path} was written by a newer Onward: format {found}, this program reads up to {supported}")]
        DirectoryNewer { path: PathBuf, found: u32, supported: u32 } => DirectoryNewer,
        #[error("{path} is not an Onward directory: {why}")]
        DirectoryForeign { path: PathBuf, why: String } => DirectoryForeign,
        #[error("{path} cannot be used: {why}")]
        DirectoryUnusable { path: PathBuf, why: String } => DirectoryUnusable,
        #[error("the database was migrated by a newer Onward: schema version {found}, this program supports up to {supported}")]
        DatabaseNewer { found: u32, supported: u32 } => DatabaseNewer,
        #[error("the database cannot be used: {why}")]
        DatabaseUnusable { why: String } => DatabaseUnusable,
        /// The certificate was not accepted, or the server does not offer TLS and TLS was required.
        #[error("the database cannot be trusted: {why}")]
        DatabaseUntrusted { why: String } => DatabaseUntrusted,
        /// A sync failed: unacknowledged writes may or may not be durable, and no more are accepted.
        #[error("the store stopped accepting writes: {why}")]
        Stopped { why: String } => StoreStopped,
        #[error("the store was opened read-only")]
        ReadOnly => StoreReadOnly,
        /// Parent and child would be in different shards (L19).
        #[error("run {child} cannot be a child of run {parent}: its id must begin with `{}/`", root_run(&parent.id))]
        RootRunDiffers { child: RunKey, parent: RunKey } => RootRunDiffers,
        /// The databases, or their order, are not those that the shards were created with.
        #[error("the databases do not match the shards: {why}")]
        DatabasesDiffer { why: String } => DatabasesDiffer,
        #[error("invalid page cursor `{cursor}`")]
        CursorInvalid { cursor: String } => CursorInvalid,
        #[error("the store cannot be reached: {why}")]
        Unavailable { why: String } => StoreUnavailable,
        /// An error that a server returned.
        #[error("{}", .0.message)]
        Elsewhere(Box<Elsewhere>) => (elsewhere),
    }
}

/// An error received over the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    pub message: String,
    pub info: ErrorInfo,
    pub retry_after_ms: Option<u64>,
}

impl Elsewhere {
    fn info(&self) -> ErrorInfo {
        self.info
    }
}

impl StoreError {
    /// Returns after which time the same request may succeed, if that is known.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            StoreError::QueueFull { .. } => Some(FULL_QUEUE_WAIT_MS),
            StoreError::QuotaExceeded { exceeded, .. } => Some(exceeded.retry_after_ms),
            StoreError::Elsewhere(error) => error.retry_after_ms,
            _ => None,
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
}
