//! The worker: takes runs and tasks from the runtime and works on them.
//!
//! Owns what is in memory of hot runs. Must never decide what may be recorded: that is the store's, by way of core.

mod cache;
mod cold;
mod driver;
mod inbox;
mod tasks;
mod told;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onward_core::{CommitId, Index, Payload, Record, RunHead, RunKey};
use onward_runtime::{Emitted, Link};
use onward_store::{ClaimedRun, StoreError, payloads};
use tokio::task::JoinHandle;

use crate::agent::library::Library;
use crate::host::code::Shared;
use crate::host::executor::Executor;
use crate::registry::Registry;
use cache::Cache;
use driver::Driver;
pub(crate) use inbox::RunInbox;

/// How many runs are asked for at once.
const RUNS_AT_ONCE: usize = 64;

/// How many records are read at once.
const PAGE: usize = 1_000;

/// How long a worker that shuts down waits for steps and tasks under way, unless it is told otherwise.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long giving back the tasks that did not end may take.
const GIVE_BACK_MAX: Duration = Duration::from_secs(1);

/// When a worker replays what it has just recorded, to find code that does not replay before it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayCheck {
    /// Never: for production.
    #[default]
    Off,
    /// After the first, second, fourth, eighth … commit of a run.
    Doubling,
    /// After every commit: for tests.
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
    pub link: Arc<dyn Link>,
    pub registry: Arc<Registry>,
    pub library: Arc<Library>,
    pub shared: Shared,
    pub options: WorkerOptions,
    executor: Executor,
    cache: Cache,
    /// The runs in memory, so that they can be asked and, at the end, let go.
    hot: Mutex<HashMap<RunKey, Arc<RunInbox>>>,
    idle: tokio::sync::Notify,
    /// How many attempts of tasks run here.
    attempts: AtomicUsize,
    /// Attempts that still run are given back.
    stopping: tokio::sync::watch::Sender<bool>,
    tokio: tokio::runtime::Handle,
    next_commit_id: AtomicU64,
}

impl Worker {
    pub fn start(
        link: Arc<dyn Link>,
        registry: Arc<Registry>,
        shared: Shared,
        options: WorkerOptions,
        on_demand: bool,
    ) -> std::io::Result<(Arc<Worker>, Vec<JoinHandle<()>>)> {
        let worker = Arc::new(Worker {
            library: Arc::new(Library::new(link.clone())),
            link,
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

    /// Lets every run go once it rests, waits for steps that run, and leaves.
    pub async fn drain(&self) {
        let deadline = tokio::time::Instant::now() + self.options.shutdown_timeout;
        loop {
            let left: Vec<Arc<RunInbox>> = self.lock_hot().values().cloned().collect();
            let done = left.is_empty() && self.attempts.load(Ordering::SeqCst) == 0;
            if done || tokio::time::Instant::now() >= deadline {
                break;
            }
            left.iter().for_each(|inbox| inbox.evict());
            drop(tokio::time::timeout(Duration::from_millis(20), self.idle.notified()).await);
        }
        // What has not ended is interrupted, and goes to others unless it is `at_most_once`.
        self.stopping.send_replace(true);
        let given_back = async {
            while self.attempts.load(Ordering::SeqCst) > 0 {
                drop(tokio::time::timeout(Duration::from_millis(20), self.idle.notified()).await);
            }
        };
        drop(tokio::time::timeout(GIVE_BACK_MAX, given_back).await);
        self.link.leave().await;
        self.stop();
    }

    /// Stops polling workflow code and tasks at once and lets go of every run in memory: inboxes keep drivers alive, and drivers the
    /// worker.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        self.executor.stop();
        let hot = std::mem::take(&mut *self.lock_hot());
        hot.into_values().for_each(|inbox| inbox.close());
    }

    /// How many runs are in memory.
    pub fn hot_runs(&self) -> usize {
        self.lock_hot().len()
    }

    fn lock_hot(&self) -> std::sync::MutexGuard<'_, HashMap<RunKey, Arc<RunInbox>>> {
        self.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a run's code is given, with its place in its trace where somebody is told of it.
    async fn shared_with(&self, run: &RunKey, records: &[Record]) -> Shared {
        let origin = match &self.shared.tracing {
            Some(tracing) => tracing.origin(&*self.link, run, records).await,
            None => None,
        };
        Shared { origin, ..self.shared.clone() }
    }

    /// Works on a run until it rests or ends, and lets it go. Whoever waits may be dropped: the run goes on until then.
    pub async fn drive_to_rest(self: &Arc<Worker>, claimed: ClaimedRun) {
        let key = claimed.head.key.clone();
        let shared = self.shared_with(&key, claimed.records.as_deref().unwrap_or_default()).await;
        let inbox = self.drive(claimed, shared);
        inbox.evict(); // as soon as it rests
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            if !self.lock_hot().get(&key).is_some_and(|current| Arc::ptr_eq(current, &inbox)) {
                return;
            }
            idle.await;
        }
    }

    fn drive(self: &Arc<Worker>, claimed: ClaimedRun, shared: Shared) -> Arc<RunInbox> {
        let key = claimed.head.key.clone();
        self.tell_resumed(&claimed.head);
        let inbox = Arc::new(RunInbox::default());
        self.lock_hot().insert(key.clone(), inbox.clone());
        self.link.open_inbox(&key, claimed.head.epoch, inbox.clone());
        self.executor.spawn(Driver::new(self.clone(), claimed, inbox.clone(), shared));
        inbox
    }

    /// Tells whoever listens that an agent is taken up again that was let go: it has recorded something in this generation, and the worker
    /// that did has lost or forgotten it.
    fn tell_resumed(&self, head: &RunHead) {
        let is_agent = self.registry.handler(&head.kind, head.version.as_ref()).is_some_and(|handler| handler.is_agent);
        if is_agent && head.next_commit > 0 {
            let value = serde_json::json!({"generation": head.generation, "commits": head.next_commit});
            let value = Payload::from_json_text(value.to_string());
            self.link.emit(&head.key, Emitted { name: "agent_resumed".to_owned(), value });
        }
    }

    /// The run is no longer in memory.
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
        for claimed in worker.link.next_runs(RUNS_AT_ONCE).await {
            let records = claimed.records.as_deref().unwrap_or_default();
            let shared = worker.shared_with(&claimed.head.key, records).await;
            worker.drive(claimed, shared);
        }
    }
}

/// The log of one generation, the current one unless another is named, from `from` to its end.
pub(crate) async fn read_all(
    link: &dyn Link,
    key: &RunKey,
    generation: Option<u32>,
    mut from: Index,
) -> Result<Vec<Record>, StoreError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let page = link.read_log(key.clone(), generation, from, PAGE).await?;
        let full = page.len() == PAGE || payloads::is_long(&page);
        records.extend(page);
        match records.last() {
            Some(last) if full => from = last.next_index(),
            _ => return Ok(records),
        }
    }
}

/// Answers questions about runs that are not in memory.
async fn answer_questions(worker: Arc<Worker>) {
    loop {
        for question in worker.link.next_questions().await {
            let worker = worker.clone();
            tokio::spawn(async move { cold::answer(&worker, question).await });
        }
    }
}

/// A number nobody else has: the standard library's hash keys come from the system's randomness.
pub(crate) fn random_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
