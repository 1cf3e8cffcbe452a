//! API keys over HTTP and gRPC: every route and method, with every kind of key.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onward::Onward;
use onward::prelude::*;
use onward_core::{Name, Namespace, Timestamp};
use onward_server::auth::AuthRequest;
use onward_server::keys::{CreatedKey, KeyFile, NewKey, Reach};
use onward_server::trace::{Format, Level, Trace};
use onward_server::{Authenticate, Bounds, Keys, METHODS, Options, ROUTES, Scope};
use onward_store::{Clock, SystemClock};
use onward_wire::ApiKey;
use serde_json::json;

use crate::client::{Reply, Stream};
use crate::site::{DEADLINE, Site, limits};

/// A site that requires keys, and its key file.
pub struct Locked {
    pub site: Site,
    pub file: KeyFile,
    pub log: CapturedLog,
    _directory: tempfile::TempDir,
}

/// Log of the server.
#[derive(Clone, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl CapturedLog {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the log once `lines` lines contain `part`; a separate thread writes it.
    pub async fn once(&self, part: &str, lines: usize) -> String {
        let begun = Instant::now();
        while self.text().lines().filter(|line| line.contains(part)).count() < lines {
            assert!(begun.elapsed() < DEADLINE, "{part}: {}", self.text());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.text()
    }
}

fn now() -> Timestamp {
    SystemClock.now()
}

fn make(file: &KeyFile, name: &str, namespace: &str, scopes: &[Scope]) -> CreatedKey {
    make_bound(file, name, namespace, scopes, Bounds::default())
}

fn make_bound(file: &KeyFile, name: &str, namespace: &str, scopes: &[Scope], bounds: Bounds) -> CreatedKey {
    let namespace = Reach::from(Namespace::new(namespace).unwrap());
    let scopes: BTreeSet<Scope> = scopes.iter().copied().collect();
    let wanted = NewKey { name: Name::new(name).unwrap(), namespace, scopes, lifetime: None, budget_max: None, bounds };
    file.create(wanted, now()).unwrap()
}

impl Locked {
    /// Returns a site and one key for everything.
    pub async fn open() -> (Locked, ApiKey) {
        Locked::with(Options { limits: limits(), ..Options::default() }).await
    }

    pub async fn with(options: Options) -> (Locked, ApiKey) {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::at(directory.path().join("keys.json"));
        let root = make(&file, "root", "*", &Scope::ALL).key;
        let log = CapturedLog::default();
        let trace = Trace::to(Format::Json, Level::Debug, Box::new(log.clone()));
        let keys = Keys::open(file.path(), Arc::new(SystemClock), trace.clone()).unwrap();
        let site = Site::with(Options { auth: Arc::new(keys), trace, ..options }).await;
        (Locked { site, file, log, _directory: directory }, root)
    }

    pub fn make(&self, name: &str, namespace: &str, scopes: &[Scope]) -> ApiKey {
        make(&self.file, name, namespace, scopes).key
    }

    /// Creates a key for everything, with these bounds.
    pub fn make_bound(&self, bounds: Bounds) -> ApiKey {
        make_bound(&self.file, "bound", "*", &Scope::ALL, bounds).key
    }

    pub async fn send(&self, key: &ApiKey, method: &str, path: &str, body: &str) -> Reply {
        self.send_in("default", key, method, path, body).await
    }

    pub async fn send_in(&self, namespace: &str, key: &ApiKey, method: &str, path: &str, body: &str) -> Reply {
        let headers = format!("{}Onward-Namespace: {namespace}\r\nContent-Type: application/json\r\n", bearer(key.reveal()));
        self.site.send(method, path, &headers, body).await
    }

    /// Returns the gRPC status of a call without a message, if it was refused before the call began.
    async fn grpc_status(&self, path: &str, headers: &str) -> Option<u8> {
        let headers = format!("{headers}Content-Type: application/grpc\r\nTE: trailers\r\n");
        let reply = self.site.send("POST", path, &headers, "").await;
        reply.header("grpc-status").map(|status| status.parse().unwrap())
    }

    /// Repeats a request until it has this status, for at most five seconds (G3).
    pub async fn until(&self, key: &ApiKey, status: u16) {
        self.until_in("default", key, status).await;
    }

    pub async fn until_in(&self, namespace: &str, key: &ApiKey, status: u16) {
        let begun = Instant::now();
        while self.send_in(namespace, key, "GET", "/v1/runs", "").await.status != status {
            assert!(begun.elapsed() < DEADLINE, "still not {status}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.site.address)
    }
}

fn bearer(text: &str) -> String {
    format!("Authorization: Bearer {text}\r\n")
}

/// Paths of routes without a scope.
pub const PUBLIC: [&str; 10] = [
    "/v1/webhooks/{id}",
    "/v1/namespace",
    "/v1/session",
    "/v1/session",
    "/v1/session",
    "/",
    "/console/{id}",
    "/healthz",
    "/readyz",
    "/openapi.json",
];

const GRPC_NOT_ALLOWED: u8 = 7;
const GRPC_UNAUTHENTICATED: u8 = 16;

/// Routes about other namespaces or the server need a key for all namespaces, whatever the scopes.
#[tokio::test]
async fn what_concerns_all_namespaces_needs_a_key_for_all_of_them() {
    let (locked, root) = Locked::open().await;
    let tenant = locked.make("tenant", "default", &Scope::ALL);
    locked.until(&tenant, 200).await;
    let mut wide = Vec::new();
    for route in ROUTES.iter().filter(|route| route.scope.is_some()) {
        let (method, path) = (route.method.to_string(), route.path.replace("{id}", "a~0~0").replace("{index}", "0"));
        let reply = locked.send(&tenant, &method, &path, "").await;
        if reply.status == 403 {
            reply.problem(403, "not_allowed");
            wide.push(path);
        }
    }
    assert_eq!(wide, ["/v1/servers", "/metrics"]);
    locked.send(&root, "GET", "/v1/servers", "").await.expect(200);
    let operator = locked.make("operator", "*", &[Scope::Operate, Scope::Read]);
    locked.until(&operator, 200).await;
    locked.send(&operator, "GET", "/v1/servers", "").await.problem(403, "not_allowed");
}

/// A request without a namespace has that of a key for one namespace, over every API.
#[tokio::test]
async fn a_client_learns_the_namespace_of_its_key() {
    let (locked, root) = Locked::open().await;
    let tenant = locked.make("tenant", "shop", &[Scope::Read, Scope::Work]);
    let begun = Instant::now();
    let namespace = async |key: &str, given: Option<&str>| {
        let given = given.map(|given| Namespace::new(given).unwrap());
        onward::connect_http(&locked.url(), given.as_ref(), Some(key)).unwrap().namespace().await.unwrap()
    };
    while namespace(tenant.reveal(), None).await.as_str() != "shop" {
        assert!(begun.elapsed() < DEADLINE, "the key is not known");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(namespace(root.reveal(), None).await, Namespace::default(), "a key for all namespaces");
    let unknown = ApiKey::new([1; 8], [2; 32]);
    assert_eq!(namespace(unknown.reveal(), None).await, Namespace::default(), "an invalid key is like none");
    assert_eq!(namespace(tenant.reveal(), Some("other")).await.as_str(), "other", "the header counts first");
    let engine = Onward::connect(locked.url()).key(tenant.reveal()).start().await.unwrap();
    assert_eq!(engine.list_runs(Default::default()).await.unwrap().runs.len(), 0);
    engine.shutdown().await;
}

/// S7: every route and method needs its own scope, and no other.
#[tokio::test]
async fn every_route_and_method_wants_its_own_scope() {
    let (locked, _) = Locked::open().await;
    let keys = Scope::ALL.map(|scope| (scope, locked.make("one", "*", &[scope])));
    locked.until(&keys[0].1, 200).await;
    for route in ROUTES {
        let (method, path) = (route.method.to_string(), route.path.replace("{id}", "a~0~0").replace("{index}", "0"));
        let bare = locked.site.send(&method, &path, "", "").await;
        if route.path.starts_with("/v1/webhooks/") {
            bare.problem(401, "webhook_refused"); // the signature is the credential
            continue;
        }
        assert_eq!(bare.status == 401, route.scope.is_some(), "{method} {path}: {}", bare.body);
        for (scope, key) in &keys {
            let headers = format!("Authorization: Bearer {}\r\nX-Onward-Console: 1\r\n", key.reveal());
            let reply = locked.site.send(&method, &path, &headers, "").await;
            let let_in = route.scope.is_none_or(|needed| needed == *scope);
            assert_eq!(reply.status != 403, let_in, "{method} {path} with {scope}: {}", reply.body);
            assert_ne!(reply.status, 401);
            if !let_in {
                reply.problem(403, "not_allowed");
            }
        }
    }
    let public: Vec<&str> = ROUTES.iter().filter(|route| route.scope.is_none()).map(|route| route.path).collect();
    assert_eq!(public, PUBLIC, "a new route needs a scope");
    for method in METHODS {
        assert_eq!(locked.grpc_status(method.path, "").await, Some(GRPC_UNAUTHENTICATED), "{}", method.path);
        for (scope, key) in &keys {
            let status = locked.grpc_status(method.path, &bearer(key.reveal())).await;
            assert_eq!(status == Some(GRPC_NOT_ALLOWED), method.scope != *scope, "{} with {scope}", method.path);
            assert_ne!(status, Some(GRPC_UNAUTHENTICATED));
        }
    }
}

/// Exactly the methods that the protocol declares are served, each with its scope.
#[test]
fn every_declared_method_is_in_the_table() {
    let (mut service, mut declared) = ("", BTreeSet::new());
    let text = onward_wire::proto::text();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("service ") {
            service = name.trim_end_matches(" {");
        } else if let Some(method) = line.trim_start().strip_prefix("rpc ") {
            declared.insert(format!("/onward.v1.{service}/{}", method.split('(').next().unwrap()));
        }
    }
    let served: BTreeSet<String> = METHODS.iter().map(|method| method.path.to_owned()).collect();
    assert_eq!(served, declared);
    assert_eq!(served.len(), METHODS.len());
}

/// G1 (S3): whatever is wrong with a key, the response is the same, byte for byte.
#[tokio::test]
async fn refusals_do_not_reveal_why_a_key_is_invalid() {
    let (locked, root) = Locked::open().await;
    let revoked = locked.make("revoked", "*", &Scope::ALL);
    locked.file.revoke(revoked.id(), now()).unwrap();
    let expired = locked.make("expired", "*", &Scope::ALL);
    locked.file.rotate(expired.id(), Duration::ZERO, now()).unwrap();
    let unknown = ApiKey::new([1; 8], [2; 32]);
    // A known id with another secret.
    let wrong = root.reveal().replace(root.secret(), unknown.secret());
    let wrong = rechecked(&wrong);
    let mistyped = format!("{}x", &root.reveal()[..root.reveal().len() - 1]);
    let long = "x".repeat(8_000);
    let texts = [unknown.reveal(), &wrong, &mistyped, revoked.reveal(), expired.reveal(), "", "x", &long, "onw___", "é"];
    let mut headers: Vec<String> = texts.iter().map(|text| bearer(text)).collect();
    headers.push(String::new());
    headers.push(bearer(root.reveal()).repeat(2));
    headers.push(bearer(root.reveal()) + &bearer("x"));
    headers.push(format!("Authorization: Basic {}\r\n", root.reveal()));
    headers.push(format!("Authorization: {}\r\n", root.reveal()));
    headers.push(format!("X-Api-Key: {}\r\n", root.reveal()));
    tokio::time::sleep(Duration::from_millis(1_100)).await; // the file is checked again
    let mut answers = BTreeSet::new();
    for headers in &headers {
        let reply = locked.site.send("GET", "/v1/runs", headers, "").await;
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{headers}");
        answers.insert((reply.status, reply.body));
        assert_eq!(locked.grpc_status("/onward.v1.Runs/ListRuns", headers).await, Some(GRPC_UNAUTHENTICATED), "{headers}");
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers.first().unwrap().0, 401);
    // A header that is too large is refused before authentication.
    let huge = locked.site.send("GET", "/v1/runs", &bearer(&"x".repeat(20_000)), "").await;
    assert_eq!(huge.status, 431);
    locked.site.send("GET", "/v1/runs", &format!("authorization: bearer  {}\r\n", root.reveal()), "").await.expect(200);
}

/// Returns the text with its valid checksum.
fn rechecked(text: &str) -> String {
    let body = text.rsplit_once('_').unwrap().0;
    let digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".as_bytes();
    let crc = |bytes: &[u8]| {
        !bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
        })
    };
    let mut number = crc(body.as_bytes());
    let mut checksum = [b'0'; 6];
    for digit in checksum.iter_mut().rev() {
        (*digit, number) = (digits[(number % 62) as usize], number / 62);
    }
    let text = format!("{body}_{}", std::str::from_utf8(&checksum).unwrap());
    ApiKey::parse(&text).unwrap();
    text
}

/// G1 (S3): and takes the same time, as far as a test can measure it.
#[tokio::test]
async fn a_wrong_secret_takes_no_longer_than_an_unknown_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join("keys.json"));
    let keys: Vec<CreatedKey> = (0..100).map(|_| make(&file, "one", "*", &Scope::ALL)).collect();
    let revoked = &keys[50].key;
    file.revoke(revoked.id(), now()).unwrap();
    let authenticator = Keys::open(file.path(), Arc::new(SystemClock), Trace::silent()).unwrap();
    let known = keys[0].key.reveal();
    let unknown = ApiKey::new([1; 8], [2; 32]);
    let first_wrong = rechecked(&known.replace(keys[0].key.secret(), unknown.secret()));
    let (secret, last) = keys[0].key.secret().split_at(42);
    let last_wrong = rechecked(&known.replace(keys[0].key.secret(), &format!("{secret}{}", if last == "a" { "b" } else { "a" })));
    let texts = [unknown.reveal(), &first_wrong, &last_wrong, revoked.reveal()];
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..2_500 {
        for (text, times) in texts.iter().zip(&mut times) {
            let mut headers = axum::http::HeaderMap::new();
            headers.insert("authorization", format!("Bearer {text}").parse().unwrap());
            let request =
                AuthRequest { scope: Scope::Read, namespace: &Namespace::default(), server_wide: false, headers: &headers };
            let begun = Instant::now();
            let answer = authenticator.authenticate(request).await;
            times.push(begun.elapsed());
            assert!(answer.is_err());
        }
    }
    let medians = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    let (least, most) = (medians.iter().min().unwrap(), medians.iter().max().unwrap());
    assert!(*most < *least * 3 / 2 + Duration::from_micros(2), "{medians:?}");
}

/// S6: two namespaces with the same ids are independent.
#[tokio::test]
async fn the_same_ids_in_two_namespaces_are_two_worlds() {
    let (locked, root) = Locked::open().await;
    let ada = locked.make("ada", "a", &Scope::ALL);
    let bob = locked.make("bob", "b", &Scope::ALL);
    locked.until(&root, 200).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await; // the server has read both keys
    let start = |input: &str| json!({"kind": "nobody-works-on-this", "id": "same", "input": input}).to_string();
    locked.send_in("a", &ada, "POST", "/v1/runs", &start("of a")).await.expect(201);
    locked.send_in("b", &bob, "POST", "/v1/runs", &start("of b")).await.expect(201);
    let signal = json!({"name": "x", "signal_id": "s", "payload": "of b"}).to_string();
    let sent = locked.send_in("b", &bob, "POST", "/v1/runs/same/signals", &signal).await.expect(202);
    assert_eq!(sent["index"], 1);
    let sent = locked.send_in("a", &ada, "POST", "/v1/runs/same/signals", &signal).await.expect(202);
    assert_eq!((&sent["index"], &sent["repeated"]), (&json!(1), &json!(false)), "b's signal id is not a's");
    locked.send_in("a", &ada, "POST", "/v1/runs", &json!({"kind": "k", "id": "only-a"}).to_string()).await.expect(201);
    let page = locked.send_in("a", &ada, "GET", "/v1/runs?limit=1", "").await.expect(200);
    // S36: a cursor of a is of no use to b.
    let cursor = page["next"].as_str().unwrap();
    let page = locked.send_in("b", &bob, "GET", &format!("/v1/runs?cursor={cursor}"), "").await;
    assert!(!page.body.contains("only-a") && !page.body.contains("of a"), "{}", page.body);
    // For a foreign key, everything with an id is not found, whether it exists or not; everything else is not allowed.
    for route in ROUTES.iter().filter(|route| route.scope.is_some() && route.path.starts_with("/v1/")) {
        let method = route.method.to_string();
        let request_as = async |key: &ApiKey, id: &str| {
            let id = if route.path.starts_with("/v1/runs") { id.to_owned() } else { format!("{id}~0~0") };
            let reply = locked.send_in("a", key, &method, &route.path.replace("{id}", &id).replace("{index}", "0"), "").await;
            (reply.status, reply.body.replace("nothing", "only-a"))
        };
        let (there, not_there) = (request_as(&bob, "only-a").await, request_as(&bob, "nothing").await);
        assert_eq!(there, not_there, "{method} {}", route.path);
        // The id of a worker contains nothing of the namespace.
        let has_id = route.path.contains("{id}") && !route.path.starts_with("/v1/workers/");
        assert_eq!(there.0, if has_id { 404 } else { 403 }, "{method} {}: {}", route.path, there.1);
        if method == "GET" && route.path.contains("{id}") {
            assert_eq!(there, request_as(&ada, "nothing").await, "a foreign run looks like a missing one");
        }
    }
    // Over gRPC the header names the namespace, which is refused.
    let headers = format!("{}Onward-Namespace: a\r\n", bearer(bob.reveal()));
    for method in METHODS {
        assert_eq!(locked.grpc_status(method.path, &headers).await, Some(GRPC_NOT_ALLOWED), "{}", method.path);
    }
    locked.send_in("a", &root, "GET", "/v1/runs/only-a", "").await.expect(200);
}

/// The metrics cover all namespaces: a key of one namespace cannot read them.
#[tokio::test]
async fn the_counters_of_the_server_are_for_keys_of_all_namespaces() {
    let (locked, root) = Locked::open().await;
    let (ada, all) = (locked.make("ada", "a", &Scope::ALL), locked.make("prometheus", "*", &[Scope::Read]));
    locked.until(&all, 200).await;
    locked.send_in("a", &ada, "GET", "/v1/runs", "").await.expect(200);
    let detail = locked.send_in("a", &ada, "GET", "/metrics", "").await.problem(403, "not_allowed");
    assert!(detail.contains("all namespaces"), "{detail}");
    for key in [&all, &root] {
        let page = locked.send_in("a", key, "GET", "/metrics", "").await;
        assert!(page.status == 200 && page.body.contains("onward_runs_started_total"), "{page:?}");
    }
}

/// A worker that names a foreign namespace gets an error about the namespace, not about its id.
#[tokio::test]
async fn frames_for_a_foreign_namespace_are_refused_by_that_name() {
    let (locked, _) = Locked::open().await;
    let ada = locked.make("ada", "a", &[Scope::Work]);
    locked.until(&ada, 403).await;
    let detail = locked.send_in("b", &ada, "POST", "/v1/workers/w/frames", r#"{"frames": []}"#).await.problem(403, "not_allowed");
    assert!(detail.contains("the namespace `b`"), "{detail}");
}

/// G3 (S2): a revoked key is refused within seconds, and its open streams end.
#[tokio::test]
async fn a_revoked_key_loses_what_it_had_open() {
    let (locked, root) = Locked::open().await;
    let reader = locked.make("reader", "default", &[Scope::Read]);
    locked.until(&reader, 200).await;
    let start = json!({"kind": "order", "id": "a", "input": "tea"}).to_string();
    locked.send(&root, "POST", "/v1/runs", &start).await.expect(201);
    let mut stream = Stream::open(locked.site.address, "/v1/runs/a/events", &bearer(reader.reveal())).await;
    let mut other = Stream::open(locked.site.address, "/v1/runs/a/events", &bearer(root.reveal())).await;
    let waiting = locked.send(&reader, "GET", "/v1/runs/a/result?wait_ms=60000", "");
    let revoke = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        locked.file.revoke(reader.id(), now()).unwrap();
    };
    let (reply, ()) = tokio::join!(waiting, revoke);
    reply.problem(401, "unauthenticated");
    let last = loop {
        let frame = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
        if let Some(frame) = frame.filter(|frame| frame.event.is_some()) {
            break frame;
        }
    };
    assert_eq!((last.event.as_deref(), &last.data.unwrap()["code"]), (Some("error"), &json!("unauthenticated")));
    locked.until(&reader, 401).await;
    // Other keys are not affected.
    locked.send(&root, "POST", "/v1/runs/a/terminate", "").await.expect(202);
    loop {
        let frame = tokio::time::timeout(DEADLINE, other.next()).await.unwrap().unwrap();
        if frame.name() == "end" {
            break;
        }
    }
}

/// G2 (S1): with a broken or missing key file every request is refused, until the file is valid again.
#[tokio::test]
async fn a_broken_key_file_refuses_all_requests() {
    let (locked, root) = Locked::open().await;
    locked.until(&root, 200).await;
    let whole = std::fs::read_to_string(locked.file.path()).unwrap();
    for broken in [Some("{\"version\": 1, \"keys\": [}"), Some(""), None] {
        match broken {
            Some(text) => std::fs::write(locked.file.path(), text).unwrap(),
            None => std::fs::remove_file(locked.file.path()).unwrap(),
        }
        locked.until(&root, 503).await;
        locked.send(&root, "GET", "/v1/runs", "").await.problem(503, "not_ready");
        locked.site.get("/v1/runs").await.problem(503, "not_ready");
        let detail = locked.site.get("/readyz").await.problem(503, "not_ready");
        assert!(detail.contains("the key file is not usable"), "{detail}");
        assert_eq!(locked.grpc_status("/onward.v1.Runs/ListRuns", &bearer(root.reveal())).await, Some(14));
        locked.site.get("/healthz").await.header("content-type").unwrap();
        let replacement = locked.file.path().with_extension("whole");
        std::fs::write(&replacement, &whole).unwrap();
        std::fs::rename(replacement, locked.file.path()).unwrap();
        locked.until(&root, 200).await;
        assert_eq!(locked.site.get("/readyz").await.status, 200);
    }
    let log = locked.log.once("all requests that need it are refused", 3).await;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("all requests that need it are refused")).collect();
    assert_eq!(lines.len(), 3, "once per reason: {lines:?}");
}

/// G2: the first key locks an open server for good.
#[tokio::test]
async fn the_first_key_locks_the_door() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join("keys.json"));
    let keys = Keys::open_or_await(file.path(), Arc::new(SystemClock), Trace::silent()).unwrap();
    assert!(!keys.has_usable());
    let site = Site::with(Options { auth: Arc::new(keys), limits: limits(), ..Options::default() }).await;
    site.get("/v1/runs").await.expect(200);
    let key = make(&file, "first", "*", &[Scope::Read]).key;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    site.get("/v1/runs").await.problem(401, "unauthenticated");
    site.send("GET", "/v1/runs", &bearer(key.reveal()), "").await.expect(200);
    std::fs::remove_file(file.path()).unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    site.get("/v1/runs").await.problem(503, "not_ready");
}

/// A refused gRPC call has the HTTP status 200: it is counted by its gRPC status.
#[tokio::test]
async fn grpc_calls_are_counted_by_their_status() {
    let (locked, root) = Locked::open().await;
    let method = "/onward.v1.Runs/ListRuns";
    assert_eq!(locked.grpc_status(method, "").await, Some(GRPC_UNAUTHENTICATED));
    let page = locked.send(&root, "GET", "/metrics", "").await.body;
    let counted = format!("onward_grpc_calls_total{{method=\"{method}\",status=\"UNAUTHENTICATED\"}} 1\n");
    assert!(page.contains(&counted), "{page}");
    assert!(!page.contains("method=\"GRPC\""), "{page}");
}

/// G4 (S2, S12): no file or log contains the secret; the time of the last use is stored to the minute.
#[tokio::test]
async fn a_secret_is_written_nowhere() {
    let (locked, root) = Locked::open().await;
    let start = json!({"kind": "order", "id": "a", "input": "tea"}).to_string();
    locked.send(&root, "POST", "/v1/runs", &start).await.expect(201);
    locked.send(&root, "GET", "/v1/runs/nothing", "").await.problem(404, "run_not_found");
    let mistyped = root.reveal().replace("onw_", "ONW_");
    locked.site.send("GET", "/v1/runs", &bearer(&mistyped), "").await.problem(401, "unauthenticated");
    let metrics = locked.send(&root, "GET", "/metrics", "").await.body;
    let begun = Instant::now();
    while !locked.file.last_used().contains_key(root.id()) {
        assert!(begun.elapsed() < DEADLINE, "the time of the last use was not written");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let used = locked.file.last_used()[root.id()];
    assert_eq!(used.0 % 60_000, 0);
    let log = locked.log.once(r#""by":"root""#, 1).await;
    let mut texts = vec![log, metrics];
    for entry in std::fs::read_dir(locked.file.path().parent().unwrap()).unwrap() {
        texts.push(String::from_utf8_lossy(&std::fs::read(entry.unwrap().path()).unwrap()).into_owned());
    }
    assert!(texts.len() >= 4);
    for text in texts {
        assert!(!text.contains(root.secret()), "{text}");
    }
}

/// S7: a signal that is sent with a start needs its own scope, over HTTP and gRPC.
#[tokio::test]
async fn a_start_with_a_signal_wants_both_scopes() {
    let (locked, _) = Locked::open().await;
    let [starts, both] = [&[Scope::Start][..], &[Scope::Start, Scope::Signal]].map(|scopes| locked.make("k", "default", scopes));
    locked.until(&both, 403).await;
    let plain = json!({"kind": "order", "id": "a", "input": "tea"});
    let mut bringing = plain.clone();
    bringing["signal"] = json!({"name": "payment", "payload": 1});
    locked.send(&starts, "POST", "/v1/runs", &plain.to_string()).await.expect(201);
    locked.send(&starts, "POST", "/v1/runs", &bringing.to_string()).await.problem(403, "not_allowed");
    let client = Onward::connect(locked.url()).key(starts.reveal()).start().await.unwrap();
    let error = client.start::<String, _>("order", "tea").id("a").signal("payment", &1).await.map(drop).unwrap_err();
    assert_eq!(error.code(), "not_allowed");
    assert_eq!(locked.send(&both, "POST", "/v1/runs", &bringing.to_string()).await.expect(200)["signal"]["repeated"], false);
}

/// S8: the name of the key is recorded as the decider.
#[tokio::test]
async fn the_decider_is_the_name_of_the_key() {
    let (locked, root) = Locked::open().await;
    let eve = locked.make("eve", "default", &[Scope::Approve]);
    let ada = locked.make("ada", "default", &[Scope::Approve]);
    let start = json!({"kind": "order", "id": "a", "input": "tea", "signal": {"name": "payment", "payload": 1}}).to_string();
    locked.send(&root, "POST", "/v1/runs", &start).await.expect(201);
    let begun = Instant::now();
    let approval = loop {
        let open = locked.send(&root, "GET", "/v1/approvals?run=a", "").await.expect(200);
        if let Some(approval) = open["approvals"][0]["id"].as_str() {
            break approval.to_owned();
        }
        assert!(begun.elapsed() < DEADLINE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let path = format!("/v1/approvals/{approval}");
    let decide = json!({"approved": true, "decided_by": "ada", "decision_id": "d"}).to_string();
    locked.send(&eve, "POST", &path, &decide).await.problem(403, "not_a_decider");
    locked.send(&ada, "POST", &path, &decide).await.expect(200);
}

async fn hello(_: Ctx, (): ()) -> Result<String> {
    Ok("hello".to_owned())
}

/// S4: a key with the scope `read` does not allow a worker.
#[tokio::test]
async fn a_worker_needs_a_key_to_work() {
    let (locked, root) = Locked::open().await;
    let reading = locked.make("reader", "default", &[Scope::Read, Scope::Start]);
    let working = locked.make("worker", "default", &[Scope::Work]);
    locked.until(&reading, 200).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let connect = |key: &ApiKey| Onward::connect(locked.url()).key(key.reveal()).workflow("hello", hello).start();
    let refused = connect(&reading).await.err().unwrap();
    assert_eq!(refused.code(), "not_allowed", "{refused}");
    // A client without code needs no key with the scope `work`.
    let connect_client = |key: &ApiKey| Onward::connect(locked.url()).key(key.reveal()).start();
    let reader = connect_client(&reading).await.unwrap();
    let run = reader.start::<String, _>("hello", &()).id("h").await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(run.view().await.unwrap().head.status.as_str(), "pending", "there is no worker");
    let refused = run.cancel("no").await.unwrap_err();
    assert_eq!(refused.code(), "not_allowed", "{refused}");
    let worker = connect(&working).await.unwrap();
    assert_eq!(tokio::time::timeout(DEADLINE, run.result()).await.unwrap().unwrap(), "hello");
    let refused = worker.run::<String>("h").unwrap().view().await.unwrap_err();
    assert_eq!(refused.code(), "not_allowed", "{refused}");
    // A worker with a revoked key gets no more work.
    locked.file.revoke(working.id(), now()).unwrap();
    tokio::time::sleep(Duration::from_millis(4_000)).await;
    let run = reader.start::<String, _>("hello", &()).id("h2").await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(run.view().await.unwrap().head.status.as_str(), "pending");
    locked.send(&root, "GET", "/v1/runs/h2", "").await.expect(200);
    let stranger = connect_client(&ApiKey::new([1; 8], [2; 32])).await.unwrap();
    let refused = stranger.run::<String>("h").unwrap().view().await.unwrap_err();
    assert_eq!(refused.code(), "unauthenticated", "{refused}");
    let mistyped = Onward::connect(locked.url()).key(root.reveal().replace("onw_", "onw_x")).start().await.err().unwrap();
    assert_eq!(mistyped.code(), "key_invalid", "{mistyped}");
    assert!(!format!("{mistyped} {mistyped:?}").contains(root.secret()));
    for onward in [reader, worker, stranger] {
        onward.shutdown().await;
    }
}

/// G3: a worker that polls over HTTP loses its runs with its key, like one with a stream, and other callers cannot cause that.
#[tokio::test]
async fn a_worker_over_plain_http_loses_its_runs_with_its_key() {
    let (locked, root) = Locked::open().await;
    let (first, other) = (locked.make("first", "default", &[Scope::Work]), locked.make("first", "default", &[Scope::Work]));
    let second = locked.file.rotate(first.id(), Duration::from_secs(3_600), now()).unwrap().0.key;
    locked.until(&first, 403).await;
    locked.until(&second, 403).await;
    let hello = json!({"frames": [
        {"hello": {
            "protocol": 1, "worker": "w", "task_kinds": [], "queues": [""], "runs_max": 10, "tasks": [], "sdk": "curl",
            "kinds": [{"kind": "far", "versions": [""], "current": null, "input_schema": null, "output_schema": null}],
            "runs": [], "connection": 1,
        }},
        {"credit": {"runs": 1, "tasks": 0}},
    ]});
    locked.send(&first, "POST", "/v1/workers/w/frames", &hello.to_string()).await.expect(200);
    locked.send(&root, "POST", "/v1/runs", &json!({"kind": "far", "id": "f"}).to_string()).await.expect(201);
    let status = async || locked.send(&root, "GET", "/v1/runs/f", "").await.expect(200)["status"].as_str().unwrap().to_owned();
    let until = async |wanted: &str, patience: Duration| {
        let begun = Instant::now();
        while status().await != wanted {
            assert!(begun.elapsed() < patience, "still not {wanted}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until("running", DEADLINE).await;
    // It continues with the rotated key, and a request with another key changes nothing (Q9).
    let beat = json!({"frames": [{"heartbeat": {"request": 0}}]}).to_string();
    locked.send(&other, "POST", "/v1/workers/w/frames", &beat).await.problem(409, "hello_missing");
    locked.send(&second, "POST", "/v1/workers/w/frames", &beat).await.expect(200);
    locked.file.revoke(first.id(), now()).unwrap();
    locked.until(&first, 401).await;
    locked.send(&first, "POST", "/v1/workers/w/frames", &beat).await.problem(401, "unauthenticated");
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(status().await, "running");
    locked.file.revoke(second.id(), now()).unwrap();
    until("pending", Duration::from_secs(8)).await;
}

#[tokio::test]
async fn the_log_has_the_id_of_a_run_that_was_started() {
    let (locked, root) = Locked::open().await;
    locked.send(&root, "POST", "/v1/runs", &json!({"kind": "far", "id": "a b/c+d%"}).to_string()).await.expect(201);
    let made = locked.send(&root, "POST", "/v1/runs", &json!({"kind": "far"}).to_string()).await.expect(201);
    for id in ["a b/c+d%", made["id"].as_str().unwrap()] {
        locked.log.once(&format!(r#""id":"{id}""#), 1).await;
    }
}

/// A key for one namespace needs no header; a header for another namespace is still refused.
#[tokio::test]
async fn a_key_of_one_namespace_uses_it_without_a_header() {
    let (locked, root) = Locked::open().await;
    let key = locked.make("ada", "acme", &Scope::ALL);
    let json = "Content-Type: application/json\r\n";
    let send = async |key: &ApiKey, method: &str, path: &str, body: &str| {
        locked.site.send(method, path, &format!("{}{json}", bearer(key.reveal())), body).await
    };
    send(&key, "POST", "/v1/runs", r#"{"kind": "listener", "id": "a"}"#).await.expect(201);
    locked.send_in("acme", &root, "GET", "/v1/runs/a", "").await.expect(200);
    send(&key, "GET", "/v1/runs/a", "").await.expect(200);
    send(&root, "GET", "/v1/runs/a", "").await.problem(404, "run_not_found");
    locked.send_in("default", &key, "GET", "/v1/runs", "").await.problem(403, "not_allowed");
}
