//! Taking one very run: for hosts that work on a run only while somebody asks them to.
//!
//! Whoever drives a run is its worker for that long, with a lease and an inbox like any other; nothing is told apart afterwards. Must
//! never leave a lease with somebody who does not know of it (W1).

use onward_core::run::{Input, Refusal};
use onward_core::{RunHead, RunKey, Status};
use onward_store::{Appended, ClaimedOne, ClaimedRun, StoreError};

use crate::worker::local::give_back;
use crate::{CallId, Decide, RuntimeError, SendSignal, WorkerPort};

/// What is brought to a run by whoever drives it.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Delivery {
    #[default]
    Nothing,
    Signal(SendSignal),
    /// The decision of one of the run's approvals.
    Decision(CallId, Decide),
}

/// What came of [`WorkerPort::resume_agent`].
#[derive(Debug, Clone, PartialEq)]
pub struct Resumed {
    pub head: RunHead,
    /// The answer to what was brought.
    pub appended: Option<Appended>,
    /// The lease of whoever has won, or why there is none.
    pub claimed: Result<ClaimedRun, NotResumed>,
}

/// Why somebody who wanted to go on with an agent does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotResumed {
    /// Another worker has it.
    Held,
    /// It waits, and nothing was brought that it waits for.
    Waiting,
    Paused,
    Closed,
}

impl NotResumed {
    /// Stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            NotResumed::Held => "held",
            NotResumed::Waiting => "waiting",
            NotResumed::Paused => "paused",
            NotResumed::Closed => "closed",
        }
    }

    fn of(status: Status) -> NotResumed {
        match status {
            Status::Paused => NotResumed::Paused,
            Status::Waiting => NotResumed::Waiting,
            status if status.is_closed() => NotResumed::Closed,
            // Pending and not given is what somebody else was given.
            _ => NotResumed::Held,
        }
    }
}

impl WorkerPort {
    /// Goes on with an agent that nobody works on. Of all who want to, one gets it; that it was not this worker is an answer and no error.
    ///
    /// May be dropped at any time, like [`WorkerPort::claim_run`].
    pub async fn resume_agent(&self, key: &RunKey, delivery: Delivery) -> Result<Resumed, RuntimeError> {
        let lost = match self.claim_run(key, delivery).await {
            Ok(ClaimedOne { appended, head, claimed }) => {
                let claimed = claimed.ok_or_else(|| NotResumed::of(head.status));
                if claimed.is_err() {
                    self.runtime().counts().resumes_lost.one();
                }
                return Ok(Resumed { head, appended, claimed });
            }
            Err(RuntimeError::Store(StoreError::RunHeld { .. })) => NotResumed::Held,
            Err(RuntimeError::Store(StoreError::Refused(Refusal::Closed { .. }))) => NotResumed::Closed,
            Err(error) => return Err(error),
        };
        self.runtime().counts().resumes_lost.one();
        Ok(Resumed { head: self.runtime().read_head(key).await?, appended: None, claimed: Err(lost) })
    }

    /// Takes this run, whatever its kind, with what is brought to it, in one write: a run that anybody works on is `run_busy` and takes
    /// nothing. Without a lease in the answer, the run had nothing to do.
    ///
    /// May be dropped at any time: what was brought is then recorded or not, and nobody keeps the run.
    pub async fn claim_run(&self, key: &RunKey, delivery: Delivery) -> Result<ClaimedOne, RuntimeError> {
        let input = self.input_of(key, delivery).await?;
        let (port, key) = (self.clone(), key.clone());
        let (told, hears) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let answer = port.take_one(key, input).await;
            if let Err(Ok(ClaimedOne { claimed: Some(run), .. })) = told.send(answer) {
                give_back(port.runtime(), port.worker(), vec![run], Vec::new()).await;
            }
        });
        let gone = |_| StoreError::Unavailable { why: "the runtime has ended".to_owned() };
        Ok(hears.await.map_err(gone)??)
    }

    async fn input_of(&self, key: &RunKey, delivery: Delivery) -> Result<Option<Input>, RuntimeError> {
        Ok(match delivery {
            Delivery::Nothing => None,
            Delivery::Signal(signal) => Some(signal.into_input()?),
            Delivery::Decision(call, decide) => {
                if call.run != *key {
                    return Err(RuntimeError::CallIdInvalid { text: call.to_string() });
                }
                Some(self.runtime().decision(&call, decide).await?)
            }
        })
    }

    async fn take_one(&self, key: RunKey, input: Option<Input>) -> Result<ClaimedOne, StoreError> {
        let full = || StoreError::Unavailable { why: "this worker holds as many runs as it may".to_owned() };
        let seats = self.take_seats(1);
        if seats.is_empty() {
            return Err(full());
        }
        let runtime = self.runtime();
        let window = runtime.hub().inboxes.begin_claim();
        let claimed = runtime.store().claim_run(key, self.id().clone(), input).await;
        let mut one = self.worker().leases.noted(claimed, runtime.clock().now())?;
        window.end(one.claimed.as_mut_slice(), seats);
        // Nobody leased it: an outside engine drives its own run, and a standalone task has no code to drive.
        if one.head.external.is_some() {
            return Err(Refusal::External { key: one.head.key }.into());
        }
        if one.head.is_task {
            return Err(Refusal::IsTask { key: one.head.key }.into());
        }
        Ok(one)
    }
}
