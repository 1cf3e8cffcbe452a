//! A seeded, failing network in front of a database: cuts connections around COMMIT, cuts all of them, delays, freezes, and can
//! be moved to another server.
//!
//! Must never change a byte: what gets through is what was sent.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::mutate::Random;

/// Fault at a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionCut {
    Never,
    /// It is not sent.
    Before,
    /// It is sent, and its reply is dropped.
    Behind,
}

/// A proxy that ends on drop; open connections stay until either side closes them.
pub struct Proxy {
    pub port: u16,
    state: Arc<ProxyState>,
}

struct ProxyState {
    random: AtomicU64,
    /// One in so many COMMITs is cut; none if 0.
    one_in: AtomicU64,
    before: AtomicU64,
    behind: AtomicU64,
    /// Delay of each chunk sent to the database.
    delay_ms: AtomicU64,
    /// No COMMIT gets through, nor anything behind it.
    holds: AtomicBool,
    /// Nothing gets through in either direction; new connections are still accepted.
    is_frozen: AtomicBool,
    to: AtomicU16,
    is_over: AtomicBool,
    connections: Mutex<HashMap<u64, TcpStream>>,
    opened: AtomicU64,
}

impl ProxyState {
    fn choose(&self) -> ConnectionCut {
        let one_in = self.one_in.load(Ordering::Relaxed);
        if one_in == 0 {
            return ConnectionCut::Never;
        }
        let seed = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        match Random::new(seed).next_u64() % (2 * one_in) {
            0 => ConnectionCut::Before,
            1 => ConnectionCut::Behind,
            _ => ConnectionCut::Never,
        }
    }

    /// Waits while the proxy is frozen.
    fn wait_while_frozen(&self) {
        while self.is_frozen.load(Ordering::Relaxed) && !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<u64, TcpStream>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Starts a proxy to the port `to` that cuts one in `one_in` COMMITs.
    pub fn start(to: u16, seed: u64, one_in: u64) -> io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(ProxyState {
            random: AtomicU64::new(seed),
            one_in: AtomicU64::new(one_in),
            before: AtomicU64::new(0),
            behind: AtomicU64::new(0),
            delay_ms: AtomicU64::new(0),
            holds: AtomicBool::new(false),
            is_frozen: AtomicBool::new(false),
            to: AtomicU16::new(to),
            is_over: AtomicBool::new(false),
            connections: Mutex::default(),
            opened: AtomicU64::new(0),
        });
        let its = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if its.is_over.load(Ordering::Relaxed) {
                    return;
                }
                // A connection to a database that is down is closed.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", its.to.load(Ordering::Relaxed))) {
                    drop(serve(client, server, &its));
                }
            }
        });
        Ok(Proxy { port, state })
    }

    /// Sets the rate of cuts to one in so many COMMITs; none if 0.
    pub fn cut_one_in(&self, one_in: u64) {
        self.state.one_in.store(one_in, Ordering::Relaxed);
    }

    /// Cuts all connections.
    pub fn cut_all(&self) {
        for (_, connection) in self.state.connections().drain() {
            drop(connection.shutdown(Shutdown::Both));
        }
    }

    /// Delays everything that is sent to the database.
    pub fn delay(&self, span: Duration) {
        self.state.delay_ms.store(span.as_millis() as u64, Ordering::Relaxed);
    }

    /// Holds back every COMMIT until it is released, as if its sender hung while holding locks.
    pub fn hold_commits(&self, hold: bool) {
        self.state.holds.store(hold, Ordering::Relaxed);
    }

    /// Accepts connections and forwards nothing, until it is released; no side gets an error.
    pub fn freeze(&self, freeze: bool) {
        self.state.is_frozen.store(freeze, Ordering::Relaxed);
    }

    /// Directs new connections to another port, and cuts the old ones.
    pub fn move_to(&self, port: u16) {
        self.state.to.store(port, Ordering::Relaxed);
        self.cut_all();
    }

    /// Returns the numbers of connections that were cut before and after a COMMIT.
    pub fn cuts(&self) -> (u64, u64) {
        (self.state.before.load(Ordering::Relaxed), self.state.behind.load(Ordering::Relaxed))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener, so that it ends.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn serve(client: TcpStream, server: TcpStream, state: &Arc<ProxyState>) -> io::Result<()> {
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let number = state.opened.fetch_add(1, Ordering::Relaxed);
    state.connections().insert(number, client.try_clone()?);
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let its = state.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count) = from_server.read(&mut buffer)
            && count > 0
        {
            its.wait_while_frozen();
            if to_client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        drop(to_client.shutdown(Shutdown::Both));
        its.connections().remove(&number);
    });
    let state = state.clone();
    std::thread::spawn(move || carry(client, server, &state));
    Ok(())
}

/// Forwards what is sent to the database, until it is cut.
fn carry(mut from_client: TcpStream, mut to_server: TcpStream, state: &ProxyState) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = from_client.read(&mut buffer) {
        let bytes = &buffer[..count];
        let is_commit = bytes.windows(7).any(|word| word == b"COMMIT\0");
        std::thread::sleep(Duration::from_millis(state.delay_ms.load(Ordering::Relaxed)));
        state.wait_while_frozen();
        while is_commit && state.holds.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        match if is_commit { state.choose() } else { ConnectionCut::Never } {
            ConnectionCut::Before => {
                state.before.fetch_add(1, Ordering::Relaxed);
                break;
            }
            ConnectionCut::Behind => {
                // Cuts the reply first, then sends the COMMIT.
                drop(from_client.shutdown(Shutdown::Both));
                drop(to_server.write_all(bytes));
                state.behind.fetch_add(1, Ordering::Relaxed);
                // The server reads what was sent before it sees the end.
                drop(to_server.shutdown(Shutdown::Write));
                return;
            }
            ConnectionCut::Never if count == 0 || to_server.write_all(bytes).is_err() => break,
            ConnectionCut::Never => {}
        }
    }
    drop(from_client.shutdown(Shutdown::Both));
    drop(to_server.shutdown(Shutdown::Both));
}
