//! Claim of one run by id: the request is a separate call, the run arrives over the stream.

use std::time::Duration;

use onward_core::RunKey;
use onward_runtime::{DriveInput, RuntimeError, SendSignal};
use onward_store::{ClaimedOne, ClaimedRun, StoreError};
use onward_wire::api::{Call, DecideRequest, DriveRequest, Reply, Signal};
use tokio::sync::oneshot;

use super::super::Channel;
use super::shared::Shared;

/// Time limit for a granted run to arrive. Otherwise it was lost with the connection, and the server takes it back.
const ARRIVE_MAX: Duration = Duration::from_secs(10);

pub(super) async fn claim_run(
    shared: &Shared,
    channel: &Channel,
    key: RunKey,
    delivery: DriveInput,
) -> Result<ClaimedOne, RuntimeError> {
    let (sender, arrives) = oneshot::channel();
    {
        let mut state = shared.lock();
        // A closed sender is left over from an abandoned request.
        if state.driving.get(&key).is_some_and(|other| !other.is_closed()) {
            return Err(StoreError::RunHeld { key }.into());
        }
        state.driving.insert(key.clone(), sender);
    }
    let reply = channel.call(Call::DriveRun(request(shared, &key, delivery))).await.map(|reply| match reply {
        Reply::DriveRun(reply) => reply,
        _ => unreachable!("the reply belongs to the call"),
    });
    if !reply.as_ref().is_ok_and(|reply| reply.is_given) {
        shared.lock().driving.remove(&key);
    }
    let reply = reply?;
    let claimed = if reply.is_given { Some(arrived(arrives).await?) } else { None };
    Ok(ClaimedOne { appended: reply.appended, head: reply.head, claimed })
}

async fn arrived(arrives: oneshot::Receiver<ClaimedRun>) -> Result<ClaimedRun, StoreError> {
    let lost = || StoreError::Unavailable { why: "the run did not arrive from the server".to_owned() };
    tokio::time::timeout(ARRIVE_MAX, arrives).await.ok().and_then(Result::ok).ok_or_else(lost)
}

fn request(shared: &Shared, key: &RunKey, delivery: DriveInput) -> DriveRequest {
    let (run, worker) = (key.clone(), shared.worker().clone());
    let (signal, decision) = match delivery {
        DriveInput::Nothing => (None, None),
        DriveInput::Signal(SendSignal { name, payload, signal_id, .. }) => (Some(Signal { name, payload, signal_id }), None),
        DriveInput::Decision(call, decide) => {
            let (namespace, approval) = (key.namespace.clone(), call.to_string());
            (None, Some(DecideRequest { namespace, approval, decide }))
        }
    };
    DriveRequest { run, worker, signal, decision }
}
