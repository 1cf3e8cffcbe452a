//! Death of a worker that has no store, but a server: its connections are cut while the server is at a chosen call.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::dying::Death;

/// The connections between one incarnation of a worker and its server.
pub struct WorkerConnection {
    address: SocketAddr,
    carrying: JoinHandle<()>,
    is_cut: watch::Sender<bool>,
}

impl WorkerConnection {
    pub async fn to(server: SocketAddr) -> Arc<WorkerConnection> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let carrying = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                connections.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(server).await else { return };
                    drop((near.set_nodelay(true), far.set_nodelay(true)));
                    drop(copy_bidirectional(&mut near, &mut far).await);
                });
            }
        });
        Arc::new(WorkerConnection { address, carrying, is_cut: watch::Sender::new(false) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn cut(&self) {
        self.carrying.abort();
        self.is_cut.send_replace(true);
    }

    pub async fn was_cut(&self) {
        drop(self.is_cut.subscribe().wait_for(|is_cut| *is_cut).await);
    }
}

impl Drop for WorkerConnection {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

/// Counts the steps of the server over all its incarnations, and cuts links at chosen ones.
#[derive(Default)]
pub struct Bell {
    steps: AtomicU64,
    waiting: Mutex<Vec<(Death, Arc<WorkerConnection>)>>,
}

impl Bell {
    /// Cuts the link after so many further steps of the server.
    pub fn cut(&self, connection: Arc<WorkerConnection>, death: Death) {
        let at = death.at + self.steps.load(Ordering::SeqCst);
        self.waiting.lock().unwrap().push((Death { at, ..death }, connection));
    }

    pub fn ring(&self, is_done: bool) {
        let at = if is_done { self.steps.fetch_add(1, Ordering::SeqCst) } else { self.steps.load(Ordering::SeqCst) };
        let mut waiting = self.waiting.lock().unwrap();
        for (_, connection) in waiting.extract_if(.., |(death, _)| death.at <= at && death.is_done == is_done) {
            connection.cut();
        }
    }
}
