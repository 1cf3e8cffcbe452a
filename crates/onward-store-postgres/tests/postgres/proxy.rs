//! A network that cuts connections around COMMIT, as a seed says.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happens at a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Never,
    /// It is not sent.
    Before,
    /// It is sent, and nothing that comes back is heard.
    Behind,
}

pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

struct State {
    random: AtomicU64,
    /// One in so many COMMITs is cut.
    one_in: AtomicU64,
    before: AtomicU64,
    behind: AtomicU64,
}

impl State {
    fn choose(&self) -> Cut {
        let one_in = self.one_in.load(Ordering::Relaxed);
        if one_in == 0 {
            return Cut::Never;
        }
        let seed = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mut z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        match z % (2 * one_in) {
            0 => Cut::Before,
            1 => Cut::Behind,
            _ => Cut::Never,
        }
    }
}

impl Proxy {
    pub fn start(to: u16, seed: u64, one_in: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts = || AtomicU64::new(0);
        let state = State { random: AtomicU64::new(seed), one_in: AtomicU64::new(one_in), before: counts(), behind: counts() };
        let state = Arc::new(state);
        let its = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", to))) else { return };
                serve(client, server, its.clone());
            }
        });
        Proxy { port, state }
    }

    pub fn stop_cutting(&self) {
        self.state.one_in.store(0, Ordering::Relaxed);
    }

    /// How many connections were cut before and behind a COMMIT.
    pub fn cuts(&self) -> (u64, u64) {
        (self.state.before.load(Ordering::Relaxed), self.state.behind.load(Ordering::Relaxed))
    }
}

fn serve(client: TcpStream, server: TcpStream, state: Arc<State>) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let (mut from_client, mut to_server) = (client, server);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count) = from_client.read(&mut buffer) {
            let bytes = &buffer[..count];
            let is_commit = count > 0 && bytes.windows(7).any(|word| word == b"COMMIT\0");
            let cut = if is_commit { state.choose() } else { Cut::Never };
            match cut {
                Cut::Before => {
                    state.before.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Cut::Behind => {
                    // First nobody hears, then the server is told.
                    let _ = from_client.shutdown(Shutdown::Both);
                    let _ = to_server.write_all(bytes);
                    state.behind.fetch_add(1, Ordering::Relaxed);
                    // The server reads what was sent before it notices the end.
                    let _ = to_server.shutdown(Shutdown::Write);
                    return;
                }
                Cut::Never if count == 0 || to_server.write_all(bytes).is_err() => break,
                Cut::Never => {}
            }
        }
        let _ = from_client.shutdown(Shutdown::Both);
        let _ = to_server.shutdown(Shutdown::Both);
    });
}
