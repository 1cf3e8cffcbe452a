//! Operations that are not ordered with appends: reads, claims, heartbeats, deletions. Each takes the next idle connection.
//!
//! Invariants:
//! - DB12: only one slow operation (count, deletion, repair) runs at a time: the other connections are for fast ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::run::{OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount};
use onward_core::{Epoch, Index, KindSchemas, Namespace, Record, RunHead, RunKey, WorkerId};
use onward_store::durable::reply::{Pending, Slot};
use onward_store::sync;
use onward_store::unit_of_work;
use onward_store::{
    ClaimRuns, ClaimTasks, ClaimedRun, Delete, DeletedQuery, DeletedRun, KnownRun, OutboxId, RunPage, RunQuery, RunUpdate,
    ServerInfo, Shard, TaskQuery, VersionCount, WaitQuery,
};
use tokio::sync::Notify;

use crate::connection::sql::Db;
use crate::connection::timeout::Patience;
use crate::connection::transaction::{Fate, LazyConnection, Wants, transact};
use crate::error::{Meaning, Outcome, Trouble, meaning};
use crate::notify::pulse::WorkKind;
use crate::read::{list, reader};
use crate::shared::ServerShared;
use crate::write::ledger;
use crate::write::unit::UnitOfWork;

type To<T> = Arc<Slot<T>>;

pub(crate) enum Job {
    ClaimRuns(ClaimRuns, To<Vec<ClaimedRun>>),
    ClaimTasks(ClaimTasks, To<Vec<Task>>),
    Heartbeat(WorkerId, Duration, To<bool>),
    ListLeases(WorkerId, To<Vec<(RunKey, Epoch)>>),
    FinishDeliveries(Vec<OutboxId>, To<()>),
    Delete(Delete, To<u64>),
    RegisterKinds(Vec<KindSchemas>, To<()>),
    Broadcast(Vec<u8>, To<i64>),
    Announce(ServerInfo, Option<Duration>, To<()>),
    ListServers(To<Vec<ServerInfo>>),
    ReadShard(To<Option<Shard>>),
    RecordShard(Shard, To<Shard>),
    ReadSince(Vec<KnownRun>, To<Vec<RunUpdate>>),
    Check(To<()>),
    Mend(RunKey, To<()>),
    Deliveries(usize, To<Vec<(OutboxId, OutboxMessage)>>),
    ReadRun(RunKey, Option<u32>, To<Option<RunHead>>),
    ReadLog(RunKey, Option<u32>, Index, usize, To<Vec<Record>>),
    ListRuns(RunQuery, To<RunPage>),
    CountVersions(Namespace, To<Vec<VersionCount>>),
    ListWaits(WaitQuery, To<Vec<Wait>>),
    ListTasks(TaskQuery, To<Vec<Task>>),
    CountTasks(Namespace, To<Vec<TaskCount>>),
    Spend(SpendQuery, To<Vec<SpendRow>>),
    ListDeleted(DeletedQuery, To<Vec<DeletedRun>>),
    ListKinds(Namespace, To<Vec<KindSchemas>>),
}

impl Job {
    /// Returns the time limit: deletions, repairs and counts may read much before the first result.
    fn patience(&self) -> Patience {
        match self {
            Job::Delete(..) | Job::Mend(..) | Job::CountVersions(..) | Job::CountTasks(..) | Job::Spend(..) => Patience::Long,
            _ => Patience::Usual,
        }
    }
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

    pub fn submit(&self, job: Job) {
        {
            let mut state = self.lock();
            // A busy store must not look like a silent worker (F20), or like a database that is down.
            match job {
                Job::Heartbeat(..) | Job::Check(_) | Job::ReadShard(_) => state.jobs.push_front(job),
                _ => state.jobs.push_back(job),
            }
        }
        self.wake.notify_one();
    }

    async fn next(&self) -> Option<Job> {
        loop {
            let wait = self.wake.notified();
            {
                let mut state = self.lock();
                let may_begin = |job: &Job| job.patience() == Patience::Usual || !state.is_long_begun;
                let next = state.jobs.iter().position(may_begin);
                if let Some(job) = next.and_then(|next| state.jobs.remove(next)) {
                    state.is_long_begun |= job.patience() == Patience::Long;
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
        let patience = job.patience();
        let _long = (patience == Patience::Long).then(|| Long(&shared.jobs));
        line.be(patience);
        serve(&shared, &mut line, job).await;
    }
}

async fn serve(shared: &ServerShared, line: &mut LazyConnection, job: Job) {
    match job {
        Job::ClaimRuns(_, to) if shared.is_quiet(WorkKind::Runs) => answer(&to, Vec::new()),
        Job::ClaimTasks(_, to) if shared.is_quiet(WorkKind::Tasks) => answer(&to, Vec::new()),
        Job::Deliveries(_, to) if shared.is_quiet(WorkKind::Deliveries) => answer(&to, Vec::new()),
        Job::ClaimRuns(request, to) => {
            write(shared, line, &[], &to, async |unit| unit_of_work::claim_runs(unit, &request).await).await
        }
        Job::ClaimTasks(request, to) => {
            write(shared, line, &[], &to, async |unit| unit_of_work::claim_tasks(unit, &request).await).await
        }
        Job::Heartbeat(worker, lease, to) => {
            write(shared, line, &[], &to, async |unit| unit.heartbeat(&worker, lease).await).await;
        }
        Job::FinishDeliveries(done, to) => {
            write(shared, line, &[], &to, async |unit| unit.finish_deliveries(&done).await).await;
        }
        Job::Delete(delete, to) => {
            let key = match &delete {
                Delete::Run { key, .. } => vec![key.clone()],
                Delete::Expired { .. } => Vec::new(),
            };
            write(shared, line, &key, &to, async |unit| unit.delete_runs(&delete).await).await;
        }
        Job::Mend(key, to) => {
            write(shared, line, std::slice::from_ref(&key), &to, async |unit| unit.repair(&key).await).await;
        }
        Job::RegisterKinds(kinds, to) => {
            write(shared, line, &[], &to, async |unit| unit.register_kinds(&kinds).await).await;
        }
        Job::Broadcast(message, to) => {
            write(shared, line, &[], &to, async |unit| unit.put_broadcast(&message).await).await;
        }
        Job::Announce(server, lease, to) => {
            write(shared, line, &[], &to, async |unit| unit.announce_server(&server, lease).await).await;
        }
        Job::ListServers(to) => write(shared, line, &[], &to, async |unit| unit.list_servers().await).await,
        Job::ReadShard(to) => write(shared, line, &[], &to, async |unit| unit.read_shard().await).await,
        Job::RecordShard(shard, to) => write(shared, line, &[], &to, async |unit| unit.record_shard(&shard).await).await,
        other => serve_read(line, other).await,
    }
}

fn answer<T: Send>(to: &Slot<T>, answer: T) {
    to.put(Ok(answer));
    to.release();
}

async fn serve_read(line: &mut LazyConnection, job: Job) {
    match job {
        Job::Deliveries(limit, to) => read(line, &to, async |db| reader::read_outbox(db, limit).await).await,
        Job::Check(to) => read_plainly(line, &to, async |db| reader::check(db).await).await,
        Job::ReadSince(known, to) => read(line, &to, async |db| reader::read_since(db, &known).await).await,
        Job::ReadRun(key, None, to) => read_plainly(line, &to, async |db| reader::read_run(db, &key, None).await).await,
        Job::ReadRun(key, generation, to) => read(line, &to, async |db| reader::read_run(db, &key, generation).await).await,
        Job::ReadLog(key, generation, from, limit, to) => {
            read(line, &to, async |db| reader::read_log(db, &key, generation, from, limit).await).await;
        }
        Job::ListRuns(query, to) => read(line, &to, async |db| list::list_runs(db, &query).await).await,
        Job::CountVersions(namespace, to) => read_plainly(line, &to, async |db| list::count_versions(db, &namespace).await).await,
        Job::ListLeases(worker, to) => read_plainly(line, &to, async |db| list::list_leases(db, &worker).await).await,
        Job::ListWaits(query, to) => read(line, &to, async |db| list::list_waits(db, &query).await).await,
        Job::ListTasks(query, to) => read(line, &to, async |db| list::list_tasks(db, &query).await).await,
        Job::CountTasks(namespace, to) => read_plainly(line, &to, async |db| list::count_tasks(db, &namespace).await).await,
        Job::Spend(query, to) => read(line, &to, async |db| ledger::spend(db, &query).await).await,
        Job::ListDeleted(query, to) => read_plainly(line, &to, async |db| list::list_deleted(db, &query).await).await,
        Job::ListKinds(namespace, to) => read_plainly(line, &to, async |db| list::list_kinds(db, &namespace).await).await,
        _ => {}
    }
}

async fn write<T: Send>(
    shared: &ServerShared,
    line: &mut LazyConnection,
    keys: &[RunKey],
    to: &Slot<T>,
    work: impl AsyncFn(&mut UnitOfWork<'_>) -> Outcome<T>,
) {
    let wants = Wants { keys: keys.to_vec(), ..Wants::default() };
    match transact(shared, line, &wants, work).await {
        Ok((answer, after)) => {
            shared.pulse.stir_by(&after.changes);
            to.put(Ok(answer));
            to.release();
            shared.tell(after);
        }
        Err(fate) => to.fail(Fate::into_error(fate)),
    }
}

/// Reads in one snapshot of the database.
async fn read<T: Send>(line: &mut LazyConnection, to: &Slot<T>, work: impl AsyncFn(&Db) -> Outcome<T>) {
    read_by(line, to, async |line: &mut LazyConnection| read_at_once(line, &work).await).await;
}

/// Reads without a transaction: a single statement has its own snapshot.
async fn read_plainly<T: Send>(line: &mut LazyConnection, to: &Slot<T>, work: impl AsyncFn(&Db) -> Outcome<T>) {
    read_by(line, to, async |line: &mut LazyConnection| work(line.get().await?).await).await;
}

/// Reads, and retries once on a new connection if this one was lost.
async fn read_by<T: Send>(line: &mut LazyConnection, to: &Slot<T>, work: impl AsyncFn(&mut LazyConnection) -> Outcome<T>) {
    let mut answer = work(line).await;
    if matches!(&answer, Err(Trouble::Sql(error)) if meaning(error) == Meaning::Lost) {
        let silence = line.silence();
        line.hang_up();
        // A retry would take as long again (DB11).
        answer = match silence {
            Some(error) => Err(error.into()),
            None => work(line).await,
        };
    }
    let answer = answer.map_err(Trouble::into_error);
    if let Err(error) = &answer {
        line.shared().mend_by(error);
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
        line.hang_up();
    }
    match (silence, begun) {
        (Some(error), _) if answer.is_err() => Err(error.into()),
        (_, begun) => begun.map_err(Trouble::Sql).and(answer),
    }
}

#[cfg(test)]
mod tests;
