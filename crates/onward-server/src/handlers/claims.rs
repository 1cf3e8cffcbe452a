//! Claims of one run by a worker: `POST /v1/drive/{run}` for any run, `POST /v1/agents/{run}/resume` for an agent that no worker
//! holds.
//!
//! Both are for hosts that execute code only during a request: the caller becomes the run's worker, with a lease that expires by
//! itself, and continues with `POST /v1/workers/{worker}/frames`.

use onward_core::api::{Decide, DecideRequest, DriveRequest, ResumeAgentReply, ResumeAgentRequest, verb};
use onward_core::event::RunPaused;
use onward_core::view::Awaited;
use onward_core::{RunId, WorkerId};
use onward_wire::worker::ServerFrame;

use super::prelude::*;
use super::runs::SignalBody;
use crate::http::documents::{Outcome, Receipt};
use crate::workers::ClaimPurpose;
use crate::{new_id, verbs};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DriveBody {
    signal: Option<SignalBody>,
    approval: Option<ApprovalBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalBody {
    id: String,
    approved: bool,
    feedback: Option<String>,
    decided_by: Option<String>,
    decision_id: String,
}

#[derive(Serialize)]
struct DriveDocument<'a> {
    run: &'a RunId,
    status: &'static str,
    /// Id of the worker session of the caller; `None` if there is nothing to do.
    worker: Option<&'a WorkerId>,
    /// First frames of the session: `welcome` and `run`.
    frames: &'a [ServerFrame],
    /// Receipt of the delivered signal or decision.
    delivered: Option<Receipt<'a>>,
    awaiting: &'a [Awaited],
    pause: Option<&'a RunPaused>,
    outcome: Option<Outcome<'a>>,
}

/// Handles `POST /v1/drive/{run}`.
pub(crate) async fn drive(mut request: Request) -> Result<Response, Problem> {
    let (key, worker) = (request.key()?, new_worker()?);
    let DriveBody { signal, approval } = request.json_or_default().await?;
    if signal.is_some() && approval.is_some() {
        return Err(RequestError::JsonInvalid { why: "send `signal` or `approval`, not both".to_owned() }.into());
    }
    let decision = approval.map(|ApprovalBody { id, approved, feedback, decided_by, decision_id }| {
        let decide = Decide { approved, feedback, decided_by, decision_id };
        DecideRequest { namespace: request.by.namespace.clone(), approval: id, decide }
    });
    let signal = signal.map(SignalBody::read).transpose()?;
    let drive = DriveRequest { run: key.clone(), worker: worker.clone(), signal, decision };
    let (driven, frames) = verbs::claim_polled(&request.server, &request.by, ClaimPurpose::ToDrive, drive).await?;
    let given = !frames.is_empty();
    let view = if given { None } else { Some(request.server.runtime().read_run(&key).await?) };
    let document = DriveDocument {
        run: &key.id,
        status: view.as_ref().map_or(driven.head.status, |view| view.head.status).as_str(),
        worker: given.then_some(&worker),
        frames: &frames,
        delivered: driven.appended.as_ref().map(|appended| Receipt::new(&key.id, appended)),
        awaiting: view.as_ref().map_or(&[], |view| &view.awaiting),
        pause: view.as_ref().and_then(|view| view.pause.as_ref()),
        outcome: view.as_ref().and_then(|view| view.outcome.as_ref()).map(Outcome::from),
    };
    Ok(json(StatusCode::OK, &document))
}

/// Returns a unique id for the worker of one run.
fn new_worker() -> Result<WorkerId, Problem> {
    Ok(WorkerId::new(format!("drive-{:016x}{:016x}", new_id::random_u64(), new_id::random_u64()))?)
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ResumeBody {
    worker: Option<String>,
    signal: Option<SignalBody>,
}

#[derive(Serialize)]
struct ResumedAgent<'a> {
    run: &'a RunId,
    /// False, without an error, for every request but the one that claimed the agent.
    success: bool,
    why: Option<&'a str>,
    status: &'static str,
    worker: Option<&'a WorkerId>,
    /// First frames of a worker session that was created for this request; an existing worker gets the run with its next request.
    frames: &'a [ServerFrame],
    delivered: Option<Receipt<'a>>,
}

/// Handles `POST /v1/agents/{run}/resume`.
pub(crate) async fn resume(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let body: ResumeBody = request.json_or_default().await?;
    let signal = body.signal.map(SignalBody::read).transpose()?;
    let (worker, (reply, frames)) = match body.worker {
        Some(worker) => {
            let worker = WorkerId::new(worker)?;
            let resume = ResumeAgentRequest { run: key.clone(), worker: worker.clone(), signal };
            (worker, (request.execute::<verb::ResumeAgent>(resume).await?, Vec::new()))
        }
        None => {
            let worker = new_worker()?;
            let resume = DriveRequest { run: key.clone(), worker: worker.clone(), signal, decision: None };
            let by = request.by.clone();
            let (claimed, frames) = verbs::claim_polled(&request.server, &by, ClaimPurpose::ToResume, resume).await?;
            (worker, (ResumeAgentReply::from(claimed), frames))
        }
    };
    let document = ResumedAgent {
        run: &key.id,
        success: reply.success,
        why: reply.why.as_deref(),
        status: reply.head.status.as_str(),
        worker: reply.success.then_some(&worker),
        frames: &frames,
        delivered: reply.appended.as_ref().map(|appended| Receipt::new(&key.id, appended)),
    };
    Ok(json(StatusCode::OK, &document))
}
