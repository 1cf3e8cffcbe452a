//! Use of a connection: which requests are open, from the head to the last byte of the response, and which are authenticated.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) struct Activity {
    state: Mutex<ActivityState>,
    /// Notified when the connection becomes idle or closable, or ceases to be.
    changed: Notify,
}

struct ActivityState {
    /// Requests without a complete response.
    open: usize,
    /// Open requests that are not authenticated.
    unauthenticated: usize,
    /// No request has arrived yet.
    fresh: bool,
    /// Time at which the last request ended.
    since: Instant,
}

/// One open request.
pub(super) struct OpenRequest {
    activity: Arc<Activity>,
    unauthenticated: Mutex<bool>,
}

/// Request extension through which authentication marks the request.
#[derive(Clone)]
pub(crate) struct RequestTrust(Weak<OpenRequest>);

impl Activity {
    pub fn new() -> Arc<Activity> {
        let state = ActivityState { open: 0, unauthenticated: 0, fresh: true, since: Instant::now() };
        Arc::new(Activity { state: Mutex::new(state), changed: Notify::new() })
    }

    pub fn begin(self: &Arc<Activity>) -> Arc<OpenRequest> {
        self.change(|state| (state.open, state.fresh) = (state.open + 1, false));
        Arc::new(OpenRequest { activity: self.clone(), unauthenticated: Mutex::new(false) })
    }

    /// Returns when the connection has become idle or closable, or has ceased to be.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns since when the connection is idle; `None` while a request is open.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.open == 0).then_some(state.since)
    }

    /// Returns whether the connection can be closed when its slot is needed: no authenticated request is open.
    pub fn may_close(&self) -> bool {
        self.state().may_close()
    }

    /// Returns whether no request has arrived yet.
    pub fn is_fresh(&self) -> bool {
        self.state().fresh
    }

    fn change(&self, change: impl FnOnce(&mut ActivityState)) {
        let mut state = self.state();
        let before = (state.may_close(), state.open == 0);
        change(&mut state);
        if before != (state.may_close(), state.open == 0) {
            self.changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActivityState {
    fn may_close(&self) -> bool {
        self.open == self.unauthenticated
    }
}

impl OpenRequest {
    pub fn trust(self: &Arc<OpenRequest>) -> RequestTrust {
        RequestTrust(Arc::downgrade(self))
    }

    fn set_unauthenticated(&self, now: bool) {
        let mut unauthenticated = self.unauthenticated.lock().unwrap_or_else(PoisonError::into_inner);
        match (*unauthenticated, now) {
            (false, true) => self.activity.change(|state| state.unauthenticated += 1),
            (true, false) => self.activity.change(|state| state.unauthenticated -= 1),
            _ => {}
        }
        *unauthenticated = now;
    }
}

impl RequestTrust {
    /// Marks the request as authenticated or not. The connection of one that is not can be closed when its slot is needed.
    pub fn set_authenticated(&self, is_authenticated: bool) {
        if let Some(open_request) = self.0.upgrade() {
            open_request.set_unauthenticated(!is_authenticated);
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let unauthenticated = *self.unauthenticated.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.activity.change(|state| {
            state.open -= 1;
            state.unauthenticated -= usize::from(unauthenticated);
            state.since = Instant::now();
        });
    }
}

/// Response body that keeps its request open until it is sent or dropped.
pub(super) struct Answering {
    pub body: Body,
    pub _open_request: Arc<OpenRequest>,
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
