//! Running one run on demand, without a worker in the background.

use onward_core::view::RunView;
use onward_core::{Failure, Payload};
use onward_runtime::{CallRef, Decide, DriveInput, Signal};
use serde::Serialize;

use super::{Onward, signal};
use crate::names::SignalName;
use crate::{Error, Result};

/// An input for a run that is driven; see [`Onward::drive`].
pub struct RunInput {
    what: Result<Delivery, Error>,
}

enum Delivery {
    Nothing,
    Signal(Signal),
    Decision { approval: String, decide: Decide },
}

impl RunInput {
    /// Returns no input; the run only continues.
    pub fn nothing() -> RunInput {
        RunInput { what: Ok(Delivery::Nothing) }
    }

    /// Returns a signal.
    pub fn signal<N: SignalName>(name: N, payload: &(impl Serialize + ?Sized)) -> RunInput {
        RunInput { what: signal(&name, payload).map(Delivery::Signal) }
    }

    /// Sets an id under which the signal is accepted once.
    pub fn id(mut self, id: impl Into<String>) -> RunInput {
        if let Ok(Delivery::Signal(signal)) = &mut self.what {
            signal.signal_id = Some(id.into());
        }
        self
    }

    /// Returns a decision for one of the run's approvals.
    pub fn decision(approval: &str, decide: Decide) -> RunInput {
        RunInput { what: Ok(Delivery::Decision { approval: approval.to_owned(), decide }) }
    }
}

/// The state of a run after it was driven.
#[derive(Debug)]
pub enum Driven {
    /// The run waits for `awaiting`, until `deadline`. No timer wakes it: the host must drive it again at that time.
    Waiting(Box<RunView>),
    /// The run is paused until it is resumed.
    Paused(Box<RunView>),
    /// The run has ended.
    Ended(Result<Payload, Failure>),
}

impl Onward {
    /// Executes one run in this process until it waits or ends, with the given input, and returns its state.
    ///
    /// The run is claimed and the input appended in one write. If another worker holds the run, this fails with `run_busy` and
    /// appends nothing; send the input as a plain signal, and that worker receives it. If the process dies, the lease expires,
    /// and the run can be driven again. The future may be dropped at any time; the run then continues in the background until it
    /// waits or ends.
    pub async fn drive(&self, run: &str, input: RunInput) -> Result<Driven, Error> {
        self.call(self.drive_until_idle(run, input)).await
    }

    async fn drive_until_idle(&self, run: &str, input: RunInput) -> Result<Driven, Error> {
        let key = self.key(run)?;
        let inner = &self.inner;
        let mut delivery = self.delivery(input)?;
        let head = inner.client.read_head(key.clone()).await?;
        if inner.worker.registry.handler(&head.kind, head.version.as_ref()).is_none() {
            let version = head.version.map(|version| version.to_string());
            return Err(Error::UnknownKind { kind: head.kind.to_string(), version });
        }
        loop {
            let taken = inner.worker.connection.claim_run(key.clone(), std::mem::take(&mut delivery)).await?;
            if let Some(claimed) = taken.claimed {
                inner.worker.drive_until_idle(claimed).await;
            }
            let view = inner.client.read_run(key.clone()).await?;
            match view.head.status {
                // An input arrived while the run was released.
                crate::Status::Pending | crate::Status::Running => {}
                crate::Status::Waiting => return Ok(Driven::Waiting(Box::new(view))),
                crate::Status::Paused => return Ok(Driven::Paused(Box::new(view))),
                _ => {
                    let outcome = inner.client.wait_for_outcome(key).await?;
                    return Ok(Driven::Ended(outcome));
                }
            }
        }
    }

    fn delivery(&self, input: RunInput) -> Result<DriveInput, Error> {
        Ok(match input.what? {
            Delivery::Nothing => DriveInput::Nothing,
            Delivery::Signal(signal) => DriveInput::Signal(signal),
            Delivery::Decision { approval, decide } => {
                DriveInput::Decision(CallRef::parse(&self.inner.namespace, &approval)?, decide)
            }
        })
    }
}
