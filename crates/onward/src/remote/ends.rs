//! Waits for the ends of any number of runs over one stream.
//!
//! Owns which caller of this process waits for which run. The stream is open while there are waits. A lost stream is reopened
//! with all pending waits, however long the server is unreachable. An error of one run must never end the wait for another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::{Failure, Payload, RunKey};
use onward_runtime::RuntimeError;
use onward_store::Consequence;
use onward_store::sync::lock;
use onward_wire::ends::{AwaitFrame, End, EndsFrame};
use onward_wire::grpc::AWAIT_ENDS;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::problem::{again, from_problem, from_status, gone};
use super::{Channel, RETRY_DELAY};

/// Maximum number of runs in one message.
const RUNS_IN_FRAME: usize = 1_000;

/// Time for which the stream stays open without waits, because the next wait often follows soon.
const IDLE: Duration = Duration::from_secs(10);

pub(super) type Outcome = Result<Payload, Failure>;
type OutcomeSender = oneshot::Sender<Result<Outcome, RuntimeError>>;

enum Command {
    Await(RunKey, OutcomeSender),
    /// A wait for this run was dropped.
    Forget(RunKey),
    /// Retry for a run whose wait failed.
    Again(RunKey),
}

#[derive(Clone)]
pub(super) struct Ends {
    commands: mpsc::UnboundedSender<Command>,
    /// The background task, until the first wait starts it.
    unstarted: Arc<Mutex<Option<EndsReceiver>>>,
}

impl Ends {
    pub fn new(channel: Channel) -> Ends {
        let (sender, commands) = mpsc::unbounded_channel();
        let receiver = EndsReceiver { channel, commands, retry: sender.downgrade(), waiting: BTreeMap::new() };
        Ends { commands: sender, unstarted: Arc::new(Mutex::new(Some(receiver))) }
    }

    /// Waits until the run is closed, through all its generations. Cancel-safe.
    pub async fn outcome(&self, key: &RunKey) -> Result<Outcome, RuntimeError> {
        if let Some(receiver) = lock(&self.unstarted).take() {
            tokio::spawn(receiver.run());
        }
        let (sender, result) = oneshot::channel();
        let mut wait = OutcomeWait { ends: self, key, over: false };
        wait.send(Command::Await(key.clone(), sender));
        let outcome = result.await;
        wait.over = true;
        outcome.unwrap_or_else(|_| Err(gone()))
    }
}

/// A pending wait, which is unregistered when it is dropped before the end.
struct OutcomeWait<'a> {
    ends: &'a Ends,
    key: &'a RunKey,
    over: bool,
}

impl OutcomeWait<'_> {
    fn send(&self, command: Command) {
        drop(self.ends.commands.send(command)); // fails only if the background task has ended
    }
}

impl Drop for OutcomeWait<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.send(Command::Forget(self.key.clone()));
        }
    }
}

/// The reason why a stream ended.
enum StreamEnd {
    /// All handles are dropped.
    Left,
    /// There are no waits now.
    Idle,
    Broken(RuntimeError),
}

/// The background task that receives ends from the server for all waits.
struct EndsReceiver {
    channel: Channel,
    commands: mpsc::UnboundedReceiver<Command>,
    retry: mpsc::WeakUnboundedSender<Command>,
    waiting: BTreeMap<RunKey, Vec<OutcomeSender>>,
}

impl EndsReceiver {
    async fn run(mut self) {
        loop {
            while self.waiting.is_empty() {
                let Some(command) = self.commands.recv().await else { return };
                self.apply(command, &mut AwaitFrame::default());
            }
            match self.follow().await {
                StreamEnd::Left => return,
                StreamEnd::Idle => {}
                StreamEnd::Broken(error) if error.consequence() == Consequence::Retry => tokio::time::sleep(RETRY_DELAY).await,
                StreamEnd::Broken(error) => {
                    for sender in std::mem::take(&mut self.waiting).into_values().flatten() {
                        drop(sender.send(Err(again(&error))));
                    }
                }
            }
        }
    }

    /// Handles requests and ends over one stream for as long as it lasts.
    async fn follow(&mut self) -> StreamEnd {
        let (frames, outgoing) = mpsc::unbounded_channel();
        let runs: Vec<RunKey> = self.waiting.keys().cloned().collect();
        for runs in runs.chunks(RUNS_IN_FRAME) {
            drop(frames.send(AwaitFrame { runs: runs.to_vec(), forget: Vec::new() }));
        }
        let mut ends: Streaming<EndsFrame> = match self.channel.open(AWAIT_ENDS, UnboundedReceiverStream::new(outgoing)).await {
            Ok(ends) => ends,
            Err(error) => return StreamEnd::Broken(error),
        };
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    None => return StreamEnd::Left,
                    Some(command) => drop(frames.send(self.frame(command))),
                },
                message = ends.message() => match message {
                    Ok(Some(frame)) => frame.ends.into_iter().for_each(|end| self.deliver(end)),
                    Ok(None) => return StreamEnd::Broken(gone()),
                    Err(status) => return StreamEnd::Broken(from_status(&status)),
                },
                () = tokio::time::sleep(IDLE), if self.waiting.is_empty() => return StreamEnd::Idle,
            }
        }
    }

    /// Collects all pending requests into one message.
    fn frame(&mut self, first: Command) -> AwaitFrame {
        let mut frame = AwaitFrame::default();
        self.apply(first, &mut frame);
        while frame.runs.len() + frame.forget.len() < RUNS_IN_FRAME {
            let Ok(command) = self.commands.try_recv() else { break };
            self.apply(command, &mut frame);
        }
        frame
    }

    fn apply(&mut self, command: Command, frame: &mut AwaitFrame) {
        match command {
            Command::Await(key, sender) => {
                // Sent for each wait, because the server may have answered an earlier one already.
                frame.runs.push(key.clone());
                self.waiting.entry(key).or_default().push(sender);
            }
            Command::Forget(key) => {
                let Some(senders) = self.waiting.get_mut(&key) else { return };
                senders.retain(|sender| !sender.is_closed());
                if senders.is_empty() {
                    self.waiting.remove(&key);
                    frame.runs.retain(|run| *run != key); // within a message, the server handles `forget` first
                    frame.forget.push(key);
                }
            }
            Command::Again(key) => {
                if self.waiting.contains_key(&key) {
                    frame.runs.push(key);
                }
            }
        }
    }

    fn deliver(&mut self, end: End) {
        let End { run, outcome, problem } = end;
        let result = match (outcome, problem) {
            (Some(outcome), _) => Ok(outcome),
            (None, Some(problem)) => Err(RuntimeError::from(from_problem(problem))),
            (None, None) => return,
        };
        if let Err(error) = &result
            && error.consequence() == Consequence::Retry
        {
            return self.retry_later(run);
        }
        for sender in self.waiting.remove(&run).into_iter().flatten() {
            let result = match &result {
                Ok(outcome) => Ok(outcome.clone()),
                Err(error) => Err(again(error)),
            };
            drop(sender.send(result)); // the caller may have gone
        }
    }

    fn retry_later(&self, run: RunKey) {
        let retry = self.retry.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RETRY_DELAY).await;
            if let Some(commands) = retry.upgrade() {
                drop(commands.send(Command::Again(run)));
            }
        });
    }
}
