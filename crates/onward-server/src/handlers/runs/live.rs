//! `GET /v1/runs/{id}/live`: a run as it happens. `GET /v1/live`: changes of runs, for lists.
//!
//! Invariants:
//! - LQ1 (LU1): a reader that reconnects with the id of an event gets every later event, each once, after a snapshot.
//! - LQ2: a reader that is too slow is disconnected, with the event to continue after.

use std::pin::pin;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use onward_core::api::{WatchRequest, verb};
use onward_core::live::{self, ActiveType, Audience, LiveContent, LiveFrame};
use onward_core::view::Awaited;
use onward_core::{CallId, Failure, Index, Name, Payload, RunKey, Status, Timestamp, WorkerId};
use onward_runtime::{FeedFrame, RunChange, RunFeed};

use super::events::expect_generation;
use super::{filter, last_event_id};
use crate::auth::Pass;
use crate::auth::bounds::Bounds;
use crate::handlers::prelude::*;
use crate::http::documents::{LogPosition, LoggedEvent, OneBlocker, Outcome, Run, RunResult};
use crate::http::sse::{self, NOTHING_NEW, Sink, StreamError, event};
use crate::server::Server;
use crate::verbs::LiveView;

/// Size at which text is handed to the sink.
const TEXT_BYTES: usize = 32 * 1024;

documents! {
    /// Step or task that a worker executes now.
    pub struct ActiveCall<'a>(call: &'a live::ActiveCall) {
        generation: u32 = call.generation,
        call_id: &'a CallId as String = &call.call_id,
        r#type: ActiveType = call.of_type,
        /// Name of the step, or kind of the task.
        name: &'a Name = &call.name,
        attempt: u32 = call.attempt,
        started_at: Timestamp = call.started_at,
        /// Input of a step, if it is recorded.
        input: Option<&'a Payload> = call.input.as_ref(),
        worker: Option<&'a WorkerId> = call.worker.as_ref(),
        /// Latest progress of a task.
        progress: Option<&'a Payload> = call.progress.as_ref(),
    }

    struct ActiveCalls<'a>(calls: &'a [live::ActiveCall]) {
        active: Vec<ActiveCall<'a>> = calls.iter().map(ActiveCall::from).collect(),
    }

    /// First frame of a live view: what is under way.
    struct LiveSnapshot<'a> {
        at: Timestamp,
        generation: u32,
        /// End of the log.
        next_index: Index,
        status: Status,
        /// What the run does or waits for, in a sentence.
        doing: &'a str,
        blocked_on: Vec<OneBlocker<'a>>,
        awaiting: &'a [Awaited],
        active: Vec<ActiveCall<'a>>,
    }

    struct LiveStepStarted<'a> {
        at: Timestamp,
        generation: u32,
        call_id: &'a CallId as String,
        name: &'a Name,
        attempt: u32,
        /// Input of the step, if it is recorded.
        input: Option<&'a Payload>,
    }

    struct LiveStepAttemptFailed<'a> {
        at: Timestamp,
        generation: u32,
        call_id: &'a CallId as String,
        name: &'a Name,
        attempt: u32,
        failure: &'a Failure,
        /// Time of the next attempt; null if the failure is final.
        next_attempt_at: Option<Timestamp>,
    }

    struct LiveStateChanged<'a> {
        at: Timestamp,
        generation: u32,
        name: &'a Name,
        /// Null if the value was cleared.
        value: Option<&'a Payload>,
    }

    struct LiveTaskStarted<'a> {
        at: Timestamp,
        generation: u32,
        call_id: &'a CallId as String,
        name: &'a Name,
        attempt: u32,
        worker: Option<&'a WorkerId>,
    }

    struct LiveTaskProgress<'a> {
        at: Timestamp,
        generation: u32,
        call_id: &'a CallId as String,
        name: &'a Name,
        attempt: u32,
        progress: &'a Payload,
    }

    /// Value that the code emitted; not recorded.
    struct LiveEmitted<'a> {
        at: Timestamp,
        name: &'a str,
        value: &'a Payload,
        /// Internal values are for keys with the scope `operate`.
        audience: Audience,
        meta: Box<RawValue> as Document,
    }

    /// The status of the run, or what it waits for, has changed.
    struct LiveBlocked<'a> {
        at: Timestamp,
        status: Status,
        doing: &'a str,
        blocked_on: Vec<OneBlocker<'a>>,
        awaiting: &'a [Awaited],
    }

    /// Last frame for a reader that was too slow.
    struct LiveDropped {
        at: Timestamp,
        /// `GENERATION:INDEX` of the last event that was sent, for `Last-Event-ID`.
        cursor: Option<String>,
    }

    /// Change of a run.
    struct FeedRun<'a> {
        at: Timestamp,
        change: RunChange,
        run: Run<'a>,
    }

    /// First frame of a feed, or the notice that frames were lost.
    struct FeedMark {
        at: Timestamp,
    }
}

/// Handles `GET /v1/runs/{id}/active`.
pub(crate) async fn active(request: Request) -> Result<Response, Problem> {
    let reply = request.execute::<verb::ReadActive>(request.key()?.into()).await?;
    Ok(json(StatusCode::OK, &ActiveCalls::from(&*reply.active)))
}

/// Handles `GET /v1/runs/{id}/live`.
pub(crate) async fn live(request: Request) -> Result<Response, Problem> {
    let (server, key) = (request.server.clone(), request.key()?);
    let from_end = request.query.get("from") == Some("end");
    let from = if from_end { Index(0) } else { Index(request.query.number("from")?.unwrap_or(0)) };
    let mut watch = WatchRequest { run: key.clone(), generation: request.query.number("generation")?, from, from_end };
    if let Some(at) = last_event_id(&request.headers)? {
        expect_generation(server.runtime(), &key, at).await?;
        let LogPosition { generation, from } = at;
        watch = WatchRequest { generation: Some(generation), from, from_end: false, ..watch };
    }
    // A missing run is an error of the request, which can be reported only before the stream begins.
    let view = LiveView::open(&server, &request.by, watch).await?;
    expect_stream(&request.headers)?;
    let (events, sink) = sse::channel(&server);
    let clock = server.runtime().clock().clone();
    let sink = sink.with_drop_text(move |cursor| text("dropped", &LiveDropped { at: clock.now(), cursor })); // LQ2
    tokio::spawn(LiveSender { server, key, sink }.run(view, request.by.pass));
    Ok(events.into_response())
}

/// Fails unless the client accepts an event stream.
fn expect_stream(headers: &HeaderMap) -> Result<(), RequestError> {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let kinds = accepted.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if kinds.into_iter().any(|kind| matches!(kind, "text/event-stream" | "text/*" | "*/*")) {
        return Ok(());
    }
    Err(RequestError::HeaderInvalid { name: "Accept", why: "this route sends text/event-stream".to_owned() })
}

/// Live view for one reader.
struct LiveSender {
    server: Server,
    key: RunKey,
    sink: Sink,
}

/// Waits for the next frame. Returns the view, too: a future that owns it can go on while other things are done.
async fn next_frame(mut view: LiveView) -> (LiveView, Result<Option<LiveFrame>, Problem>) {
    let frame = view.next().await;
    (view, frame)
}

impl LiveSender {
    /// Sends frames until the run is closed or the credential is no longer valid; sends the error if there is one.
    async fn run(mut self, view: LiveView, pass: Option<Pass>) {
        let server = self.server.clone();
        if let Some(problem) = sse::problem_of(self.send_frames(view), pass, &server).await {
            self.sink.fail(&problem).await;
        }
    }

    async fn send_frames(&mut self, view: LiveView) -> Result<(), StreamError> {
        let (mut text, mut cursor) = (String::new(), None);
        // Not dropped by a keep-alive: a snapshot that takes longer would begin again and again.
        let mut next = pin!(next_frame(view));
        loop {
            let (is_full, keep_alive) = (text.len() >= TEXT_BYTES, tokio::time::sleep(self.server.limits().keep_alive));
            let frame = tokio::select! {
                biased;
                (view, frame) = &mut next, if !is_full => {
                    next.set(next_frame(view));
                    frame.map_err(StreamError::Problem)?
                }
                // All frames that are ready go into one text.
                () = std::future::ready(()), if !text.is_empty() => {
                    self.sink.send(std::mem::take(&mut text), cursor.take()).await?;
                    continue;
                }
                () = self.sink.gone() => return Ok(()),
                () = self.server.closed() => {
                    self.sink.set_closing_comment("the server stops");
                    return Ok(());
                }
                () = keep_alive => {
                    self.sink.send(NOTHING_NEW.to_owned(), None).await?;
                    continue;
                }
            };
            let Some(frame) = frame else {
                if !text.is_empty() {
                    self.sink.send(text, cursor).await?;
                }
                return Ok(());
            };
            cursor = frame.cursor().map(|cursor| cursor.to_string()).or(cursor);
            text.push_str(&frame_text(&self.key, &frame));
        }
    }
}

/// Returns the text of a frame: one event, or one for each event of a record.
fn frame_text(key: &RunKey, LiveFrame { at, content }: &LiveFrame) -> String {
    let at = *at;
    match content {
        LiveContent::Log(live::LiveRecord { generation, record }) => {
            let commit = record.commit.map(|commit| commit.n);
            let line = |(index, event): (Index, &onward_core::Event)| {
                let document = LoggedEvent { generation: *generation, index, at: record.at, commit, event };
                format!("id: {generation}:{}\n{}", index.0, text("event", &document))
            };
            record.indexed().map(line).collect()
        }
        LiveContent::Snapshot(live::RunUnderWay { generation, next_index, status, doing, blocked_on, awaiting, active }) => {
            let blocked_on = blocked_on.iter().map(OneBlocker::from).collect();
            let active = active.iter().map(ActiveCall::from).collect();
            let (generation, next_index, status) = (*generation, *next_index, *status);
            text("snapshot", &LiveSnapshot { at, generation, next_index, status, doing, blocked_on, awaiting, active })
        }
        LiveContent::StepStarted(live::StepStarted { generation, step }) => {
            let live::RunningStep { call_id, name, attempt, input, .. } = step;
            let (generation, attempt, input) = (*generation, *attempt, input.as_ref());
            text("step_started", &LiveStepStarted { at, generation, call_id, name, attempt, input })
        }
        LiveContent::StepAttemptFailed(failed) => {
            let live::StepAttemptFailed { generation, call_id, name, attempt, failure, next_attempt_at } = failed;
            let (generation, attempt, next_attempt_at) = (*generation, *attempt, *next_attempt_at);
            let document = LiveStepAttemptFailed { at, generation, call_id, name, attempt, failure, next_attempt_at };
            text("step_attempt_failed", &document)
        }
        LiveContent::StateChanged(live::StateChanged { generation, name, value }) => {
            text("state_changed", &LiveStateChanged { at, generation: *generation, name, value: value.as_ref() })
        }
        LiveContent::TaskStarted(live::TaskStarted { generation, call_id, name, attempt, worker }) => {
            let (generation, attempt, worker) = (*generation, *attempt, worker.as_ref());
            text("task_started", &LiveTaskStarted { at, generation, call_id, name, attempt, worker })
        }
        LiveContent::TaskProgress(live::TaskProgress { generation, call_id, name, attempt, progress }) => {
            let (generation, attempt) = (*generation, *attempt);
            text("task_progress", &LiveTaskProgress { at, generation, call_id, name, attempt, progress })
        }
        LiveContent::Emitted(emitted) => {
            let (name, value, audience) = (&*emitted.name, &emitted.value, emitted.audience);
            text("emitted", &LiveEmitted { at, name, value, audience, meta: meta(emitted.meta.as_ref()) })
        }
        LiveContent::Blocked(live::RunBlocked { status, doing, blocked_on, awaiting }) => {
            let blocked_on = blocked_on.iter().map(OneBlocker::from).collect();
            text("blocked", &LiveBlocked { at, status: *status, doing, blocked_on, awaiting })
        }
        LiveContent::End(end) => {
            let outcome = end.outcome.as_ref().map(Outcome::from);
            text("end", &RunResult { id: &key.id, status: end.status, outcome })
        }
        LiveContent::Dropped(dropped) => {
            text("dropped", &LiveDropped { at, cursor: dropped.cursor.map(|cursor| cursor.to_string()) })
        }
    }
}

fn text(name: &str, document: &impl Serialize) -> String {
    event(name, &serde_json::to_string(document).expect("documents serialize"))
}

/// Returns meta data as the object that it is; encrypted meta data as its payload.
fn meta(meta: Option<&Payload>) -> Box<RawValue> {
    let object = meta.map_or(Some("{}".to_owned()), |meta| {
        std::str::from_utf8(meta.data()).ok().filter(|text| text.starts_with('{')).map(str::to_owned)
    });
    let object = object.and_then(|text| RawValue::from_string(text).ok());
    object.unwrap_or_else(|| serde_json::value::to_raw_value(&meta).expect("payloads serialize"))
}

/// Handles `GET /v1/live`.
pub(crate) async fn feed(request: Request) -> Result<Response, Problem> {
    let (server, bounds) = (request.server.clone(), request.by.caller.bounds.clone());
    let query = filter(&request)?;
    if let Some(kind) = &query.kind {
        bounds.check_kind(kind)?;
    }
    expect_stream(&request.headers)?;
    let feed = server.runtime().watch_runs(query);
    let (events, sink) = sse::channel(&server);
    tokio::spawn(FeedSender { server, bounds, feed, sink }.run(request.by.pass));
    Ok(events.into_response())
}

/// Feed for one reader.
struct FeedSender {
    server: Server,
    bounds: Bounds,
    feed: RunFeed,
    sink: Sink,
}

impl FeedSender {
    async fn run(mut self, pass: Option<Pass>) {
        let server = self.server.clone();
        if let Some(problem) = sse::problem_of(self.send_frames(), pass, &server).await {
            self.sink.fail(&problem).await;
        }
    }

    async fn send_frames(&mut self) -> Result<(), StreamError> {
        let mark = |name, server: &Server| text(name, &FeedMark { at: server.runtime().clock().now() });
        self.sink.send(mark("hello", &self.server), None).await?;
        loop {
            let keep_alive = tokio::time::sleep(self.server.limits().keep_alive);
            let frame = tokio::select! {
                frame = self.feed.next() => frame?,
                () = self.sink.gone() => return Ok(()),
                () = self.server.closed() => return Ok(()),
                () = keep_alive => {
                    self.sink.send(NOTHING_NEW.to_owned(), None).await?;
                    continue;
                }
            };
            let text = match &frame {
                FeedFrame::Reset => mark("reset", &self.server),
                FeedFrame::Run { head, .. } if self.bounds.check_kind(&head.kind).is_err() => continue,
                FeedFrame::Run { change, head } => {
                    let at = self.server.runtime().clock().now();
                    text("run", &FeedRun { at, change: *change, run: Run::from(&**head) })
                }
            };
            self.sink.send(text, None).await?;
        }
    }
}
