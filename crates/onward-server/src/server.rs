//! State that all requests share. Clones are cheap and refer to the same server.

use std::path::PathBuf;
use std::sync::Arc;

use onward_runtime::{Ceilings, Runtime};
use onward_store::ServerInfo;
use tokio::sync::watch;

use crate::auth::{Authenticate, NoAuthentication};
use crate::handlers::servers;
use crate::http::cors::Cors;
use crate::http::limits::Limits;
use crate::http::middleware::Hosts;
use crate::http::request::BodyMemory;
use crate::serve::metrics::Metrics;
use crate::serve::probe::Probe;
use crate::serve::tls::Tls;
use crate::trace::Trace;
use crate::webhooks::Webhooks;
use crate::workers::Sessions;

/// HTTP and gRPC API of one runtime.
#[derive(Clone)]
pub struct Server {
    shared: Arc<ServerState>,
}

struct ServerState {
    runtime: Runtime,
    options: Options,
    metrics: Arc<Metrics>,
    body_memory: Arc<BodyMemory>,
    webhook_memory: Arc<BodyMemory>,
    sessions: Sessions,
    own: ServerInfo,
    closing: watch::Sender<bool>,
}

/// Settings of a server.
#[derive(Clone)]
pub struct Options {
    pub limits: Limits,
    /// URL under which the other servers of a shared store reach this one; part of the list of servers.
    pub url: String,
    /// Host names that requests may name.
    pub hosts: Hosts,
    /// Origins whose pages may call the server.
    pub cors: Cors,
    pub auth: Arc<dyn Authenticate>,
    /// Webhooks that the server accepts.
    pub webhooks: Option<Arc<Webhooks>>,
    /// Folder of the attachments that messages name by their hash.
    pub attachments: Option<PathBuf>,
    pub trace: Trace,
    pub probe: Option<Arc<dyn Probe>>,
    /// Certificate; with one, the server accepts only TLS.
    pub tls: Option<Tls>,
    /// Upper limits of the budgets that callers may set.
    pub ceilings: Ceilings,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            url: String::new(),
            hosts: Hosts::Loopback,
            cors: Cors::default(),
            auth: Arc::new(NoAuthentication),
            webhooks: None,
            attachments: None,
            trace: Trace::silent(),
            probe: None,
            tls: None,
            ceilings: Ceilings::default(),
        }
    }
}

impl Server {
    /// Creates a server that counts the changes of the runtime's store from now on.
    pub fn new(runtime: Runtime, options: Options) -> Server {
        let metrics = Arc::new(Metrics::default());
        runtime.store().subscribe(metrics.clone());
        runtime.set_ceilings(options.ceilings.clone()); // SZ3
        let body_memory = BodyMemory::new(options.limits.body_memory_max);
        let webhook_memory = BodyMemory::new(options.limits.webhook_memory_max);
        let (closing, _) = watch::channel(false);
        let sessions = Sessions::default();
        let own = servers::introduce(&**runtime.clock(), options.url.clone());
        let shared = ServerState { runtime, options, metrics, body_memory, webhook_memory, sessions, own, closing };
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

    pub(crate) fn webhook_memory(&self) -> &Arc<BodyMemory> {
        &self.shared.webhook_memory
    }

    /// Returns this server's entry in the list of servers.
    pub(crate) fn own(&self) -> &ServerInfo {
        &self.shared.own
    }

    /// Returns the sessions of connected workers, over HTTP and gRPC.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    /// Ends attached readers and long waits, which would otherwise last as long as their clients stay.
    pub fn close(&self) {
        self.shared.closing.send_replace(true);
    }

    /// Returns once the server is closing.
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
