//! The builder: the store, the registered code and the worker's options.

mod defaults;
#[cfg(feature = "flows")]
mod flow;
mod schema;

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use defaults::Defaults;
use onward_core::{Name, Namespace, WorkerId};
use onward_runtime::{Client, Options, Runtime, WorkerConnection, WorkerProfile};
use onward_store::MemoryStore;
use onward_store::sync::random_u64;
use onward_store::{Clock, Store, SystemClock};
use onward_store_embedded::EmbeddedStore;
#[cfg(feature = "remote")]
use onward_wire::ApiKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::AgentCtx;
use crate::check;
use crate::client::LocalParts;
use crate::ctx::Ctx;
use crate::encryption::client::EncryptedClient;
use crate::encryption::connection::EncryptedConnection;
use crate::encryption::{Codec, EncryptionBoundary};
use crate::host::code::WorkerShared;
use crate::middleware::Middleware;
use crate::names::NameOf;
use crate::registry::{CodeCtx, Latest, Registry, TaskFunction, erase_code, erase_task, foreign_code};
#[cfg(feature = "remote")]
use crate::remote::{Channel, RemoteClient, RemoteConnection, Trust, namespace_of, parse_key};
use crate::shell::Shell;
use crate::trace::Tracing;
use crate::worker::{ReplayCheck, SHUTDOWN_TIMEOUT, Worker, WorkerOptions};
use crate::{Error, Onward, RegisterError, Result, Schedule, Task, Workflow};

/// Deaths of the process after which a run in a directory is paused. More than the workers that a run of a server may lose, because
/// a process that dies for another reason, again and again, was executing all runs that were pending.
const PAUSE_AFTER_DEATHS: u32 = 10;

/// The shortest lease. With a shorter one, a live worker would lose its runs between two heartbeats.
const LEASE_MIN: Duration = Duration::from_millis(100);

enum Backend {
    Directory(PathBuf),
    Store(Arc<dyn Store>),
    Runtime(Runtime),
    #[cfg(feature = "remote")]
    Server(String),
}

/// Id prefix of workers that run on a runtime of their own process ([`Onward::within`]). On a directory such workers end together
/// with the process that has it open; other workers may survive it.
pub const WITHIN: &str = "within-";

impl Backend {
    fn worker_mark(&self) -> &'static str {
        if matches!(self, Backend::Runtime(_)) { WITHIN } else { "" }
    }
}

/// Builds an [`Onward`]. [`Builder::start`] reports the first invalid registration.
pub struct Builder {
    backend: Backend,
    clock: Arc<dyn Clock>,
    namespace: Option<Namespace>,
    registry: Registry,
    /// The registration that `.version(..)`, `.previous(..)` and `.schema(..)` apply to.
    latest: Option<Latest>,
    options: Options,
    pause_after_lost_workers: u32,
    worker: WorkerOptions,
    runs_max: usize,
    queues: Vec<Option<Name>>,
    /// Execute runs only through [`Onward::drive`].
    on_demand: bool,
    codec: Option<EncryptionBoundary>,
    /// Schedules that are stored when the program starts, by id.
    schedules: Vec<(String, Schedule)>,
    /// The provider of each kind of model call.
    #[cfg(feature = "agents")]
    providers: BTreeMap<Name, onward_llm::Provider>,
    /// The API key as text, parsed by [`Builder::start`].
    #[cfg(feature = "remote")]
    key: Option<String>,
    #[cfg(feature = "remote")]
    trust: Trust,
    #[cfg(feature = "remote")]
    otlp: Option<crate::Otlp>,
}

impl Onward {
    /// Stores runs in a directory: no server, one process at a time. The directory is created if it does not exist.
    pub fn embedded(directory: impl AsRef<Path>) -> Builder {
        Builder::new(Backend::Directory(directory.as_ref().to_owned()), Arc::new(SystemClock))
    }

    /// Connects to the server at `url`, for example `http://127.0.0.1:7400`, as a worker and a client. The server stores the
    /// runs.
    ///
    /// [`Builder::start`] returns once the server has accepted the worker, and fails after ten seconds without a response. A
    /// connection that is lost later is reopened, without a time limit; calls wait for it.
    #[cfg(feature = "remote")]
    pub fn connect(url: impl Into<String>) -> Builder {
        Builder::new(Backend::Server(url.into()), Arc::new(SystemClock))
    }

    /// Stores runs in memory, for tests and experiments. They are lost when the process ends.
    pub fn in_memory() -> Builder {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Builder::new(Backend::Store(Arc::new(MemoryStore::new(clock.clone()))), clock)
    }

    /// Stores runs in a custom store; `clock` is the engine's clock.
    pub fn with_store(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Builder {
        Builder::new(Backend::Store(store), clock)
    }

    /// Adds a worker to a runtime of this process, that of a server for example.
    ///
    /// The runtime's owner runs it and sets lease and retention. [`Onward::shutdown`] stops only the worker.
    pub fn within(runtime: Runtime) -> Builder {
        let clock = runtime.clock().clone();
        Builder::new(Backend::Runtime(runtime), clock)
    }
}

impl Builder {
    fn new(backend: Backend, clock: Arc<dyn Clock>) -> Builder {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let check = if cfg!(debug_assertions) { ReplayCheck::Doubling } else { ReplayCheck::Off };
        // Half of the cores poll workflow code. The others are left to the store's writer and to the async runtime of steps.
        let worker = WorkerOptions {
            threads: (cores / 2).clamp(1, 8),
            tasks_max: 100,
            cached_runs_max: 1_000,
            check,
            shutdown_timeout: SHUTDOWN_TIMEOUT,
        };
        Builder {
            backend,
            clock,
            namespace: None,
            registry: Registry::default(),
            latest: None,
            options: Options::default(),
            pause_after_lost_workers: PAUSE_AFTER_DEATHS,
            worker,
            runs_max: 10_000,
            queues: vec![None],
            on_demand: false,
            codec: None,
            schedules: Vec::new(),
            #[cfg(feature = "agents")]
            providers: BTreeMap::new(),
            #[cfg(feature = "remote")]
            key: None,
            #[cfg(feature = "remote")]
            trust: Trust::default(),
            #[cfg(feature = "remote")]
            otlp: None,
        }
    }

    /// Sets the namespace in which this process starts, finds and executes runs. The default is that of a key for one namespace,
    /// otherwise `default`. Runs of other namespaces are not visible, and the same id names another run there.
    pub fn namespace(mut self, namespace: &str) -> Builder {
        match Namespace::new(namespace) {
            Ok(namespace) => self.namespace = Some(namespace),
            Err(error) => self.registry.wrong(error.into()),
        }
        self
    }

    /// Sets the API key for the server. The default is the environment variable `ONWARD_KEY`, if it is set.
    ///
    /// Used only with [`Onward::connect`]; a store in this process needs no key.
    #[cfg(feature = "remote")]
    pub fn key(mut self, key: impl Into<String>) -> Builder {
        self.key = Some(key.into());
        self
    }

    /// Exports traces to an OTLP collector: a span for each run, activation, step, task and child. The default is the collector
    /// of the standard environment variables ([`crate::Otlp::from_env`]); without them nothing is exported.
    #[cfg(feature = "remote")]
    pub fn otlp(mut self, otlp: crate::Otlp) -> Builder {
        self.otlp = Some(otlp);
        self
    }

    /// Sets the certificate authority (PEM) that signed the server's certificate. The default is the system's trust store.
    ///
    /// Used only with [`Onward::connect`] and `https://`. [`Builder::start`] fails if it is not valid PEM.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl AsRef<[u8]>) -> Builder {
        self.trust.root = Some(pem.as_ref().to_owned());
        self
    }

    /// Registers a workflow under its name: text, or a typed [`Workflow`].
    pub fn workflow<I, O, F, Fut>(mut self, name: impl NameOf<Workflow<I, O>>, workflow: F) -> Builder
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        self.latest = self.registry.workflow(name.text(), erase_code(workflow)).map(|name| Latest::Workflow(name, None));
        self
    }

    /// Registers an agent under a name: a function that may diverge from the log of its open segment (see [`crate::agent`]).
    pub fn agent<I, O, F, Fut>(mut self, name: &str, agent: F) -> Builder
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(AgentCtx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        self.latest = self.registry.workflow(name, erase_code(agent)).map(|name| Latest::Workflow(name, None));
        self
    }

    /// Registers a workflow, or with `is_agent` an agent, in another language.
    pub fn foreign(mut self, name: &str, is_agent: bool, shell: Arc<dyn Shell>) -> Builder {
        self.latest = self.registry.workflow(name, foreign_code(shell, is_agent)).map(|name| Latest::Workflow(name, None));
        self
    }

    /// Registers code of another language only for the runs that are pinned to a version.
    #[cfg(feature = "flows")]
    fn pinned_foreign(mut self, name: &str, version: &str, shell: Arc<dyn Shell>) -> Builder {
        let pinned = self.registry.pinned(name, version, foreign_code(shell, false));
        self.latest = pinned.map(|(name, version)| Latest::Workflow(name, Some(version)));
        self
    }

    /// Registers an earlier version like [`Builder::previous`], in another language.
    pub fn previous_foreign(mut self, version: &str, is_agent: bool, shell: Arc<dyn Shell>) -> Builder {
        let name = self.latest_workflow();
        let version = self.registry.previous(name.as_ref(), version, foreign_code(shell, is_agent));
        self.latest = name.map(|name| Latest::Workflow(name, version));
        self
    }

    /// Registers a ready-made agent under its name, with its tools. Its input is the user's first message: a text, an object with
    /// `text` or `blocks`, `{messages: [{role, content}]}`, or nothing. `system` messages in that input reach the model as user
    /// text; instructions come only from [`crate::agent::Agent::system`].
    #[cfg(feature = "agents")]
    pub fn register(mut self, agent: crate::agent::Agent) -> Builder {
        if !agent.has_model() {
            self.registry.wrong(RegisterError::NoModel { agent: agent.name().to_owned() });
        }
        self.add_tools(agent.own_tools());
        let name = agent.name().to_owned();
        self.agent(&name, move |ctx, input| agent.clone().run(ctx, input))
    }

    /// Registers a model under `name`, which is also its name at the provider.
    #[cfg(feature = "agents")]
    pub fn model(self, name: &str, provider: &crate::agent::Provider) -> Builder {
        self.add_model(onward_llm::Model::new(name, provider.clone()))
    }

    /// Registers the models of an operator's table. Models without a key are skipped; calls to them wait for a worker that has
    /// it.
    #[cfg(feature = "agents")]
    pub fn models(self, models: &crate::agent::Models) -> Builder {
        let found: Vec<_> = models.names().filter_map(|name| models.find(name).ok().cloned()).collect();
        found.into_iter().fold(self, Builder::add_model)
    }

    #[cfg(feature = "agents")]
    fn add_model(mut self, model: onward_llm::Model) -> Builder {
        let (kind, provider) = (crate::agent::model_kind(&model.name), model.provider.clone());
        if let Some(kind) = self.registry.task(&kind, crate::agent::model_handler(model)) {
            self.registry.models.insert(kind.clone());
            self.providers.insert(kind, provider);
        }
        self
    }

    /// Returns, for each kind of model call, the rate limit that it shares with other kinds.
    #[cfg(feature = "agents")]
    fn task_limits(&self, namespace: &Namespace) -> BTreeMap<Name, Name> {
        let limit = |(kind, provider): (&Name, &onward_llm::Provider)| {
            let limit = Name::new(provider.limit(namespace.as_str())).expect("hex digits are a name");
            (kind.clone(), limit)
        };
        self.providers.iter().map(limit).collect()
    }

    #[cfg(not(feature = "agents"))]
    fn task_limits(&self, _: &Namespace) -> BTreeMap<Name, Name> {
        BTreeMap::new()
    }

    /// Sets where models of this process load attachments that messages refer to by hash.
    #[cfg(feature = "agents")]
    pub fn attachments(self, attachments: crate::agent::Attachments) -> Builder {
        self.dep(attachments)
    }

    /// Registers the tools that agents call with [`AgentCtx::tool`].
    #[cfg(feature = "agents")]
    pub fn tools(mut self, tools: crate::agent::Tools) -> Builder {
        self.add_tools(&tools);
        self.dep(tools)
    }

    #[cfg(feature = "agents")]
    fn add_tools(&mut self, tools: &crate::agent::Tools) {
        if let Some(mistake) = tools.mistake() {
            self.registry.wrong(mistake.clone().into());
        }
        for (kind, handler) in tools.handlers() {
            self.registry.task(&kind, handler);
        }
    }

    /// Sets the version of the workflow just registered. New runs are pinned to it.
    pub fn version(mut self, version: &str) -> Builder {
        self.registry.version(self.latest_workflow().as_ref(), version);
        self
    }

    /// Lets the steps of the workflow or agent just registered record the inputs that they have ([`crate::ctx::Step::input`]), as
    /// if each called [`crate::ctx::Step::record`].
    pub fn record_inputs(mut self) -> Builder {
        self.registry.record_inputs(self.latest_workflow().as_ref());
        self
    }

    /// Registers an earlier version of the workflow or agent just registered, for the runs that are pinned to it. The run of an
    /// agent switches to the current version at its next checkpoint.
    pub fn previous<C, I, O, F, Fut>(mut self, version: &str, code: F) -> Builder
    where
        C: CodeCtx,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(C, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        let name = self.latest_workflow();
        let version = self.registry.previous(name.as_ref(), version, erase_code(code));
        self.latest = name.map(|name| Latest::Workflow(name, version));
        self
    }

    fn latest_workflow(&self) -> Option<Name> {
        match &self.latest {
            Some(Latest::Workflow(name, _)) => Some(name.clone()),
            _ => None,
        }
    }

    /// Registers a task under its name: text, or a typed [`Task`]. The function takes the input, or a [`crate::TaskCtx`] and the input;
    /// the context has attempt number, idempotency key, heartbeat and dependencies.
    pub fn task<Arguments, F>(mut self, name: impl NameOf<Task<F::Input, F::Output>>, task: F) -> Builder
    where
        F: TaskFunction<Arguments>,
    {
        self.latest = self.registry.task(name.text(), erase_task(task)).map(Latest::Task);
        self
    }

    /// Encodes every payload with `codec` before it leaves this process, and decodes it when it returns: inputs, results,
    /// signals, state, failures. The store has only encoded payloads. All processes that execute or read the runs need the same
    /// codec.
    pub fn codec(mut self, codec: impl Codec + 'static) -> Builder {
        self.codec = Some(EncryptionBoundary::new(Arc::new(codec)));
        self
    }

    /// Adds a middleware around all runs that this process executes, and around all attempts of steps, tasks, model calls and tools
    /// here. The first one is the outermost (MW1). See [`crate::middleware`].
    pub fn middleware(mut self, middleware: impl Middleware) -> Builder {
        self.registry.middleware(middleware);
        self
    }

    /// Shares a value with all workflows and tasks, which get it with `ctx.dep::<T>()`.
    pub fn dep<T: Any + Send + Sync>(mut self, dep: T) -> Builder {
        self.registry.dep(dep);
        self
    }

    /// Stores a schedule when the program starts. An equal definition changes nothing; another one replaces that of the id. A schedule
    /// that is no longer declared stays until it is deleted.
    ///
    /// [`Builder::start`] fails if the schedule is refused, also for a kind that no worker is known to have, unless it is forced.
    pub fn schedule(mut self, id: &str, schedule: Schedule) -> Builder {
        self.schedules.push((id.to_owned(), schedule));
        self
    }

    /// Sets how long closed runs are kept; default 30 days.
    pub fn retention(mut self, span: Duration) -> Builder {
        self.options.retention.default = span;
        self
    }

    /// Sets how long closed runs of one kind are kept.
    pub fn retention_of(mut self, kind: &str, span: Duration) -> Builder {
        if let Some(kind) = self.registry.name(kind) {
            self.options.retention.by_kind.insert(kind, span);
        }
        self
    }

    /// Sets how long this process may miss heartbeats before its runs and tasks go to other workers; default 30 seconds, minimum
    /// 100 milliseconds.
    pub fn lease(mut self, span: Duration) -> Builder {
        if span < LEASE_MIN {
            self.registry.wrong(RegisterError::LeaseTooShort { lease: span, min: LEASE_MIN });
        }
        self.options.lease = span;
        self
    }

    /// Sets how often the process may die in a row while it executes a run, without a commit in between, before the run is paused
    /// as `worker_crashed`; default 10, and 0 never pauses. A death counts for all runs that the process executed then, guilty or not. Applies to a directory; other stores have an option of that name.
    pub fn pause_after_lost_workers(mut self, count: u32) -> Builder {
        self.pause_after_lost_workers = count;
        self
    }

    /// Adds a queue whose tasks this process executes, in addition to the default queue.
    pub fn queue(mut self, queue: &str) -> Builder {
        self.queues.extend(self.registry.name(queue).map(Some));
        self
    }

    /// Executes runs only through [`Onward::drive`]: this process claims no runs and no tasks by itself. For hosts that live as
    /// long as one request.
    pub fn on_demand(mut self) -> Builder {
        self.on_demand = true;
        self
    }

    /// Sets the number of threads that poll workflow code; default half of the cores.
    pub fn threads(mut self, count: usize) -> Builder {
        self.worker.threads = count;
        self
    }

    /// Sets the number of tasks that run here at a time; default 100.
    pub fn tasks_max(mut self, count: usize) -> Builder {
        self.worker.tasks_max = count.max(1);
        self
    }

    /// Sets how long [`crate::Onward::shutdown`] waits for running steps and tasks; default 10 seconds. A task that takes longer
    /// is interrupted and goes to another worker; an `at_most_once` task ends as `outcome_unknown` instead.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Builder {
        self.worker.shutdown_timeout = timeout;
        self
    }

    /// Sets the number of waiting runs that stay in memory, where waking them needs no replay; default 1,000.
    pub fn cached_runs_max(mut self, count: usize) -> Builder {
        self.worker.cached_runs_max = count;
        self
    }

    /// Sets the number of runs in memory at a time, active or waiting; default 10,000.
    pub fn runs_max(mut self, count: usize) -> Builder {
        self.runs_max = count.max(1);
        self
    }

    /// Sets how often recorded runs are replayed and compared; default at doubling intervals in debug builds, else never.
    pub fn check_replay(mut self, check: ReplayCheck) -> Builder {
        self.worker.check = check;
        self
    }

    /// Returns the API key for a server.
    #[cfg(feature = "remote")]
    fn server_key(&self) -> Result<Option<ApiKey>, Error> {
        if !matches!(self.backend, Backend::Server(_)) {
            return Ok(None);
        }
        let variable = || std::env::var("ONWARD_KEY").ok().filter(|key| !key.is_empty());
        parse_key(self.key.clone().or_else(variable).as_deref())
    }

    /// Opens the store, starts the worker and resumes all open runs.
    pub async fn start(mut self) -> Result<Onward, Error> {
        if let Some(mistake) = self.registry.mistake {
            return Err(mistake.into());
        }
        if let Some(folder) = check::folder() {
            return Err(Error::OnlyChecked { runs: check::check(&folder, &self.registry, self.codec.as_ref())? });
        }
        #[cfg(feature = "remote")]
        let tracing = self.otlp.take().or_else(crate::Otlp::from_env).map(Tracing::start).transpose()?;
        #[cfg(not(feature = "remote"))]
        let tracing = None;
        #[cfg(feature = "remote")]
        let key = self.server_key()?;
        let namespace = match (self.namespace.take(), &self.backend) {
            (Some(namespace), _) => namespace,
            #[cfg(feature = "remote")]
            (None, Backend::Server(url)) => namespace_of(url, key.as_ref(), &self.trust).await?,
            (None, _) => Namespace::default(),
        };
        // Cached runs must leave permits to runs that have something to do.
        self.worker.cached_runs_max = self.worker.cached_runs_max.min(self.runs_max / 2);
        let profile = WorkerProfile {
            id: WorkerId::new(format!("{}{}-{:016x}", self.backend.worker_mark(), std::process::id(), random_u64()))?,
            namespace: namespace.clone(),
            knows: Arc::new(if self.on_demand { BTreeMap::new() } else { self.registry.knows() }),
            current: Arc::new(if self.on_demand { BTreeMap::new() } else { self.registry.current() }),
            task_kinds: Arc::new(if self.on_demand { Vec::new() } else { self.registry.tasks.keys().cloned().collect() }),
            task_limits: Arc::new(self.task_limits(&namespace)),
            queues: self.queues,
            runs_max: self.runs_max,
            is_remote: false,
        };
        let (client, connection, local) = match self.backend {
            Backend::Runtime(runtime) => join(runtime, profile, &self.registry, false, None).await?,
            Backend::Store(store) => {
                let runtime = Runtime::new(store, self.clock.clone(), self.options);
                join(runtime, profile, &self.registry, true, None).await?
            }
            Backend::Directory(directory) => {
                let store = open_embedded(directory, self.clock.clone(), self.pause_after_lost_workers).await?;
                let runtime = Runtime::new(store.clone(), self.clock.clone(), self.options);
                join(runtime, profile, &self.registry, true, Some(store)).await?
            }
            #[cfg(feature = "remote")]
            Backend::Server(url) => {
                let channel = Channel::new(&url, Some(&namespace), key.as_ref(), &self.trust)?;
                // A connection of its own: calls that wait for a run's result must not delay the worker's reconnect.
                let own = Channel::new(&url, Some(&namespace), key.as_ref(), &self.trust)?;
                let (kinds, task_schemas) = if self.on_demand { Default::default() } else { self.registry.offers() };
                let connection = Arc::new(RemoteConnection::connect(own, profile, kinds, task_schemas, self.on_demand));
                connection.welcomed(&url).await?;
                (
                    Arc::new(RemoteClient::new(channel)) as Arc<dyn Client>,
                    connection as Arc<dyn WorkerConnection>,
                    LocalParts::default(),
                )
            }
        };
        let has_codec = self.codec.is_some();
        let (client, connection) = behind(self.codec, client, connection);
        let shared = WorkerShared { checks_answers: has_codec, tracing, ..WorkerShared::default() };
        let worker = start_worker(connection, shared, self.registry, self.worker, self.clock, self.on_demand)?;
        let onward = Onward::new(client, namespace, worker, local);
        for (id, schedule) in self.schedules {
            onward.put_schedule(&id, schedule).await?;
        }
        Ok(onward)
    }
}

type Joined = (Arc<dyn Client>, Arc<dyn WorkerConnection>, LocalParts);

/// Adds a worker to a runtime of this process. Background jobs run here if the runtime `is_own`.
async fn join(
    runtime: Runtime,
    profile: WorkerProfile,
    registry: &Registry,
    is_own: bool,
    opened: Option<Arc<dyn Store>>,
) -> Result<Joined, Error> {
    runtime.register_kinds(&profile.namespace, registry.kind_schemas()).await?;
    let background = is_own.then(|| runtime.spawn());
    let connection = Arc::new(runtime.join_worker(profile));
    Ok((Arc::new(runtime.clone()), connection, LocalParts { runtime: Some(runtime), background: Mutex::new(background), opened }))
}

/// Wraps client and worker connection in the codec, if there is one.
fn behind(
    codec: Option<EncryptionBoundary>,
    client: Arc<dyn Client>,
    connection: Arc<dyn WorkerConnection>,
) -> (Arc<dyn Client>, Arc<dyn WorkerConnection>) {
    match codec {
        None => (client, connection),
        Some(boundary) => {
            (Arc::new(EncryptedClient::new(client, boundary.clone())), Arc::new(EncryptedConnection::new(connection, boundary)))
        }
    }
}

type Started = (Arc<Worker>, Vec<tokio::task::JoinHandle<()>>);

fn start_worker(
    connection: Arc<dyn WorkerConnection>,
    shared: WorkerShared,
    registry: Registry,
    options: WorkerOptions,
    clock: Arc<dyn Clock>,
    on_demand: bool,
) -> Result<Started, Error> {
    let shared = WorkerShared {
        deps: Arc::new(registry.deps.clone()),
        middlewares: registry.middlewares.clone(),
        payload_bytes_max: connection.payload_bytes_max(),
        clock: Some(clock),
        runtime: Some(tokio::runtime::Handle::current()),
        outlet: Some(connection.clone()),
        ..shared
    };
    Worker::start(connection, Arc::new(registry), shared, options, on_demand).map_err(Error::Threads)
}

async fn open_embedded(
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    pause_after_lost_workers: u32,
) -> Result<Arc<dyn Store>, Error> {
    let workers_inside = onward_store_embedded::WorkersInside::All;
    let options = onward_store_embedded::Options { clock, workers_inside, pause_after_lost_workers, ..Default::default() };
    let open = tokio::task::spawn_blocking(move || EmbeddedStore::open(&directory, options));
    let store = open.await.expect("opening a directory does not panic")?;
    Ok(Arc::new(store))
}
