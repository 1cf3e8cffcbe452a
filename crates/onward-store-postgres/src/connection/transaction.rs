//! One transaction, from BEGIN to COMMIT, with retries.
//!
//! Invariants:
//! - DB6: callers get no response, and listeners no call, before COMMIT has returned.
//! - DB7 (L5): a connection lost before COMMIT was sent has changed nothing, and the work is repeated; after that the outcome is
//!   unknown, and the caller gets an error that says so.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crate::connection::sql::Db;
use crate::connection::timeout::TimeLimit;
use crate::error::{ErrorClass, OpError, Outcome, classify, describe, store_error};
use crate::restore_guard::IdentityCheck;
use crate::shared::ServerShared;
use crate::write::unit::UnitOfWork;
use futures_util::FutureExt;
use onward_core::{Namespace, RunKey, Timestamp};
use onward_store::Change;
use onward_store::StoreError;
use onward_store::sync::{panic_message, random_u64};

/// Maximum number of attempts.
const TRIES_MAX: u32 = 12;
/// Maximum pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Requirements of a transaction, known before it begins.
#[derive(Clone, Default)]
pub(crate) struct LockRequest {
    pub keys: Vec<RunKey>,
    /// Those of `keys` whose open children are read, because the runs may end.
    pub parents: Vec<RunKey>,
    /// Number of runs that it may create.
    pub fresh: usize,
    /// Namespaces whose quotas are locked first (DB14).
    pub quotas: Vec<Namespace>,
}

/// Failure of a transaction.
pub(crate) enum TransactionError {
    /// Nothing was written; the error for the caller.
    Undone(StoreError),
    /// Nothing was written, because one operation panicked, found damaged data or was rejected by the database.
    Damaged(StoreError),
    /// The outcome is unknown.
    Unknown(String),
}

impl TransactionError {
    pub fn into_error(self) -> StoreError {
        match self {
            TransactionError::Undone(error) | TransactionError::Damaged(error) => error,
            TransactionError::Unknown(why) => {
                StoreError::Unavailable { why: format!("the connection was lost during the commit: {why}") }
            }
        }
    }
}

/// A connection that is opened on demand, and again after it broke.
pub(crate) struct LazyConnection {
    pub shared: Arc<ServerShared>,
    db: Option<Db>,
    time_limit: TimeLimit,
}

impl LazyConnection {
    pub fn new(shared: Arc<ServerShared>) -> LazyConnection {
        LazyConnection { shared, db: None, time_limit: TimeLimit::Normal }
    }

    /// Sets the time limit of the statements that follow.
    pub fn set_time_limit(&mut self, time_limit: TimeLimit) {
        self.time_limit = time_limit;
    }

    pub async fn get(&mut self) -> Outcome<&Db> {
        if self.db.as_ref().is_none_or(Db::is_closed) {
            self.db = Some(self.shared.connector.open(&self.shared.clock).await?);
        }
        let db = self.db.as_ref().expect("it was just made");
        db.set_time_limit(self.time_limit);
        Ok(db)
    }

    /// Returns the error to report if the connection was dropped because the database was silent for too long.
    pub fn silence(&self) -> Option<StoreError> {
        self.db.as_ref().and_then(Db::silence)
    }

    /// Drops the connection; the server rolls its open transaction back.
    pub fn disconnect(&mut self) {
        self.db = None;
    }
}

/// Changes that are published after a transaction.
pub(crate) struct CommittedChanges {
    pub changes: Vec<Change>,
    pub due: Option<Timestamp>,
}

/// Runs `work` in a transaction, with retries as long as they may help.
pub(crate) async fn transact<T>(
    shared: &ServerShared,
    line: &mut LazyConnection,
    request: &LockRequest,
    work: impl AsyncFn(&mut UnitOfWork<'_>) -> Outcome<T>,
) -> Result<(T, CommittedChanges), TransactionError> {
    for attempt in 1.. {
        let tried = match line.get().await {
            Ok(db) => attempt_once(shared, db, request, &work).await,
            Err(error) => Err((error, false)),
        };
        let (error, is_unknown) = match tried {
            Ok(done) => return Ok(done),
            Err((OpError::Refused(error), _)) => {
                shared.repair_after(&error);
                undo(line).await;
                return Err(TransactionError::Undone(error));
            }
            Err((OpError::Damaged(error), _)) => {
                shared.repair_after(&error);
                undo(line).await;
                return Err(TransactionError::Damaged(error));
            }
            Err((OpError::Panicked(why), _)) => {
                line.disconnect();
                return Err(TransactionError::Damaged(StoreError::Corrupt {
                    why: format!("an operation broke an invariant: {why}"),
                }));
            }
            Err((OpError::Sql(error), is_at_commit)) => (error, is_at_commit),
        };
        let (class, silence) = (classify(&error), line.silence());
        line.disconnect();
        if is_unknown && class == ErrorClass::Lost {
            return Err(TransactionError::Unknown(describe(&error))); // DB7
        }
        // A retry would take as long again.
        if let Some(error) = silence {
            return Err(TransactionError::Undone(error)); // DB11
        }
        if class == ErrorClass::Other {
            return Err(TransactionError::Damaged(store_error(&error))); // DB8: the batch is split
        }
        if attempt >= TRIES_MAX || !matches!(class, ErrorClass::Again | ErrorClass::Lost) {
            return Err(TransactionError::Undone(store_error(&error)));
        }
        shared.count(|stats| stats.retries += 1);
        tokio::time::sleep(pause(attempt)).await;
    }
    unreachable!("the last try returns")
}

/// Returns a pause that grows with the attempts, with jitter, so that conflicting transactions spread.
fn pause(attempt: u32) -> Duration {
    let millis = 1u64 << attempt.min(9);
    Duration::from_millis(millis + random_u64() % millis).min(PAUSE_MAX)
}

/// Makes one attempt. The error has whether it came from COMMIT.
async fn attempt_once<T>(
    shared: &ServerShared,
    db: &Db,
    request: &LockRequest,
    work: &impl AsyncFn(&mut UnitOfWork<'_>) -> Outcome<T>,
) -> Result<(T, CommittedChanges), (OpError, bool)> {
    let mut unit = begin(shared, db, request).await.map_err(|error| (error, false))?;
    unit.turns = shared.turns.clone();
    let done = AssertUnwindSafe(work(&mut unit)).catch_unwind().await;
    unit.damaged.keys().chain(&unit.needs_repair).for_each(|key| shared.repair_soon(key));
    let answer = done.unwrap_or_else(|panic| Err(OpError::Panicked(panic_message(&*panic)))).map_err(|error| (error, false))?;
    let after = unit.take_changes();
    let statements = unit.statements();
    db.pipeline(None, &statements, Some("COMMIT")).await.map_err(|error| (OpError::Sql(error), true))?;
    Ok((answer, after))
}

/// Begins a transaction, and once more if the database turned out to be restored or replaced (DB9).
async fn begin<'c>(shared: &ServerShared, db: &'c Db, request: &LockRequest) -> Outcome<UnitOfWork<'c>> {
    let unit = UnitOfWork::begin(db, shared, request).await?;
    let mut unit = match shared.connector.restore_guard.clock(unit.start) {
        IdentityCheck::Same => unit,
        IdentityCheck::Moved => {
            shared.leases_revoked();
            unit
        }
        IdentityCheck::Doubtful => {
            db.execute("ROLLBACK").await?;
            if shared.connector.restore_guard.verify(db).await? {
                shared.leases_revoked();
            }
            UnitOfWork::begin(db, shared, request).await?
        }
    };
    unit.set.pause_after_lost_workers = shared.pause_after_lost_workers;
    Ok(unit)
}

async fn undo(line: &mut LazyConnection) {
    // Without a connection there is nothing to roll back.
    let Some(db) = &line.db else { return };
    if db.execute("ROLLBACK").await.is_err() {
        line.disconnect();
    }
}
