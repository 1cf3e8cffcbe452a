//! What all requests share. Cheap to clone: all clones are one server.

use std::path::PathBuf;
use std::sync::Arc;

use onward_runtime::Runtime;
use onward_store::ServerInfo;
use tokio::sync::watch;

use crate::auth::ceilings::Ceilings;
use crate::auth::{Authenticate, Open};
use crate::handlers::servers;
use crate::http::limits::Limits;
use crate::http::middleware::Hosts;
use crate::http::request::BodyMemory;
use crate::serve::metrics::Metrics;
use crate::serve::probe::Probe;
use crate::serve::tls::Tls;
use crate::trace::Trace;
use crate::webhooks::Hooks;
use crate::workers::Sessions;

/// The doors of one runtime.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Runtime,
    options: Options,
    metrics: Arc<Metrics>,
    body_memory: Arc<BodyMemory>,
    hook_memory: Arc<BodyMemory>,
    sessions: Sessions,
    own: ServerInfo,
    closing: watch::Sender<bool>,
}

/// How a server behaves.
#[derive(Clone)]
pub struct Options {
    pub limits: Limits,
    /// Where the other servers of a shared store would reach it; shown to whoever looks at them.
    pub url: String,
    /// The names it answers to.
    pub hosts: Hosts,
    pub auth: Arc<dyn Authenticate>,
    /// The webhooks it takes in.
    pub hooks: Option<Arc<Hooks>>,
    /// The folder of attachments that messages name by their hash.
    pub attachments: Option<PathBuf>,
    pub trace: Trace,
    pub probe: Option<Arc<dyn Probe>>,
    /// With a certificate, nothing but TLS is spoken.
    pub tls: Option<Tls>,
    /// What callers may let runs spend at most.
    pub ceilings: Ceilings,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            url: String::new(),
            hosts: Hosts::Loopback,
            auth: Arc::new(Open),
            hooks: None,
            attachments: None,
            trace: Trace::silent(),
            probe: None,
            tls: None,
            ceilings: Ceilings::default(),
        }
    }
}

impl Server {
    /// Counts what happens in the runtime's store from now on.
    pub fn new(runtime: Runtime, options: Options) -> Server {
        let metrics = Arc::new(Metrics::default());
        runtime.store().subscribe(metrics.clone());
        let body_memory = BodyMemory::new(options.limits.body_memory_max);
        let hook_memory = BodyMemory::new(options.limits.hook_memory_max);
        let (closing, _) = watch::channel(false);
        let sessions = Sessions::default();
        let own = servers::introduce(&**runtime.clock(), options.url.clone());
        let shared = Shared { runtime, options, metrics, body_memory, hook_memory, sessions, own, closing };
        Server { shared: Arc::new(shared) }
    }

    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    pub fn limits(&self) -> &Limits {
        &self.shared.options.limits
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    pub fn trace(&self) -> &Trace {
        &self.shared.options.trace
    }

    pub(crate) fn body_memory(&self) -> &Arc<BodyMemory> {
        &self.shared.body_memory
    }

    pub(crate) fn hook_memory(&self) -> &Arc<BodyMemory> {
        &self.shared.hook_memory
    }

    /// What this server says of itself.
    pub(crate) fn own(&self) -> &ServerInfo {
        &self.shared.own
    }

    /// The workers elsewhere, whichever way they come.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    /// Ends everything that would go on for as long as its client likes: attached readers and long waits.
    pub fn close(&self) {
        self.shared.closing.send_replace(true);
    }

    /// Returns when the server is being closed.
    pub async fn closed(&self) {
        let mut closing = self.shared.closing.subscribe();
        // The sender lives as long as `self`.
        drop(closing.wait_for(|closing| *closing).await);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("limits", self.limits()).finish_non_exhaustive()
    }
}
