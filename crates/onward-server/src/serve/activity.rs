//! Whether a connection is in use: from the head of a request to the last byte of its answer, and whether those who use it are known.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) struct Activity {
    state: Mutex<State>,
    /// Rung when the connection begins or ceases to be one that may be sent away.
    changed: Notify,
}

struct State {
    /// Requests that are being answered.
    open: usize,
    /// Those of them whose sender has proved nothing.
    strangers: usize,
    /// Nothing was asked yet.
    fresh: bool,
    /// When the last request ended.
    since: Instant,
}

/// One request that is being answered.
pub(super) struct Busy {
    activity: Arc<Activity>,
    stranger: Mutex<bool>,
}

/// Travels with a request, so that whoever finds out who sent it can say so.
#[derive(Clone)]
pub(crate) struct Standing(Weak<Busy>);

impl Activity {
    pub fn new() -> Arc<Activity> {
        let state = State { open: 0, strangers: 0, fresh: true, since: Instant::now() };
        Arc::new(Activity { state: Mutex::new(state), changed: Notify::new() })
    }

    pub fn begin(self: &Arc<Activity>) -> Arc<Busy> {
        self.change(|state| (state.open, state.fresh) = (state.open + 1, false));
        Arc::new(Busy { activity: self.clone(), stranger: Mutex::new(false) })
    }

    /// Returns when whether the connection may be sent away has changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Since when nothing is asked; `None` while something is.
    pub fn rests_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.open == 0).then_some(state.since)
    }

    /// Whether it may be sent away when others need its place: nobody who is known waits for an answer.
    pub fn may_leave(&self) -> bool {
        self.state().may_leave()
    }

    /// Whether nothing was asked yet.
    pub fn is_fresh(&self) -> bool {
        self.state().fresh
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        let before = (state.may_leave(), state.open == 0);
        change(&mut state);
        if before != (state.may_leave(), state.open == 0) {
            self.changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn may_leave(&self) -> bool {
        self.open == self.strangers
    }
}

impl Busy {
    pub fn standing(self: &Arc<Busy>) -> Standing {
        Standing(Arc::downgrade(self))
    }

    fn set_stranger(&self, now: bool) {
        let mut stranger = self.stranger.lock().unwrap_or_else(PoisonError::into_inner);
        match (*stranger, now) {
            (false, true) => self.activity.change(|state| state.strangers += 1),
            (true, false) => self.activity.change(|state| state.strangers -= 1),
            _ => {}
        }
        *stranger = now;
    }
}

impl Standing {
    /// Its sender has proved nothing yet: its connection makes place when others need it.
    pub fn doubt(&self) {
        self.set(true);
    }

    /// Its sender is known.
    pub fn believe(&self) {
        self.set(false);
    }

    fn set(&self, stranger: bool) {
        if let Some(busy) = self.0.upgrade() {
            busy.set_stranger(stranger);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let stranger = *self.stranger.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.activity.change(|state| {
            state.open -= 1;
            state.strangers -= usize::from(stranger);
            state.since = Instant::now();
        });
    }
}

/// An answer that keeps its connection busy until it is sent or given up.
pub(super) struct Answering {
    pub body: Body,
    pub _busy: Arc<Busy>,
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
