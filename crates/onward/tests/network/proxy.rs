//! A network between one process and a server, with faults on request.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The current faults of the network.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// Each connection is cut at some byte before this one.
    pub cut_before: Option<u64>,
    /// Each chunk is delayed by up to so many milliseconds.
    pub delay_ms: u64,
    /// Nothing gets to the server; it is not lost, only late.
    pub hold_up: bool,
    /// Nothing gets back from the server.
    pub hold_down: bool,
    /// New connections are refused.
    pub refuse: bool,
}

/// A network that ends with all its connections when it is dropped.
pub struct Proxy {
    pub url: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    server: SocketAddr,
    faults: watch::Sender<Faults>,
    /// Counts how often all connections were cut.
    cuts: watch::Sender<u64>,
    random: Mutex<Random>,
    connections: AtomicU64,
}

/// Splitmix: sufficient randomness for a network.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}

impl Proxy {
    pub async fn new(server: SocketAddr, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (faults, cuts) = (watch::Sender::new(Faults::default()), watch::Sender::new(0));
        let random = Mutex::new(Random::new(seed));
        let shared = Arc::new(Shared { server, faults, cuts, random, connections: AtomicU64::new(0) });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Proxy { url, shared, accepting }
    }

    pub fn set(&self, faults: Faults) {
        self.shared.faults.send_replace(faults);
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends the faults: held data is delivered, and so is everything new.
    pub fn heal(&self) {
        self.set(Faults::default());
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((near, _)) = listener.accept().await {
        if shared.faults.borrow().refuse {
            continue; // dropped: the closest that a listener gets to a refusal
        }
        shared.connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(carry(near, shared.clone()));
    }
}

/// Forwards one connection until either side or the network ends it.
async fn carry(near: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    cuts.mark_unchanged();
    let Ok(far) = TcpStream::connect(shared.server).await else { return };
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    tokio::select! {
        () = forward(near_in, far_out, &shared, |faults| faults.hold_up) => {}
        () = forward(far_in, near_out, &shared, |faults| faults.hold_down) => {}
        _ = cuts.changed() => {}
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, held: fn(&Faults) -> bool) {
    let mut faults = shared.faults.subscribe();
    let chance = |limit: u64| shared.random.lock().unwrap().below(limit);
    let mut carried = 0;
    let mut cut_at: Option<(u64, u64)> = None;
    let mut piece = vec![0; 16 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut piece).await else { return };
        let Ok(now) = faults.wait_for(|faults| !held(faults)).await.map(|faults| *faults) else { return };
        if now.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(chance(now.delay_ms))).await;
        }
        // Chosen when the faults begin, so that a long connection is not spared.
        match (now.cut_before, cut_at) {
            (Some(before), None) => cut_at = Some((before, carried + chance(before))),
            (Some(before), Some((chosen, _))) if chosen != before => cut_at = Some((before, carried + chance(before))),
            (None, _) => cut_at = None,
            _ => {}
        }
        let left = cut_at.map_or(u64::MAX, |(_, at)| at - carried);
        let fits = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        if to.write_all(&piece[..fits]).await.is_err() || fits < count || left == 0 {
            return;
        }
        carried += fits as u64;
    }
}
