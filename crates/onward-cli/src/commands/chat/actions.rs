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
use crate::connection::Site;
use crate::new_id;

/// Cancel reason of `/cancel`.
pub const CANCELED_HERE: &str = "canceled in the chat";

#[derive(Debug, Clone)]
pub enum Act {
    Start { kind: Name, input: Payload, seed: u64 },
    Message { text: String, id: String },
    Decide { call: CallRef, decide: Decide },
    Cancel,
}

impl Act {
    pub fn message(text: &str) -> Act {
        Act::Message { text: text.to_owned(), id: new_id::unique() }
    }

    async fn perform(&self, site: &Site, key: &RunKey) -> Result<(), RuntimeError> {
        match self.clone() {
            Act::Start { kind, input, seed } => {
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
                site.start_run(start).await.map(drop)
            }
            Act::Message { text, id } => {
                let payload = Payload::json(&text).expect("a text is JSON");
                let name = Name::new(MESSAGE)?;
                let signal = Signal { name, payload, signal_id: Some(id) };
                site.signal_run(SignalRequest { run: key.clone(), signal }).await.map(drop)
            }
            Act::Decide { call, decide } => {
                let (namespace, approval) = (site.namespace.clone(), call.to_string());
                site.decide_approval(DecideRequest { namespace, approval, decide }).await.map(drop)
            }
            Act::Cancel => {
                let reason = CANCELED_HERE.to_owned();
                site.cancel_run(ReasonRequest { run: key.clone(), reason }).await.map(drop)
            }
        }
    }
}

/// The actions of one chat.
pub struct Acts {
    queue: mpsc::UnboundedSender<Act>,
    pub done: mpsc::UnboundedReceiver<(Act, Result<(), RuntimeError>)>,
    open: usize,
    task: JoinHandle<()>,
}

impl Drop for Acts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Acts {
    pub fn begin(site: Site, key: RunKey) -> Acts {
        let (queue, mut acts) = mpsc::unbounded_channel::<Act>();
        let (tell, done) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Some(act) = acts.recv().await {
                let outcome = loop {
                    match act.perform(&site, &key).await {
                        Err(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(ASK_AGAIN).await,
                        outcome => break outcome,
                    }
                };
                if tell.send((act, outcome)).is_err() {
                    return;
                }
            }
        });
        Acts { queue, done, open: 0, task }
    }

    pub fn add(&mut self, act: Act) {
        self.open += 1;
        drop(self.queue.send(act)); // the receiver lives as long as `self`
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
