//! `onward server`: a store behind an address.
//!
//! Must never be reachable from elsewhere without keys (S1).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_server::trace::Level;

use crate::args::Global;
use crate::builtin_agents::BuiltinAgents;
use crate::config::Config;
use crate::error::Mistake;
use crate::output::print_json;
use crate::serving::limits::{lease, limits};
use crate::serving::{KeysArgs, PORT, Place, Protection, Serving, TlsArgs, TraceArgs, WebhookArgs, told_to_stop};

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// The address and port to listen on; port 0 picks a free one [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// The store: `postgres://USER:PASSWORD@HOST/DATABASE` (several apart by commas), `embedded:DIR` or `memory:`; otherwise the directory
    /// that --data names
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

/// Where the setting of the store comes from in most deployments.
const STORE: &str = "ONWARD_SERVER__STORE";

pub async fn execute(args: ServerArgs, global: &Global) -> Result<ExitCode> {
    global.without_server("server")?;
    let config = &global.config;
    // A secret that is missing must not become a directory that nobody else sees.
    if args.store.is_none() && std::env::var_os(STORE).is_some_and(|value| value.is_empty()) {
        let hint = format!("name the database there, or unset {STORE} to keep runs in a directory");
        return Err(Mistake::usage("config_invalid", format!("the environment sets {STORE} to nothing"), &hint).into());
    }
    let named = || config.text("server.store").filter(|_| global.named_directory().is_none());
    let place = match args.store.clone().or_else(named) {
        None => Place::Directory(global.directory()),
        Some(url) => parse_store(&url)?,
    };
    let listen = args.listen.map_or_else(|| set_address(config), Ok)?;
    let trace = args.trace.trace(config)?;
    let keys = args.keys.open(&place, &trace, config)?;
    let webhooks = args.webhooks.open(&place, &trace)?;
    let tls = args.tls.open(&trace, config)?;
    if !listen.ip().is_loopback() {
        if !keys.as_ref().is_some_and(|keys| keys.has_usable()) {
            let message = format!("{} can be reached from other machines, and there are no keys", listen);
            let hint = "make one with `onward key create`, or listen on 127.0.0.1";
            return Err(Mistake::usage("listen_refused", message, hint).into());
        }
        if tls.is_none() {
            trace.say(
                Level::Warn,
                "keys and data travel unencrypted: give it a certificate, or let a proxy with TLS stand before it",
                &[],
            );
        }
    }
    let tls_key = args.tls.key(config);
    let attachments = config.text("server.attachments").map(PathBuf::from);
    let ceilings = config.ceilings()?;
    let protection = Protection { keys, webhooks, tls, tls_key, attachments, ceilings };
    let serving = Serving::start(
        listen,
        place.clone(),
        protection,
        limits(config)?,
        lease(config)?,
        BuiltinAgents::open(config)?,
        trace.clone(),
    )
    .await?;
    let told = told_to_stop();
    trace.say(Level::Info, "ready", &[("url", &serving.url), ("data", &place)]);
    if global.json {
        print_json(&serde_json::json!({"url": serving.url}))?;
    }
    serving.run(told).await;
    trace.say(Level::Info, "stopped", &[]);
    Ok(ExitCode::SUCCESS)
}

/// The address as the settings say.
pub fn set_address(config: &Config) -> Result<SocketAddr, Mistake> {
    Ok(config.parsed("server.listen", parse_address)?.unwrap_or(SocketAddr::from(([127, 0, 0, 1], PORT))))
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix("localhost:").map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| "it is not like 127.0.0.1:7400".to_owned())
}

pub fn parse_store(url: &str) -> Result<Place, Mistake> {
    match url.split_once(':') {
        Some(("embedded", path)) if !path.is_empty() => Ok(Place::Directory(PathBuf::from(path))),
        Some(("memory", "")) => Ok(Place::Memory),
        Some(("postgres" | "postgresql", _)) if url.split(',').all(is_postgres) => {
            Ok(Place::Databases(url.split(',').map(str::to_owned).collect()))
        }
        _ => {
            // Whatever is no plain word may be a password, or have one in it.
            let scheme = url
                .split_once(':')
                .map(|(scheme, _)| scheme)
                .filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_lowercase()));
            let message = match scheme {
                Some("postgres" | "postgresql") => {
                    "one of the addresses, which commas part, does not begin with `postgres://`".to_owned()
                }
                Some(scheme) => format!("there is no store of the kind `{scheme}`"),
                None => "the store is not an address".to_owned(),
            };
            let hint = "it is `postgres://…`, `embedded:DIR` or `memory:`; a comma in a password is written as %2C";
            Err(Mistake::usage("store_unsupported", message, hint))
        }
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_numbers_or_localhost() {
        assert_eq!(parse_address("localhost:1").unwrap().to_string(), "127.0.0.1:1");
        assert_eq!(parse_address("[::1]:1").unwrap().to_string(), "[::1]:1");
        assert!(parse_address("example.org:1").is_err() && parse_address("127.0.0.1").is_err());
    }

    /// A URL may hold a password: only its beginning is told.
    #[test]
    fn a_store_that_is_not_there_is_told_without_its_secrets() {
        let mistake = parse_store("mysql://me:secret@host/db").unwrap_err();
        assert_eq!(mistake.message, "there is no store of the kind `mysql`");
        for text in ["host=h password=s3cret", "s3cret", "s3:cret", "postgres://u:s3,cret@h/db"] {
            let mistake = parse_store(text).unwrap_err();
            assert!(!mistake.message.contains("s3"), "{}", mistake.message);
        }
        assert!(matches!(parse_store("postgres://me:secret@host/db"), Ok(Place::Databases(_))));
        assert!(matches!(parse_store("postgres://a/x,postgres://b/y"), Ok(Place::Databases(urls)) if urls.len() == 2));
        assert_eq!(parse_store("postgres://a/x,y").unwrap_err().code, "store_unsupported");
        assert!(matches!(parse_store("embedded:./data"), Ok(Place::Directory(_))));
    }
}
