//! Reader of the run's stream: polls page by page from the last offset, also across server restarts.

use std::time::Duration;

use onward_core::RunKey;
use onward_core::api::{StreamPage, StreamRequest};
use onward_core::stream::{StreamFrame, StreamSaid};
use onward_runtime::RuntimeError;
use onward_store::Consequence;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connection::Connection;

/// Long-poll timeout of one request.
const WAIT_MS: u64 = 20_000;

/// Delay between retries while the server is unreachable.
pub const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Capacity of the channel to the screen, in pages.
const PAGES_MAX: usize = 8;

pub enum StreamEvent {
    Frames(Vec<StreamFrame>),
    /// The server became unreachable.
    Away,
    /// The server is reachable again.
    Back,
    Failed(RuntimeError),
}

/// Reads the stream until it is dropped or the run is closed.
pub struct Listener {
    stream: mpsc::Receiver<StreamEvent>,
    /// Aborted on drop, so that leaving the chat does not wait for a long poll.
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    pub async fn next(&mut self) -> Option<StreamEvent> {
        self.stream.recv().await
    }
}

pub fn listen(connection: Connection, key: RunKey) -> Listener {
    let (sender, stream) = mpsc::channel(PAGES_MAX);
    let task = tokio::spawn(async move {
        let (mut next, mut is_away) = (None, false);
        loop {
            let request = StreamRequest { run: key.clone(), offset: next.clone(), wait_ms: WAIT_MS };
            let event = match connection.read_stream(request).await {
                Ok(StreamPage { frames, next: behind }) => {
                    next = Some(behind);
                    if std::mem::take(&mut is_away) && sender.send(StreamEvent::Back).await.is_err() {
                        return;
                    }
                    StreamEvent::Frames(frames)
                }
                Err(error) if error.consequence() == Consequence::Retry => {
                    tokio::time::sleep(ASK_AGAIN).await;
                    if std::mem::replace(&mut is_away, true) {
                        continue;
                    }
                    StreamEvent::Away
                }
                Err(error) => StreamEvent::Failed(error),
            };
            let is_last = match &event {
                StreamEvent::Frames(frames) => frames.iter().any(|frame| matches!(frame.said, StreamSaid::End(_))),
                StreamEvent::Failed(_) => true,
                StreamEvent::Away | StreamEvent::Back => false,
            };
            if sender.send(event).await.is_err() || is_last {
                return;
            }
        }
    });
    Listener { stream, task }
}
