//! `onward key …`, beside a running server that applies its changes.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::dev::{Served, dev, serve};
use crate::kit::{PATIENCE, onward, ran, run};

const KEYS_FILE: &str = "onward.keys.json";

/// Creates a key and returns it with its id.
fn create(directory: &Path, args: &[&str]) -> (String, String) {
    let made = run(directory, ["key", "create", "--name", "ada"].iter().chain(args));
    assert_eq!(made.code, 0, "{}", made.err);
    assert!(made.err.contains("store it now; it cannot be shown again"), "{}", made.err);
    let key = made.out.trim().to_owned();
    let id = key.split('_').nth(1).unwrap().to_owned();
    assert!(!made.err.contains(key.split('_').nth(2).unwrap()), "the secret goes to stdout alone");
    (key, id)
}

fn list(served: &Served, key: &str) -> u16 {
    served.request_with(&format!("Authorization: Bearer {key}\r\n"), "GET", "/v1/runs", "").0
}

/// Repeats the request until it returns this status.
fn until(served: &Served, key: &str, status: u16) {
    let begun = Instant::now();
    while list(served, key) != status {
        assert!(begun.elapsed() < PATIENCE, "still not {status}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_key_is_shown_once_listed_rotated_and_revoked() {
    let directory = tempfile::tempdir().unwrap();
    run(directory.path(), ["key", "list"]).assert_output(0, "! no keys");
    let most = ["--budget-max", "tokens=500", "--budget-max", "cost=2.50"];
    let (key, id) = create(directory.path(), &[&["--scope", "read,start", "--expires", "90d"][..], &most].concat());
    let mode = std::fs::metadata(directory.path().join(KEYS_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let listed = run(directory.path(), ["key", "list"]);
    assert!(listed.out.contains(&id) && listed.out.contains("in 90 d") && listed.out.contains("read,start"), "{}", listed.out);
    assert!(!listed.out.contains(key.split('_').nth(2).unwrap()));
    let rotated = run(directory.path(), ["key", "rotate", &id, "--overlap", "24h", "--json"]).json();
    assert_eq!((&rotated["name"], &rotated["state"]), (&"ada".into(), &"usable".into()));
    assert_eq!(rotated["budget_max"]["tokens"], 500);
    assert_ne!(rotated["key"].as_str().unwrap(), key);
    run(directory.path(), ["key", "revoke", &id]).assert_output(0, &format!("{id}: revoked"));
    let keys = run(directory.path(), ["key", "list", "--json"]).json();
    let states: Vec<&str> = keys["keys"].as_array().unwrap().iter().map(|key| key["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["revoked", "usable"]);
    assert!(keys["keys"][0].get("key").is_none());
    run(directory.path(), ["key", "rotate", &id]).assert_output(
        6,
        &format!("! error[key_ended]: the key {id} is revoked\n! hint: create a new one with `onward key create`"),
    );
    run(directory.path(), ["key", "revoke", "nobody"])
        .assert_output(4, "! error[key_not_found]: key nobody not found\n! hint: list the ids with `onward key list`");
    for wrong in [
        &["--scope", "fly"][..],
        &["--scope", ""],
        &[],
        &["--scope", "read", "--expires", "soon"],
        &["--scope", "read", "--expires", "0d"],
        &["--scope", "read", "--budget-max", "words=3"],
        &["--scope", "read", "--namespace", ""],
    ] {
        assert_eq!(run(directory.path(), ["key", "create", "--name", "x"].iter().chain(wrong)).code, 2, "{wrong:?}");
    }
    assert_eq!(run(directory.path(), ["key", "create", "--name", "a\nb", "--scope", "read"]).code, 2);
}

/// S1, S2: with a key a server may listen on any address, applies changes of its key file, and writes no secret anywhere.
#[test]
fn a_server_with_keys_may_listen_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    let (key, id) = create(directory.path(), &["--scope", "read,start"]);
    let mut served =
        serve(onward().args(["server", "--listen", "0.0.0.0:0", "--log-level", "debug", "--data"]).arg(directory.path()));
    served.address = served.address.replace("0.0.0.0", "127.0.0.1");
    let authorization = format!("Authorization: Bearer {key}\r\n");
    let start = r#"{"kind": "hello", "id": "a"}"#;
    assert_eq!(served.request("POST", "/v1/runs", start).0, 401);
    assert_eq!(served.request_with(&authorization, "POST", "/v1/runs", start).0, 201);
    assert_eq!(served.request_with(&authorization, "POST", "/v1/runs/a/cancel", "").0, 403);
    let (second, second_id) = create(directory.path(), &["--scope", "read"]);
    until(&served, &second, 200);
    assert_eq!(run(directory.path(), ["key", "revoke", &id]).code, 0);
    until(&served, &key, 401);
    assert_eq!(list(&served, &second), 200);
    let begun = Instant::now();
    while run(directory.path(), ["key", "list", "--json"]).json()["keys"][1]["last_used_at"].is_null() {
        assert!(begun.elapsed() < PATIENCE, "{second_id} was used, but `last_used_at` is not set");
    }
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
    let mut stderr = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("keys and data are sent unencrypted") && stderr.contains("keys read"), "{stderr}");
    let secrets = [key, second].map(|key| key.split('_').nth(2).unwrap().to_owned());
    let mut files = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let found = secrets.iter().any(|secret| bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
        assert!(!found, "{}", path.display());
        files += 1;
    }
    assert!(files >= 4, "database, lock, keys, used");
    assert!(!secrets.iter().any(|secret| stderr.contains(secret)));
}

/// S1: a server on a public address needs a usable key, and no server starts with a broken key file.
#[test]
fn a_server_does_not_start_without_keys_that_work() {
    let directory = tempfile::tempdir().unwrap();
    let (_, id) = create(directory.path(), &["--scope", "read"]);
    run(directory.path(), ["key", "revoke", &id]);
    let refused = run(directory.path(), ["server", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.starts_with("error[listen_refused]: 0.0.0.0:0 is reachable"), "{}", refused.err);
    std::fs::write(directory.path().join(KEYS_FILE), "{").unwrap();
    for command in [&["server", "--listen", "127.0.0.1:0"][..], &["server", "--listen", "0.0.0.0:0"], &["dev", "--port", "0"]] {
        let refused = run(directory.path(), command);
        assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{command:?}");
        assert!(refused.err.starts_with("error[key_file_unusable]: the key file "), "{}", refused.err);
    }
    let missing = ran(onward().args(["server", "--store", "memory:", "--listen", "127.0.0.1:0", "--keys", "/nowhere/keys.json"]));
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("it does not exist") && missing.err.contains("with `onward key create`"), "{}", missing.err);
    assert!(!directory.path().join("onward.db").exists(), "nothing was opened");
}

/// A key file outside of the directory also works for a store in memory.
#[test]
fn a_key_file_may_be_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("team/keys.json");
    let made = ran(onward().args(["key", "create", "--name", "ada", "--scope", "all", "--namespace", "*", "--keys"]).arg(&file));
    assert_eq!(made.code, 0, "{}", made.err);
    let served = serve(onward().args(["server", "--store", "memory:", "--listen", "127.0.0.1:0", "--keys"]).arg(&file));
    assert_eq!(list(&served, made.out.trim()), 200);
    assert_eq!(served.request("GET", "/v1/runs", "").0, 401);
}

/// A server on loopback needs no key until the first one is created.
#[test]
fn dev_is_open_until_there_is_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let served = dev(directory.path());
    assert_eq!(served.request("GET", "/v1/runs", "").0, 200);
    let (key, _) = create(directory.path(), &["--scope", "read"]);
    until(&served, "", 401);
    assert_eq!(list(&served, &key), 200);
}

/// A command without `--namespace` works in the namespace of a key for one, over HTTP and gRPC.
#[test]
fn commands_use_the_namespace_of_their_key() {
    let directory = tempfile::tempdir().unwrap();
    let (key, _) = create(directory.path(), &["--scope", "all", "--namespace", "shop"]);
    let served = serve(onward().args(["server", "--listen", "127.0.0.1:0", "--data"]).arg(directory.path()));
    let over = |args: &[&str]| ran(onward().args(args).args(["--server", &served.url]).env("ONWARD_KEY", &key));
    let started = over(&["run", "start", "hello", "--id", "a"]);
    assert_eq!(started.code, 0, "{}", started.err);
    for args in ["run show a", "run list --kind hello", "worker list", "queue limits", "run bulk pause --all --dry-run"] {
        let done = over(&args.split(' ').collect::<Vec<_>>());
        assert_eq!(done.code, 0, "{args}: {}", done.err);
    }
    assert_eq!(over(&["api", "GET", "/v1/runs/a"]).json()["namespace"], "shop");
    assert_eq!(over(&["run", "list", "--json"]).json()["runs"][0]["id"], "a");
    assert_eq!(over(&["run", "list", "--namespace", "default"]).code, 7);
}
