//! The traffic between the chat and its run, in two tasks.
//!
//! The reader polls the stream of the run page by page from the last offset, also across server restarts. The queue performs
//! user actions one after the other and retries each until it succeeds or is rejected. Every action has its own id, so that
//! retries after a lost response perform it once.

use std::time::Duration;

use onward_core::api::{Decide, DecideRequest, ReasonRequest, Signal, SignalRequest, StartRequest, StreamPage, StreamRequest};
use onward_core::conversation::MESSAGE;
use onward_core::stream::{StreamContent, StreamFrame};
use onward_core::{Name, Payload, RunKey};
use onward_runtime::{CallRef, RuntimeError};
use onward_store::Consequence;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connection::Connection;
use crate::new_id;

/// Long-poll timeout of one request.
const WAIT_MS: u64 = 20_000;

/// Delay between retries while the server is unreachable.
pub const RETRY_DELAY: Duration = Duration::from_millis(200);

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
                    tokio::time::sleep(RETRY_DELAY).await;
                    if std::mem::replace(&mut is_away, true) {
                        continue;
                    }
                    StreamEvent::Away
                }
                Err(error) => StreamEvent::Failed(error),
            };
            let is_last = match &event {
                StreamEvent::Frames(frames) => frames.iter().any(|frame| matches!(frame.content, StreamContent::End(_))),
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

/// Cancel reason of `/cancel`.
pub const CANCELED_HERE: &str = "canceled in the chat";

#[derive(Debug, Clone)]
pub enum Action {
    Start { kind: Name, input: Payload, seed: u64 },
    Message { text: String, id: String },
    Decide { call: CallRef, decide: Decide },
    Cancel,
}

impl Action {
    pub fn message(text: &str) -> Action {
        Action::Message { text: text.to_owned(), id: new_id::unique() }
    }

    async fn perform(&self, connection: &Connection, key: &RunKey) -> Result<(), RuntimeError> {
        match self.clone() {
            Action::Start { kind, input, seed } => {
                let start = StartRequest::new(key.clone(), kind, input, seed);
                connection.start_run(start).await.map(drop)
            }
            Action::Message { text, id } => {
                let payload = Payload::json(&text).expect("a text is JSON");
                let name = Name::new(MESSAGE)?;
                let signal = Signal { name, payload, signal_id: Some(id) };
                connection.signal_run(SignalRequest { run: key.clone(), signal }).await.map(drop)
            }
            Action::Decide { call, decide } => {
                let (namespace, approval) = (connection.namespace.clone(), call.to_string());
                connection.decide_approval(DecideRequest { namespace, approval, decide }).await.map(drop)
            }
            Action::Cancel => {
                let reason = CANCELED_HERE.to_owned();
                connection.cancel_run(ReasonRequest { run: key.clone(), reason }).await.map(drop)
            }
        }
    }
}

/// The actions of one chat.
pub struct ActionQueue {
    queue: mpsc::UnboundedSender<Action>,
    pub done: mpsc::UnboundedReceiver<(Action, Result<(), RuntimeError>)>,
    open: usize,
    task: JoinHandle<()>,
}

impl Drop for ActionQueue {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ActionQueue {
    pub fn begin(connection: Connection, key: RunKey) -> ActionQueue {
        let (queue, mut actions) = mpsc::unbounded_channel::<Action>();
        let (sender, done) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Some(action) = actions.recv().await {
                let outcome = loop {
                    match action.perform(&connection, &key).await {
                        Err(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(RETRY_DELAY).await,
                        outcome => break outcome,
                    }
                };
                if sender.send((action, outcome)).is_err() {
                    return;
                }
            }
        });
        ActionQueue { queue, done, open: 0, task }
    }

    pub fn add(&mut self, action: Action) {
        self.open += 1;
        drop(self.queue.send(action)); // the receiver lives as long as `self`
    }

    /// Counts one action as finished. The caller has read its outcome from `done`.
    pub fn ended(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Returns the number of unfinished actions.
    pub fn open(&self) -> usize {
        self.open
    }
}
