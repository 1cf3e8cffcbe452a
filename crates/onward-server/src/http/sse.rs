//! Server-sent events: the queue between a sender and one reader.
//!
//! The queue is short. A reader that leaves it full for too long is disconnected with the position to continue from; so is every
//! reader when the server stops.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body as ResponseBody;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Body, Frame};
use onward_runtime::RuntimeError;
use tokio::sync::mpsc;

use crate::auth::{self, Pass};
use crate::http::problem::Problem;
use crate::serve::metrics::GaugeGuard;
use crate::server::Server;

/// Number of texts in the queue.
const QUEUE: usize = 4;

/// Header that makes proxies forward events at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Comment that keeps a connection alive while there are no events.
pub(crate) const NOTHING_NEW: &str = ": nothing new\n\n";

/// Receiving end: a body that ends with its sink.
pub(crate) struct Events {
    queue: mpsc::Receiver<Bytes>,
    closing_comment: Arc<Mutex<Option<Bytes>>>,
    _counted: GaugeGuard,
}

/// Sending end.
pub(crate) struct Sink {
    queue: mpsc::Sender<Bytes>,
    closing_comment: Arc<Mutex<Option<Bytes>>>,
    slow_reader_timeout: Duration,
    /// Id of the last event that was queued.
    seen: Option<String>,
    /// Makes the last text for a slow reader, from the id of the last event; by default it is a comment.
    drop_text: Option<DropText>,
}

type DropText = Box<dyn Fn(Option<String>) -> String + Send + Sync>;

/// The reader has disconnected or was disconnected.
#[derive(Debug)]
pub(crate) struct Over;

/// Reason why a stream ends early.
pub(crate) enum StreamError {
    /// The reader is gone.
    Over,
    Problem(Problem),
}

impl From<Over> for StreamError {
    fn from(_: Over) -> StreamError {
        StreamError::Over
    }
}

impl From<RuntimeError> for StreamError {
    fn from(error: RuntimeError) -> StreamError {
        StreamError::Problem(error.into())
    }
}

/// Runs a stream until it ends or the credential of its reader is no longer valid. Returns the error to send to the reader.
pub(crate) async fn problem_of(
    stream: impl Future<Output = Result<(), StreamError>>,
    pass: Option<Pass>,
    server: &Server,
) -> Option<Problem> {
    tokio::select! {
        ended = stream => match ended {
            Ok(()) | Err(StreamError::Over) => None,
            Err(StreamError::Problem(problem)) => Some(problem),
        },
        problem = auth::ended(pass.as_ref(), server) => Some(problem),
    }
}

pub(crate) fn channel(server: &Server) -> (Events, Sink) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let closing_comment = Arc::default();
    let sink = Sink {
        queue: sender,
        closing_comment: Arc::clone(&closing_comment),
        slow_reader_timeout: server.limits().slow_reader_timeout,
        seen: None,
        drop_text: None,
    };
    (Events { queue, closing_comment, _counted: server.metrics().attached.hold() }, sink)
}

impl Events {
    pub fn into_response(self) -> Response {
        let mut response = Response::new(ResponseBody::new(self));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
        response
    }
}

impl Sink {
    /// Queues text; `last` is the id of its last event. Disconnects a reader that reads nothing for too long.
    pub async fn send(&mut self, text: String, last: Option<String>) -> Result<(), Over> {
        match tokio::time::timeout(self.slow_reader_timeout, self.queue.send(Bytes::from(text))).await {
            Ok(Ok(())) => {
                self.seen = last.or(self.seen.take());
                Ok(())
            }
            Ok(Err(_)) => Err(Over),
            Err(_) => {
                match &self.drop_text {
                    Some(text) => self.set_closing(text(self.seen.clone())),
                    None => self.set_closing_comment("too slow"),
                }
                Err(Over)
            }
        }
    }

    /// Leaves a last comment for a slow reader: why it was disconnected and where to continue.
    pub fn set_closing_comment(&self, why: &str) {
        let cursor = match &self.seen {
            Some(id) => format!("; resume with Last-Event-ID: {id}"),
            None => "; resume from the beginning".to_owned(),
        };
        self.set_closing(format!(": {why}{cursor}\n\n"));
    }

    fn set_closing(&self, text: String) {
        *self.closing_comment.lock().unwrap_or_else(PoisonError::into_inner) = Some(Bytes::from(text));
    }

    /// Sets the last text for a slow reader.
    pub fn with_drop_text(self, text: impl Fn(Option<String>) -> String + Send + Sync + 'static) -> Sink {
        Sink { drop_text: Some(Box::new(text)), ..self }
    }

    /// Sends an error, which is the last event. A reader that is gone needs none.
    pub async fn fail(&mut self, problem: &Problem) {
        drop(self.send(event("error", &problem.to_json()), None).await);
    }

    /// Returns when the reader is gone.
    pub async fn gone(&self) {
        self.queue.closed().await;
    }
}

/// Returns the text of an event.
pub(crate) fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.queue.poll_recv(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(bytes)) => Some(bytes),
            Poll::Ready(None) => self.closing_comment.lock().unwrap_or_else(PoisonError::into_inner).take(),
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }
}
