//! What is said about the run, as it comes: read page by page behind the last offset, over restarts of whoever has the run.

use std::time::Duration;

use onward_core::RunKey;
use onward_core::stream::{StreamFrame, StreamSaid};
use onward_runtime::{RuntimeError, StreamPage};
use onward_store::Consequence;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connection::Site;

/// How long one question for more may wait.
const WAIT: Duration = Duration::from_secs(20);

/// How long to wait before a server is asked again that could not be reached.
pub const ASK_AGAIN: Duration = Duration::from_millis(200);

/// How many pages may wait to be shown.
const PAGES_MAX: usize = 8;

pub enum Heard {
    Frames(Vec<StreamFrame>),
    /// The server cannot be reached.
    Away,
    /// It can be reached again.
    Back,
    Failed(RuntimeError),
}

/// Listens until it is dropped, or the run is closed.
pub struct Listener {
    heard: mpsc::Receiver<Heard>,
    /// It has the door; whoever leaves must not wait for its last question.
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    pub async fn next(&mut self) -> Option<Heard> {
        self.heard.recv().await
    }
}

pub fn listen(site: Site, key: RunKey) -> Listener {
    let (tell, heard) = mpsc::channel(PAGES_MAX);
    let task = tokio::spawn(async move {
        let (mut next, mut is_away) = (None, false);
        loop {
            let said = match site.read_stream(key.clone(), next.clone(), WAIT).await {
                Ok(StreamPage { frames, next: behind }) => {
                    next = Some(behind);
                    if std::mem::take(&mut is_away) && tell.send(Heard::Back).await.is_err() {
                        return;
                    }
                    Heard::Frames(frames)
                }
                Err(error) if error.consequence() == Consequence::Retry => {
                    tokio::time::sleep(ASK_AGAIN).await;
                    if std::mem::replace(&mut is_away, true) {
                        continue;
                    }
                    Heard::Away
                }
                Err(error) => Heard::Failed(error),
            };
            let is_last = match &said {
                Heard::Frames(frames) => frames.iter().any(|frame| matches!(frame.said, StreamSaid::End(_))),
                Heard::Failed(_) => true,
                Heard::Away | Heard::Back => false,
            };
            if tell.send(said).await.is_err() || is_last {
                return;
            }
        }
    });
    Listener { heard, task }
}
