//! Taking one very run: for hosts that work on a run only while somebody asks them to.
//!
//! Whoever drives a run is its worker for that long, with a lease and an inbox like any other; nothing is told apart afterwards. Must
//! never leave a lease with somebody who does not know of it (W1).

use onward_core::RunKey;
use onward_core::run::{Input, Refusal};
use onward_store::{ClaimedOne, StoreError};

use crate::port::give_back;
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

impl WorkerPort {
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
                give_back(port.runtime(), vec![run], Vec::new()).await;
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
        let mut one = runtime.store().claim_run(key, self.id().clone(), input).await?;
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
