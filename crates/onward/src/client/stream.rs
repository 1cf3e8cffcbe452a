//! Reading a run's stream while it is open.

use std::sync::Arc;
use std::time::Duration;

use onward_core::RunKey;
use onward_core::api::{StreamPage, StreamRequest};
use onward_core::stream::{StreamContent, StreamFrame};
use onward_runtime::Client;
use onward_store::Consequence;

use super::OpenState;
use crate::Error;

/// Long-poll timeout of one read.
const WAIT_MS: u64 = 20_000;

/// Delay before a read is retried after the server was unreachable.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The stream of a run; see [`RunHandle::stream`](super::RunHandle::stream). Reads are retried while the server is unreachable.
/// If the server no longer knows the offset, the reader gets [`StreamContent::StreamReset`].
pub struct RunStream {
    client: Arc<dyn Client>,
    open: Arc<OpenState>,
    key: RunKey,
    /// The offset of the last frame returned.
    offset: Option<String>,
    /// The offset of the next page.
    next: Option<String>,
    ready: std::vec::IntoIter<StreamFrame>,
    has_ended: bool,
}

impl RunStream {
    pub(super) fn new(client: Arc<dyn Client>, open: Arc<OpenState>, key: RunKey, offset: Option<String>) -> RunStream {
        let next = offset.clone();
        RunStream { client, open, key, offset, next, ready: Vec::new().into_iter(), has_ended: false }
    }

    /// Returns the next frame; `None` once the run is closed and all frames were returned.
    ///
    /// Cancel-safe: dropping the future loses no frame.
    pub async fn next(&mut self) -> Result<Option<StreamFrame>, Error> {
        while !self.has_ended {
            if let Some(frame) = self.ready.next() {
                self.has_ended = matches!(frame.content, StreamContent::End(_));
                self.offset = Some(frame.offset.clone());
                return Ok(Some(frame));
            }
            let StreamPage { frames, next } = self.read().await?;
            self.next = Some(next);
            self.ready = frames.into_iter();
        }
        Ok(None)
    }

    /// Returns the offset after the last frame returned, from which another reader can continue; `None` before the first frame.
    pub fn offset(&self) -> Option<&str> {
        self.offset.as_deref()
    }

    async fn read(&self) -> Result<StreamPage, Error> {
        loop {
            let request = StreamRequest { run: self.key.clone(), offset: self.next.clone(), wait_ms: WAIT_MS };
            match self.open.call(self.client.read_stream(request)).await {
                Err(Error::Runtime(error)) if error.consequence() == Consequence::Retry => {
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                answer => return answer,
            }
        }
    }
}
