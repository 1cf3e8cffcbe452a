//! Serves HTTP/1 and HTTP/2 on one port, with TLS if there is a certificate.
//!
//! The protocol is recognized by the first bytes. A client cannot hold a connection for ever: headers, bodies, idle time and
//! unread responses have timeouts, and when there are too many connections, the one that has been idle longest is closed (S25).
//!
//! Invariants:
//! - SV1 (S25): an unauthenticated client cannot occupy a connection slot that others need: a connection whose open requests are
//!   all unauthenticated can be closed like an idle one, whatever it waits for.
//! - SV2: accepting a connection does not wait until another one is refused.

mod activity;
mod connection;
pub mod metrics;
pub(crate) mod probe;
pub mod tls;
mod write_timeout;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

pub(crate) use activity::RequestTrust;

use crate::handlers::servers;
use crate::server::Server;
use crate::trace::Level;

/// Time to wait for an idle connection to close, and number of attempts.
const PERMIT_TIMEOUT: Duration = Duration::from_millis(50);
const PLACE_TRIES: usize = 20;

/// Maximum number of connections that wait for a slot; more are refused at once.
const WAITING_MAX: usize = 256;

/// Delay after a failed accept, usually because the process has no more file descriptors.
const SOCKETS_PAUSE: Duration = Duration::from_millis(50);

/// Future of a server.
pub type ServeFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Slots of open connections.
struct ConnectionSlots {
    permits: Arc<Semaphore>,
    /// Permits of the connections that wait for a slot.
    waiting: Semaphore,
    /// Notifies one connection that can be closed to close; waiters are notified in order of waiting time.
    close_one: Notify,
}

/// Serves until `shutdown` returns, then waits up to the shutdown timeout for open requests. Boxed, so that the code is compiled
/// in this crate.
pub fn serve<'a>(
    server: &'a Server,
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'a,
) -> ServeFuture<'a> {
    serve_until(server, listener, router, Box::pin(shutdown))
}

fn serve_until<'a>(server: &'a Server, listener: TcpListener, router: Router, shutdown: ServeFuture<'a>) -> ServeFuture<'a> {
    Box::pin(accept_until(server, listener, router, shutdown))
}

async fn accept_until(server: &Server, listener: TcpListener, router: Router, mut shutdown: ServeFuture<'_>) {
    let slots = Arc::new(ConnectionSlots::new(server.limits().connections_max));
    let mut connections = JoinSet::new();
    connections.spawn(servers::announce(server.clone()));
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                drop(stream.set_nodelay(true)); // responses are small; without it, they are only slower
                connections.spawn(admit(server.clone(), stream, router.clone(), slots.clone()));
            }
            Err(error) => {
                server.trace().log(Level::Warn, "cannot accept a connection", &[("error", &error)]);
                slots.close_one.notify_one();
                tokio::time::sleep(SOCKETS_PAUSE).await;
            }
        }
    }
    drop(listener);
    server.close();
    let all = async { while connections.join_next().await.is_some() {} };
    // Connections that are still open after the timeout are aborted.
    drop(tokio::time::timeout(server.limits().shutdown_timeout, all).await);
}

/// Waits for a slot and serves the connection; runs as a task of its own, so accepting continues meanwhile (SV2).
async fn admit(server: Server, stream: TcpStream, router: Router, slots: Arc<ConnectionSlots>) {
    let Some(_permit) = slots.find_permit().await else {
        server.trace().log(Level::Warn, "connection refused: too many open connections", &[]);
        return;
    };
    connection::serve(server, stream, router, slots).await;
}

impl ConnectionSlots {
    fn new(permits: usize) -> ConnectionSlots {
        ConnectionSlots {
            permits: Arc::new(Semaphore::new(permits)),
            waiting: Semaphore::new(WAITING_MAX),
            close_one: Notify::new(),
        }
    }

    /// Returns a slot; if all are taken, notifies a connection that can be closed to close (SV1). Returns `None` if none becomes
    /// free.
    async fn find_permit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Some(permit);
        }
        let _waiting = self.waiting.try_acquire().ok()?;
        let mut permit = pin!(self.permits.clone().acquire_owned());
        for _ in 0..PLACE_TRIES {
            self.close_one.notify_one();
            if let Ok(permit) = tokio::time::timeout(PERMIT_TIMEOUT, permit.as_mut()).await {
                return permit.ok();
            }
        }
        None
    }
}
