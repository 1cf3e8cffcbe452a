//! A server under pressure: endless bodies (F24), no descriptors or memory left (F30), shutdown under load (F31).

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::dev::{Served, dev, serve};
use crate::kit::{PATIENCE, run};

/// Returns the resident memory of the process in bytes.
fn resident(served: &Served) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// F24: an endless chunked body is rejected early and uses no memory.
#[test]
fn a_body_without_an_end_is_refused_early_and_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let served = dev(directory.path());
    assert_eq!(served.request("POST", "/v1/runs", r#"{"kind": "hello", "id": "before"}"#).0, 201);
    let before = resident(&served);
    let mut stream = TcpStream::connect(&served.address).unwrap();
    let head =
        "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(b"22\r\n{\"kind\":\"hello\",\"id\":\"x\",\"input\":\"\r\n").unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
    // Up to a gigabyte, if the server accepts it.
    let sent = (0..1024).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
    assert!(sent < 64, "{sent} MiB were taken");
    let mut answer = String::new();
    drop(stream.set_read_timeout(Some(Duration::from_secs(5))));
    drop(stream.read_to_string(&mut answer)); // the connection may break after the response
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    let grown = resident(&served).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    assert_eq!(served.request("GET", "/v1/runs/x", "").0, 404, "nothing is half stored");
    assert_eq!(served.request("GET", "/v1/runs/before", "").0, 200);
}

/// F30: with too few file descriptors some clients are rejected; every response is correct, and all clients are served
/// afterwards.
#[test]
fn a_server_without_descriptors_turns_some_away_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    let binary = env!("CARGO_BIN_EXE_onward");
    command.args(["-c", &format!("ulimit -n 64; exec {binary} dev --port 0 --data \"$0\" \"$@\"")]).arg(directory.path());
    let served = serve(&mut command);
    let mut crowd: VecDeque<TcpStream> = (0..200).filter_map(|_| TcpStream::connect(&served.address).ok()).collect();
    let deadline = Instant::now() + Duration::from_secs(180);
    let (mut acknowledged, mut number) = (Vec::new(), 0);
    while acknowledged.len() < 5 {
        assert!(Instant::now() < deadline, "only {acknowledged:?} of {number} were acknowledged beside the crowd");
        let body = format!(r#"{{"kind": "hello", "id": "run-{number}"}}"#);
        if try_start(&served, &body) == Some(201) {
            acknowledged.push(format!("run-{number}"));
        }
        number += 1;
        // Replaces one connection, so that the load stays constant.
        crowd.rotate_left(1);
        crowd.pop_back();
        crowd.extend(TcpStream::connect(&served.address).ok());
    }
    drop(crowd);
    let deadline = Instant::now() + PATIENCE;
    while try_start(&served, r#"{"kind": "hello", "id": "after"}"#).is_none_or(|status| status != 201 && status != 200) {
        assert!(Instant::now() < deadline, "it serves again when the crowd is gone");
        std::thread::sleep(Duration::from_millis(50));
    }
    for id in acknowledged {
        assert_eq!(served.request("GET", &format!("/v1/runs/{id}"), "").0, 200, "{id} was acknowledged");
    }
}

/// F30: with less memory than concurrent clients need, requests are rejected temporarily and nothing is reported as damaged. The
/// process may abort when an allocation fails; acknowledged writes survive.
#[test]
fn a_server_with_little_memory_refuses_some_requests_and_loses_nothing() {
    const BODIES: usize = 16;
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    let binary = env!("CARGO_BIN_EXE_onward");
    command.args(["-c", &format!("ulimit -v 1200000; exec {binary} dev --port 0 --data \"$0\" \"$@\"")]).arg(directory.path());
    command.env("ONWARD_LIMITS__BODY_MEMORY_MAX", (8 << 20).to_string());
    let mut served = serve(&mut command);
    let input = "x".repeat(3 << 20);
    let statuses: Vec<Option<u16>> = std::thread::scope(|scope| {
        let send = |number: usize| {
            let (served, input) = (&served, &input);
            scope.spawn(move || {
                let body = format!(r#"{{"kind": "hello", "id": "run-{number}", "input": "{number} {input}"}}"#);
                try_start_within(served, &body, PATIENCE)
            })
        };
        let requests: Vec<_> = (0..BODIES).map(send).collect();
        requests.into_iter().map(|request| request.join().unwrap()).collect()
    });
    eprintln!("{statuses:?}");
    let is_alive = served.child.try_wait().unwrap().is_none();
    let may_be = |status: &Option<u16>| matches!(status, Some(201 | 503)) || (status.is_none() && !is_alive);
    assert!(statuses.iter().all(may_be), "the server is alive: {is_alive}; {statuses:?}");
    if is_alive {
        for number in (0..BODIES).filter(|number| statuses[*number] == Some(201)) {
            // A read may be rejected temporarily too.
            if let Some(status) = try_request(&served, "GET", &format!("/v1/runs/run-{number}"), "", PATIENCE) {
                assert!(matches!(status, 200 | 503), "run-{number}: {status}");
            }
        }
        served.signal("-TERM");
        served.end();
    }
    drop(served);
    let served = dev(directory.path());
    for number in (0..BODIES).filter(|number| statuses[*number] == Some(201)) {
        let (status, run) = served.request("GET", &format!("/v1/runs/run-{number}"), "");
        let kept = run["input"]["json"].as_str().map(str::len);
        assert_eq!((status, kept), (200, Some(format!("{number} {input}").len())), "run-{number} was acknowledged");
    }
    assert_eq!(served.request("POST", "/v1/runs", r#"{"kind": "hello", "id": "after"}"#).0, 201);
}

/// Starts a run; `None` without a response in time.
fn try_start(served: &Served, body: &str) -> Option<u16> {
    try_start_within(served, body, Duration::from_secs(2))
}

fn try_start_within(served: &Served, body: &str, limit: Duration) -> Option<u16> {
    try_request(served, "POST", "/v1/runs", body, limit)
}

fn try_request(served: &Served, method: &str, path: &str, body: &str, limit: Duration) -> Option<u16> {
    let mut stream = TcpStream::connect(&served.address).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n");
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    reply.split(' ').nth(1)?.parse().ok()
}

/// F31: a shutdown under load exits cleanly, and every acknowledged run is stored.
#[test]
fn a_server_that_is_stopped_under_load_keeps_what_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = dev(directory.path());
    let (acknowledged, next, stop) = (Mutex::new(Vec::new()), AtomicU32::new(0), Arc::new(AtomicBool::new(false)));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let id = format!("run-{}", next.fetch_add(1, Ordering::SeqCst));
                    if try_start(&served, &format!(r#"{{"kind": "hello", "id": "{id}"}}"#)) == Some(201) {
                        acknowledged.lock().unwrap().push(id);
                    }
                }
            });
        }
        while acknowledged.lock().unwrap().len() < 50 {
            std::thread::sleep(Duration::from_millis(5));
        }
        served.signal("-TERM");
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(served.end(), Some(0));
    let acknowledged = acknowledged.into_inner().unwrap();
    let listed = run(directory.path(), ["run", "list", "--all", "--json"]).out;
    for id in &acknowledged {
        assert!(listed.contains(&format!("\"{id}\"")), "{id} was acknowledged, and {} others", acknowledged.len() - 1);
    }
}
