//! Large bodies of several namespaces: unfinished bodies of one namespace do not block the others.

use std::sync::Arc;
use std::time::Duration;

use onward_core::{Name, Namespace};
use onward_server::keys::{KeyFile, NewKey, Reach};
use onward_server::trace::Trace;
use onward_server::{Bounds, Keys, Limits, Options, Scope};
use onward_store::{Clock, SystemClock};
use onward_wire::ApiKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::raw;
use crate::site::{Site, limits};

/// Longer than any machine needs; only a deadlock takes longer.
const HANG: Duration = Duration::from_secs(120);

/// A site with a key for each of several namespaces.
struct Tenants {
    site: Site,
    keys: Vec<(String, ApiKey)>,
    _directory: tempfile::TempDir,
}

impl Tenants {
    async fn open(limits: Limits, namespaces: &[&str]) -> Tenants {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::at(directory.path().join("keys.json"));
        let make = |namespace: &&str| {
            let reach = Reach::from(Namespace::new(*namespace).unwrap());
            let scopes = [Scope::Start, Scope::Read].into();
            let new = NewKey {
                name: Name::new(*namespace).unwrap(),
                namespace: reach,
                scopes,
                lifetime: None,
                budget_max: None,
                bounds: Bounds::default(),
            };
            ((*namespace).to_owned(), file.create(new, SystemClock.now()).unwrap().key)
        };
        let made = namespaces.iter().map(make).collect();
        let keys = Keys::open(file.path(), Arc::new(SystemClock), Trace::silent()).unwrap();
        let site = Site::with(Options { auth: Arc::new(keys), limits, ..Options::default() }).await;
        Tenants { site, keys: made, _directory: directory }
    }

    fn head(&self, namespace: &str, length: usize) -> String {
        let key = self.keys.iter().find(|(own, _)| own == namespace).unwrap().1.reveal();
        format!(
            "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {key}\r\nOnward-Namespace: {namespace}\r\nContent-Length: {length}\r\n\r\n"
        )
    }

    /// Opens a connection and sends a part of a body.
    async fn stall(&self, namespace: &str, length: usize, sent: usize) -> TcpStream {
        let mut stream = TcpStream::connect(self.site.address).await.unwrap();
        let part = self.head(namespace, length) + &" ".repeat(sent);
        stream.write_all(part.as_bytes()).await.unwrap();
        stream
    }

    async fn start(&self, namespace: &str, id: &str, length: usize) {
        let body = start(id, length);
        let request = self.head(namespace, body.len()) + &body;
        let reply = tokio::time::timeout(HANG, raw(self.site.address, request.as_bytes())).await;
        reply.unwrap_or_else(|_| panic!("{id} of {namespace} waits for another namespace")).expect(201);
    }
}

fn start(id: &str, length: usize) -> String {
    let body = format!(r#"{{"kind": "listener", "id": "{id}"}}"#);
    let blanks = " ".repeat(length - body.len());
    body + &blanks
}

/// Returns limits without timeouts, so that a blocked request waits until the test fails.
fn patient(limits: Limits) -> Limits {
    Limits { body_timeout: Duration::from_secs(3_600), body_rate_min: 1, ..limits }
}

/// Returns whether a connection still waits for its response.
async fn is_open(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    tokio::time::timeout(Duration::from_millis(1), stream.read(&mut byte)).await.is_err()
}

#[tokio::test]
async fn unfinished_bodies_of_one_tenant_do_not_hold_up_another() {
    let tenants = Tenants::open(patient(limits()), &["a", "b"]).await;
    let mut stalled = Vec::new();
    for _ in 0..16 {
        stalled.push(tenants.stall("a", 100_000, 70_000).await);
    }
    tenants.start("b", "large", 100_000).await;
    tenants.start("a", "also", 100_000).await;
    for stream in &mut stalled {
        assert!(is_open(stream).await, "these are still waiting when the others are answered");
    }
}

/// BM1 over a listener: one namespace has used its whole share.
#[tokio::test]
async fn a_tenant_that_has_used_up_its_memory_leaves_room_for_others() {
    let tenants = Tenants::open(Limits { body_memory_max: 600_000, ..patient(limits()) }, &["a", "b", "c", "d"]).await;
    let mut stalled = Vec::new();
    for _ in 0..40 {
        stalled.push(tenants.stall("a", 180_000, 90_000).await);
    }
    for tenant in ["b", "c", "d"] {
        tenants.start(tenant, "large", 100_000).await;
        stalled.push(tenants.stall(tenant, 180_000, 70_000).await);
    }
    for stream in &mut stalled {
        assert!(is_open(stream).await);
    }
}

/// With more bodies than memory, bodies take turns. None waits for ever, and waiting for memory does not count as slow.
#[tokio::test]
async fn bodies_beyond_the_memory_take_turns_and_all_arrive() {
    let memory = Limits { body_memory_max: 250_000, body_timeout: Duration::from_secs(60), ..limits() };
    let tenants = Arc::new(Tenants::open(memory, &["a", "b"]).await);
    let mut sending = Vec::new();
    for number in 0..24 {
        let (tenants, namespace) = (tenants.clone(), ["a", "b"][number % 2]);
        sending.push(tokio::spawn(async move { tenants.start(namespace, &format!("r{number}"), 190_000).await }));
    }
    for sent in sending {
        sent.await.unwrap();
    }
}

/// A large body that stops arriving is refused long before the body timeout.
#[tokio::test]
async fn a_large_body_that_stops_arriving_is_refused_by_its_rate() {
    let limits = Limits { body_timeout: Duration::from_secs(3_600), body_rate_min: 1_000_000_000, ..limits() };
    let tenants = Tenants::open(limits, &["a"]).await;
    let mut large = tenants.stall("a", 180_000, 70_000).await;
    let mut small = tenants.stall("a", 60_000, 50_000).await;
    let mut reply = String::new();
    tokio::time::timeout(HANG, large.read_to_string(&mut reply)).await.expect("the server waits for the body").unwrap();
    assert!(reply.starts_with("HTTP/1.1 408") && reply.contains("body_too_slow"), "{reply}");
    assert!(is_open(&mut small).await, "a small body has the whole time");
}
