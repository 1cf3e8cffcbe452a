//! Attach: a run's log from an index on and as it grows, as server-sent events.
//!
//! A reader never drives the run, and the run does not wait for it ([`crate::http::sse`]).
//!
//! Invariants:
//! - A1: a reader gets every event of the run from where it began, in order, each once, through all generations.
//! - A2: the id of an event is its generation and index; a reader that reconnects with an id continues after that event.

mod tail;

use axum::response::Response;
use onward_core::{Index, RunKey};

use crate::auth::Pass;
use crate::http::documents::LogPosition;
use crate::http::log_page;
use crate::http::problem::Problem;
use crate::http::sse;
use crate::server::Server;

/// Start and end of a reader.
pub(crate) struct Attach {
    pub key: RunKey,
    /// Generation to begin with; `None` for the current one.
    pub generation: Option<u32>,
    pub from: Index,
    pub until: Until,
    pub reading: Reading,
    /// Credential of the reader; the stream ends when it is no longer valid.
    pub pass: Option<Pass>,
}

/// Events that a reader gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Events of the run.
    Log,
    /// Events of the external engine from this index on, as the engine counts.
    External { from: Index },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until the run has ended. An external engine may append after that (X5), so a reader of its events stays attached.
    End,
    /// Until the run has ended, waits or is paused.
    Pause,
}

pub(crate) async fn attach(server: &Server, attach: Attach) -> Result<Response, Problem> {
    let Attach { key, generation, from, until, reading, pass } = attach;
    // Subscribe before reading, so that no event in between is missed.
    let watch = server.runtime().watch_run(&key).await?;
    let at = LogPosition { generation: generation.unwrap_or(watch.generation()), from };
    // A missing generation is an error of the request, which can be reported only before the stream begins.
    log_page::read(server.runtime(), &key, at, 1).await?;
    let (events, sink) = sse::channel(server);
    tokio::spawn(tail::Tail::new(server.clone(), key, watch, at, (until, reading), sink).run(pass));
    Ok(events.into_response())
}
