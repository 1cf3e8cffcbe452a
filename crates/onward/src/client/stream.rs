//! Reading what is said about a run while it goes on.

use std::sync::Arc;
use std::time::Duration;

use onward_core::RunKey;
use onward_core::stream::{StreamFrame, StreamSaid};
use onward_runtime::{Door, StreamPage};
use onward_store::Consequence;

use super::open::Open;
use crate::Error;

/// How long one question for more may wait.
const WAIT: Duration = Duration::from_secs(20);

/// How long to wait before a server is asked again that could not be reached.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The stream of a run; see [`RunHandle::stream`](super::RunHandle::stream). A server that goes away and comes back is asked again: what
/// is not known there any more is told as [`StreamSaid::StreamReset`].
pub struct RunStream {
    door: Arc<dyn Door>,
    open: Arc<Open>,
    key: RunKey,
    /// Of the last frame that was given out.
    offset: Option<String>,
    /// Where the next page begins.
    next: Option<String>,
    ready: std::vec::IntoIter<StreamFrame>,
    has_ended: bool,
}

impl RunStream {
    pub(super) fn new(door: Arc<dyn Door>, open: Arc<Open>, key: RunKey, offset: Option<String>) -> RunStream {
        let next = offset.clone();
        RunStream { door, open, key, offset, next, ready: Vec::new().into_iter(), has_ended: false }
    }

    /// The next frame; `None` when the run is closed and everything was said.
    ///
    /// May be dropped at any time without missing a frame.
    pub async fn next(&mut self) -> Result<Option<StreamFrame>, Error> {
        while !self.has_ended {
            if let Some(frame) = self.ready.next() {
                self.has_ended = matches!(frame.said, StreamSaid::End(_));
                self.offset = Some(frame.offset.clone());
                return Ok(Some(frame));
            }
            let StreamPage { frames, next } = self.read().await?;
            self.next = Some(next);
            self.ready = frames.into_iter();
        }
        Ok(None)
    }

    /// Where a later reader goes on behind what this one was given; `None` before the first frame.
    pub fn offset(&self) -> Option<&str> {
        self.offset.as_deref()
    }

    async fn read(&self) -> Result<StreamPage, Error> {
        loop {
            let asked = self.door.read_stream(self.key.clone(), self.next.clone(), WAIT);
            match self.open.ask(asked).await {
                Err(Error::Runtime(error)) if error.consequence() == Consequence::Retry => {
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                answer => return answer,
            }
        }
    }
}
