//! The environment of the processes: on a store that all of them open, or behind a server that has it. Each dies as planned, and
//! a new one replaces it.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Builder, Onward};
use onward_core::Namespace;
use onward_runtime::{Options, Runtime};
use onward_server::{Server, grpc, router_with, serve};
use onward_store::{Clock, MemoryStore, RunQuery, Store, StoreError, SystemClock, TaskQuery};
use onward_store_embedded::EmbeddedStore;
use onward_store_postgres::PostgresStore;
use onward_testkit::{Cluster, Database};
use tokio::sync::watch;

use super::connection::WorkerConnection;
use super::dying::{Death, DyingStore, Seen};
use crate::site::eventually;

/// Time limit for a response of a process that may have died.
const PATIENCE: Duration = Duration::from_secs(2);

/// Session timeout of a process: long enough for a busy machine, where workers that count as lost too often leave a task in
/// quarantine; short enough to wait for.
const LEASE: Duration = Duration::from_millis(1_000);

/// The storage, which outlives every process.
pub enum StoreLocation {
    /// One shared store, as if each process had opened it.
    Memory(Arc<MemoryStore>),
    /// The same, on a disk.
    Kept(Arc<EmbeddedStore>),
    /// A directory that each incarnation of the only process opens again.
    Directory(tempfile::TempDir),
    /// A database that each process connects to.
    Database(Arc<Database<'static>>),
}

impl StoreLocation {
    pub fn memory() -> StoreLocation {
        StoreLocation::Memory(Arc::new(MemoryStore::new(Arc::new(SystemClock))))
    }

    pub fn directory() -> StoreLocation {
        StoreLocation::Directory(tempfile::tempdir().unwrap())
    }

    pub fn database() -> StoreLocation {
        StoreLocation::Database(Arc::new(Cluster::shared().database(None).unwrap()))
    }

    /// Returns the store as a new process opens it, and its clock.
    async fn open(&self) -> (Arc<dyn Store>, Arc<dyn Clock>) {
        let system: Arc<dyn Clock> = Arc::new(SystemClock);
        match self {
            StoreLocation::Memory(store) => (store.clone(), system),
            StoreLocation::Kept(store) => (store.clone(), system),
            StoreLocation::Directory(directory) => {
                let open = async || match EmbeddedStore::open(directory.path(), Default::default()) {
                    Ok(store) => Some(Arc::new(store)),
                    Err(StoreError::DirectoryLocked { .. }) => None,
                    Err(error) => panic!("the directory cannot be opened: {error}"),
                };
                (eventually("the directory is free", open).await, system)
            }
            StoreLocation::Database(database) => {
                let url = database.url();
                let store = insist(|| PostgresStore::connect(&url, Default::default())).await;
                let clock = store.clock();
                (Arc::new(store), clock)
            }
        }
    }
}

/// The storage, and whether there is a server in between.
#[derive(Clone)]
pub struct Stage {
    location: Arc<StoreLocation>,
    /// The listener of the server, which outlives it: no other process gets its port while the server is dead.
    server: Option<Arc<TcpListener>>,
    /// Tests that share the storage do not see each other.
    namespace: Namespace,
    pub seen: Arc<Seen>,
}

impl Stage {
    /// Creates a stage on which every process opens the store.
    pub fn apart(location: StoreLocation) -> Stage {
        Stage { location: Arc::new(location), server: None, namespace: Namespace::default(), seen: Arc::default() }
    }

    /// Creates a stage on which every process is connected to a server, which alone opens the store.
    pub fn served(location: StoreLocation) -> Stage {
        let client = TcpListener::bind("127.0.0.1:0").unwrap();
        client.set_nonblocking(true).unwrap();
        Stage {
            location: Arc::new(location),
            server: Some(Arc::new(client)),
            namespace: Namespace::default(),
            seen: Arc::default(),
        }
    }

    /// Returns the same storage with an unused namespace.
    pub fn elsewhere(&self) -> Stage {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let namespace = Namespace::new(format!("stage-{}", COUNT.fetch_add(1, Ordering::SeqCst))).unwrap();
        Stage { namespace, ..self.clone() }
    }

    /// Returns how many tests run at the same time: mostly they wait for a session timeout.
    pub fn at_once(&self) -> usize {
        if matches!(*self.location, StoreLocation::Database(_)) { 6 } else { 10 }
    }

    /// Returns whether all losses of tasks are observed: other stores execute a call even if its caller dies before the response.
    pub fn sees_all(&self) -> bool {
        matches!(*self.location, StoreLocation::Memory(_))
    }

    /// Renders the state of the runs, for debugging.
    pub async fn show(&self) -> String {
        let (store, _) = self.location.open().await;
        let tasks = store.list_tasks(TaskQuery { namespace: self.namespace.clone(), ..TaskQuery::default() }).await.unwrap();
        let runs = store.list_runs(RunQuery { namespace: self.namespace.clone(), ..RunQuery::default() }).await.unwrap().runs;
        let mut shown = format!("{tasks:?}\n");
        for head in runs {
            let log = store.read_log(head.key.clone(), None, onward_core::Index(0), 1_000).await.unwrap();
            let log: String = log.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
            shown += &format!("{head:?}\n{log}");
        }
        shown
    }

    /// Returns the builder of a process, and how the process dies.
    pub async fn builder(&self, death: Option<Death>) -> (Builder, Mortal) {
        if let Some(client) = &self.server {
            let server = client.local_addr().unwrap();
            let Some(death) = death else { return (Onward::connect(format!("http://{server}")), Mortal::Never) };
            let connection = WorkerConnection::to(server).await;
            self.seen.bell.cut(connection.clone(), death);
            return (Onward::connect(format!("http://{}", connection.address())), Mortal::Linked(connection));
        }
        let (store, clock) = self.location.open().await;
        let dying = DyingStore::new(store, death, self.seen.clone());
        let builder = Onward::with_store(Arc::new(dying.clone()), clock).lease(LEASE).threads(1);
        (builder.namespace(self.namespace.as_str()), Mortal::Stored(dying))
    }

    /// Returns the server, if there is one.
    pub fn server(&self, deaths: Vec<Death>) -> Option<Actor> {
        let client = self.server.clone()?;
        let (location, seen) = (self.location.clone(), self.seen.clone());
        let begin = move |death| -> Begun {
            let (location, client, seen) = (location.clone(), client.clone(), seen.clone());
            Box::pin(async move {
                let (store, clock) = location.open().await;
                let dying = DyingStore::new(store, death, seen);
                let threads = Threads::serve(Arc::new(dying.clone()), clock, &client);
                Life { engine: None, mortal: Mortal::Stored(dying), threads: Some(threads) }
            })
        };
        Some(Actor::new(deaths, begin))
    }
}

/// The threads of a server, which end with it.
pub struct Threads(Option<(Runtime, tokio::runtime::Runtime)>);

impl Threads {
    fn serve(store: Arc<dyn Store>, clock: Arc<dyn Clock>, client: &TcpListener) -> Threads {
        let listener = client.try_clone().unwrap();
        let options = Options { lease: LEASE, fallback: Duration::from_millis(100), ..Options::default() };
        let runtime = Runtime::new(store, clock, options);
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let served = runtime.clone();
        threads.spawn(async move {
            let _background = served.spawn();
            let server = Server::new(served, onward_server::Options::default());
            let clients = router_with(server.clone(), grpc(&server));
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            serve(&server, listener, clients, std::future::pending()).await;
        });
        Threads(Some((runtime, threads)))
    }

    /// Ends all their work, at whatever point it is.
    async fn end(mut self) {
        let (runtime, threads) = self.0.take().expect("they live");
        drop(runtime);
        tokio::task::spawn_blocking(move || threads.shutdown_timeout(crate::site::DEADLINE)).await.unwrap();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some((runtime, threads)) = self.0.take() {
            drop(runtime);
            threads.shutdown_background();
        }
    }
}

/// The cause of a process's death.
#[derive(Clone, Default)]
pub enum Mortal {
    #[default]
    Never,
    /// The store that it has opened.
    Stored(DyingStore),
    /// Its connections to the server.
    Linked(Arc<WorkerConnection>),
}

impl Mortal {
    pub async fn died(&self) {
        match self {
            Mortal::Never => std::future::pending().await,
            Mortal::Stored(store) => store.died().await,
            Mortal::Linked(connection) => connection.was_cut().await,
        }
    }

    fn store(&self) -> Option<&DyingStore> {
        if let Mortal::Stored(store) = self { Some(store) } else { None }
    }
}

/// One incarnation of a process.
pub struct Life {
    /// Missing if it is not a worker, or died at its start.
    pub engine: Option<Onward>,
    pub mortal: Mortal,
    pub threads: Option<Threads>,
}

pub type Begun = Pin<Box<dyn Future<Output = Life>>>;

/// Number of store calls of a process.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    pub steps: u64,
    /// By operation.
    pub others: BTreeMap<&'static str, u64>,
}

/// Its current state, for the others.
#[derive(Clone, Default)]
struct Now {
    engine: Option<Onward>,
    mortal: Mortal,
}

/// A process that dies as planned and is replaced by another.
pub struct Actor {
    begin: Box<dyn Fn(Option<Death>) -> Begun>,
    planned: Vec<Death>,
    now: watch::Sender<Now>,
    deaths: AtomicU32,
}

impl Actor {
    pub fn new(planned: Vec<Death>, begin: impl Fn(Option<Death>) -> Begun + 'static) -> Actor {
        Actor { begin: Box::new(begin), planned, now: watch::Sender::default(), deaths: AtomicU32::new(0) }
    }

    /// Runs one incarnation after the other, without an end.
    pub async fn live(&self) {
        let mut planned = self.planned.iter().copied();
        loop {
            let Life { engine, mortal, threads } = (self.begin)(planned.next()).await;
            self.now.send_replace(Now { engine: engine.clone(), mortal: mortal.clone() });
            mortal.died().await;
            self.deaths.fetch_add(1, Ordering::SeqCst);
            self.now.send_replace(Now::default());
            drop((engine, mortal));
            if let Some(threads) = threads {
                threads.end().await;
            }
        }
    }

    pub fn deaths(&self) -> u32 {
        self.deaths.load(Ordering::SeqCst)
    }

    /// Returns the number of steps and other calls of its current incarnation.
    pub fn calls(&self) -> Calls {
        let now = self.now.borrow();
        now.mortal.store().map_or(Calls::default(), |store| Calls { steps: store.steps(), others: store.others() })
    }

    /// Returns the engine of its current incarnation.
    pub async fn engine(&self) -> Onward {
        let mut now = self.now.subscribe();
        let now = now.wait_for(|now| now.engine.is_some()).await.expect("it lives on");
        now.engine.clone().expect("it was looked for")
    }
}

/// Repeats until there is a response: the process may have died meanwhile. For idempotent requests only.
pub async fn insist<T, E, F: IntoFuture<Output = Result<T, E>>>(call: impl Fn() -> F) -> T {
    loop {
        match tokio::time::timeout(PATIENCE, call().into_future()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
