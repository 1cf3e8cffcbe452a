//! The queue of user actions: performed one after the other, each retried until it succeeds or is rejected.
//!
//! Every action has its own id, so that retries after a lost response perform it once.

use onward_core::api::{Decide, DecideRequest, ReasonRequest, Signal, SignalRequest, StartRequest};
use onward_core::conversation::MESSAGE;
use onward_core::{Name, Payload, RunKey};
use onward_runtime::{CallRef, RuntimeError};
use onward_store::Consequence;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::stream::ASK_AGAIN;
use crate::connection::Connection;
use crate::new_id;

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
                let (version, signal, trace) = (None, None, None);
                let start = StartRequest {
                    run: key.clone(),
                    kind,
                    version,
                    input,
                    seed,
                    signal,
                    attributes: Vec::new(),
                    trace,
                    budget: None,
                };
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
                        Err(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(ASK_AGAIN).await,
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
