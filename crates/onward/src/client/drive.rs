//! Driving one run while somebody asks for it, without a worker in the background.

use onward_core::view::RunView;
use onward_core::{Failure, Name, Payload};
use onward_runtime::{CallId, Decide, Delivery, SendSignal};
use onward_store::ClaimedOne;
use serde::Serialize;

use super::Onward;
use crate::names::SignalName;
use crate::{Error, Result};

/// What is brought to a run that is driven; see [`Onward::drive`].
pub struct Bring {
    what: Result<What, serde_json::Error>,
}

enum What {
    Nothing,
    Signal { name: String, payload: Payload, id: Option<String> },
    Decision { approval: String, decide: Decide },
}

impl Bring {
    /// Only lets the run go on.
    pub fn nothing() -> Bring {
        Bring { what: Ok(What::Nothing) }
    }

    /// A signal.
    pub fn signal<N: SignalName>(name: N, payload: &(impl Serialize + ?Sized)) -> Bring {
        let name = name.signal_name().to_owned();
        Bring { what: Payload::json(payload).map(|payload| What::Signal { name, payload, id: None }) }
    }

    /// A signal that is taken once, by this id.
    pub fn signal_once<N: SignalName>(name: N, payload: &(impl Serialize + ?Sized), id: &str) -> Bring {
        let (name, id) = (name.signal_name().to_owned(), Some(id.to_owned()));
        Bring { what: Payload::json(payload).map(|payload| What::Signal { name, payload, id }) }
    }

    /// The decision of one of the run's approvals.
    pub fn decision(approval: &str, decide: Decide) -> Bring {
        Bring { what: Ok(What::Decision { approval: approval.to_owned(), decide }) }
    }
}

/// How a run stands after it was driven.
#[derive(Debug)]
pub enum Driven {
    /// It waits: `awaiting` says for what, and `deadline` until when. Somebody must drive it again then: time alone wakes nobody.
    Waiting(Box<RunView>),
    /// It stands still until it is resumed.
    Paused(Box<RunView>),
    /// It has ended.
    Ended(Result<Payload, Failure>),
}

impl Onward {
    /// Works on one run in this process until it waits or ends, with what is brought to it, and says how it stands then.
    ///
    /// The run is taken with what is brought in one write. When somebody else works on it, it is `run_busy` and takes nothing: sent as a
    /// plain signal, it would get to whoever does. A process that dies in the middle loses the run after its lease, and it can be driven
    /// again. May be dropped at any time: what was begun goes on until the run rests.
    pub async fn drive(&self, run: &str, bring: Bring) -> Result<Driven, Error> {
        self.ask(self.drive_to_rest(run, bring)).await
    }

    async fn drive_to_rest(&self, run: &str, bring: Bring) -> Result<Driven, Error> {
        let key = self.key(run)?;
        let inner = &self.inner;
        let mut delivery = self.delivery(bring)?;
        let head = inner.door.read_head(key.clone()).await?;
        if inner.worker.registry.handler(&head.kind, head.version.as_ref()).is_none() {
            let version = head.version.map(|version| version.to_string());
            return Err(Error::UnknownKind { kind: head.kind.to_string(), version });
        }
        loop {
            let taken = inner.worker.link.claim_run(key.clone(), std::mem::take(&mut delivery)).await?;
            let ClaimedOne { claimed, .. } = taken;
            if let Some(claimed) = claimed {
                inner.worker.drive_to_rest(claimed).await;
            }
            let view = inner.door.read_run(key.clone()).await?;
            match view.head.status {
                // Something came while it was let go.
                crate::Status::Pending | crate::Status::Running => {}
                crate::Status::Waiting => return Ok(Driven::Waiting(Box::new(view))),
                crate::Status::Paused => return Ok(Driven::Paused(Box::new(view))),
                _ => {
                    let outcome = inner.door.wait_for_outcome(key).await?;
                    return Ok(Driven::Ended(outcome));
                }
            }
        }
    }

    fn delivery(&self, bring: Bring) -> Result<Delivery, Error> {
        let what = bring.what.map_err(|why| Error::Convert { what: "the signal", why })?;
        Ok(match what {
            What::Nothing => Delivery::Nothing,
            What::Signal { name, payload, id } => {
                Delivery::Signal(SendSignal { name: Name::new(name)?, payload, signal_id: id, sender: None })
            }
            What::Decision { approval, decide } => Delivery::Decision(CallId::parse(&self.inner.namespace, &approval)?, decide),
        })
    }
}
