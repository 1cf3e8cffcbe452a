//! Waiting for the ends of any number of runs over one stream.
//!
//! Owns who in this process waits for which run. The stream is there while somebody waits; a lost one is made again with everything
//! that is still awaited, however long the server is away. Must never let one run's trouble end another's wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onward_core::{Failure, Payload, RunKey};
use onward_runtime::RuntimeError;
use onward_store::Consequence;
use onward_wire::api::{AwaitFrame, End, EndsFrame};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::problem::{again, from_problem, from_status, gone};
use super::{Channel, RETRY_DELAY};

/// How many runs are named in one message.
const RUNS_IN_FRAME: usize = 1_000;

/// How long the stream stays when nobody waits any more: the next wait is often near.
const IDLE: Duration = Duration::from_secs(10);

pub(super) type Outcome = Result<Payload, Failure>;
type Tell = oneshot::Sender<Result<Outcome, RuntimeError>>;

enum Ask {
    Await(RunKey, Tell),
    /// Somebody who waited for this run does so no more.
    Forget(RunKey),
    /// A run that could not be awaited before.
    Again(RunKey),
}

#[derive(Clone)]
pub(super) struct Ends {
    asks: mpsc::UnboundedSender<Ask>,
    /// Until somebody waits for the first time.
    asleep: Arc<Mutex<Option<Attendant>>>,
}

impl Ends {
    pub fn new(channel: Channel) -> Ends {
        let (sender, asks) = mpsc::unbounded_channel();
        let attendant = Attendant { channel, asks, retry: sender.downgrade(), waiting: BTreeMap::new() };
        Ends { asks: sender, asleep: Arc::new(Mutex::new(Some(attendant))) }
    }

    /// Waits until the run is closed, through all its generations. May be dropped at any time.
    pub async fn outcome(&self, key: &RunKey) -> Result<Outcome, RuntimeError> {
        if let Some(attendant) = self.asleep.lock().unwrap_or_else(PoisonError::into_inner).take() {
            tokio::spawn(attendant.attend());
        }
        let (tell, told) = oneshot::channel();
        let mut wait = Wait { ends: self, key, over: false };
        wait.ask(Ask::Await(key.clone(), tell));
        let outcome = told.await;
        wait.over = true;
        outcome.unwrap_or_else(|_| Err(gone()))
    }
}

/// Takes its run off the list when it is dropped before the end.
struct Wait<'a> {
    ends: &'a Ends,
    key: &'a RunKey,
    over: bool,
}

impl Wait<'_> {
    fn ask(&self, ask: Ask) {
        drop(self.ends.asks.send(ask)); // without an attendant there is nobody to tell
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.ask(Ask::Forget(self.key.clone()));
        }
    }
}

/// Why a stream is over.
enum Over {
    /// Nobody can wait any more.
    Left,
    /// Nobody waits now.
    Idle,
    Broken(RuntimeError),
}

/// The one who listens to the server for everybody.
struct Attendant {
    channel: Channel,
    asks: mpsc::UnboundedReceiver<Ask>,
    retry: mpsc::WeakUnboundedSender<Ask>,
    waiting: BTreeMap<RunKey, Vec<Tell>>,
}

impl Attendant {
    async fn attend(mut self) {
        loop {
            while self.waiting.is_empty() {
                let Some(ask) = self.asks.recv().await else { return };
                self.note(ask, &mut AwaitFrame::default());
            }
            match self.follow().await {
                Over::Left => return,
                Over::Idle => {}
                Over::Broken(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(RETRY_DELAY).await,
                Over::Broken(error) => {
                    for tell in std::mem::take(&mut self.waiting).into_values().flatten() {
                        drop(tell.send(Err(again(&error))));
                    }
                }
            }
        }
    }

    /// Goes on over one stream for as long as it lasts.
    async fn follow(&mut self) -> Over {
        let (frames, outgoing) = mpsc::unbounded_channel();
        let runs: Vec<RunKey> = self.waiting.keys().cloned().collect();
        for runs in runs.chunks(RUNS_IN_FRAME) {
            drop(frames.send(AwaitFrame { runs: runs.to_vec(), forget: Vec::new() }));
        }
        let mut ends: Streaming<EndsFrame> = match self.channel.await_ends(UnboundedReceiverStream::new(outgoing)).await {
            Ok(ends) => ends,
            Err(error) => return Over::Broken(error),
        };
        loop {
            tokio::select! {
                ask = self.asks.recv() => match ask {
                    None => return Over::Left,
                    Some(ask) => drop(frames.send(self.frame(ask))),
                },
                message = ends.message() => match message {
                    Ok(Some(frame)) => frame.ends.into_iter().for_each(|end| self.tell(end)),
                    Ok(None) => return Over::Broken(gone()),
                    Err(status) => return Over::Broken(from_status(&status)),
                },
                () = tokio::time::sleep(IDLE), if self.waiting.is_empty() => return Over::Idle,
            }
        }
    }

    /// What was asked by now, in one message.
    fn frame(&mut self, first: Ask) -> AwaitFrame {
        let mut frame = AwaitFrame::default();
        self.note(first, &mut frame);
        while frame.runs.len() + frame.forget.len() < RUNS_IN_FRAME {
            let Ok(ask) = self.asks.try_recv() else { break };
            self.note(ask, &mut frame);
        }
        frame
    }

    fn note(&mut self, ask: Ask, frame: &mut AwaitFrame) {
        match ask {
            Ask::Await(key, tell) => {
                // Said again for each: the server may have answered the one before by now.
                frame.runs.push(key.clone());
                self.waiting.entry(key).or_default().push(tell);
            }
            Ask::Forget(key) => {
                let Some(tells) = self.waiting.get_mut(&key) else { return };
                tells.retain(|tell| !tell.is_closed());
                if tells.is_empty() {
                    self.waiting.remove(&key);
                    frame.runs.retain(|run| *run != key); // a message says first what to forget
                    frame.forget.push(key);
                }
            }
            Ask::Again(key) => {
                if self.waiting.contains_key(&key) {
                    frame.runs.push(key);
                }
            }
        }
    }

    fn tell(&mut self, end: End) {
        let End { run, outcome, problem } = end;
        let told = match (outcome, problem) {
            (Some(outcome), _) => Ok(outcome),
            (None, Some(problem)) => Err(RuntimeError::from(from_problem(problem))),
            (None, None) => return,
        };
        if let Err(error) = &told
            && error.consequence() == Consequence::Retry
        {
            return self.ask_later(run);
        }
        for tell in self.waiting.remove(&run).into_iter().flatten() {
            let told = match &told {
                Ok(outcome) => Ok(outcome.clone()),
                Err(error) => Err(again(error)),
            };
            drop(tell.send(told)); // one who left meanwhile needs no answer
        }
    }

    fn ask_later(&self, run: RunKey) {
        let retry = self.retry.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RETRY_DELAY).await;
            if let Some(asks) = retry.upgrade() {
                drop(asks.send(Ask::Again(run)));
            }
        });
    }
}
