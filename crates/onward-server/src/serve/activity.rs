//! Whether a connection is in use: from the head of a request to the last byte of its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) struct Activity {
    begun: Instant,
    open: AtomicUsize,
    served: AtomicUsize,
    /// When the last request ended, in milliseconds since `begun`.
    rests_since: AtomicU64,
    /// Rung when the connection begins to be busy and when it begins to rest.
    changed: Notify,
}

/// One request that is being answered.
pub(super) struct Busy(Arc<Activity>);

impl Activity {
    pub fn new() -> Arc<Activity> {
        let (open, served, rests_since) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Activity { begun: Instant::now(), open, served, rests_since, changed: Notify::new() })
    }

    pub fn begin(self: &Arc<Activity>) -> Busy {
        self.served.fetch_add(1, Ordering::SeqCst);
        if self.open.fetch_add(1, Ordering::SeqCst) == 0 {
            self.changed.notify_one();
        }
        Busy(self.clone())
    }

    /// Returns when the connection has begun to be busy or to rest.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Since when nothing is asked; `None` while something is.
    pub fn rests_since(&self) -> Option<Instant> {
        let since = self.begun + std::time::Duration::from_millis(self.rests_since.load(Ordering::SeqCst));
        (self.open.load(Ordering::SeqCst) == 0).then_some(since)
    }

    /// Whether nothing was asked yet.
    pub fn is_fresh(&self) -> bool {
        self.served.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let since = u64::try_from(self.0.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.rests_since.store(since, Ordering::SeqCst);
        if self.0.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.changed.notify_one();
        }
    }
}

/// An answer that keeps its connection busy until it is sent or given up.
pub(super) struct Answering {
    pub body: Body,
    pub _busy: Busy,
}

impl http_body::Body for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
