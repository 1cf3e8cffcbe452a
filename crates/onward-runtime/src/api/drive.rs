//! Claims one specific run, for hosts that work on a run only on demand.
//!
//! The caller becomes the worker of the run, with a lease and an inbox like any other worker; the log shows no difference. A
//! lease must never stay with a worker that does not know of it (W1).

use onward_core::run::{Input, Refusal};
use onward_core::{RunHead, RunKey, Status};
use onward_store::{Appended, ClaimedOne, ClaimedRun, StoreError};

use crate::api::runs::signal_input;
use crate::worker::local::give_back;
use crate::{CallRef, Decide, LocalConnection, RuntimeError, Signal};

/// Input that is recorded together with the claim of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum DriveInput {
    #[default]
    Nothing,
    Signal(Signal),
    /// A decision of one of the run's approvals.
    Decision(CallRef, Decide),
}

/// The result of [`LocalConnection::resume_agent`].
#[derive(Debug, Clone, PartialEq)]
pub struct Resumed {
    pub head: RunHead,
    /// The receipt of the delivered input.
    pub appended: Option<Appended>,
    /// The lease, or the reason why this worker did not get one.
    pub claimed: Result<ClaimedRun, NotResumed>,
}

/// The reason why an agent was not resumed by this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotResumed {
    /// Another worker holds the agent.
    Held,
    /// The agent waits, and the delivered input, if any, does not wake it.
    Waiting,
    Paused,
    Closed,
}

impl NotResumed {
    /// Returns the stable word.
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
            // A pending run that was not claimed went to another worker.
            _ => NotResumed::Held,
        }
    }
}

impl LocalConnection {
    /// Claims an agent that no worker holds. If several workers compete, one gets it; losing is reported in `claimed`, not as
    /// an error.
    ///
    /// Cancel-safe, like [`WorkerConnection::claim_run`](crate::WorkerConnection::claim_run).
    pub async fn resume_agent(&self, key: &RunKey, delivery: DriveInput) -> Result<Resumed, RuntimeError> {
        let lost = match self.claim_one(key.clone(), delivery).await {
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

    /// Claims the run in a task of its own, so that a lost caller does not lose the lease (W1).
    pub(crate) async fn claim_one(&self, key: RunKey, delivery: DriveInput) -> Result<ClaimedOne, RuntimeError> {
        let input = self.input_of(&key, delivery).await?;
        let port = self.clone();
        let (reply_sender, reply) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let answer = port.take_one(key, input).await;
            if let Err(Ok(ClaimedOne { claimed: Some(run), .. })) = reply_sender.send(answer) {
                give_back(port.runtime(), port.worker(), vec![run], Vec::new()).await;
            }
        });
        let gone = |_| StoreError::Unavailable { why: "the runtime has stopped".to_owned() };
        Ok(reply.await.map_err(gone)??)
    }

    async fn input_of(&self, key: &RunKey, delivery: DriveInput) -> Result<Option<Input>, RuntimeError> {
        Ok(match delivery {
            DriveInput::Nothing => None,
            DriveInput::Signal(signal) => {
                self.runtime().check_signal(key, &signal).await?;
                Some(signal_input(signal)?)
            }
            DriveInput::Decision(call, decide) => {
                if call.run != *key {
                    return Err(RuntimeError::CallIdInvalid { text: call.to_string() });
                }
                Some(self.runtime().decision(&call, decide).await?)
            }
        })
    }

    async fn take_one(&self, key: RunKey, input: Option<Input>) -> Result<ClaimedOne, StoreError> {
        let full = || StoreError::Unavailable { why: "this worker holds its maximum number of runs".to_owned() };
        let permits = self.worker().take_permits(1);
        if permits.is_empty() {
            return Err(full());
        }
        let runtime = self.runtime();
        let window = runtime.hub().inboxes.begin_claim();
        let claimed = runtime.store().claim_run(key, self.id().clone(), input).await;
        let mut one = self.worker().leases.noted(claimed, runtime.clock().now())?;
        window.end(one.claimed.as_mut_slice(), permits);
        runtime.lease_changed(&one.head.key);
        // The store leased nothing in these cases: an external run has another engine, and a standalone task has no workflow
        // code.
        if one.head.external.is_some() {
            return Err(Refusal::External { key: one.head.key }.into());
        }
        if one.head.is_task {
            return Err(Refusal::IsTask { key: one.head.key }.into());
        }
        Ok(one)
    }
}
