//! Attach: the log as it grows, for readers that connect, disconnect, reconnect and stop reading.

use std::time::Duration;

use onward_server::Limits;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::client::{Frame, Stream, names};
use crate::site::{Site, limits};

fn ids(frames: &[Frame]) -> Vec<&str> {
    frames.iter().filter_map(|frame| frame.id.as_deref()).collect()
}

#[tokio::test]
async fn a_reader_gets_the_log_then_its_growth_then_the_end() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/events", "").await;
    assert_eq!(names(&stream.until("signal_awaited").await), ["run_started", "signal_awaited"]);
    site.signal("a", "ping", json!(1)).await;
    let grown = stream.until("signal_awaited").await;
    assert_eq!(names(&grown), ["signal_received", "signal_consumed", "signal_awaited"]);
    site.signal("a", "ping", json!(0)).await;
    let rest = stream.rest().await;
    assert_eq!(names(&rest), ["signal_received", "signal_consumed", "run_completed", "end"]);
    let end = rest.last().unwrap();
    assert_eq!(end.data, Some(json!({"id": "a", "status": "completed", "outcome": {"output": {"json": 0}}})));
    assert_eq!(end.id, None, "the last id stays that of the last event");
}

#[tokio::test]
async fn a_reader_begins_at_its_offset_and_resumes_after_its_last_event() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    site.signal("a", "ping", json!(0)).await;
    site.until_status("a", "completed").await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/events?from=2", "").await;
    assert_eq!(ids(&stream.rest().await), ["0:2", "0:3", "0:4"]);
    let mut stream = Stream::open(site.address, "/v1/runs/a/events?from=0", "Last-Event-ID: 0:2\r\n").await;
    assert_eq!(ids(&stream.rest().await), ["0:3", "0:4"], "the header goes before the query");
    let mut stream = Stream::open(site.address, "/v1/runs/a/events", "Last-Event-ID: 0:4\r\n").await;
    assert_eq!(names(&stream.rest().await), ["end"], "a reader that saw everything gets the end");
    let accept = "Accept: text/event-stream\r\n";
    let wrong = format!("{accept}Last-Event-ID: what\r\n");
    site.send("GET", "/v1/runs/a/events", &wrong, "").await.problem(400, "header_invalid");
    let ahead = format!("{accept}Last-Event-ID: 1:0\r\n");
    let detail = site.send("GET", "/v1/runs/a/events", &ahead, "").await.problem(400, "header_invalid");
    assert!(detail.contains("Last-Event-ID") && detail.contains("generation 1"), "{detail}");
    site.send("GET", "/v1/runs/nope/events", &ahead, "").await.problem(404, "run_not_found");
    site.send("GET", "/v1/runs/nope/events", accept, "").await.problem(404, "run_not_found");
    site.send("GET", "/v1/runs/a/events?generation=7", accept, "").await.problem(404, "run_not_found");
    site.send("GET", "/v1/runs/a/events?until=noon", accept, "").await.problem(400, "query_invalid");
    site.send("GET", "/v1/runs/a/events?limit=1", accept, "").await.problem(400, "query_invalid");
    site.get("/v1/runs/a/events?until=end").await.problem(400, "query_invalid");
}

#[tokio::test]
async fn a_reader_follows_a_run_through_its_generations() {
    let site = Site::open().await;
    site.start("chapters", "a", json!(0)).await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/events", "").await;
    let mut frames = Vec::new();
    for _ in 0..3 {
        frames.extend(stream.until("signal_awaited").await);
        site.signal("a", "next", json!(null)).await;
    }
    frames.extend(stream.rest().await);
    let names = names(&frames);
    assert_eq!(names.iter().filter(|name| *name == "run_continued").count(), 2, "{names:?}");
    assert_eq!(names.last().unwrap(), "end");
    let starts: Vec<&str> = frames.iter().filter(|frame| frame.name() == "run_started").filter_map(|f| f.id.as_deref()).collect();
    assert_eq!(starts, ["0:0", "1:0", "2:0"]);
    let continued = frames.iter().find(|frame| frame.name() == "run_continued").unwrap().id.clone().unwrap();
    let mut resumed = Stream::open(site.address, "/v1/runs/a/events", &format!("Last-Event-ID: {continued}\r\n")).await;
    assert_eq!(resumed.next().await.unwrap().id.as_deref(), Some("1:0"), "the next generation follows the end of this one");
}

#[tokio::test]
async fn a_reader_that_wants_no_more_stops_when_the_run_waits() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/events?until=pause", "").await;
    let frames = stream.rest().await;
    let pause = frames.last().unwrap();
    assert_eq!(pause.event.as_deref(), Some("pause"));
    let data = pause.data.as_ref().unwrap();
    assert_eq!((&data["status"], &data["awaiting"][0]["name"]), (&json!("waiting"), &json!("payment")));
    // The usual sequence: answer, then read on to the next approval.
    let next = data["next"]["from"].as_u64().unwrap();
    site.signal("a", "payment", json!(5)).await;
    let mut stream = Stream::open(site.address, &format!("/v1/runs/a/events?until=pause&from={next}"), "").await;
    let frames = stream.rest().await;
    assert_eq!(names(&frames), ["signal_received", "signal_consumed", "approval_requested", "pause"]);
    assert_eq!(frames.last().unwrap().data.as_ref().unwrap()["awaiting"][0]["kind"], "approval");
    site.post("/v1/runs/a/pause", "").await.expect(202);
    let mut stream = Stream::open(site.address, "/v1/runs/a/events?until=pause&from=7", "").await;
    let paused = stream.rest().await.pop().unwrap();
    assert_eq!(paused.data.unwrap()["status"], "paused");
    site.post("/v1/runs/a/terminate", "").await.expect(202);
    let mut stream = Stream::open(site.address, "/v1/runs/a/events?until=pause", "").await;
    assert_eq!(stream.rest().await.pop().unwrap().name(), "end", "a run that has ended does not pause");
}

#[tokio::test]
async fn two_readers_get_the_same_and_drive_nothing() {
    let site = Site::open().await;
    site.post_json("/v1/runs", json!({"kind": "nobody-knows-it", "id": "a"})).await.expect(201);
    let mut one = Stream::open(site.address, "/v1/runs/a/events", "").await;
    let mut other = Stream::open(site.address, "/v1/runs/a/events", "").await;
    assert_eq!(
        (one.next().await.unwrap().name(), other.next().await.unwrap().name()),
        ("run_started".into(), "run_started".into())
    );
    assert_eq!(site.server.metrics().attached.value(), 2);
    site.post("/v1/runs/a/cancel", "").await.expect(202);
    assert_eq!(
        (one.next().await.unwrap().name(), other.next().await.unwrap().name()),
        ("cancel_requested".into(), "cancel_requested".into())
    );
    assert_eq!(site.show("a").await["status"], "pending", "no worker has claimed it");
    drop(one);
    site.post("/v1/runs/a/terminate", "").await.expect(202);
    assert_eq!(names(&other.rest().await), ["terminate_requested", "end"]);
    drop(other);
    let deadline = tokio::time::Instant::now() + crate::site::DEADLINE;
    while site.server.metrics().attached.value() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "a reader that is gone is forgotten");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_quiet_stream_is_kept_alive() {
    let site = Site::with_limits(Limits { keep_alive: Duration::from_millis(20), ..limits() }).await;
    site.start("listener", "a", json!(null)).await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/events?from=2", "").await;
    assert_eq!(stream.next().await.unwrap().comment.as_deref(), Some("nothing new"));
}

#[tokio::test]
async fn a_reader_that_does_not_read_is_let_go_with_the_place_to_go_on_from() {
    let slow = Limits { slow_reader_timeout: Duration::from_millis(300), ..limits() };
    let site = Site::with_limits(slow).await;
    site.start("chatty", "a", json!(400)).await;
    let mut sleeper = Stream::open(site.address, "/v1/runs/a/events", "").await;
    site.signal("a", "talk", json!(null)).await;
    // 20 MB for a reader that does not read: the run still ends, and another reader gets everything meanwhile.
    let mut reader = Stream::open(site.address, "/v1/runs/a/events", "").await;
    let all = reader.rest().await;
    assert_eq!(all.last().unwrap().name(), "end");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let read = sleeper.rest().await;
    let closing_comment = read.last().unwrap().comment.clone().expect("the stream ends with a comment");
    let cursor = closing_comment.strip_prefix("too slow; resume with Last-Event-ID: ").unwrap();
    assert_eq!(ids(&read).last(), Some(&cursor), "it is the last event that was sent");
    let mut resumed = Stream::open(site.address, "/v1/runs/a/events", &format!("Last-Event-ID: {cursor}\r\n")).await;
    let rest = resumed.rest().await;
    let together: Vec<&str> = ids(&read).into_iter().chain(ids(&rest)).collect();
    assert_eq!(together, ids(&all), "nothing is missing and nothing came twice");
}

#[tokio::test]
async fn a_client_that_never_reads_again_is_cut_off() {
    let impatient =
        Limits { slow_reader_timeout: Duration::from_millis(100), write_timeout: Duration::from_millis(300), ..limits() };
    let site = Site::with_limits(impatient).await;
    site.start("chatty", "a", json!(400)).await;
    site.signal("a", "talk", json!(null)).await;
    site.until_status("a", "completed").await;
    let mut stream = tokio::net::TcpStream::connect(site.address).await.unwrap();
    let head = "GET /v1/runs/a/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let deadline = tokio::time::Instant::now() + crate::site::DEADLINE;
    while site.server.metrics().connections.value() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while site.server.metrics().connections.value() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "the connection is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn readers_are_notified_when_the_server_stops() {
    let mut site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/events", "").await;
    stream.until("signal_awaited").await;
    site.stop().await;
    let last = stream.rest().await.pop().unwrap();
    assert_eq!(last.comment.as_deref(), Some("the server stops; resume with Last-Event-ID: 0:1"));
}
