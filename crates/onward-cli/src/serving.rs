//! Starts a server on a store and runs it until a shutdown signal.
//!
//! Order of startup: the address first, because a port conflict is cheap to detect; then the store; then readiness. Shutdown runs
//! in reverse order, so that the directory is unlocked when the process exits.

pub mod mark;
mod opened;

use std::future::Future;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::ErrorCode;
use onward_runtime::{Background, Runtime};
use onward_server::auth::secret_file::SecretFileError;
use onward_server::keys::KEYS_FILE;
use onward_server::trace::{Format, Level, Trace};
use onward_server::webhooks::WEBHOOKS_FILE;
use onward_server::{Ceilings, Cors, Hosts, Keys, Options, Probe, Server, Tls, Webhooks, grpc, router_with, serve};
use onward_store::SystemClock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use crate::args::{one_of, parse_word};
use crate::builtin_agents::{BuiltinAgents, BuiltinWorkers};
use crate::builtin_flows::{FlowSettings, FlowWorkers};
use crate::config::Config;
use crate::error::Mistake;
use crate::modes;

use mark::ServerMark;
pub use opened::{Opened, StoreLocation};

/// Default port.
pub const PORT: u16 = 7400;

/// Desired limit of open files: each connection is one.
const FILES_WANTED: u64 = 65_536;

/// Maximum wait for other owners of the store at shutdown.
const CLOSE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Args)]
pub struct TraceArgs {
    /// Log format [default: pretty on a terminal, json otherwise]
    #[arg(long, value_name = "FORMAT", value_parser = one_of(FORMATS, Format::as_str))]
    log_format: Option<Format>,
    /// Log level [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = one_of(LEVELS, Level::as_str))]
    log_level: Option<Level>,
}

const FORMATS: &[Format] = &[Format::Pretty, Format::Json];
const LEVELS: &[Level] = &[Level::Error, Level::Warn, Level::Info, Level::Debug];

impl TraceArgs {
    pub fn trace(&self, config: &Config) -> Result<Trace> {
        let format = match self.log_format {
            Some(format) => Some(format),
            None => config.parsed("log.format", |text| parse_word(FORMATS, Format::as_str, text))?,
        };
        let level = match self.log_level {
            Some(level) => Some(level),
            None => config.parsed("log.level", |text| parse_word(LEVELS, Level::as_str, text))?,
        };
        let usual = if std::io::stderr().is_terminal() { Format::Pretty } else { Format::Json };
        Ok(Trace::stderr(format.unwrap_or(usual), level.unwrap_or(Level::Info)))
    }
}

#[derive(Debug, Args)]
pub struct KeysArgs {
    /// Key file [default: the setting server.keys, or onward.keys.json in the data directory]
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

impl KeysArgs {
    /// Returns the key file of the flag or the settings.
    pub fn named(&self, config: &Config) -> Option<PathBuf> {
        self.keys.clone().or_else(|| config.text("server.keys").map(PathBuf::from))
    }

    /// Opens the key file. A named file must exist; that of the directory may be created later. Memory and databases have no
    /// default.
    pub fn open(&self, location: &StoreLocation, trace: &Trace, config: &Config) -> Result<Option<Arc<Keys>>, SecretFileError> {
        let (clock, trace) = (Arc::new(SystemClock), trace.clone());
        let keys = match (self.named(config), location) {
            (Some(file), _) => Keys::open(&file, clock, trace)?,
            (None, StoreLocation::Directory(path)) => Keys::open_or_await(&path.join(KEYS_FILE), clock, trace)?,
            (None, StoreLocation::Databases(_) | StoreLocation::Memory) => return Ok(None),
        };
        Ok(Some(Arc::new(keys)))
    }
}

#[derive(Debug, Args)]
pub struct WebhookArgs {
    /// Webhook file [default: onward.webhooks.json in the data directory]
    #[arg(long, value_name = "FILE")]
    pub webhooks: Option<PathBuf>,
}

impl WebhookArgs {
    /// Opens the webhook file. Memory and databases have no default.
    pub fn open(&self, location: &StoreLocation, trace: &Trace) -> Result<Option<Arc<Webhooks>>, SecretFileError> {
        let path = match (&self.webhooks, location) {
            (Some(file), _) => file.clone(),
            (None, StoreLocation::Directory(path)) => path.join(WEBHOOKS_FILE),
            (None, StoreLocation::Databases(_) | StoreLocation::Memory) => return Ok(None),
        };
        Ok(Some(Arc::new(Webhooks::open(&path, trace.clone())?)))
    }
}

#[derive(Debug, Args)]
pub struct TlsArgs {
    /// Certificate of the server with its chain, PEM [env: ONWARD_TLS_CERT]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM [env: ONWARD_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the path of the private key, if it is set.
    pub fn key(&self, config: &Config) -> Option<PathBuf> {
        self.tls_key.clone().or_else(|| config.text("tls_key").map(PathBuf::from))
    }

    /// Opens the certificate, if it is set. Fails if only one of certificate and key is set, instead of serving without TLS.
    pub fn open(&self, trace: &Trace, config: &Config) -> Result<Option<Tls>> {
        let cert = self.tls_cert.clone().or_else(|| config.text("tls_cert").map(PathBuf::from));
        match (cert, self.key(config)) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => match Tls::open(&cert, &key, trace.clone()) {
                Ok(tls) => Ok(Some(tls)),
                Err(error) => {
                    let hint = "use PEM files, with the certificate of the server first and its chain after it";
                    Err(Mistake::new(error.code(), error.to_string(), Some(hint)).into())
                }
            },
            (cert, _) => {
                let (there, missing) = if cert.is_some() { ("certificate", "key") } else { ("key", "certificate") };
                let message = format!("TLS has a {there} but no {missing}");
                Err(Mistake::usage(ErrorCode::TlsFilesUnusable, message, "set both --tls-cert and --tls-key, or neither").into())
            }
        }
    }
}

/// Keys, webhooks, TLS, attachments and budget limits of a server.
#[derive(Default)]
pub struct Protection {
    pub keys: Option<Arc<Keys>>,
    pub webhooks: Option<Arc<Webhooks>>,
    pub tls: Option<Tls>,
    /// Path of the certificate's private key; other users must not read it.
    pub tls_key: Option<PathBuf>,
    pub attachments: Option<PathBuf>,
    pub ceilings: Ceilings,
    pub cors: Cors,
}

impl Protection {
    /// Reads attachments, ceilings and allowed origins from the settings. Refuses the origin `*` without keys: every web page in
    /// a browser on this machine could use the server.
    pub fn open(keys: Option<Arc<Keys>>, webhooks: Option<Arc<Webhooks>>, config: &Config) -> Result<Protection, Mistake> {
        let cors = config.parsed("server.cors_origins", Cors::parse)?.unwrap_or_default();
        if cors.allows_all() && !has_usable(keys.as_deref()) {
            let message = "`server.cors_origins` = `*` needs API keys: every web page could use this server";
            let hint = "list the origins, like https://app.example.com, or create a key with `onward key create`";
            return Err(Mistake::usage(ErrorCode::ConfigInvalid, message, hint));
        }
        let attachments = config.text("server.attachments").map(PathBuf::from);
        Ok(Protection { keys, webhooks, attachments, ceilings: config.ceilings()?, cors, ..Protection::default() })
    }
}

/// Returns whether there is a key that is neither revoked nor expired.
pub fn has_usable(keys: Option<&Keys>) -> bool {
    keys.is_some_and(Keys::has_usable)
}

/// A server that is ready.
pub struct Serving {
    pub url: String,
    listener: TcpListener,
    server: Server,
    background: Background,
    /// Built-in workers for the models and agents of the settings.
    workers: BuiltinWorkers,
    flows: FlowWorkers,
    opened: Opened,
    /// Logs when the store stops accepting writes.
    watch: Option<JoinHandle<()>>,
    /// Last field, so that the mark is removed after the directory is unlocked.
    mark: Option<ServerMark>,
}

impl Serving {
    /// Starts a server. The caller has checked that a non-loopback address has keys (S1).
    pub async fn start(
        address: SocketAddr,
        location: StoreLocation,
        protection: Protection,
        config: &Config,
        builtin: Option<BuiltinAgents>,
        flows: FlowSettings,
        trace: Trace,
    ) -> Result<Serving> {
        let (limits, lease, defaults) = (config.limits()?, config.lease()?, config.defaults()?);
        raise_file_limit();
        trace.capture_tracing_events();
        let Protection { keys, webhooks, tls, tls_key, attachments, ceilings, cors } = protection;
        let listener = listen(address).await?;
        let url = format!("{}://{}", if tls.is_some() { "https" } else { "http" }, listener.local_addr()?);
        let opened = Opened::open(location.clone(), config.pause_after_lost_workers()?).await?;
        let mark = location.directory().and_then(|directory| ServerMark::leave(directory, &url));
        warn_of_readers(&location, &tls_key, &trace);
        let watch = opened.probe.clone().map(|probe| watch_store(probe, trace.clone()));
        let kept = onward_runtime::Options { lease, defaults, ..Default::default() };
        let runtime = Runtime::new(opened.store.clone(), opened.clock.clone(), kept);
        // Against DNS rebinding by web pages: such a page has no key, and without keys the Host header must be loopback.
        let hosts = if has_usable(keys.as_deref()) { Hosts::Any } else { Hosts::Loopback };
        let mut options = Options {
            limits,
            url: url.clone(),
            hosts,
            cors,
            trace: trace.clone(),
            webhooks,
            attachments,
            probe: opened.probe.clone(),
            tls,
            ceilings,
            ..Options::default()
        };
        if let Some(keys) = keys {
            options.auth = keys;
        }
        let server = Server::new(runtime.clone(), options);
        // After the server, whose metrics then include timers that were due at startup.
        let background = runtime.spawn();
        let workers = match builtin {
            Some(builtin) => BuiltinWorkers::start(builtin, &runtime, &trace).await?,
            None => BuiltinWorkers::default(),
        };
        let flows = FlowWorkers::start(flows, &runtime, &trace);
        Ok(Serving { url, listener, server, background, workers, flows, opened, watch, mark })
    }

    pub fn runtime(&self) -> &Runtime {
        self.server.runtime()
    }

    /// Serves until `shutdown` returns, then waits for open requests and closes the store.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let Serving { listener, server, background, workers, flows, opened, watch, mark, url: _ } = self;
        let clients = router_with(server.clone(), grpc(&server));
        serve(&server, listener, clients, shutdown).await;
        flows.stop().await;
        workers.stop().await;
        background.stop().await;
        drop(server);
        if let Some(watch) = watch {
            watch.abort();
            drop(watch.await); // the task holds the store
        }
        opened.close(CLOSE_MAX).await;
        drop(mark);
    }
}

/// Logs a warning for each secret that other users of the machine can read (S39).
fn warn_of_readers(location: &StoreLocation, tls_key: &Option<PathBuf>, trace: &Trace) {
    let Some(directory) = location.directory() else { return };
    for file in modes::readable_by_others(directory, tls_key.as_deref()) {
        trace.log(
            Level::Warn,
            "other users of this machine can read a secret",
            &[("file", &file.path.display()), ("do", &file.advice())],
        );
    }
}

/// Interval of the write check.
const WATCH: Duration = Duration::from_secs(1);

/// Logs when the store stops accepting writes and when it accepts them again.
fn watch_store(probe: Arc<dyn Probe>, trace: Trace) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut reported = None;
        loop {
            let why = match probe.stopped() {
                Some(why) => Some(why),
                None => probe.unwritable().await,
            };
            match &why {
                Some(why) if reported.as_ref() != Some(why) => {
                    trace.log(Level::Error, "the store accepts no writes", &[("why", why)]);
                }
                None if reported.is_some() => trace.log(Level::Info, "the store accepts writes again", &[]),
                _ => {}
            }
            reported = why;
            tokio::time::sleep(WATCH).await;
        }
    })
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let message = format!("cannot listen on {address}: {error}");
        let hint = "another server may use the port; choose another one with `--port` or `--listen`";
        Mistake::new(ErrorCode::ListenFailed, message, Some(hint)).into()
    })
}

/// Raises the soft limit of open files, which is often 1,024.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(FILES_WANTED);
    let wanted = FILES_WANTED.min(maximum);
    if limit.current.is_some_and(|current| current < wanted) {
        // On failure the server runs with the current limit.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
}

/// Returns a future that completes on Ctrl-C or SIGTERM. Signals count from this call on, not from the first poll.
pub fn shutdown_signal() -> impl Future<Output = ()> {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else { return std::future::pending().await };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
