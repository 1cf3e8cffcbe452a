//! `onward server`: serves a store.
//!
//! Must never listen on a non-loopback address without keys (S1).

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use onward_core::ErrorCode;
use onward_server::trace::Level;

use crate::args::Global;
use crate::builtin_agents::{BuiltinAgents, namespaces_of};
use crate::builtin_flows::FlowSettings;
use crate::config::Config;
use crate::error::Mistake;
use crate::output::print_json;
use crate::serving::{
    KeysArgs, PORT, Protection, Serving, StoreLocation, TlsArgs, TraceArgs, WebhookArgs, has_usable, shutdown_signal,
};

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Address and port to listen on; port 0 selects a free one [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Store: `postgres://USER:PASSWORD@HOST/DATABASE` (several separated by commas), `embedded:DIR` or `memory:` [default: the
    /// directory of --data]
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    store: Option<String>,
    #[command(flatten)]
    keys: KeysArgs,
    #[command(flatten)]
    webhooks: WebhookArgs,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    trace: TraceArgs,
}

/// Environment variable of the store, usual in deployments.
const STORE: &str = "ONWARD_SERVER__STORE";

pub async fn execute(args: ServerArgs, global: &Global) -> Result<()> {
    global.without_server("server")?;
    let config = &global.config;
    // A missing secret must not silently fall back to a local directory.
    if args.store.is_none() && std::env::var_os(STORE).is_some_and(|value| value.is_empty()) {
        let hint = format!("set it to the URL of the database, or unset {STORE} to use a directory");
        return Err(Mistake::usage(ErrorCode::ConfigInvalid, format!("{STORE} is set but empty"), &hint).into());
    }
    let named = || config.text("server.store").filter(|_| global.named_directory().is_none());
    let location = match args.store.clone().or_else(named) {
        None => StoreLocation::Directory(global.directory()),
        Some(url) => parse_store(&url)?,
    };
    let listen = args.listen.map_or_else(|| set_address(config), Ok)?;
    let trace = args.trace.trace(config)?;
    let keys = args.keys.open(&location, &trace, config)?;
    let webhooks = args.webhooks.open(&location, &trace)?;
    let tls = args.tls.open(&trace, config)?;
    if !listen.ip().is_loopback() {
        if !has_usable(keys.as_deref()) {
            let message = format!("{} is reachable from other machines, and there are no usable keys", listen);
            let hint = "create a key with `onward key create`, or listen on 127.0.0.1";
            return Err(Mistake::usage(ErrorCode::ListenRefused, message, hint).into());
        }
        if tls.is_none() {
            trace.log(Level::Warn, "keys and data are sent unencrypted: set --tls-cert and --tls-key, or use a TLS proxy", &[]);
        }
    }
    let protection = Protection { tls, tls_key: args.tls.key(config), ..Protection::open(keys, webhooks, config)? };
    let builtin = BuiltinAgents::open(config)?;
    let flows = FlowSettings::open(config, None, namespaces_of(config)?)?;
    let serving = Serving::start(listen, location.clone(), protection, config, builtin, flows, trace.clone()).await?;
    let stopped = shutdown_signal();
    let console = format!("{}/", serving.url);
    trace.log(Level::Info, "ready", &[("url", &serving.url), ("console", &console), ("data", &location)]);
    if global.json {
        print_json(&serde_json::json!({"url": serving.url}))?;
    }
    serving.run(stopped).await;
    trace.log(Level::Info, "stopped", &[]);
    Ok(())
}

/// Returns the listen address of the settings.
pub fn set_address(config: &Config) -> Result<SocketAddr, Mistake> {
    Ok(config.parsed("server.listen", parse_address)?.unwrap_or(SocketAddr::from(([127, 0, 0, 1], PORT))))
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix("localhost:").map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| "must be an IP address and a port, like 127.0.0.1:7400".to_owned())
}

pub fn parse_store(url: &str) -> Result<StoreLocation, Mistake> {
    match url.split_once(':') {
        Some(("embedded", path)) if !path.is_empty() => Ok(StoreLocation::Directory(PathBuf::from(path))),
        Some(("memory", "")) => Ok(StoreLocation::Memory),
        Some(("postgres" | "postgresql", _)) if url.split(',').all(is_postgres) => {
            Ok(StoreLocation::Databases(url.split(',').map(str::to_owned).collect()))
        }
        _ => {
            // Anything but a plain lowercase word may contain a password.
            let scheme = url
                .split_once(':')
                .map(|(scheme, _)| scheme)
                .filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_lowercase()));
            let message = match scheme {
                Some("postgres" | "postgresql") => "one of the comma-separated URLs does not start with `postgres://`".to_owned(),
                Some(scheme) => format!("unknown store type `{scheme}`"),
                None => "the store is not a URL".to_owned(),
            };
            let hint = "use `postgres://…`, `embedded:DIR` or `memory:`; write a comma in a password as %2C";
            Err(Mistake::usage(ErrorCode::StoreUnsupported, message, hint))
        }
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

#[cfg(test)]
mod tests;
