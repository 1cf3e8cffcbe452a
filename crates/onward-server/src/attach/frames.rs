//! The queue between a tail and its reader.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc;

use crate::document::LogPosition;
use crate::metrics::Held;
use crate::server::Server;

/// How many frames wait for their reader.
const QUEUE: usize = 4;

/// The reader's end: a body that ends when the tail does.
pub(super) struct Frames {
    queue: mpsc::Receiver<Bytes>,
    farewell: Arc<Mutex<Option<Bytes>>>,
    _counted: Held,
}

/// The tail's end.
pub(super) struct Sink {
    queue: mpsc::Sender<Bytes>,
    farewell: Arc<Mutex<Option<Bytes>>>,
    patience: Duration,
    /// The last event the reader will have when it has read what was queued.
    seen: Option<(u32, u64)>,
}

/// Why nothing more can be sent: the reader is gone, or was let go.
#[derive(Debug)]
pub(super) struct Over;

pub(super) fn channel(server: &Server) -> (Frames, Sink) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let farewell = Arc::default();
    let sink = Sink { queue: sender, farewell: Arc::clone(&farewell), patience: server.limits().slow_reader_timeout, seen: None };
    (Frames { queue, farewell, _counted: server.metrics().attached.hold() }, sink)
}

impl Sink {
    /// Queues text; `last` is the last event in it. A reader that takes nothing for too long is let go.
    pub async fn send(&mut self, text: String, last: Option<(u32, u64)>) -> Result<(), Over> {
        match tokio::time::timeout(self.patience, self.queue.send(Bytes::from(text))).await {
            Ok(Ok(())) => {
                self.seen = last.or(self.seen);
                Ok(())
            }
            Ok(Err(_)) => Err(Over),
            Err(_) => {
                self.bid_farewell("too slow");
                Err(Over)
            }
        }
    }

    /// Leaves a last comment for a reader that may read again: why it was let go and where to go on.
    pub fn bid_farewell(&self, why: &str) {
        let place = match self.seen {
            Some((generation, index)) => format!("; go on with Last-Event-ID: {generation}:{index}"),
            None => "; go on from the beginning".to_owned(),
        };
        let text = Bytes::from(format!(": {why}{place}\n\n"));
        *self.farewell.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Returns when the reader is gone.
    pub async fn gone(&self) {
        self.queue.closed().await;
    }
}

/// The text of an event.
pub(super) fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// The text of an event of the log.
pub(super) fn logged(out: &mut String, at: LogPosition, data: &str) {
    out.push_str(&format!("id: {}:{}\ndata: {data}\n\n", at.generation, at.from.0));
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.queue.poll_recv(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(bytes)) => Some(bytes),
            Poll::Ready(None) => self.farewell.lock().unwrap_or_else(PoisonError::into_inner).take(),
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }
}
