//! Operations that are not ordered with appends: reads, claims, heartbeats, deletions. Each takes the next idle connection.
//!
//! Invariants:
//! - DB12: only one slow operation (count, deletion, repair) runs at a time: the other connections are for fast ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::LocalBoxFuture;
use onward_core::RunKey;
use onward_store::StoreFuture;
use onward_store::durable::reply::{Pending, Slot, Waiting};
use onward_store::sync;
use tokio::sync::Notify;

use crate::connection::sql::Db;
use crate::connection::timeout::TimeLimit;
use crate::connection::transaction::{LazyConnection, LockRequest, TransactionError, transact};
use crate::error::{ErrorClass, OpError, Outcome, classify};
use crate::shared::ServerShared;
use crate::write::unit::UnitOfWork;

/// The place of a job in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Goes first: a busy store must not look like a silent worker (F20), or like a database that is down.
    Urgent,
    Normal,
    /// May read much before the first result, as deletions, repairs and counts do (DB12).
    Slow,
}

type Work = Box<dyn for<'a> FnOnce(&'a ServerShared, &'a mut LazyConnection) -> LocalBoxFuture<'a, ()> + Send>;

pub(crate) struct Job {
    urgency: Urgency,
    work: Work,
}

#[derive(Default)]
pub(crate) struct Jobs {
    state: Mutex<JobQueue>,
    wake: Notify,
}

/// Jobs that have not begun.
#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<Job>,
    is_closed: bool,
    /// A slow job is running; the next one waits, the other connections are for fast jobs (DB12).
    is_long_begun: bool,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, JobQueue> {
        sync::lock(&self.state)
    }

    /// Writes in one transaction, with these runs locked.
    pub fn write<T: Send + 'static>(
        &self,
        urgency: Urgency,
        keys: Vec<RunKey>,
        work: impl AsyncFn(&mut UnitOfWork<'_>) -> Outcome<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.write_locked(urgency, LockRequest { keys, ..LockRequest::default() }, work)
    }

    /// Writes in one transaction, with these rows locked.
    pub fn write_locked<T: Send + 'static>(
        &self,
        urgency: Urgency,
        request: LockRequest,
        work: impl AsyncFn(&mut UnitOfWork<'_>) -> Outcome<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.submit(urgency, |to| Box::new(move |shared, line| Box::pin(write(shared, line, request, to, work))))
    }

    /// Reads in one snapshot of the database.
    pub fn read<T: Send + 'static>(
        &self,
        urgency: Urgency,
        work: impl AsyncFn(&Db) -> Outcome<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.submit(urgency, |to| {
            Box::new(move |_, line| {
                Box::pin(read_by(line, to, async move |line: &mut LazyConnection| read_at_once(line, &work).await))
            })
        })
    }

    /// Reads without a transaction: a single statement has its own snapshot.
    pub fn read_plainly<T: Send + 'static>(
        &self,
        urgency: Urgency,
        work: impl AsyncFn(&Db) -> Outcome<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.submit(urgency, |to| {
            Box::new(move |_, line| {
                Box::pin(read_by(line, to, async move |line: &mut LazyConnection| work(line.get().await?).await))
            })
        })
    }

    fn submit<T: Send + 'static>(&self, urgency: Urgency, work: impl FnOnce(Arc<Slot<T>>) -> Work) -> StoreFuture<'static, T> {
        let slot = Slot::new();
        let job = Job { urgency, work: work(slot.clone()) };
        match urgency {
            Urgency::Urgent => self.lock().jobs.push_front(job),
            Urgency::Normal | Urgency::Slow => self.lock().jobs.push_back(job),
        }
        self.wake.notify_one();
        Box::pin(Waiting(slot))
    }

    async fn next(&self) -> Option<Job> {
        loop {
            let wait = self.wake.notified();
            {
                let mut state = self.lock();
                let may_begin = |job: &Job| job.urgency != Urgency::Slow || !state.is_long_begun;
                let next = state.jobs.iter().position(may_begin);
                if let Some(job) = next.and_then(|next| state.jobs.remove(next)) {
                    state.is_long_begun |= job.urgency == Urgency::Slow;
                    if !state.jobs.is_empty() {
                        self.wake.notify_one();
                    }
                    return Some(job);
                }
                if state.is_closed && state.jobs.is_empty() {
                    self.wake.notify_one();
                    return None;
                }
            }
            wait.await;
        }
    }

    pub fn close(&self) {
        self.lock().is_closed = true;
        self.wake.notify_one();
    }
}

/// Guard of a running slow job, until it ends or is dropped.
struct Long<'a>(&'a Jobs);

impl Drop for Long<'_> {
    fn drop(&mut self) {
        self.0.lock().is_long_begun = false;
        self.0.wake.notify_one();
    }
}

/// Serves jobs until the queue is closed and empty.
pub(crate) async fn run(shared: Arc<ServerShared>) {
    let mut line = LazyConnection::new(shared.clone());
    while let Some(job) = shared.jobs.next().await {
        let is_slow = job.urgency == Urgency::Slow;
        let _long = is_slow.then(|| Long(&shared.jobs));
        line.set_time_limit(if is_slow { TimeLimit::Long } else { TimeLimit::Normal });
        (job.work)(&shared, &mut line).await;
    }
}

async fn write<T: Send>(
    shared: &ServerShared,
    line: &mut LazyConnection,
    request: LockRequest,
    to: Arc<Slot<T>>,
    work: impl AsyncFn(&mut UnitOfWork<'_>) -> Outcome<T>,
) {
    match transact(shared, line, &request, work).await {
        Ok((answer, after)) => {
            shared.idle_cache.invalidate_by(&after.changes);
            to.put(Ok(answer));
            to.release();
            shared.publish(after);
        }
        Err(failure) => to.fail(TransactionError::into_error(failure)),
    }
}

/// Reads, and retries once on a new connection if this one was lost.
async fn read_by<T: Send>(line: &mut LazyConnection, to: Arc<Slot<T>>, work: impl AsyncFn(&mut LazyConnection) -> Outcome<T>) {
    let mut answer = work(line).await;
    if matches!(&answer, Err(OpError::Sql(error)) if classify(error) == ErrorClass::Lost) {
        let silence = line.silence();
        line.disconnect();
        // A retry would take as long again (DB11).
        answer = match silence {
            Some(error) => Err(error.into()),
            None => work(line).await,
        };
    }
    let answer = answer.map_err(OpError::into_error);
    if let Err(error) = &answer {
        line.shared.repair_after(error);
    }
    to.put(answer);
    to.release();
}

async fn read_at_once<T>(line: &mut LazyConnection, work: &impl AsyncFn(&Db) -> Outcome<T>) -> Outcome<T> {
    let db = line.get().await?;
    // The first query is sent together with BEGIN.
    let begin = db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    let (begun, answer) = tokio::join!(biased; begin, work(db));
    let is_lost = begun.is_err() || db.execute("COMMIT").await.is_err();
    let silence = db.silence();
    if is_lost {
        line.disconnect();
    }
    match (silence, begun) {
        (Some(error), _) if answer.is_err() => Err(error.into()),
        (_, begun) => begun.map_err(OpError::Sql).and(answer),
    }
}

#[cfg(test)]
mod tests;
