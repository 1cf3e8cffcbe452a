//! The environment of an engine under test: a store that outlives it, a manual clock, and short helpers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onward::time::days;
use onward::{Builder, Encryption, EncryptionKey, Onward, ReplayCheck, RunHandle, Status};
use onward_core::event::RunPaused;
use onward_core::{Event, Record};
use onward_runtime::{Background, Runtime};
use onward_server::{Server, grpc, router_with, serve};
use onward_store::{ManualClock, MemoryStore, Store, StoreError};
use onward_store_embedded::{EmbeddedStore, Options, WorkersInside};
use tokio::sync::OnceCell;

/// Limit for anything that happens in the background.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// The payload limit here: small, so that tests of it are quick.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

pub struct Site {
    location: StoreLocation,
    pub clock: Arc<ManualClock>,
    /// Session timeout of workers. Time here advances in steps that no heartbeat could follow; tests of leases set it first.
    pub lease: OnceLock<Duration>,
    /// Engines have a codec that encrypts every payload.
    pub is_sealed: bool,
}

enum StoreLocation {
    Memory(Arc<MemoryStore>),
    Directory(tempfile::TempDir),
    Server(OnceCell<Served>),
}

/// A server over a store in memory; engines connect to it.
struct Served {
    runtime: Runtime,
    url: String,
    _background: Background,
}

impl Served {
    async fn start(clock: Arc<ManualClock>, lease: Duration) -> Served {
        let store = MemoryStore::new(clock.clone()).with_payload_bytes_max(PAYLOAD_BYTES_MAX);
        let options = onward_runtime::Options { lease, ..Default::default() };
        let runtime = Runtime::new(Arc::new(store), clock, options);
        let background = runtime.spawn();
        let server = Server::new(runtime.clone(), onward_server::Options::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let clients = router_with(server.clone(), grpc(&server));
        tokio::spawn(async move { serve(&server, listener, clients, std::future::pending()).await });
        Served { runtime, url, _background: background }
    }
}

impl Site {
    pub fn memory() -> Site {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(clock.clone()).with_payload_bytes_max(PAYLOAD_BYTES_MAX);
        Site { location: StoreLocation::Memory(Arc::new(store)), clock, lease: OnceLock::new(), is_sealed: false }
    }

    /// Creates a site in memory, with every payload encrypted.
    pub fn sealed() -> Site {
        Site { is_sealed: true, ..Site::memory() }
    }

    pub fn directory() -> Site {
        Site {
            location: StoreLocation::Directory(tempfile::tempdir().unwrap()),
            clock: Arc::default(),
            lease: OnceLock::new(),
            is_sealed: false,
        }
    }

    /// Creates a site with a server, which the first engine starts.
    pub fn server() -> Site {
        Site { location: StoreLocation::Server(OnceCell::new()), clock: Arc::default(), lease: OnceLock::new(), is_sealed: false }
    }

    /// Returns whether the runtime is separate from the worker, as if in another process.
    pub fn is_remote(&self) -> bool {
        matches!(self.location, StoreLocation::Server(_))
    }

    /// Returns the builder of an engine on the existing store. It replays every run from the start after each commit.
    pub async fn builder(&self) -> Builder {
        let lease = self.lease.get().copied().unwrap_or(days(10_000));
        let store: Arc<dyn Store> = match &self.location {
            StoreLocation::Memory(store) => store.clone(),
            StoreLocation::Directory(directory) => Arc::new(self.open(directory.path()).await),
            StoreLocation::Server(served) => {
                let served = served.get_or_init(|| Served::start(self.clock.clone(), lease)).await;
                return Onward::connect(&served.url).check_replay(ReplayCheck::Every);
            }
        };
        let builder = Onward::with_store(store, self.clock.clone()).check_replay(ReplayCheck::Every).lease(lease);
        if !self.is_sealed {
            return builder;
        }
        let key = EncryptionKey::new("site", [7; 32]).unwrap();
        builder.codec(Encryption::new([key]).unwrap())
    }

    /// Opens the directory as soon as the previous engine has released it.
    async fn open(&self, directory: &std::path::Path) -> EmbeddedStore {
        eventually("the directory is free", async || {
            let (clock, payload_bytes_max) = (self.clock.clone(), PAYLOAD_BYTES_MAX);
            let options = Options { clock, payload_bytes_max, workers_inside: WorkersInside::All, ..Options::default() };
            match EmbeddedStore::open(directory, options) {
                Ok(store) => Some(store),
                Err(StoreError::DirectoryLocked { .. }) => None,
                Err(error) => panic!("the directory cannot be opened: {error}"),
            }
        })
        .await
    }

    /// Returns the runtime that has the runs of the engine.
    pub fn runtime<'a>(&'a self, onward: &'a Onward) -> &'a Runtime {
        match &self.location {
            StoreLocation::Server(served) => &served.get().expect("an engine has started it").runtime,
            _ => onward.runtime().unwrap(),
        }
    }

    /// Advances the clock and handles due work.
    pub async fn pass(&self, onward: &Onward, span: Duration) {
        self.clock.advance(span);
        let tick = self.runtime(onward).tick().await;
        assert!(tick.error.is_none(), "the tick failed: {:?}", tick.error);
    }
}

/// Repeats until there is a result.
pub async fn eventually<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = poll().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "this did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Repeats until there is a result; otherwise the failure shows the state of the run.
async fn look_at<O, T>(run: &RunHandle<O>, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + DEADLINE / 2;
    loop {
        if let Some(answer) = look().await {
            return answer;
        }
        if tokio::time::Instant::now() >= deadline {
            let (view, log) = (run.view().await.unwrap(), run.log().await.unwrap());
            let log: String = log.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
            panic!("run {} {what}: this did not happen; it is {}\n{log}", run.id(), view.head.status);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub async fn until_status<O>(run: &RunHandle<O>, status: Status) {
    look_at(run, &format!("is {status}"), async || (run.view().await.unwrap().head.status == status).then_some(())).await
}

/// Waits for a pause and returns it.
pub async fn paused<O>(run: &RunHandle<O>) -> RunPaused {
    until_status(run, Status::Paused).await;
    run.view().await.unwrap().pause.expect("a paused run says why")
}

pub async fn events<O>(run: &RunHandle<O>) -> Vec<Event> {
    run.log().await.unwrap().into_iter().flat_map(|record: Record| record.events).collect()
}

/// Returns the number of events of this name in the log.
pub async fn count<O>(run: &RunHandle<O>, name: &str) -> usize {
    events(run).await.iter().filter(|event| event.name() == name).count()
}

/// Waits until the log has so many events of this name.
pub async fn until_logged<O>(run: &RunHandle<O>, name: &str, times: usize) {
    look_at(run, &format!("has {times} {name}"), async || (count(run, name).await >= times).then_some(())).await
}

/// Returns the id of the first open wait of `kind`.
pub async fn awaited<O>(run: &RunHandle<O>, kind: onward_core::view::AwaitedKind) -> String {
    look_at(run, &format!("awaits a {kind:?}"), async || {
        let awaiting = run.view().await.unwrap().awaiting;
        awaiting.into_iter().find(|awaited| awaited.kind == kind).map(|awaited| awaited.id)
    })
    .await
}

/// A gate that is shut until a test opens it.
pub struct Gate(tokio::sync::watch::Sender<bool>);

impl Gate {
    pub fn shut() -> Arc<Gate> {
        Arc::new(Gate(tokio::sync::watch::Sender::new(false)))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub async fn pass(&self) {
        let mut state = self.0.subscribe();
        drop(state.wait_for(|open| *open).await);
    }
}

/// Defines one test per site: in memory, in a directory, with every payload encrypted, and over a server with a remote worker.
macro_rules! everywhere {
    ($($(#[$meta:meta])* async fn $name:ident($site:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn claim($site: &$crate::site::Site) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_memory() {
                let site = $crate::site::Site::memory();
                tokio::time::timeout($crate::site::DEADLINE, claim(&site)).await.expect("the claim is settled in time");
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_a_directory() {
                let site = $crate::site::Site::directory();
                tokio::time::timeout($crate::site::DEADLINE, claim(&site)).await.expect("the claim is settled in time");
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sealed() {
                let site = $crate::site::Site::sealed();
                tokio::time::timeout($crate::site::DEADLINE, claim(&site)).await.expect("the claim is settled in time");
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn over_a_server() {
                let site = $crate::site::Site::server();
                tokio::time::timeout($crate::site::DEADLINE, claim(&site)).await.expect("the claim is settled in time");
            }
        }
    )*};
}
pub(crate) use everywhere;
