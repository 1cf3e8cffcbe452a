//! `GET /v1/runs/{id}/stream`: the stream of a run, as pages or as server-sent events.

mod frame;

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::RunKey;
use onward_runtime::StreamPage;
use serde::Serialize;
use serde_json::value::RawValue;

use super::events::wants_stream;
use crate::auth::{self, Pass};
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;
use crate::http::sse::{self, NOTHING_NEW, Over, Sink, event};
use crate::server::Server;

/// Size at which text is handed to the sink.
const TEXT_BYTES: usize = 32 * 1024;

/// Page of a stream.
#[derive(Serialize)]
struct Page {
    frames: Vec<Box<RawValue>>,
    /// Offset to continue from.
    next: String,
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
        let page = tokio::select! {
            page = server.runtime().read_stream(&key, offset.as_deref(), wait) => page?,
            () = server.closed() => StreamPage { frames: Vec::new(), next: offset.unwrap_or_default() },
        };
        let frames = page.frames.iter().map(|said| frame::document(&key, said)).collect();
        return Ok(json(StatusCode::OK, &Page { frames, next: page.next }));
    }
    if request.query.get("wait_ms").is_some() {
        let why = "`wait_ms` is for pages, not for text/event-stream".to_owned();
        return Err(RequestError::QueryInvalid { why }.into());
    }
    // A missing run is an error of the request, which can be reported only before the stream begins.
    server.runtime().read_head(&key).await?;
    let (events, sink) = sse::channel(&server);
    tokio::spawn(Telling { server, key, offset, sink }.run(request.pass));
    Ok(events.into_response())
}

fn unusable() -> RequestError {
    RequestError::HeaderInvalid { name: "Last-Event-ID", why: "it is not the id of a frame".to_owned() }
}

/// Stream for one reader.
struct Telling {
    server: Server,
    key: RunKey,
    offset: Option<String>,
    sink: Sink,
}

impl Telling {
    /// Sends frames until the run is closed or the credential is no longer valid; sends the error if there is one.
    async fn run(mut self, pass: Option<Pass>) {
        let server = self.server.clone();
        let problem = tokio::select! {
            told = self.tell() => match told {
                Err(problem) => problem,
                Ok(()) => return,
            },
            problem = auth::ended(pass.as_ref(), &server) => problem,
        };
        // A reader that is gone needs no error.
        drop(self.sink.send(event("error", &problem.to_json()), None).await);
    }

    async fn tell(&mut self) -> Result<(), Problem> {
        loop {
            let keep_alive = self.server.limits().keep_alive;
            let page = tokio::select! {
                page = self.server.runtime().read_stream(&self.key, self.offset.as_deref(), keep_alive) => page?,
                () = self.sink.gone() => return Ok(()),
                () = self.server.closed() => {
                    self.sink.bid_farewell("the server stops");
                    return Ok(());
                }
            };
            let ends = page.ends();
            if self.send(page).await.is_err() || ends {
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
        while let Some(said) = frames.next() {
            text.push_str(&format!("id: {}\ndata: {}\n\n", said.offset, frame::document(&self.key, said).get()));
            if text.len() >= TEXT_BYTES || frames.peek().is_none() {
                self.sink.send(std::mem::take(&mut text), Some(said.offset.clone())).await?;
            }
        }
        self.offset = Some(page.next);
        Ok(())
    }
}
