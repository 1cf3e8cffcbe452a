//! The open or closed state of an engine.
//!
//! Invariant OP1: after a shutdown every call on the engine and its handles fails with `shut_down`, including calls that were
//! waiting.

use std::future::Future;

use tokio::sync::watch;

use crate::Error;

/// The state that an engine shares with all its handles.
pub(crate) struct OpenState {
    is_closed: watch::Sender<bool>,
}

impl OpenState {
    pub fn new() -> OpenState {
        OpenState { is_closed: watch::Sender::new(false) }
    }

    pub fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// Returns the result of `call`, or `ShutDown` if the engine is closed first (OP1).
    pub async fn ask<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, Error>
    where
        Error: From<E>,
    {
        let mut is_closed = self.is_closed.subscribe();
        if *is_closed.borrow() {
            return Err(Error::ShutDown);
        }
        tokio::select! {
            biased;
            answer = call => Ok(answer?),
            _ = is_closed.wait_for(|is_closed| *is_closed) => Err(Error::ShutDown),
        }
    }
}
