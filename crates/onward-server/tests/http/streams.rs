//! Streams over HTTP: pages, slow readers, refused requests. Responses of models are in `tests/ag-ui`.

use std::time::Duration;

use onward::prelude::*;
use onward::{Onward, TaskCtx};
use onward_server::Limits;
use serde_json::{Value, json};

use crate::client::{Frame, Stream};
use crate::site::{Site, limits};

async fn emit_pages(ctx: Ctx, frames: u32) -> Result<u32> {
    ctx.task("pages", &frames).await
}

/// Emits many frames, slowly enough for readers.
async fn emit_pages_slowly(ctx: TaskCtx, frames: u32) -> Result<u32> {
    for n in 0..frames {
        ctx.stream(&json!({"type": "page", "n": n, "text": "x".repeat(40_000), "task": "mine"}));
        tokio::time::sleep(Duration::from_millis(8)).await;
    }
    Ok(frames)
}

/// Returns a worker that is connected to the site.
async fn worker(site: &Site) -> Onward {
    let builder = Onward::connect(format!("http://{}", site.address));
    builder.workflow("pages", emit_pages).task("pages", emit_pages_slowly).start().await.unwrap()
}

fn types(frames: &[Frame]) -> Vec<String> {
    frames.iter().filter_map(|frame| frame.data.as_ref()?["type"].as_str().map(str::to_owned)).collect()
}

fn of(page: &Value) -> Vec<&str> {
    page["frames"].as_array().unwrap().iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_stream_is_read_page_by_page_and_ends_with_its_run() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    let page = site.get("/v1/runs/a/stream").await.expect(200);
    assert_eq!(of(&page), ["stream_reset"]);
    assert_eq!(page["frames"][0]["leaf"], Value::Null);
    let next = page["next"].as_str().unwrap().to_owned();
    let waiting = format!("/v1/runs/a/stream?offset={next}&wait_ms=5000");
    let (page, _) = tokio::join!(site.get(&waiting), site.signal("a", "payment", json!(5)));
    let page = page.expect(200);
    assert_eq!(of(&page), ["approval_requested"]);
    let approval = &page["frames"][0];
    assert_eq!((&approval["title"], &approval["deciders"]), (&json!("Ship x?"), &json!(["ada", "bob"])));
    let decide = json!({"approved": true, "decided_by": "ada", "decision_id": "d"});
    site.post_json(&format!("/v1/approvals/{}", approval["id"].as_str().unwrap()), decide).await.expect(200);
    site.until_status("a", "completed").await;
    let page = site.get(&format!("/v1/runs/a/stream?offset={}", page["next"].as_str().unwrap())).await.expect(200);
    assert_eq!((of(&page), &page["frames"][0]["status"]), (vec!["end"], &json!("completed")));
    let mut stream = Stream::open(site.address, "/v1/runs/a/stream", "Last-Event-ID: of-another-life\r\n").await;
    assert_eq!(types(&stream.rest().await), ["stream_reset", "approval_requested", "end"], "the stream ends with the run");
}

#[tokio::test]
async fn an_invalid_request_for_a_stream_is_refused_before_it_begins() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let accept = "Accept: text/event-stream\r\n";
    site.get("/v1/runs/nope/stream").await.problem(404, "run_not_found");
    site.send("GET", "/v1/runs/nope/stream", accept, "").await.problem(404, "run_not_found");
    site.send("GET", "/v1/runs/a/stream?wait_ms=5", accept, "").await.problem(400, "query_invalid");
    site.get("/v1/runs/a/stream?from=5").await.problem(400, "query_invalid");
}

#[tokio::test]
async fn frames_of_a_task_keep_their_fields_and_ours_win() {
    let site = Site::open().await;
    let _worker = worker(&site).await;
    site.post_json("/v1/runs", json!({"kind": "pages", "id": "a", "input": 3})).await.expect(201);
    let mut stream = Stream::open(site.address, "/v1/runs/a/stream", "").await;
    let frames = stream.rest().await;
    let pages: Vec<&Value> =
        frames.iter().filter_map(|frame| frame.data.as_ref()).filter(|data| data["type"] == "page").collect();
    for (n, page) in (0..3).zip(&pages) {
        assert_eq!((&page["n"], &page["seq"], &page["attempt"]), (&json!(n), &json!(n), &json!(1)));
        assert_eq!(page["task"], "a~0~0", "a name that is taken is ours");
    }
    assert_eq!(types(&frames), ["stream_reset", "page", "page", "page", "task_end", "end"]);
    assert!(frames.iter().all(|frame| frame.id.as_deref() == frame.data.as_ref().and_then(|data| data["offset"].as_str())));
}

#[tokio::test]
async fn a_slow_reader_is_disconnected_with_the_offset_to_resume_from() {
    let slow = Limits { slow_reader_timeout: Duration::from_millis(300), ..limits() };
    let site = Site::with_limits(slow).await;
    let _worker = worker(&site).await;
    site.post_json("/v1/runs", json!({"kind": "pages", "id": "a", "input": 300})).await.expect(201);
    let mut sleeper = Stream::open(site.address, "/v1/runs/a/stream", "").await;
    // 12 MB for a reader that does not read: the run still ends, and another reader gets it meanwhile.
    let mut reader = Stream::open(site.address, "/v1/runs/a/stream", "").await;
    let all = reader.rest().await;
    assert_eq!(types(&all).last().unwrap(), "end");
    assert!(types(&all).iter().filter(|kind| *kind == "page").count() > 250, "{}", all.len());
    let read = sleeper.rest().await;
    let closing_comment = read.last().unwrap().comment.clone().expect("the stream ends with a comment");
    let cursor = closing_comment.strip_prefix("too slow; resume with Last-Event-ID: ").unwrap();
    let mut resumed = Stream::open(site.address, "/v1/runs/a/stream", &format!("Last-Event-ID: {cursor}\r\n")).await;
    let rest = types(&resumed.rest().await);
    assert_eq!((rest.first().map(String::as_str), rest.last().map(String::as_str)), (Some("stream_reset"), Some("end")));
    assert!(rest.len() < 30, "only a megabyte is kept: {}", rest.len());
}

#[tokio::test]
async fn readers_of_a_stream_are_notified_when_the_server_stops() {
    let mut site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let mut stream = Stream::open(site.address, "/v1/runs/a/stream", "").await;
    let first = stream.next().await.unwrap();
    site.stop().await;
    let last = stream.rest().await.pop().unwrap();
    assert_eq!(last.comment, Some(format!("the server stops; resume with Last-Event-ID: {}", first.id.unwrap())));
}

#[tokio::test]
async fn an_unserved_turn_ends_with_an_error_and_a_refused_request_writes_nothing() {
    let site = Site::open().await;
    let message = |id: &str| json!({"id": id, "role": "user", "content": "hello"});
    let turn = |thread: &str, messages: Value| json!({"threadId": thread, "runId": "r", "messages": messages});
    let records = site.records();
    site.post("/v1/agents/nobody/ag-ui", "{").await.problem(400, "json_invalid");
    site.post_json("/v1/agents/nobody/ag-ui", turn("", json!([message("1")]))).await.problem(400, "json_invalid");
    let resume = json!({"threadId": "t", "runId": "r", "messages": [], "resume": [{"interruptId": "x", "status": "maybe"}]});
    site.post_json("/v1/agents/nobody/ag-ui", resume).await.problem(400, "json_invalid");
    let nothing = json!({"id": "1", "role": "user", "content": ""});
    site.post_json("/v1/agents/nobody/ag-ui", turn("t", json!([nothing]))).await.problem(400, "message_empty");
    let empty = site.post_json("/v1/agents/nobody/ag-ui", turn("t", json!([]))).await;
    assert!(empty.body.contains("RUN_FINISHED"), "{}", empty.body);
    assert_eq!(site.records(), records);
    let alone = site.post_json("/v1/agents/nobody/ag-ui", turn("t", json!([message("1")]))).await;
    assert!(alone.body.contains(r#""code":"no_compatible_worker""#), "{}", alone.body);
    assert_eq!(site.show("nobody:t").await["status"], "pending", "it waits for a worker");
    // A run with the id of the thread but another kind is refused.
    site.start("listener", "order:t", json!(null)).await;
    site.post_json("/v1/agents/order/ag-ui", turn("t", json!([message("1")]))).await.problem(400, "json_invalid");
}
