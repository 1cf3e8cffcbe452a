//! Servers that share a store: each announces itself in the store and lists all of them (`/v1/servers`). Their workers
//! (`/v1/workers`).
//!
//! A server without a heartbeat for one lease is removed from the list. The list does not affect runs: leases on runs decide
//! which server has which run.

use std::time::Duration;

use onward_core::api::verb;
use onward_core::{Name, Timestamp};
use onward_runtime::{RuntimeError, WorkerAnnouncement};
use onward_store::{Clock, ServerInfo, StoreError};
use tokio::time::Instant;

use super::prelude::*;
use crate::new_id;
use crate::server::Server;
use crate::trace::Level;

/// Time after which a server without a heartbeat is removed, and interval of heartbeats.
const LEASE: Duration = Duration::from_secs(30);
const PACE: Duration = Duration::from_secs(10);

/// Interval at which a change of the connected workers is detected and announced.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the entry of this server, which the others reach at `url`.
pub(crate) fn introduce(clock: &dyn Clock, url: String) -> ServerInfo {
    let id = Name::new(format!("server-{:016x}", new_id::random_u64())).expect("hex digits are a valid name");
    let now = clock.now();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    ServerInfo { id, url, version, started_at: now, last_seen_at: now, workers: Vec::new() }
}

/// Announces the server until it closes, then withdraws it.
pub(crate) async fn announce(server: Server) {
    let store = server.runtime().store().clone();
    if !store.is_shared() {
        return;
    }
    loop {
        let announced = own_workers(&server);
        let own = ServerInfo { workers: announced.bytes, ..server.own().clone() };
        log_announcement_error(&server, store.announce_server(own.clone(), Some(LEASE)).await);
        let until = Instant::now() + PACE;
        loop {
            if tokio::time::timeout(POLL_INTERVAL, server.closed()).await.is_ok() {
                log_announcement_error(&server, store.announce_server(own, None).await);
                return;
            }
            if Instant::now() >= until || own_workers(&server).who != announced.who {
                break;
            }
        }
    }
}

/// Returns the workers that are connected to this server, for the other servers.
fn own_workers(server: &Server) -> WorkerAnnouncement {
    let names = server.sessions().names();
    server.runtime().worker_announcement(|id| names.get(id).cloned())
}

fn log_announcement_error(server: &Server, announced: Result<(), StoreError>) {
    if let Err(error) = announced {
        server.trace().log(Level::Warn, "cannot announce this server in the store", &[("error", &error)]);
    }
}

documents! {
    struct Servers<'a> as ServerList(of: (&'a [ServerInfo], &'a Name)) {
        servers: Vec<OneServer<'a>> = of.0.iter().map(|server| OneServer::from((server, server.id == *of.1))).collect(),
    }

    struct OneServer<'a> as Server(server: (&'a ServerInfo, bool)) {
        id: &'a Name = &server.0.id,
        url: &'a str = &server.0.url,
        version: &'a str = &server.0.version,
        started_at: Timestamp = server.0.started_at,
        last_seen_at: Timestamp = server.0.last_seen_at,
        /// Is the server that responds.
        is_this: bool = server.1,
    }
}

/// Handles `GET /v1/servers`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let server = &request.server;
    let mut servers = server.runtime().store().list_servers().await.map_err(RuntimeError::from)?;
    if !servers.iter().any(|known| known.id == server.own().id) {
        let last_seen_at = server.runtime().clock().now();
        servers.push(ServerInfo { last_seen_at, ..server.own().clone() });
    }
    Ok(json(StatusCode::OK, &Servers::from((&*servers, &server.own().id))))
}

/// Handles `GET /v1/workers`.
pub(crate) async fn workers(request: Request) -> Result<Response, Problem> {
    let reply = request.execute::<verb::ListWorkers>(request.by.namespace.clone().into()).await?;
    Ok(json(StatusCode::OK, &reply))
}
