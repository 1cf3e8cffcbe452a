//! Attach: a run's log from an index on, and then as it grows, as server-sent events.
//!
//! A reader only reads: it never drives the run, and nothing waits for it ([`crate::http::sse`]).
//!
//! Invariants:
//! - A1: a reader gets every event of the run from where it began, in order, each once, through all generations.
//! - A2: the id of an event is its generation and index, and whoever comes back with it goes on behind it.

mod tail;

use axum::response::Response;
use onward_core::{Index, RunKey};

use crate::auth::Pass;
use crate::http::documents::LogPosition;
use crate::http::log_page;
use crate::http::problem::Problem;
use crate::http::sse;
use crate::server::Server;

/// Where a reader begins and ends.
pub(crate) struct Attach {
    pub key: RunKey,
    /// The current one, if none is named.
    pub generation: Option<u32>,
    pub from: Index,
    pub until: Until,
    pub reading: Reading,
    /// What the reader was let in with; it reads for as long as that is good.
    pub pass: Option<Pass>,
}

/// What of a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The run's own events.
    Log,
    /// The events of its outside engine from this index on, as the engine counts.
    External { from: Index },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The run has ended. What an outside engine says may follow that (X5): who reads its events goes when they like.
    End,
    /// The run has ended, waits or is paused.
    Pause,
}

pub(crate) async fn attach(server: &Server, attach: Attach) -> Result<Response, Problem> {
    let Attach { key, generation, from, until, reading, pass } = attach;
    // First the ear, then the look: what is appended in between is heard.
    let watch = server.runtime().watch_run(&key).await?;
    let at = LogPosition { generation: generation.unwrap_or(watch.generation()), from };
    // A generation that is not there is an error of the request, and can be told only before the stream begins.
    log_page::read(server.runtime(), &key, at, 1).await?;
    let (events, sink) = sse::channel(server);
    tokio::spawn(tail::Tail::new(server.clone(), key, watch, at, (until, reading), sink).run(pass));
    Ok(events.into_response())
}
