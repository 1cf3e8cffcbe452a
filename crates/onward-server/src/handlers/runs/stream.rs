//! `GET /v1/runs/{id}/stream`: the stream of a run, as pages or as server-sent events.

use std::time::Duration;

use onward_core::api::{StreamPage, StreamRequest, verb};
use onward_core::stream::{StreamContent, StreamFrame, TaskFrame};
use onward_core::{CallId, RunKey};
use onward_runtime::CallRef;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json as json_value};

use super::events::wants_stream;
use crate::auth::Pass;
use crate::handlers::prelude::*;
use crate::http::sse::{self, NOTHING_NEW, Over, Sink, StreamError};
use crate::server::Server;

/// Size at which text is handed to the sink.
const TEXT_BYTES: usize = 32 * 1024;

documents! {
    /// Page of a stream.
    struct Page as StreamPage {
        frames: Vec<Box<RawValue>> as Vec<StreamFrame>,
        /// Offset to continue from.
        next: String as StreamOffset,
    }
}

pub(crate) async fn stream(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let offset = match request.headers.get("last-event-id") {
        None => request.query.get("offset").map(str::to_owned),
        Some(value) => Some(value.to_str().map_err(|_| unusable())?.to_owned()),
    };
    let wait = request.query.wait(Duration::ZERO)?;
    let server = request.server.clone();
    if !wants_stream(&request.headers) {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let page = request.execute::<verb::ReadStream>(StreamRequest { run: key.clone(), offset, wait_ms }).await?;
        let frames = page.frames.iter().map(|frame| document(&key, frame)).collect();
        return Ok(json(StatusCode::OK, &Page { frames, next: page.next }));
    }
    if request.query.get("wait_ms").is_some() {
        let why = "`wait_ms` is for pages, not for text/event-stream".to_owned();
        return Err(RequestError::QueryInvalid { why }.into());
    }
    // A missing run is an error of the request, which can be reported only before the stream begins.
    server.runtime().read_head(&key).await?;
    let (events, sink) = sse::channel(&server);
    tokio::spawn(StreamSender { server, key, offset, sink }.run(request.by.pass));
    Ok(events.into_response())
}

fn unusable() -> RequestError {
    RequestError::HeaderInvalid { name: "Last-Event-ID", why: "it is not the id of a frame".to_owned() }
}

/// Stream for one reader.
struct StreamSender {
    server: Server,
    key: RunKey,
    offset: Option<String>,
    sink: Sink,
}

impl StreamSender {
    /// Sends frames until the run is closed or the credential is no longer valid; sends the error if there is one.
    async fn run(mut self, pass: Option<Pass>) {
        let server = self.server.clone();
        if let Some(problem) = sse::problem_of(self.send_frames(), pass, &server).await {
            self.sink.fail(&problem).await;
        }
    }

    async fn send_frames(&mut self) -> Result<(), StreamError> {
        loop {
            let keep_alive = self.server.limits().keep_alive;
            let page = tokio::select! {
                page = self.server.runtime().read_stream(&self.key, self.offset.as_deref(), keep_alive) => page?,
                () = self.sink.gone() => return Ok(()),
                () = self.server.closed() => {
                    self.sink.set_closing_comment("the server stops");
                    return Ok(());
                }
            };
            let ends = page.ends();
            self.send(page).await?;
            if ends {
                return Ok(());
            }
        }
    }

    async fn send(&mut self, page: StreamPage) -> Result<(), Over> {
        if page.frames.is_empty() {
            return self.sink.send(NOTHING_NEW.to_owned(), None).await;
        }
        let mut text = String::new();
        let mut frames = page.frames.iter().peekable();
        while let Some(frame) = frames.next() {
            text.push_str(&format!("id: {}\ndata: {}\n\n", frame.offset, document(&self.key, frame).get()));
            if text.len() >= TEXT_BYTES || frames.peek().is_none() {
                self.sink.send(std::mem::take(&mut text), Some(frame.offset.clone())).await?;
            }
        }
        self.offset = Some(page.next);
        Ok(())
    }
}

/// Returns the frame as JSON.
fn document(key: &RunKey, frame: &StreamFrame) -> Box<RawValue> {
    let mut document = content(key, &frame.content);
    document.insert("offset".to_owned(), json_value!(frame.offset));
    document.insert("at".to_owned(), json_value!(frame.at));
    to_raw_value(&document).expect("frames serialize")
}

fn content(key: &RunKey, content: &StreamContent) -> Map<String, Value> {
    let task = |generation: u32, call_id: &CallId| call(key, generation, call_id);
    let (kind, mut rest) = match content {
        StreamContent::TaskFrame(output) => return task_frame(key, output),
        StreamContent::AttemptReset(reset) => {
            ("attempt_reset", json_value!({"task": task(reset.generation, &reset.task), "attempt": reset.attempt}))
        }
        StreamContent::AttemptFailed(failed) => (
            "attempt_failed",
            json_value!({
                "task": task(failed.generation, &failed.task), "attempt": failed.attempt, "attempts_max": failed.attempts_max,
                "code": failed.failure.code, "message": failed.failure.message, "failure": failed.failure,
                "next_delay_ms": failed.next_delay_ms,
            }),
        ),
        StreamContent::TaskEnd(end) => {
            ("task_end", json_value!({"task": task(end.generation, &end.task), "outcome": end.outcome}))
        }
        StreamContent::Entry(entry) => (
            "entry",
            json_value!({
                "generation": entry.generation, "index": entry.index, "id": entry.id, "parent": entry.parent, "role": entry.role,
            }),
        ),
        StreamContent::BranchReset(reset) => ("branch_reset", json_value!({"generation": reset.generation, "leaf": reset.leaf})),
        StreamContent::ApprovalRequested(approval) => {
            let request = &approval.requested;
            (
                "approval_requested",
                json_value!({
                    "id": call(key, approval.generation, &request.call_id), "name": request.name, "title": request.title,
                    "description": request.description, "show": request.show, "deciders": request.deciders,
                    "not_by_requester": request.not_by_requester, "deadline": request.deadline,
                    "answer_schema": request.answer_schema,
                }),
            )
        }
        StreamContent::Paused(pause) => ("paused", json_value!({"reason": pause.reason, "message": pause.message})),
        StreamContent::Resumed(_) => ("resumed", json_value!({})),
        StreamContent::End(end) => ("end", json_value!({"status": end.status})),
        StreamContent::StreamReset(reset) => ("stream_reset", json_value!({"generation": reset.generation, "leaf": reset.leaf})),
    };
    rest["type"] = json_value!(kind);
    as_object(rest)
}

/// Returns the object that a task emitted, with our fields, which win over fields of the same name.
fn task_frame(key: &RunKey, output: &TaskFrame) -> Map<String, Value> {
    let mut document = match output.frame.read::<Value>() {
        Ok(Value::Object(object)) if object.get("type").is_some_and(Value::is_string) => object,
        _ => as_object(json_value!({"type": "value", "value": output.frame})),
    };
    let ours = json_value!({
        "task": call(key, output.generation, &output.task), "generation": output.generation, "attempt": output.attempt,
        "seq": output.seq,
    });
    document.extend(as_object(ours));
    document
}

fn call(key: &RunKey, generation: u32, call_id: &CallId) -> String {
    CallRef { run: key.clone(), generation, call_id: call_id.clone() }.to_string()
}

fn as_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}
