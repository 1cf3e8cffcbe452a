//! A server that can die and come back, on a fixed port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onward_core::{Event, Namespace, Record, RunHead, RunId, RunKey};
use onward_runtime::{Options, Runtime};
use onward_server::{Server, grpc, router_with, serve};
use onward_store::{Clock, MemoryStore, Store, StoreError, SystemClock};
use onward_store_embedded::EmbeddedStore;
use onward_store_postgres::PostgresStore;
use onward_store_postgres::sharded::{Database, Pace, ShardedStore};

/// Limit for anything that happens in the background.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// Long enough for a busy machine, short enough to wait for.
pub const LEASE: Duration = Duration::from_millis(600);

pub struct Site {
    pub address: SocketAddr,
    location: StoreLocation,
    life: Option<Life>,
}

/// The storage of the runs.
#[derive(Clone)]
enum StoreLocation {
    Memory,
    Directory(Arc<tempfile::TempDir>),
    /// PostgreSQL databases that other servers use, too.
    Databases(Vec<String>),
}

/// One incarnation of the server process, with its own threads that end with it.
struct Life {
    runtime: Runtime,
    threads: tokio::runtime::Runtime,
}

impl Site {
    pub async fn memory() -> Site {
        Site::start(StoreLocation::Memory).await
    }

    pub async fn directory() -> Site {
        Site::start(StoreLocation::Directory(Arc::new(tempfile::tempdir().unwrap()))).await
    }

    /// Starts one of the servers on a database, or on several.
    pub async fn on(urls: Vec<String>) -> Site {
        Site::start(StoreLocation::Databases(urls)).await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    async fn start(location: StoreLocation) -> Site {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        Site { address, life: Some(Life::begin(&location, address).await), location }
    }

    /// Kills the server at whatever point it is.
    pub async fn kill(&mut self) {
        let Life { runtime, threads } = self.life.take().expect("the server lives");
        drop(runtime);
        tokio::task::spawn_blocking(move || threads.shutdown_timeout(DEADLINE)).await.unwrap();
    }

    /// Starts a new process on the same directory and port.
    pub async fn revive(&mut self) {
        self.life = Some(Life::begin(&self.location, self.address).await);
    }

    pub fn runtime(&self) -> &Runtime {
        &self.life.as_ref().expect("the server lives").runtime
    }

    pub async fn head(&self, run: &str) -> Option<RunHead> {
        self.runtime().store().read_run(key(run), None).await.unwrap()
    }

    /// Reads the log of the run directly from the store.
    pub async fn log(&self, run: &str) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        loop {
            // A page ends early if its records are large.
            let from = records.last().map_or(onward_core::Index(0), Record::next_index);
            let page = self.runtime().store().read_log(key(run), None, from, 10_000).await.unwrap();
            if page.is_empty() {
                return records;
            }
            records.extend(page);
        }
    }

    pub async fn count(&self, run: &str, event: &str) -> usize {
        let log = self.log(run).await;
        log.iter().flat_map(|record| &record.events).filter(|logged: &&Event| logged.name() == event).count()
    }

    pub async fn until_logged(&self, run: &str, event: &str, times: usize) {
        eventually(&format!("{run} has {times} {event}"), async || (self.count(run, event).await >= times).then_some(())).await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(Life { runtime, threads }) = self.life.take() {
            drop(runtime);
            threads.shutdown_background();
        }
    }
}

impl Life {
    async fn begin(location: &StoreLocation, address: SocketAddr) -> Life {
        let mut clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store: Arc<dyn Store> = match location {
            StoreLocation::Memory => Arc::new(MemoryStore::new(clock.clone())),
            StoreLocation::Directory(directory) => Arc::new(open(directory.path()).await),
            StoreLocation::Databases(urls) => {
                let mut databases = Vec::new();
                for url in urls {
                    let connect = async || PostgresStore::connect(url, Default::default()).await.ok();
                    let store = eventually("the database answers", connect).await;
                    clock = store.clock();
                    databases.push(Database { name: url.clone(), store: Arc::new(store) });
                }
                let opened = ShardedStore::open(databases, Some("cluster".to_owned()), Arc::new(SystemClock), Pace::default());
                Arc::new(opened.await.unwrap())
            }
        };
        let listener = eventually("the port is free", async || std::net::TcpListener::bind(address).ok()).await;
        listener.set_nonblocking(true).unwrap();
        let options = Options { lease: LEASE, fallback: Duration::from_millis(200), ..Options::default() };
        let runtime = Runtime::new(store, clock, options);
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let served = runtime.clone();
        threads.spawn(async move {
            let _background = served.spawn();
            let server = Server::new(served, onward_server::Options::default());
            let clients = router_with(server.clone(), grpc(&server));
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            serve(&server, listener, clients, std::future::pending()).await;
        });
        Life { runtime, threads }
    }
}

async fn open(directory: &std::path::Path) -> EmbeddedStore {
    eventually("the directory is free", async || match EmbeddedStore::open(directory, Default::default()) {
        Ok(store) => Some(store),
        Err(StoreError::DirectoryLocked { .. }) => None,
        Err(error) => panic!("the directory cannot be opened: {error}"),
    })
    .await
}

pub fn key(run: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(run).unwrap())
}

/// Repeats until there is a result.
pub async fn eventually<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = poll().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "this did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Repeats until the network delivers a response. For idempotent requests only.
pub async fn insist<T, E: std::fmt::Debug>(mut call: impl AsyncFnMut() -> Result<T, E>) -> T {
    loop {
        match tokio::time::timeout(LEASE, call()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
