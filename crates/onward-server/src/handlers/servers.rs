//! The servers that share a store: each makes itself known, and shows them all (`/v1/servers`).
//!
//! A server that is not heard of for a lease is forgotten. Nothing hangs on this: which server has which run is decided by leases on runs.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::Name;
use onward_runtime::{RuntimeError, WorkersSaid};
use onward_store::{Clock, ServerInfo, StoreError};
use tokio::time::Instant;

use crate::http::documents::Servers;
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::http::response::json;
use crate::new_id;
use crate::server::Server;
use crate::trace::Level;

/// How long a server is known that is not heard of, and how often it says that it is there.
const LEASE: Duration = Duration::from_secs(30);
const PACE: Duration = Duration::from_secs(10);

/// How soon it says that somebody else works for it now.
const LOOK: Duration = Duration::from_millis(500);

/// Who this server is, at `url` for the others.
pub(crate) fn introduce(clock: &dyn Clock, url: String) -> ServerInfo {
    let id = Name::new(format!("server-{:016x}", new_id::random_u64())).expect("hex digits are a name");
    let now = clock.now();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    ServerInfo { id, url, version, started_at: now, heard_at: now, roster: Vec::new() }
}

/// Says that the server is there until it closes, and then that it has gone.
pub(crate) async fn announce(server: Server) {
    let store = server.runtime().store().clone();
    if !store.is_shared() {
        return;
    }
    loop {
        let said = workers(&server);
        let own = ServerInfo { roster: said.bytes, ..server.own().clone() };
        tell(&server, store.announce_server(own.clone(), Some(LEASE)).await);
        let until = Instant::now() + PACE;
        loop {
            if tokio::time::timeout(LOOK, server.closed()).await.is_ok() {
                tell(&server, store.announce_server(own, None).await);
                return;
            }
            if Instant::now() >= until || workers(&server).who != said.who {
                break;
            }
        }
    }
}

/// Who works for this server, for the others.
fn workers(server: &Server) -> WorkersSaid {
    let names = server.sessions().names();
    server.runtime().say_workers(|id| names.get(id).cloned())
}

fn tell(server: &Server, announced: Result<(), StoreError>) {
    if let Err(error) = announced {
        server.trace().say(Level::Warn, "the other servers cannot be told that this one is there", &[("error", &error)]);
    }
}

/// `GET /v1/servers`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let server = &request.server;
    let mut servers = server.runtime().store().list_servers().await.map_err(RuntimeError::from)?;
    if !servers.iter().any(|known| known.id == server.own().id) {
        let heard_at = server.runtime().clock().now();
        servers.push(ServerInfo { heard_at, ..server.own().clone() });
    }
    Ok(json(StatusCode::OK, &Servers::new(&servers, &server.own().id)))
}
