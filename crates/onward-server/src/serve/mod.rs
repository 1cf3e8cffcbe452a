//! One port for everything: HTTP/1 and HTTP/2, told apart by their first bytes, with TLS where there is a certificate.
//!
//! A client cannot hold more than its share: headers, bodies, pauses and unread answers have their time, and when there are too many
//! connections the one that has rested longest makes place (S25).
//!
//! Invariants:
//! - SV1 (S25): who has proved nothing holds no place that others need: a connection whose requests are all of strangers makes place
//!   like one that rests, whatever it waits for.
//! - SV2: nobody who wants to connect waits for another to be refused.

mod activity;
mod connection;
pub mod metrics;
mod patient;
pub(crate) mod probe;
pub mod tls;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

pub(crate) use activity::Standing;

use crate::handlers::servers;
use crate::server::Server;
use crate::trace::Level;

/// How long to wait for a resting connection to make place, and how often.
const PLACE_TIMEOUT: Duration = Duration::from_millis(50);
const PLACE_TRIES: usize = 20;

/// How many may wait for a place at a time; those beyond are refused at once.
const LOBBY: usize = 256;

/// How long to wait when the system has no more sockets.
const SOCKETS_PAUSE: Duration = Duration::from_millis(50);

/// Who is connected.
struct Crowd {
    places: Arc<Semaphore>,
    /// For those who wait for a place.
    lobby: Semaphore,
    /// Asks one of the connections that may leave to go; the one that has been in line longest hears it.
    leave: Notify,
}

/// Serves until `shutdown` returns, then lets requests end for a while.
pub async fn serve(server: &Server, listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let crowd = Arc::new(Crowd::new(server.limits().connections_max));
    let mut connections = JoinSet::new();
    connections.spawn(servers::announce(server.clone()));
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(admit(server.clone(), stream_of(stream), router.clone(), crowd.clone()));
            }
            Err(error) => {
                server.trace().say(Level::Warn, "cannot accept", &[("error", &error)]);
                crowd.leave.notify_one();
                tokio::time::sleep(SOCKETS_PAUSE).await;
            }
        }
    }
    drop(listener);
    server.close();
    let all = async { while connections.join_next().await.is_some() {} };
    // Who is not done by then is cut off.
    drop(tokio::time::timeout(server.limits().shutdown_timeout, all).await);
}

/// Finds a place and serves there; the next connection is accepted meanwhile (SV2).
async fn admit(server: Server, stream: TcpStream, router: Router, crowd: Arc<Crowd>) {
    let Some(_place) = crowd.find_place().await else {
        server.trace().say(Level::Warn, "no place for another connection", &[]);
        return;
    };
    connection::serve(server, stream, router, crowd).await;
}

/// Answers are small and awaited: none of them may wait for another to share its packet.
fn stream_of(stream: TcpStream) -> TcpStream {
    drop(stream.set_nodelay(true)); // slower without, and still right
    stream
}

impl Crowd {
    fn new(places: usize) -> Crowd {
        Crowd { places: Arc::new(Semaphore::new(places)), lobby: Semaphore::new(LOBBY), leave: Notify::new() }
    }

    /// A place for one more; if there is none, somebody who may leave is asked to go (SV1).
    async fn find_place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        let _waiting = self.lobby.try_acquire().ok()?;
        let mut place = pin!(self.places.clone().acquire_owned());
        for _ in 0..PLACE_TRIES {
            self.leave.notify_one();
            if let Ok(place) = tokio::time::timeout(PLACE_TIMEOUT, place.as_mut()).await {
                return place.ok();
            }
        }
        None
    }
}
