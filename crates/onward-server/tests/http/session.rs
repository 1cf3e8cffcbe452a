//! Sessions of the console: sign-in, and what the cookie is worth.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onward_core::{Name, Namespace};
use onward_server::keys::{KeyFile, NewKey, Reach};
use onward_server::trace::Trace;
use onward_server::{Bounds, Cors, Hosts, Keys, Options, ROUTES, Scope};
use onward_store::{Clock, ManualClock, SystemClock};
use onward_wire::ApiKey;
use serde_json::{Value, json};

use crate::client::{Reply, Stream};
use crate::keys::Locked;
use crate::site::{DEADLINE, Site, limits};

const JSON: &str = "Content-Type: application/json\r\n";
const CONSOLE: &str = "X-Onward-Console: 1\r\n";

async fn sign_in(site: &Site, key: &str, headers: &str) -> Reply {
    site.send("POST", "/v1/session", &format!("{JSON}{CONSOLE}{headers}"), &json!({"key": key}).to_string()).await
}

/// Signs in and returns the header with the cookie.
async fn signed_in(site: &Site, key: &ApiKey) -> String {
    let reply = sign_in(site, key.reveal(), "").await;
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
    let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap();
    assert!(!cookie.contains(key.secret()), "CS2: {cookie}");
    format!("Cookie: theme=dark; {cookie}\r\n")
}

async fn session(site: &Site, headers: &str) -> Value {
    site.send("GET", "/v1/session", headers, "").await.expect(200)
}

fn start(id: &str) -> String {
    json!({"kind": "without-worker", "id": id}).to_string()
}

/// CS1: the session describes the key, and has its rights.
#[tokio::test]
async fn a_session_has_the_name_scopes_and_bounds_of_its_key() {
    let (locked, root) = Locked::open().await;
    let site = &locked.site;
    let before = session(site, "").await;
    assert_eq!((&before["needs_key"], &before["signed_in"]), (&json!(true), &json!(false)));
    assert_eq!((&before["scopes"], &before["namespaces"], &before["key_name"]), (&json!([]), &json!([]), &Value::Null));
    let cookie = signed_in(site, &root).await;
    let after = session(site, &cookie).await;
    assert_eq!((&after["needs_key"], &after["signed_in"], &after["key_name"]), (&json!(true), &json!(true), &json!("root")));
    assert_eq!((&after["namespace"], &after["namespaces"]), (&json!("default"), &Value::Null));
    assert_eq!(after["scopes"].as_array().unwrap().len(), Scope::ALL.len());
    assert_eq!((&after["kinds"], &after["queues"]), (&Value::Null, &Value::Null));
    site.send("GET", "/v1/runs", &cookie, "").await.expect(200);

    let bounds =
        Bounds { kinds: Some(BTreeSet::from([Name::new("order").unwrap()])), queues: Some(BTreeSet::from([String::new()])) };
    let bound = locked.make_bound(bounds);
    let tenant = locked.make("tenant", "shop", &[Scope::Read, Scope::Signal]);
    locked.until(&tenant, 403).await; // known, and not for the namespace `default`
    let bound = session(site, &signed_in(site, &bound).await).await;
    assert_eq!((&bound["kinds"], &bound["queues"]), (&json!(["order"]), &json!([""])));
    let cookie = signed_in(site, &tenant).await;
    let of_tenant = session(site, &cookie).await;
    assert_eq!((&of_tenant["namespace"], &of_tenant["namespaces"]), (&json!("shop"), &json!(["shop"])));
    assert_eq!(of_tenant["scopes"], json!(["read", "signal"]));
    site.send("GET", "/v1/runs", &cookie, "").await.expect(200);
    site.send("GET", "/v1/runs", &format!("{cookie}Onward-Namespace: other\r\n"), "").await.problem(403, "not_allowed");
}

/// CS1, S7: every route needs the same scope as with the key itself.
#[tokio::test]
async fn a_session_opens_exactly_the_routes_of_its_key() {
    let (locked, _) = Locked::open().await;
    let keys = Scope::ALL.map(|scope| (scope, locked.make("one", "*", &[scope])));
    locked.until(&keys[0].1, 200).await;
    for (scope, key) in &keys {
        let headers = format!("{}{CONSOLE}{JSON}", signed_in(&locked.site, key).await);
        for route in ROUTES.iter().filter(|route| route.scope.is_some()) {
            let reply = locked
                .site
                .send(route.method.as_str(), &route.path.replace("{id}", "a~0~0").replace("{index}", "0"), &headers, "")
                .await;
            let is_allowed = route.scope == Some(*scope);
            assert_eq!(reply.status != 403, is_allowed, "{} {} with {scope}: {}", route.method, route.path, reply.body);
            assert_ne!(reply.status, 401, "{} {}", route.method, route.path);
        }
    }
}

/// G1 (S3): a wrong, revoked or malformed key gets the same response, and no cookie.
#[tokio::test]
async fn a_wrong_or_revoked_key_does_not_sign_in() {
    let (locked, root) = Locked::open().await;
    let revoked = locked.make("revoked", "*", &Scope::ALL);
    locked.file.revoke(revoked.id(), SystemClock.now()).unwrap();
    let unknown = ApiKey::new([1; 8], [2; 32]);
    tokio::time::sleep(Duration::from_millis(1_100)).await; // the file is checked again
    let mut answers = BTreeSet::new();
    for key in [revoked.reveal(), unknown.reveal(), "", "x", &root.reveal()[..20]] {
        let reply = sign_in(&locked.site, key, "").await;
        assert_eq!(reply.header("set-cookie"), None, "{key}");
        answers.insert((reply.status, reply.body));
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers.first().unwrap().0, 401);
    locked.site.send("POST", "/v1/session", &format!("{JSON}{CONSOLE}"), "{}").await.problem(400, "json_invalid");
    signed_in(&locked.site, &root).await;
    let log = locked.log.once("signed in", 1).await;
    for key in [&root, &revoked, &unknown] {
        assert!(!log.contains(key.secret()), "G4");
    }
}

/// CS1 (S2): a session ends with its key, together with its open streams.
#[tokio::test]
async fn a_revoked_key_ends_its_sessions_and_their_streams() {
    let (locked, root) = Locked::open().await;
    let reader = locked.make("reader", "default", &[Scope::Read]);
    locked.until(&reader, 200).await;
    locked.send(&root, "POST", "/v1/runs", &start("a")).await.expect(201);
    let cookie = signed_in(&locked.site, &reader).await;
    let mut stream = Stream::open(locked.site.address, "/v1/runs/a/events", &cookie).await;
    locked.file.revoke(reader.id(), SystemClock.now()).unwrap();
    let last = loop {
        let frame = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
        if let Some(frame) = frame.filter(|frame| frame.event.is_some()) {
            break frame;
        }
    };
    assert_eq!((last.event.as_deref(), &last.data.unwrap()["code"]), (Some("error"), &json!("unauthenticated")));
    locked.site.send("GET", "/v1/runs", &cookie, "").await.problem(401, "unauthenticated");
    assert_eq!(session(&locked.site, &cookie).await["signed_in"], json!(false));
}

/// Opens a site whose keys use `clock`.
async fn open_at(file: &KeyFile, clock: Arc<dyn Clock>) -> Site {
    let keys = Keys::open(file.path(), clock, Trace::silent()).unwrap();
    Site::with(Options { auth: Arc::new(keys), limits: limits(), ..Options::default() }).await
}

fn make(file: &KeyFile) -> ApiKey {
    let (name, namespace) = (Name::new("ada").unwrap(), Reach::from(Namespace::default()));
    let scopes = Scope::ALL.into_iter().collect();
    let wanted = NewKey { name, namespace, scopes, lifetime: None, budget_max: None, bounds: Bounds::default() };
    file.create(wanted, SystemClock.now()).unwrap().key
}

/// CS1: after twelve hours the cookie is worth nothing, whatever the browser does with it.
#[tokio::test]
async fn a_session_ends_after_twelve_hours() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join("keys.json"));
    let key = make(&file);
    let clock = Arc::new(ManualClock::default());
    let site = open_at(&file, clock.clone()).await;
    let cookie = signed_in(&site, &key).await;
    clock.advance(Duration::from_secs(12 * 60 * 60 - 1));
    site.send("GET", "/v1/runs", &cookie, "").await.expect(200);
    clock.advance(Duration::from_secs(1));
    site.send("GET", "/v1/runs", &cookie, "").await.problem(401, "unauthenticated");
}

/// Servers that share a key file share sessions, without other state.
#[tokio::test]
async fn a_session_is_valid_at_every_server_with_the_same_key_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = KeyFile::at(directory.path().join("keys.json"));
    let key = make(&file);
    let [first, second] = [open_at(&file, Arc::new(SystemClock)).await, open_at(&file, Arc::new(SystemClock)).await];
    let cookie = signed_in(&first, &key).await;
    second.send("GET", "/v1/runs", &cookie, "").await.expect(200);
    let foreign = KeyFile::at(directory.path().join("others.json"));
    make(&foreign);
    let third = open_at(&foreign, Arc::new(SystemClock)).await;
    third.send("GET", "/v1/runs", &cookie, "").await.problem(401, "unauthenticated");
}

/// CS2: a token is sealed: no part of it can be changed or used for another key.
#[tokio::test]
async fn a_changed_cookie_is_refused() {
    let (locked, root) = Locked::open().await;
    let other = locked.make("other", "*", &Scope::ALL);
    locked.until(&other, 200).await;
    let cookie = signed_in(&locked.site, &root).await;
    let token = cookie.trim().rsplit_once('=').unwrap().1;
    let (id, sealed) = token.split_once('.').unwrap();
    assert_eq!(id, root.id());
    let mut texts =
        vec![format!("{}.{sealed}", other.id()), format!("{id}."), id.to_owned(), String::new(), root.reveal().to_owned()];
    for at in [0, 10, 40, sealed.len() / 2, sealed.len() - 2] {
        let mut changed = sealed.as_bytes().to_vec();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        texts.push(format!("{id}.{}", String::from_utf8(changed).unwrap()));
    }
    for text in texts {
        let headers = format!("Cookie: onward_session={text}\r\n");
        locked.site.send("GET", "/v1/runs", &headers, "").await.problem(401, "unauthenticated");
    }
    locked.site.send("GET", "/v1/runs", &cookie, "").await.expect(200);
}

/// CS3 (S19): with the cookie, only the console of this server may change something.
#[tokio::test]
async fn a_foreign_page_cannot_use_a_session_to_change_something() {
    let cors = Cors::parse("https://app.example").unwrap();
    let (locked, root) = Locked::with(Options { cors, limits: limits(), ..Options::default() }).await;
    let site = &locked.site;
    let cookie = signed_in(site, &root).await;
    for headers in [
        String::new(),
        "X-Onward-Console: 0\r\n".to_owned(),
        format!("{CONSOLE}Origin: https://evil.test\r\n"),
        format!("{CONSOLE}Origin: null\r\n"),
        format!("{CONSOLE}Origin: http://localhost:1\r\n"),
        // Allowed for requests with keys, which a page has to know.
        format!("{CONSOLE}Origin: https://app.example\r\n"),
        format!("{CONSOLE}Sec-Fetch-Site: same-site\r\n"),
        format!("{CONSOLE}Sec-Fetch-Site: cross-site\r\n"),
    ] {
        let headers = format!("{cookie}{JSON}{headers}");
        site.send("POST", "/v1/runs", &headers, &start("a")).await.problem(403, "csrf");
        site.send("DELETE", "/v1/session", &headers, "").await.problem(403, "csrf");
        // A page must not sign a browser in with a key of its own.
        let without_cookie = headers.replace(&cookie, "");
        let key = json!({"key": root.reveal()}).to_string();
        site.send("POST", "/v1/session", &without_cookie, &key).await.problem(403, "csrf");
    }
    assert_eq!(site.records(), 0, "nothing was written");
    for headers in [CONSOLE.to_owned(), format!("{CONSOLE}Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n")] {
        let reply = site.send("POST", "/v1/runs", &format!("{cookie}{JSON}{headers}"), &start("a")).await;
        assert!(matches!(reply.status, 200 | 201), "{}", reply.body);
    }
    site.send("GET", "/v1/runs/a", &format!("{cookie}Origin: https://evil.test\r\n"), "").await.expect(200);
}

/// A request with both is one with a key.
#[tokio::test]
async fn a_key_in_a_header_comes_before_the_cookie() {
    let (locked, root) = Locked::open().await;
    let reader = locked.make("reader", "*", &[Scope::Read]);
    locked.until(&reader, 200).await;
    let cookie = signed_in(&locked.site, &root).await;
    let both = |key: &str| format!("{cookie}Authorization: Bearer {key}\r\n{JSON}");
    assert_eq!(session(&locked.site, &both(reader.reveal())).await["key_name"], json!("reader"));
    locked.site.send("POST", "/v1/runs", &both(reader.reveal()), &start("a")).await.problem(403, "not_allowed");
    locked.site.send("GET", "/v1/runs", &both("onw_wrong"), "").await.problem(401, "unauthenticated");
    locked.site.send("POST", "/v1/runs", &both(root.reveal()), &start("a")).await.expect(201);
}

#[tokio::test]
async fn the_cookie_is_hidden_from_scripts_and_other_sites() {
    let (locked, root) = Locked::with(Options { hosts: Hosts::Any, limits: limits(), ..Options::default() }).await;
    let reply = sign_in(&locked.site, root.reveal(), "").await;
    let attributes =
        |reply: &Reply| -> Vec<String> { reply.header("set-cookie").unwrap().split("; ").skip(1).map(str::to_owned).collect() };
    assert_eq!(attributes(&reply), ["Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"]);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    // Behind a proxy with TLS, which keeps the host name.
    let secure = sign_in(&locked.site, root.reveal(), "Origin: https://localhost\r\n").await;
    assert_eq!(attributes(&secure).last().map(String::as_str), Some("Secure"));
    let out = locked.site.send("DELETE", "/v1/session", CONSOLE, "").await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").unwrap().starts_with("onward_session=; "), "{out:?}");
    assert!(attributes(&out).contains(&"Max-Age=0".to_owned()));
}

#[tokio::test]
async fn a_server_without_keys_needs_no_session() {
    let site = Site::open().await;
    let open = session(&site, "").await;
    assert_eq!((&open["needs_key"], &open["signed_in"]), (&json!(false), &json!(false)));
    assert_eq!(open["scopes"].as_array().unwrap().len(), Scope::ALL.len());
    assert_eq!((&open["namespace"], &open["namespaces"]), (&json!("default"), &Value::Null));
    assert!(open["version"].is_string() && open["server"].as_str().unwrap().starts_with("server-"), "{open}");
    let reply = sign_in(&site, "anything", "").await;
    assert_eq!((reply.status, reply.header("set-cookie")), (204, None));
}

/// G2: without readable keys, nothing is known about a session.
#[tokio::test]
async fn a_broken_key_file_ends_sessions_until_it_is_repaired() {
    let (locked, root) = Locked::open().await;
    let cookie = signed_in(&locked.site, &root).await;
    let whole = std::fs::read(locked.file.path()).unwrap();
    std::fs::write(locked.file.path(), "{").unwrap();
    locked.until(&root, 503).await;
    locked.site.send("GET", "/v1/runs", &cookie, "").await.problem(503, "not_ready");
    locked.site.send("GET", "/v1/session", &cookie, "").await.problem(503, "not_ready");
    sign_in(&locked.site, root.reveal(), "").await.problem(503, "not_ready");
    let begun = Instant::now();
    std::fs::write(locked.file.path(), whole).unwrap();
    while locked.site.send("GET", "/v1/runs", &cookie, "").await.status != 200 {
        assert!(begun.elapsed() < DEADLINE, "the session does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
