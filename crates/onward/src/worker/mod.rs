//! The worker: claims runs and tasks from the runtime and executes them.
//!
//! Owns the runs in memory. Must never decide what may be recorded: the store does, through core.

mod cold;
mod driver;
mod inbox;
mod log_lines;
mod tasks;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::{CommitId, Index, Payload, Record, RunHead, RunKey};
use onward_runtime::{Emitted, WorkerConnection};
use onward_store::sync::{lock, random_u64};
use onward_store::{ClaimedRun, StoreError, payloads};
use tokio::task::JoinHandle;

use crate::agent::conversation_cache::ConversationCache;
use crate::host::code::WorkerShared;
use crate::host::executor::Executor;
use crate::registry::Registry;
use driver::Driver;
use inbox::{Cache, RunInbox};

/// Number of runs per claim.
const RUNS_AT_ONCE: usize = 64;

/// Number of records per read.
const PAGE: usize = 1_000;

/// Default time for which a shutdown waits for running steps and tasks.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for giving back unfinished tasks.
const GIVE_BACK_MAX: Duration = Duration::from_secs(1);

/// How often a worker replays the log it has just recorded, to find nondeterministic code early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayCheck {
    /// Never, for production.
    #[default]
    Off,
    /// After the first, second, fourth, eighth … commit of a run.
    Doubling,
    /// After every commit, for tests.
    Every,
}

#[derive(Debug, Clone)]
pub(crate) struct WorkerOptions {
    pub threads: usize,
    pub tasks_max: usize,
    pub cached_runs_max: usize,
    pub check: ReplayCheck,
    pub shutdown_timeout: Duration,
}

pub(crate) struct Worker {
    pub connection: Arc<dyn WorkerConnection>,
    pub registry: Arc<Registry>,
    pub library: Arc<ConversationCache>,
    pub shared: WorkerShared,
    pub options: WorkerOptions,
    executor: Executor,
    cache: Cache,
    /// The runs in memory, for queries and for eviction on shutdown.
    hot: Mutex<HashMap<RunKey, Arc<RunInbox>>>,
    idle: tokio::sync::Notify,
    /// Number of task attempts that run here.
    attempts: AtomicUsize,
    /// Set when attempts that still run are to be given back.
    stopping: tokio::sync::watch::Sender<bool>,
    tokio: tokio::runtime::Handle,
    next_commit_id: AtomicU64,
}

impl Worker {
    pub fn start(
        connection: Arc<dyn WorkerConnection>,
        registry: Arc<Registry>,
        shared: WorkerShared,
        options: WorkerOptions,
        on_demand: bool,
    ) -> std::io::Result<(Arc<Worker>, Vec<JoinHandle<()>>)> {
        let worker = Arc::new(Worker {
            library: Arc::new(ConversationCache::new(connection.clone())),
            connection,
            registry,
            shared,
            executor: Executor::new(options.threads)?,
            cache: Cache::new(options.cached_runs_max),
            options,
            hot: Mutex::default(),
            idle: tokio::sync::Notify::new(),
            attempts: AtomicUsize::new(0),
            stopping: tokio::sync::watch::Sender::new(false),
            tokio: tokio::runtime::Handle::current(),
            next_commit_id: AtomicU64::new(random_u64()),
        });
        if on_demand {
            return Ok((worker, Vec::new()));
        }
        let runs = tokio::spawn(claim_runs(worker.clone()));
        let tasks = tokio::spawn(tasks::work(worker.clone()));
        let questions = tokio::spawn(answer_questions(worker.clone()));
        Ok((worker, vec![runs, tasks, questions]))
    }

    /// Releases every run once it waits, waits for running steps and tasks, and leaves.
    pub async fn drain(&self, timeout: Duration) {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let inboxes: Vec<Arc<RunInbox>> = self.lock_hot().values().cloned().collect();
            let done = inboxes.is_empty() && self.attempts.load(Ordering::SeqCst) == 0;
            if done || tokio::time::Instant::now() >= deadline {
                break;
            }
            inboxes.iter().for_each(|inbox| inbox.evict());
            drop(tokio::time::timeout(Duration::from_millis(20), self.idle.notified()).await);
        }
        // Unfinished attempts are interrupted. Their tasks go to other workers, except `at_most_once` tasks.
        self.stopping.send_replace(true);
        let given_back = async {
            while self.attempts.load(Ordering::SeqCst) > 0 {
                drop(tokio::time::timeout(Duration::from_millis(20), self.idle.notified()).await);
            }
        };
        drop(tokio::time::timeout(GIVE_BACK_MAX, given_back).await);
        self.connection.leave().await;
        self.stop();
    }

    /// Stops polling workflow code and tasks at once and drops every run in memory: inboxes keep drivers alive, and drivers the
    /// worker.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        self.executor.stop();
        let hot = std::mem::take(&mut *self.lock_hot());
        hot.into_values().for_each(|inbox| inbox.close());
    }

    /// Returns the number of runs in memory.
    pub fn hot_runs(&self) -> usize {
        self.lock_hot().len()
    }

    fn lock_hot(&self) -> std::sync::MutexGuard<'_, HashMap<RunKey, Arc<RunInbox>>> {
        lock(&self.hot)
    }

    /// Returns the shared values for a run's code, with its position in its trace if tracing is on.
    async fn shared_with(&self, run: &RunKey, records: &[Record]) -> WorkerShared {
        let origin = match &self.shared.tracing {
            Some(tracing) => tracing.origin(&*self.connection, run, records).await,
            None => None,
        };
        WorkerShared { origin, ..self.shared.clone() }
    }

    /// Executes a run until it waits or ends, then releases it. The returned future may be dropped; the run continues until then.
    pub async fn drive_until_idle(self: &Arc<Worker>, claimed: ClaimedRun) {
        let key = claimed.head.key.clone();
        let shared = self.shared_with(&key, claimed.records.as_deref().unwrap_or_default()).await;
        let inbox = self.drive(claimed, shared);
        inbox.evict(); // release it as soon as it waits
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            if !self.lock_hot().get(&key).is_some_and(|current| Arc::ptr_eq(current, &inbox)) {
                return;
            }
            idle.await;
        }
    }

    fn drive(self: &Arc<Worker>, claimed: ClaimedRun, shared: WorkerShared) -> Arc<RunInbox> {
        let key = claimed.head.key.clone();
        self.emit_resumed(&claimed.head);
        let inbox = Arc::new(RunInbox::default());
        self.lock_hot().insert(key.clone(), inbox.clone());
        self.connection.open_inbox(&key, claimed.head.epoch, inbox.clone());
        self.executor.spawn(Driver::new(self.clone(), claimed, inbox.clone(), shared));
        inbox
    }

    /// Emits `agent_resumed` when an agent is loaded again: it has commits in this generation, and the worker that made them has
    /// lost or released it.
    fn emit_resumed(&self, head: &RunHead) {
        let is_agent = self.registry.handler(&head.kind, head.version.as_ref()).is_some_and(|handler| handler.is_agent);
        if is_agent && head.next_commit > 0 {
            let value = serde_json::json!({"generation": head.generation, "commits": head.next_commit});
            let value = Payload::from_json_text(value.to_string());
            self.connection.emit(&head.key, Emitted::new("agent_resumed", value));
        }
    }

    /// Removes the run from the runs in memory.
    fn forget(&self, key: &RunKey, inbox: &Arc<RunInbox>) {
        self.cache.busy(inbox);
        let mut hot = self.lock_hot();
        if hot.get(key).is_some_and(|current| Arc::ptr_eq(current, inbox)) {
            hot.remove(key);
        }
        drop(hot);
        self.idle.notify_waiters();
    }

    fn commit_id(&self) -> CommitId {
        CommitId(self.next_commit_id.fetch_add(1, Ordering::Relaxed))
    }
}

async fn claim_runs(worker: Arc<Worker>) {
    loop {
        for claimed in worker.connection.next_runs(RUNS_AT_ONCE).await {
            let records = claimed.records.as_deref().unwrap_or_default();
            let shared = worker.shared_with(&claimed.head.key, records).await;
            worker.drive(claimed, shared);
        }
    }
}

/// Reads the log of one generation, by default the current one, from `from` to its end.
pub(crate) async fn read_all(
    connection: &dyn WorkerConnection,
    key: &RunKey,
    generation: Option<u32>,
    mut from: Index,
) -> Result<Vec<Record>, StoreError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let page = connection.read_log(key.clone(), generation, from, PAGE).await?;
        let full = page.len() == PAGE || payloads::is_long(&page);
        records.extend(page);
        match records.last() {
            Some(last) if full => from = last.next_index(),
            _ => return Ok(records),
        }
    }
}

/// Answers queries of runs that are not in memory.
async fn answer_questions(worker: Arc<Worker>) {
    loop {
        for question in worker.connection.next_questions().await {
            let worker = worker.clone();
            // A replay is computation, and one of foreign code blocks its thread until the shell has played it.
            tokio::task::spawn_blocking(move || worker.tokio.block_on(cold::answer(&worker, question)));
        }
    }
}
