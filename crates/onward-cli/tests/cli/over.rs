//! Commands on a server: the same output and exit codes as on a directory, and what only a server can do.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::dev::{Served, dev, serve};
use crate::kit::{Ran, one_order, onward, ran, run, run_over, steady, with_remote_worker};

/// Returns exit code and output without times and random ids.
fn normalize_output(ran: &Ran) -> String {
    let json = |text: &str| {
        let mut text = text.to_owned();
        while let Some(at) = text.find("\"20") {
            text.replace_range(at..at + 26, "\"TIME");
        }
        // The time in the sentence of `doing`.
        while let Some(at) = text.find(" since 20") {
            text.replace_range(at..at + 31, " since TIME");
        }
        while let Some(at) = text.find("\"commit_id\":") {
            let end = at + text[at..].find(",").unwrap();
            text.replace_range(at..end, "COMMIT_ID");
        }
        text
    };
    format!("{}\n{}\n{}", ran.code, steady(&json(&ran.out)), steady(&json(&ran.err)))
}

/// Runs each command on two stores that start with equal content.
#[test]
fn every_verb_prints_the_same_over_a_server_as_over_a_directory() {
    let (near, far) = (one_order("order-1"), one_order("order-1"));
    let served = dev(far.path());
    for verb in [
        "run list",
        "run ls --all",
        "run list --json",
        "run list --status waiting --kind order --limit 1",
        "run show order-1",
        "run get order-1 --json",
        "run events order-1",
        "run events order-1 --from 2 --json",
        "run show nope",
        "run events nope",
        "run attach nope",
        "run wait nope",
        "run start order --id order-2 --input [1] --signal payment=7",
        "run start order --id order-2 --input [1]",
        "run start order --id order-2 --input [2]",
        "run start order --id order-3 --version v2 --json",
        "run start order --id order-4 --attr customer=42 --attr vip",
        "run start order --attr =1",
        "run list --attr customer=42",
        "run start order --id order-5 --budget tokens=10 --budget cost=2.50",
        "run start order --id order-6 --budget tokens=many",
        "run show order-5",
        "run pause order-5",
        "run resume order-5 --budget turns=3 --budget tokens=20",
        "run show order-5",
        "run resume order-5 --budget",
        "run show order-2",
        "run show order-3",
        "run signal order-1 payment 7 --signal-id p1",
        "run signal order-1 payment 7 --signal-id p1 --json",
        "run signal order-1 payment nonsense",
        "run message order-1 hello --message-id m1",
        "run message order-1 hello --message-id m1 --json",
        "run message order-1 bye --message-id m1",
        "run append order-1 user 1 --idempotency-key k1",
        "run append order-1 user 1 --idempotency-key k1 --json",
        "run append order-1 tool 1 --idempotency-key k1",
        "run append order-1 user [1]",
        "run children order-1",
        "run children order-1 --json",
        "run children order-1 --status failed,completed",
        "run children nope",
        "run entries order-1",
        "run entries order-1 --json",
        "run entries order-1 --leaf 00112233445566778899aabbccddeeff",
        "run entries order-1 --before what",
        "run wait order-1 --timeout 0",
        "run query order-1 sum",
        "run update nope set 1",
        "approval list",
        "approval list --run order-1 --json",
        "approval list --run nope",
        "approval decide order-1~0~9 --approve",
        "approval decide what --approve",
        "promise resolve order-1~0~9 1",
        "promise reject order-1~0~9 --message no",
        "promise resolve --by-key payment/42 1",
        "promise reject --by-key payment/42 --message no",
        "run pause order-1 --reason audit",
        "run resume order-1",
        "run resume order-1",
        "run delete order-1",
        "run cancel order-1 --reason stop",
        "run terminate order-1 --reason enough",
        "run signal order-1 x",
        "run wait order-1",
        "run wait order-1 --json",
        "run attach order-1",
        "run rm order-1 nope --reason done --json",
        "run deleted",
        "run deleted order-1 --json",
        "run list --cursor ?",
        "run list --namespace elsewhere",
        "run show order-2 --namespace elsewhere",
    ] {
        let args: Vec<&str> = verb.split(' ').collect();
        let (near, far) = (run(near.path(), &args), run_over(&served.url, &args));
        assert_eq!(normalize_output(&near), normalize_output(&far), "`onward {verb}`: directory left, server right");
    }
}

fn ephemeral() -> Served {
    serve(onward().args(["dev", "--port", "0", "--ephemeral"]))
}

#[test]
fn a_run_is_started_queried_updated_and_awaited_over_a_server() {
    let served = ephemeral();
    let over = |args: &[&str]| run_over(&served.url, args);
    with_remote_worker(&served.url, || {
        over(&["run", "start", "counter", "--id", "c", "--input", "10"]).assert_output(0, "c: started");
        over(&["run", "query", "c", "count"]).assert_output(0, "10");
        over(&["run", "update", "c", "add", "5", "--update-id", "u1"]).assert_output(0, "15");
        over(&["run", "update", "c", "add", "5", "--update-id", "u1"]).assert_output(0, "15");
        assert_eq!(over(&["run", "update", "c", "add", "1", "--json"]).json()["outcome"]["output"]["json"], 16);
        assert_eq!(over(&["run", "query", "c", "count", "--json"]).json()["output"]["json"], 16);
        over(&["run", "update", "c", "add", "100"])
            .assert_output(1, "! error[answer_failed]: run c answered with a failure: [too_much] too much");
        over(&["run", "query", "c", "nope"]).assert_output(
            4,
            "! error[unknown_query]: run c has no query `nope`\n! hint: register it with `ctx.query(name, ..)`; it is available once the code has made that call",
        );
        let promise = over(&["run", "show", "c", "--json"]).json()["awaiting"][0]["id"].as_str().unwrap().to_owned();
        let resolved = loop {
            let resolved = over(&["promise", "resolve", "--by-key", "last/c", "1000", "--resolution-id", "r1"]);
            if resolved.code == 0 {
                break resolved;
            }
            assert!(resolved.err.starts_with("error[promise_key_not_found]"), "{}", resolved.err);
        };
        assert!(resolved.out.starts_with("c: promise resolved at event #"), "{}{}", resolved.out, resolved.err);
        assert!(over(&["promise", "resolve", &promise, "1", "--resolution-id", "r2"]).err.starts_with("error[signal_lost]"));
        over(&["run", "wait", "c"]).assert_output(0, "1116");
        over(&["run", "start", "order", "--id", "o", "--input", "\"cup\"", "--signal", "payment=3", "--wait", "--timeout", "1"])
            .assert_output(124, "! started o\n! error[wait_timed_out]: run o has not ended\n! hint: the run is not affected; see what it waits for with `onward run show`");
        let approval = over(&["approval", "list", "--json"]).json()["approvals"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(over(&["approval", "decide", &approval, "--approve", "--by", "ada"]).code, 0);
        over(&["run", "wait", "o", "--timeout", "10"]).assert_output(0, "\"cup shipped for 3\"");
        over(&["run", "start", "order", "--id", "o", "--input", "\"cup\"", "--wait"])
            .assert_output(0, "\"cup shipped for 3\"\n! started o");
    });
}

#[test]
fn attach_follows_a_run_over_a_server_to_its_end() {
    let served = ephemeral();
    assert_eq!(run_over(&served.url, ["run", "start", "order", "--id", "o"]).code, 0);
    let mut follow = onward();
    follow.args(["run", "attach", "o", "--server", &served.url, "--json"]).stdout(Stdio::piped());
    let mut follow = follow.spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("run_started"));
    assert_eq!(run_over(&served.url, ["run", "signal", "o", "x"]).code, 0);
    assert!(lines.next().unwrap().unwrap().contains("signal_received"));
    assert_eq!(run_over(&served.url, ["run", "terminate", "o"]).code, 0);
    assert!(lines.map(Result::unwrap).last().unwrap().contains("terminate_requested"));
    assert!(follow.wait().unwrap().success());
}

#[test]
fn a_directory_that_a_server_holds_points_to_the_server() {
    let directory = one_order("order-1");
    let mut served = dev(directory.path());
    let url = served.url.clone();
    run(directory.path(), ["run", "cancel", "order-1"]).assert_output(
        6,
        &format!("! error[directory_locked]: DIR is in use by the server at {url}\n! hint: use `--server {url}` or ONWARD_URL; commands that read work without it"),
    );
    assert_eq!(run(directory.path(), ["run", "list"]).code, 0, "reading works");
    assert_eq!(run_over(&url, ["run", "cancel", "order-1"]).code, 0, "the hint is right");
    served.signal("-KILL");
    assert_eq!(served.end(), None);
    assert_eq!(run(directory.path(), ["run", "resume", "order-1"]).code, 6, "not paused: the directory is free");
    let _holder = onward_store_embedded::EmbeddedStore::open(directory.path(), Default::default()).unwrap();
    let output = run(directory.path(), ["run", "resume", "order-1"]);
    assert!(output.err.contains("in use by this or another process"), "the mark of a dead server is ignored: {}", output.err);
}

#[test]
fn a_server_that_is_not_there_is_5() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    drop(taken);
    for verb in ["run list", "run show a", "run wait a", "run start a", "run attach a", "run update a b", "approval list"] {
        let output = run_over(&url, verb.split(' '));
        assert_eq!((output.code, output.out.as_str()), (5, ""), "{verb}: {}", output.err);
        assert!(output.err.starts_with(&format!("error[server_unreachable]: no server answers at {url}: ")), "{}", output.err);
    }
    let output = run_over("ftp://x", ["run", "list"]);
    assert_eq!(output.code, 2);
    assert!(output.err.starts_with("error[server_url_invalid]"), "{}", output.err);
}

#[test]
fn keys_come_from_the_environment_or_a_file_and_the_wrong_one_is_7() {
    let directory = tempfile::tempdir().unwrap();
    let made = run(directory.path(), ["key", "create", "--name", "ada", "--scope", "read", "--namespace", "shop"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let key = made.out.trim().to_owned();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("ada.key");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    let served = dev(directory.path());
    let mut list = onward();
    list.args(["run", "list", "--server", &served.url, "--namespace", "shop"]);
    let output = ran(&mut list);
    assert_eq!(output.code, 7);
    assert!(output.err.starts_with("error[unauthenticated]"), "{}", output.err);
    ran(list.env("ONWARD_KEY", &key)).assert_output(0, "! no runs");
    ran(list.env_remove("ONWARD_KEY").env("ONWARD_KEY_FILE", &file)).assert_output(0, "! no runs");
    ran(list.env_remove("ONWARD_KEY_FILE").arg("--key-file").arg(&file)).assert_output(0, "! no runs");
    // The key is limited to its namespace and its scope.
    let with = |args: &[&str]| ran(onward().args(args).args(["--server", &served.url]).env("ONWARD_KEY", &key));
    assert_eq!(with(&["run", "list"]).code, 0, "the namespace of the key is the default");
    assert_eq!(with(&["run", "list", "--namespace", "default"]).code, 7);
    assert_eq!(with(&["run", "start", "x", "--namespace", "shop"]).code, 7);
    let mistyped = ran(onward().args(["run", "list", "--server", &served.url]).env("ONWARD_KEY", "onw_x"));
    assert_eq!(mistyped.code, 7, "{}", mistyped.err);
    assert!(
        ran(onward().args(["run", "list", "--server", &served.url, "--key-file", "/nonexistent"]))
            .err
            .contains("cannot read the key")
    );
}

#[test]
fn a_directory_takes_updates_and_starts_without_waiting() {
    let directory = one_order("order-1");
    let data = directory.path();
    run(data, ["run", "update", "order-1", "add", "1", "--update-id", "u1"])
        .assert_output(0, "order-1: update u1 recorded; a worker will answer it");
    assert_eq!(run(data, ["run", "update", "order-1", "add", "1", "--json"]).json()["outcome"], serde_json::Value::Null);
    let output = run(data, ["run", "start", "order", "--wait", "--id", "new"]);
    assert_eq!(output.code, 2);
    assert_eq!(run(data, ["run", "show", "new"]).code, 4, "nothing was started");
    let made = run(data, ["run", "start", "order"]);
    assert!(made.out.starts_with("run_") && made.out.ends_with(": started\n"), "{}", made.out);
}
