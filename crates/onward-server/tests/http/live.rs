//! Live views of runs and the feed of changed runs, over HTTP and gRPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward::Onward;
use onward::live::{LiveContent, LiveFrame};
use onward::prelude::*;
use onward_core::{Index, Name};
use onward_server::{Bounds, Limits, Options, Scope};
use onward_store::{Clock, SystemClock};
use onward_wire::ApiKey;
use serde_json::{Value, json};

use crate::client::{Frame, Stream, names};
use crate::keys::Locked;
use crate::site::{Site, limits};

fn ids(frames: &[Frame]) -> Vec<&str> {
    frames.iter().filter_map(|frame| frame.id.as_deref()).collect()
}

fn data(frame: &Frame) -> &Value {
    frame.data.as_ref().unwrap()
}

/// Emits a public and an internal value for every signal, until 0.
async fn noisy(ctx: Ctx, (): ()) -> Result<u32> {
    loop {
        let n: u32 = ctx.signal("go").recv().await?;
        if n == 0 {
            return Ok(0);
        }
        ctx.step("work", async || Ok::<_, Failure>(n)).await?;
        ctx.emission("secret", &n).internal().send()?;
        ctx.emission("shown", &n).meta(&json!({"n": n})).send()?;
    }
}

async fn connect(url: String, key: Option<&ApiKey>) -> Onward {
    let builder = Onward::connect(url);
    let builder = if let Some(key) = key { builder.key(key.reveal()) } else { builder };
    builder.workflow("noisy", noisy).start().await.unwrap()
}

#[tokio::test]
async fn a_reader_gets_a_snapshot_then_the_log_then_what_happens() {
    let site = Site::open().await;
    let _worker = connect(format!("http://{}", site.address), None).await;
    site.start("noisy", "a", json!(null)).await;
    site.until_status("a", "waiting").await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/live", "").await;
    let snapshot = stream.next().await.unwrap();
    assert_eq!((snapshot.name().as_str(), &snapshot.id), ("snapshot", &None), "LU2");
    let expected = json!({"generation": 0, "next_index": 2, "status": "waiting", "active": [], "blocked_on": []});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&data(&snapshot)[field], value, "{snapshot:?}");
    }
    assert_eq!(data(&snapshot)["awaiting"][0]["name"], "go");
    assert!(data(&snapshot)["doing"].as_str().unwrap().contains("go") && data(&snapshot)["at"].is_string());
    let log = [stream.next().await.unwrap(), stream.next().await.unwrap()];
    assert_eq!((names(&log), ids(&log)), (vec!["event".to_owned(); 2], vec!["0:0", "0:1"]));
    assert_eq!(data(&log[0])["event"]["type"], "run_started");
    site.signal("a", "go", json!(4)).await;
    let emitted = [stream.until("emitted").await.pop().unwrap(), stream.until("emitted").await.pop().unwrap()];
    let seen = emitted.iter().map(|frame| (&data(frame)["name"], &data(frame)["audience"], &data(frame)["meta"]));
    let (secret, shown) = (json!("secret"), json!("shown"));
    let expected = [(&secret, &json!("internal"), &json!({})), (&shown, &json!("public"), &json!({"n": 4}))];
    assert!(seen.eq(expected), "{emitted:?}");
    site.signal("a", "go", json!(0)).await;
    let end = stream.rest().await.pop().unwrap();
    assert_eq!(data(&end), &json!({"id": "a", "status": "completed", "outcome": {"output": {"json": 0}}}));
}

#[tokio::test]
async fn a_reader_that_reconnects_repeats_no_event_and_loses_none() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let mut seen = Vec::new();
    let mut header = String::new();
    for ping in [2, 1, 0] {
        let mut stream = Stream::open(site.address, "/v1/runs/a/live", &header).await;
        assert_eq!(stream.next().await.unwrap().name(), "snapshot", "LQ1");
        site.signal("a", "ping", json!(ping)).await;
        for _ in 0..2 {
            let frame = loop {
                let frame = stream.next().await.unwrap();
                if frame.id.is_some() {
                    break frame;
                }
            };
            seen.extend(frame.id);
        }
        header = format!("Last-Event-ID: {}\r\n", seen.last().unwrap());
    }
    let mut stream = Stream::open(site.address, "/v1/runs/a/live", &header).await;
    seen.extend(stream.rest().await.into_iter().filter_map(|frame| frame.id));
    let all: Vec<String> = (0..seen.len()).map(|index| format!("0:{index}")).collect();
    assert_eq!(seen, all, "LQ1");
    let mut stream = Stream::open(site.address, "/v1/runs/a/live?from=end", "").await;
    assert_eq!(names(&stream.rest().await), ["snapshot", "end"]);
    let accept = "Accept: text/event-stream\r\n";
    site.send("GET", "/v1/runs/nope/live", accept, "").await.problem(404, "run_not_found");
    site.send("GET", "/v1/runs/a/live", "Accept: application/json\r\n", "").await.problem(400, "header_invalid");
    site.send("GET", "/v1/runs/a/live?generation=7", accept, "").await.problem(404, "run_not_found");
    site.send("GET", "/v1/runs/a/live?from=x", accept, "").await.problem(400, "query_invalid");
    let ahead = format!("{accept}Last-Event-ID: 1:0\r\n");
    site.send("GET", "/v1/runs/a/live", &ahead, "").await.problem(400, "header_invalid");
}

/// Reads the live view to its end. Resumes after the cursor when it is dropped, which happens if the machine stalls.
async fn read_to_end(site: &Site, path: &str, mut cursor: Option<String>) -> Vec<Frame> {
    let mut all = Vec::new();
    loop {
        let header = cursor.as_ref().map(|cursor| format!("Last-Event-ID: {cursor}\r\n")).unwrap_or_default();
        let mut part = Stream::open(site.address, path, &header).await.rest().await;
        let last = part.pop().unwrap();
        all.append(&mut part);
        if last.name() != "dropped" {
            all.push(last);
            return all;
        }
        cursor = data(&last)["cursor"].as_str().map(str::to_owned);
    }
}

#[tokio::test]
async fn a_slow_reader_is_dropped_with_the_event_to_continue_after() {
    let slow = Limits { slow_reader_timeout: Duration::from_millis(300), ..limits() };
    let site = Site::with_limits(slow).await;
    site.start("chatty", "a", json!(400)).await;
    let mut sleeper = Stream::open(site.address, "/v1/runs/a/live", "").await;
    site.signal("a", "talk", json!(null)).await;
    let all = read_to_end(&site, "/v1/runs/a/live", None).await;
    assert_eq!(all.last().unwrap().name(), "end", "the run and other readers do not wait");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let read = sleeper.rest().await;
    let dropped = read.last().unwrap();
    assert_eq!(dropped.name(), "dropped", "LQ2");
    let cursor = data(dropped)["cursor"].as_str().unwrap();
    assert_eq!(ids(&read).last(), Some(&cursor), "LQ2");
    let rest = read_to_end(&site, "/v1/runs/a/live", Some(cursor.to_owned())).await;
    let together: Vec<&str> = ids(&read).into_iter().chain(ids(&rest)).collect();
    assert_eq!(together, ids(&all), "LQ1");
}

#[tokio::test]
async fn active_calls_are_listed_while_they_run() {
    let site = Site::open().await;
    let (open, opened) = tokio::sync::watch::channel(false);
    let slow = move |ctx: Ctx, (): ()| {
        let mut opened = opened.clone();
        async move {
            let () = ctx.signal("go").recv().await?;
            ctx.step("charge", async move || {
                drop(opened.wait_for(|open| *open).await);
                Ok::<_, Failure>(1)
            })
            .await
        }
    };
    let _worker = Onward::connect(format!("http://{}", site.address)).workflow("slow", slow).start().await.unwrap();
    site.start("slow", "a", json!(null)).await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/live", "").await;
    stream.next().await.unwrap(); // the snapshot: the reader is registered
    site.signal("a", "go", json!(null)).await;
    let started = stream.until("step_started").await.pop().unwrap();
    assert_eq!(
        (&data(&started)["name"], &data(&started)["attempt"], &data(&started)["input"]),
        (&json!("charge"), &json!(1), &Value::Null)
    );
    assert!(data(&started)["call_id"].is_string() && started.id.is_none());
    let call = site.get("/v1/runs/a/active").await.expect(200)["active"][0].clone();
    let expected = json!({"generation": 0, "type": "step", "name": "charge", "attempt": 1, "input": null, "progress": null});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&call[field], value, "{call}");
    }
    assert_eq!(site.get("/v1/runs/a?active=true").await.expect(200)["active"], json!([call]));
    assert_eq!(site.show("a").await["active"], Value::Null, "only on request");
    site.get("/v1/runs/a?active=maybe").await.problem(400, "query_invalid");
    let line = site.get("/v1/runs/a/timeline").await.expect(200)["calls"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&line["name"], &line["status"], &line["first_index"]), (&json!("charge"), &json!("running"), &Value::Null));
    open.send_replace(true);
    site.until_status("a", "completed").await;
    assert_eq!(site.get("/v1/runs/a/active").await.expect(200), json!({"active": []}));
    site.get("/v1/runs/nope/active").await.problem(404, "run_not_found");
}

/// LC1: over both APIs.
#[tokio::test]
async fn internal_values_are_hidden_from_keys_that_only_read() {
    let (locked, root) = Locked::open().await;
    let reader = locked.make("reader", "*", &[Scope::Read]);
    let worker = connect(locked.url(), Some(&root)).await;
    locked.until(&reader, 200).await;
    let run = worker.start::<u32, _>("noisy", &()).id("a").await.unwrap();
    let bearer = |key: &ApiKey| format!("Authorization: Bearer {}\r\n", key.reveal());
    let mut all = Stream::open(locked.site.address, "/v1/runs/a/live", &bearer(&root)).await;
    let mut public = Stream::open(locked.site.address, "/v1/runs/a/live", &bearer(&reader)).await;
    let client = Onward::connect(locked.url()).key(reader.reveal()).start().await.unwrap();
    let handle = client.run::<u32>("a").unwrap();
    let mut live = handle.watch(Index(0)).await.unwrap();
    let mut listened = handle.emitted();
    for stream in [&mut all, &mut public] {
        stream.until("snapshot").await;
    }
    assert!(matches!(live.next().await.unwrap().unwrap().content, LiveContent::Snapshot(_)));
    run.signal("go", &1u32).await.unwrap();
    run.signal("go", &0u32).await.unwrap();
    run.result().await.unwrap();
    let emitted = |frames: Vec<Frame>| -> Vec<Value> {
        frames.iter().filter(|frame| frame.name() == "emitted").map(|frame| data(frame)["name"].clone()).collect()
    };
    assert_eq!(emitted(all.rest().await), ["secret", "shown"]);
    assert_eq!(emitted(public.rest().await), ["shown"], "LC1");
    let mut names = Vec::new();
    while let Some(LiveFrame { content, .. }) = live.next().await.unwrap() {
        if let LiveContent::Emitted(emitted) = content {
            names.push(emitted.name);
        }
    }
    assert_eq!(names, ["shown"], "LC1");
    while let Ok(emitted) = listened.try_recv() {
        assert_eq!(emitted.name, "shown", "LC1");
    }
}

#[tokio::test]
async fn a_live_view_needs_read_and_a_kind_that_the_key_is_for() {
    let (locked, root) = Locked::open().await;
    let starter = locked.make("starter", "*", &[Scope::Start]);
    let kinds = Some([Name::new("own").unwrap()].into_iter().collect());
    let bound = locked.make_bound(Bounds { kinds, ..Bounds::default() });
    locked.until(&bound, 200).await;
    locked.until(&starter, 403).await;
    locked.send(&root, "POST", "/v1/runs", r#"{"kind": "theirs", "id": "r"}"#).await.expect(201);
    for path in ["/v1/runs/r/live", "/v1/runs/r/active", "/v1/live"] {
        locked.send(&starter, "GET", path, "").await.problem(403, "not_allowed");
    }
    locked.send(&bound, "GET", "/v1/runs/r/live", "").await.problem(403, "not_allowed");
    locked.send(&bound, "GET", "/v1/runs/r/active", "").await.problem(403, "not_allowed");
    locked.send(&bound, "GET", "/v1/runs/r?active=true", "").await.problem(403, "not_allowed");
    locked.send(&bound, "GET", "/v1/runs/r", "").await.expect(200);
    assert_eq!(locked.send(&bound, "GET", "/v1/runs/r/timeline", "").await.expect(200)["calls"], json!([]));
    locked.send(&bound, "GET", "/v1/live?kind=theirs", "").await.problem(403, "not_allowed");
    let client = Onward::connect(locked.url()).key(bound.reveal()).start().await.unwrap();
    let refused = client.run::<()>("r").unwrap().watch(Index(0)).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), "not_allowed");
    let client = Onward::connect(locked.url()).key(starter.reveal()).start().await.unwrap();
    let refused = client.run::<()>("r").unwrap().watch(Index(0)).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), "not_allowed");
}

/// BK1: also values of a run that was started later, with another kind.
#[tokio::test]
async fn emitted_values_are_hidden_from_keys_for_other_kinds() {
    let (locked, root) = Locked::open().await;
    let kinds = Some([Name::new("own").unwrap()].into_iter().collect());
    let bound = locked.make_bound(Bounds { kinds, ..Bounds::default() });
    locked.until(&bound, 200).await;
    let worker = connect(locked.url(), Some(&root)).await;
    let client = Onward::connect(locked.url()).key(bound.reveal()).start().await.unwrap();
    let mut before = client.run::<u32>("a").unwrap().emitted();
    let run = worker.start::<u32, _>("noisy", &()).id("a").await.unwrap();
    let mut after = client.run::<u32>("a").unwrap().emitted();
    let mut allowed = run.emitted();
    for go in [1u32, 2, 3, 0] {
        run.signal("go", &go).await.unwrap();
    }
    run.result().await.unwrap();
    assert!(allowed.recv().await.is_ok());
    assert!(before.try_recv().is_err() && after.try_recv().is_err(), "BK1");
}

/// BK1
#[tokio::test]
async fn timelines_hide_steps_under_way_from_keys_for_other_kinds() {
    let (locked, root) = Locked::open().await;
    let kinds = Some([Name::new("own").unwrap()].into_iter().collect());
    let bound = locked.make_bound(Bounds { kinds, ..Bounds::default() });
    locked.until(&bound, 200).await;
    let (begun, mut has_begun) = tokio::sync::watch::channel(false);
    let endless = move |ctx: Ctx, (): ()| {
        let begun = begun.clone();
        async move {
            ctx.step("charge", async move || {
                begun.send_replace(true);
                std::future::pending::<Result<()>>().await
            })
            .await
        }
    };
    let builder = Onward::connect(locked.url()).key(root.reveal()).workflow("endless", endless);
    let worker = builder.start().await.unwrap();
    worker.start::<(), _>("endless", &()).id("a").await.unwrap();
    has_begun.wait_for(|begun| *begun).await.unwrap();
    let calls = async |key: &ApiKey| locked.send(key, "GET", "/v1/runs/a/timeline", "").await.expect(200)["calls"].clone();
    assert_eq!(calls(&root).await[0]["status"], "running");
    assert_eq!(calls(&bound).await, json!([]), "BK1");
}

/// LU2: the snapshot is not begun again by what keeps the connection alive.
#[tokio::test]
async fn a_snapshot_may_take_longer_than_a_keep_alive() {
    let site = Site::with_limits(Limits { keep_alive: Duration::from_millis(20), ..limits() }).await;
    let is_free = Arc::new(AtomicBool::new(false));
    let blocked = is_free.clone();
    let blocking = move |ctx: Ctx, (): ()| {
        let is_free = blocked.clone();
        async move {
            let () = ctx.signal("go").recv().await?;
            while !is_free.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1)); // the worker cannot list its steps meanwhile
            }
            Ok::<_, Failure>(())
        }
    };
    let _worker = Onward::connect(format!("http://{}", site.address)).workflow("blocking", blocking).start().await.unwrap();
    site.start("blocking", "a", json!(null)).await;
    site.until_status("a", "waiting").await;
    site.signal("a", "go", json!(null)).await;
    site.until_status("a", "running").await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/live", "").await;
    let before = stream.until("snapshot").await;
    assert!(before[..before.len() - 1].iter().all(|frame| frame.name() == "comment"), "{before:?}");
    is_free.store(true, Ordering::SeqCst);
    assert_eq!(stream.rest().await.pop().unwrap().name(), "end");
}

#[tokio::test]
async fn a_live_view_ends_when_its_key_is_revoked() {
    let (locked, root) = Locked::with(Options { limits: limits(), ..Options::default() }).await;
    let reader = locked.make("reader", "*", &[Scope::Read]);
    locked.until(&reader, 200).await;
    locked.send(&root, "POST", "/v1/runs", r#"{"kind": "listener", "id": "r"}"#).await.expect(201);
    let bearer = format!("Authorization: Bearer {}\r\n", reader.reveal());
    let mut streams = [
        Stream::open(locked.site.address, "/v1/runs/r/live", &bearer).await,
        Stream::open(locked.site.address, "/v1/live", &bearer).await,
    ];
    locked.file.revoke(reader.id(), SystemClock.now()).unwrap();
    for stream in &mut streams {
        assert_eq!(stream.rest().await.pop().unwrap().name(), "error");
    }
}

#[tokio::test]
async fn the_feed_shows_runs_that_start_change_and_end() {
    let site = Site::open().await;
    let mut feed = Stream::open(site.address, "/v1/live", "").await;
    let mut waiting = Stream::open(site.address, "/v1/live?status=waiting&kind=listener", "").await;
    for feed in [&mut feed, &mut waiting] {
        assert_eq!(feed.next().await.unwrap().name(), "hello");
    }
    site.start("listener", "a", json!(null)).await;
    site.start("order", "b", json!("x")).await;
    let mut changes = Vec::new();
    while !changes.contains(&("a".to_owned(), "waiting".to_owned())) || !changes.contains(&("b".to_owned(), "waiting".to_owned()))
    {
        let frame = feed.next().await.unwrap();
        let (change, run) = (&data(&frame)["change"], &data(&frame)["run"]);
        let is_first = !changes.iter().any(|(id, _)| run["id"] == json!(id));
        assert_eq!(change == "started", is_first, "{frame:?}");
        changes.push((run["id"].as_str().unwrap().to_owned(), run["status"].as_str().unwrap().to_owned()));
    }
    let first = waiting.next().await.unwrap();
    assert_eq!((&data(&first)["run"]["id"], &data(&first)["run"]["status"]), (&json!("a"), &json!("waiting")));
    site.signal("a", "ping", json!(0)).await;
    let left = waiting.next().await.unwrap();
    assert_eq!(data(&left)["run"]["id"], "a", "a run that no longer matches is shown once more");
    loop {
        let frame = feed.next().await.unwrap();
        if data(&frame)["change"] == "ended" {
            assert_eq!((&data(&frame)["run"]["id"], &data(&frame)["run"]["status"]), (&json!("a"), &json!("completed")));
            break;
        }
    }
    site.send("DELETE", "/v1/runs/a", "", "").await;
    let deleted = feed.until("run").await.pop().unwrap();
    assert_eq!((&data(&deleted)["change"], &data(&deleted)["run"]["id"]), (&json!("deleted"), &json!("a")));
}

#[tokio::test]
async fn the_feed_has_only_runs_of_the_namespace_and_the_kinds_of_the_key() {
    let (locked, root) = Locked::open().await;
    let kinds = Some([Name::new("own").unwrap()].into_iter().collect());
    let bound = locked.make_bound(Bounds { kinds, ..Bounds::default() });
    locked.until(&bound, 200).await;
    let bearer = format!("Authorization: Bearer {}\r\n", bound.reveal());
    let mut feed = Stream::open(locked.site.address, "/v1/live", &bearer).await;
    feed.until("hello").await;
    locked.send_in("elsewhere", &root, "POST", "/v1/runs", r#"{"kind": "own", "id": "n"}"#).await.expect(201);
    for (kind, id) in [("theirs", "r"), ("own", "o")] {
        locked.send(&root, "POST", "/v1/runs", &json!({"kind": kind, "id": id}).to_string()).await.expect(201);
    }
    assert_eq!(data(&feed.next().await.unwrap())["run"]["id"], "o");
}
