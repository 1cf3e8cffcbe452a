//! The clients: start runs, signal them and decide their approvals through any server, and retry every request with the same ids
//! until it succeeds.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use onward::{Decide, Error, Onward};
use onward_runtime::CallRef;
use serde_json::json;
use tokio::task::JoinSet;

use crate::crash::Chance;

/// Request timeout, after which the client tries the next server.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Number of signals for each gathering run.
pub const ITEMS: u64 = 4;

/// Number of parts of a load; each returns the run's number.
pub const PARTS: u64 = 13;

/// Acknowledged requests.
#[derive(Debug, Default)]
pub struct Acknowledged {
    pub loads: BTreeSet<u64>,
    pub gathers: BTreeSet<u64>,
    /// Run and signal id.
    pub signals: BTreeSet<(String, String)>,
}

struct Callers {
    /// One client for each server.
    clients: Vec<Onward>,
    next: Cell<usize>,
    ledger: Arc<Ledger>,
}

/// State shared by the test and its clients.
#[derive(Default)]
pub struct Ledger {
    pub acknowledged: Mutex<Acknowledged>,
    /// Number of requests without a response.
    pub unanswered: AtomicUsize,
    pub no_more: AtomicBool,
}

/// Runs the clients on their own thread until `no_more` is set and all runs have ended.
pub fn spawn(urls: Vec<String>, seed: u64, pace: Duration, ledger: Arc<Ledger>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let calling = async move { Rc::new(Callers::connect(&urls, ledger).await).call(seed, pace).await };
        tokio::task::LocalSet::new().block_on(&runtime, calling);
    })
}

impl Callers {
    async fn connect(urls: &[String], ledger: Arc<Ledger>) -> Callers {
        let mut clients = Vec::new();
        for url in urls {
            clients.push(loop {
                // Fails until the server is up.
                match Onward::connect(url).start().await {
                    Ok(client) => break client,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            });
        }
        Callers { clients, next: Cell::new(0), ledger }
    }

    /// Tries one server after the other until one succeeds. Panics on a permanent error.
    async fn insist<T>(&self, what: &str, call: impl AsyncFn(&Onward) -> Result<T, Error>) -> T {
        loop {
            let client = &self.clients[self.next.replace(self.next.get() + 1) % self.clients.len()];
            match tokio::time::timeout(PATIENCE, call(client)).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(error)) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(Err(error)) => panic!("{what}: {} {error}", error.code()),
                Err(_) => {}
            }
            self.ledger.unanswered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Starts pairs of runs until `no_more` is set; returns when all of them have ended with the right result.
    async fn call(self: Rc<Callers>, seed: u64, pace: Duration) {
        let mut runs = JoinSet::new();
        let deciding = tokio::task::spawn_local(self.clone().decide());
        let mut n = 0;
        while !self.ledger.no_more.load(Ordering::Relaxed) {
            n += 1;
            let chance = Chance::new(seed.wrapping_mul(n + 1));
            runs.spawn_local(self.clone().load(n, chance.clone()));
            runs.spawn_local(self.clone().gather(n, chance));
            tokio::time::sleep(pace).await;
        }
        while let Some(ended) = runs.join_next().await {
            ended.unwrap();
        }
        deciding.abort();
    }

    async fn load(self: Rc<Callers>, n: u64, mut chance: Chance) {
        let id = format!("load-{n}");
        let input = json!({"n": n, "large": 100});
        self.insist(&id, async |client| client.start::<u64, _>("load", &input).id(&id).await).await;
        self.ledger.acknowledged.lock().unwrap().loads.insert(n);
        tokio::time::sleep(Duration::from_millis(chance.below(200))).await;
        self.signal(&id, "outside", n, "outside-1").await;
        assert_eq!(self.result(&id).await, n * PARTS, "{id}");
    }

    async fn gather(self: Rc<Callers>, n: u64, mut chance: Chance) {
        let id = format!("gather-{n}");
        self.insist(&id, async |client| client.start::<u64, _>("gather", &ITEMS).id(&id).await).await;
        self.ledger.acknowledged.lock().unwrap().gathers.insert(n);
        for item in 0..ITEMS {
            tokio::time::sleep(Duration::from_millis(chance.below(400))).await;
            for _ in 0..=chance.below(2) {
                self.signal(&id, "item", item, &format!("item-{item}")).await;
            }
        }
        assert_eq!(self.result(&id).await, (0..ITEMS).sum::<u64>() + 1, "{id}");
    }

    async fn signal(&self, run: &str, name: &str, value: u64, signal_id: &str) {
        let request = self.insist(run, async |client| client.run::<u64>(run)?.signal(name, &value).id(signal_id).await);
        request.await;
        self.ledger.acknowledged.lock().unwrap().signals.insert((run.to_owned(), signal_id.to_owned()));
    }

    async fn result(&self, run: &str) -> u64 {
        self.insist(run, async |client| client.run::<u64>(run)?.result().await).await
    }

    async fn decide(self: Rc<Callers>) {
        loop {
            let waits = self.insist("approvals", async |client| client.list_approvals().await).await;
            for wait in waits {
                let call = CallRef::from(&wait).to_string();
                let decide =
                    Decide { approved: true, feedback: None, decided_by: None, answer: None, decision_id: "torture".to_owned() };
                self.insist(&call, async |client| client.decide_approval(&call, decide.clone()).await).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns whether a retry may succeed.
fn is_passing(error: &Error) -> bool {
    ["store_unavailable", "server_unreachable", "not_ready", "shut_down"].contains(&error.code())
}
