//! One port for everything: HTTP/1 and HTTP/2, told apart by their first bytes, with TLS where there is a certificate.
//!
//! A client cannot hold more than its share: headers, bodies, pauses and unread answers have their time, and when there are too many
//! connections the one that has rested longest makes place (S25).

mod activity;
mod connection;
mod patient;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::server::Server;
use crate::trace::Level;

/// How long to wait for a resting connection to make place, and how often.
const PLACE_TIMEOUT: Duration = Duration::from_millis(50);
const PLACE_TRIES: usize = 20;

/// How long to wait when the system has no more sockets.
const SOCKETS_PAUSE: Duration = Duration::from_millis(50);

/// Who is connected.
struct Crowd {
    places: Arc<Semaphore>,
    /// Asks one of the connections that rest to go; the one that has rested longest hears it.
    leave: Notify,
}

/// Serves until `shutdown` returns, then lets requests end for a while.
pub async fn serve(server: &Server, listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let crowd = Arc::new(Crowd { places: Arc::new(Semaphore::new(server.limits().connections_max)), leave: Notify::new() });
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let Some(place) = crowd.find_place().await else {
                    server.trace().say(Level::Warn, "no place for another connection", &[]);
                    continue;
                };
                let talk = connection::serve(server.clone(), stream_of(stream), router.clone(), crowd.clone());
                connections.spawn(async move {
                    talk.await;
                    drop(place);
                });
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

/// Answers are small and awaited: none of them may wait for another to share its packet.
fn stream_of(stream: TcpStream) -> TcpStream {
    drop(stream.set_nodelay(true)); // slower without, and still right
    stream
}

impl Crowd {
    /// A place for one more; if there is none, somebody who rests is asked to go.
    async fn find_place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        for _ in 0..PLACE_TRIES {
            self.leave.notify_one();
            if let Ok(place) = tokio::time::timeout(PLACE_TIMEOUT, self.places.clone().acquire_owned()).await {
                return place.ok();
            }
        }
        None
    }
}
