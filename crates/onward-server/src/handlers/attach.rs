//! Attach: a run's log from an index on and as it grows, as server-sent events.
//!
//! A reader never drives the run, and the run does not wait for it ([`crate::http::sse`]).
//!
//! Invariants:
//! - A1: a reader gets every event of the run from where it began, in order, each once, through all generations.
//! - A2: the id of an event is its generation and index; a reader that reconnects with an id continues after that event.

use axum::response::Response;
use onward_core::view::outcome;
use onward_core::{Index, RunKey, Status};
use onward_runtime::{RunWatch, Runtime, RuntimeError};

use super::external;
use crate::auth::Pass;
use crate::http::documents::{LogPosition, Outcome, PauseFrame, RunResult};
use crate::http::log_page::{self, LogPage};
use crate::http::problem::Problem;
use crate::http::sse::{self, NOTHING_NEW, Sink, StreamError, event};
use crate::server::Server;

/// Number of events per read.
const EVENTS: usize = 256;

/// Size at which text is handed to the sink.
const FRAME_BYTES: usize = 32 * 1024;

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
    tokio::spawn(Tail { server: server.clone(), key, watch, at, until, reading, sink }.run(pass));
    Ok(events.into_response())
}

/// Reader that follows one log.
struct Tail {
    server: Server,
    key: RunKey,
    watch: RunWatch,
    at: LogPosition,
    until: Until,
    reading: Reading,
    sink: Sink,
}

/// Meaning of an empty page.
enum EmptyPage {
    /// There are no more events yet.
    Yet,
    /// The position has changed: read again.
    Here,
    /// There will be no more events: the run has ended.
    Ever,
}

impl Tail {
    /// Sends events until the run ends or the credential is no longer valid; sends the error if there is one.
    async fn run(mut self, pass: Option<Pass>) {
        let server = self.server.clone();
        if let Some(problem) = sse::problem_of(self.follow(), pass, &server).await {
            self.sink.fail(&problem).await;
        }
    }

    async fn follow(&mut self) -> Result<(), StreamError> {
        loop {
            if self.send_events().await? {
                return Ok(());
            }
            if self.send_pause().await? {
                return Ok(());
            }
            if !self.wait().await? {
                return Ok(());
            }
        }
    }

    fn runtime(&self) -> &Runtime {
        self.server.runtime()
    }

    async fn read_page(&mut self) -> Result<LogPage, RuntimeError> {
        let Reading::External { from } = self.reading else {
            return log_page::read(self.runtime(), &self.key, self.at, EVENTS).await;
        };
        let page = external::read(self.runtime(), &self.key, self.at.from, from, EVENTS).await?;
        let from = page.lines.last().map_or(from, |line| line.index.plus(1));
        self.reading = Reading::External { from };
        Ok(page)
    }

    /// Sends all events there are; returns true when the run has ended.
    async fn send_events(&mut self) -> Result<bool, StreamError> {
        loop {
            let page = self.read_page().await?;
            let mut text = String::new();
            let mut last = None;
            for line in &page.lines {
                let id = format!("{}:{}", line.generation, line.index.0);
                text.push_str(&format!("id: {id}\ndata: {}\n\n", line.json.get()));
                last = Some(id);
                if text.len() >= FRAME_BYTES {
                    self.sink.send(std::mem::take(&mut text), last.clone()).await?;
                }
            }
            if !text.is_empty() {
                self.sink.send(text, last).await?;
            }
            match page.next {
                None => return self.end().await.map(|()| true),
                Some(next) if next != self.at => self.at = next,
                Some(_) => match self.classify_empty_page().await? {
                    EmptyPage::Here => {}
                    EmptyPage::Yet => return Ok(false),
                    EmptyPage::Ever => return self.end().await.map(|()| true),
                },
            }
        }
    }

    /// Decides what an empty page means: the position may be at the end of an earlier generation, or of the run.
    async fn classify_empty_page(&mut self) -> Result<EmptyPage, StreamError> {
        let head = self.runtime().read_head(&self.key).await?;
        if self.at.generation < head.generation {
            // This generation may have grown since the page was read. The next one begins only after its end (A1).
            let earlier = self.runtime().store().read_run(self.key.clone(), Some(self.at.generation)).await;
            let earlier = earlier.map_err(RuntimeError::from)?;
            if earlier.is_none_or(|earlier| self.at.from >= earlier.next_index) {
                self.at = log_page::next_log(self.runtime(), &self.key, self.at.generation).await?;
            }
            return Ok(EmptyPage::Here);
        }
        let ended = head.status.is_closed() && self.reading == Reading::Log && self.at.from >= head.next_index;
        Ok(if ended { EmptyPage::Ever } else { EmptyPage::Yet })
    }

    /// Sends the outcome of the run, from its last event.
    async fn end(&mut self) -> Result<(), StreamError> {
        let head = self.runtime().read_head(&self.key).await?;
        let last = Index(head.next_index.0.saturating_sub(1));
        let records = self.runtime().read_log(&self.key, Some(head.generation), last, 1).await?;
        let outcome = records.last().and_then(outcome);
        let outcome = outcome.as_ref().map(Outcome::from);
        let document = RunResult { id: &self.key.id, status: head.status, outcome };
        let text = serde_json::to_string(&document).expect("documents serialize");
        Ok(self.sink.send(event("end", &text), None).await?)
    }

    /// Returns whether the stream ends here: the reader requested it, the run waits or is paused, and all its events were sent.
    async fn send_pause(&mut self) -> Result<bool, StreamError> {
        if self.until == Until::End {
            return Ok(false);
        }
        let still = |status| matches!(status, Status::Waiting | Status::Paused);
        if !still(self.runtime().read_head(&self.key).await?.status) {
            return Ok(false);
        }
        let view = self.runtime().read_run(&self.key).await?;
        let here = LogPosition { generation: view.head.generation, from: view.head.next_index };
        if !still(view.head.status) || here > self.at {
            return Ok(false);
        }
        let document = PauseFrame { status: view.head.status, awaiting: &view.awaiting, pause: view.pause.as_ref(), next: here };
        let text = serde_json::to_string(&document).expect("documents serialize");
        self.sink.send(event("pause", &text), None).await?;
        Ok(true)
    }

    /// Waits for a change of the run; returns false when the server stops.
    async fn wait(&mut self) -> Result<bool, StreamError> {
        loop {
            let keep_alive = tokio::time::sleep(self.server.limits().keep_alive);
            tokio::select! {
                changed = self.watch.changed() => return Ok(changed.map(|()| true)?),
                () = self.sink.gone() => return Err(StreamError::Over),
                () = self.server.closed() => {
                    self.sink.set_closing_comment("the server stops");
                    return Ok(false);
                }
                () = keep_alive => self.sink.send(NOTHING_NEW.to_owned(), None).await?,
            }
        }
    }
}
