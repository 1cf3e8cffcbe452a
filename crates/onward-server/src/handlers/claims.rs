//! Claims of one run by a worker: `POST /v1/drive/{run}` for any run, `POST /v1/agents/{run}/resume` for an agent that no worker
//! holds.
//!
//! Both are for hosts that execute code only during a request: the caller becomes the run's worker, with a lease that expires by
//! itself, and continues with `POST /v1/workers/{worker}/frames`.

use onward_core::api::{Decide, DecideRequest, DriveRequest, ResumeAgentReply, ResumeAgentRequest, verb};
use onward_core::event::RunPaused;
use onward_core::view::Awaited;
use onward_core::{RunId, Status, WorkerId};
use onward_wire::worker::ServerFrame;

use super::approvals::present;
use super::prelude::*;
use super::runs::SignalBody;
use crate::http::documents::{Outcome, Receipt};
use crate::workers::ClaimPurpose;
use crate::{new_id, verbs};

bodies! {
    #[derive(Default)]
    struct DriveBody as Drive {
        signal: Option<SignalBody>,
        approval: Option<ApprovalBody>,
    }

    struct ApprovalBody as DriveDecision {
        id: String as CallId,
        approved: bool,
        feedback: Option<String> as Option<LongText>,
        decided_by: Option<String> as Option<Name>,
        decision_id: String as Name,
        /// The answer, if the approval has an `answer_schema`; only with `approved`.
        #[serde(default, deserialize_with = "present")]
        answer: Option<Box<RawValue>>,
    }

    #[derive(Default)]
    struct ResumeBody as ResumeAgent {
        /// Id of a connected worker; without it, a worker session is created.
        worker: Option<String> as Option<Name>,
        /// Signal that wakes a waiting agent.
        signal: Option<SignalBody>,
    }
}

documents! {
    struct DriveDocument<'a> as Driven {
        run: &'a RunId,
        status: Status,
        /// Id of the worker session of the caller; null if there is nothing to do.
        worker: Option<&'a WorkerId>,
        /// First frames of the session: `welcome` and `run`; see docs/protocol.md.
        frames: &'a [ServerFrame] as Vec<ServerFrame>,
        /// Receipt of the delivered signal or decision.
        delivered: Option<Receipt<'a>>,
        awaiting: &'a [Awaited],
        pause: Option<&'a RunPaused>,
        outcome: Option<Outcome<'a>>,
    }

    struct ResumedAgent<'a> {
        run: &'a RunId,
        /// The worker holds the agent now; false, without an error, for all other requests.
        success: bool,
        why: Option<&'a str> as Option<NotClaimedReason>,
        status: Status,
        worker: Option<&'a WorkerId>,
        /// First frames of a worker session that was created for this request, `welcome` and `run`; an existing worker gets the
        /// run with its next request.
        frames: &'a [ServerFrame] as Vec<ServerFrame>,
        delivered: Option<Receipt<'a>>,
    }
}

/// Handles `POST /v1/drive/{run}`.
pub(crate) async fn drive(mut request: Request) -> Result<Response, Problem> {
    let (key, worker) = (request.key()?, new_worker()?);
    let DriveBody { signal, approval } = request.json_or_default().await?;
    if signal.is_some() && approval.is_some() {
        return Err(RequestError::JsonInvalid { why: "send `signal` or `approval`, not both".to_owned() }.into());
    }
    let decision = approval.map(|ApprovalBody { id, approved, feedback, decided_by, decision_id, answer }| {
        let answer = answer.map(|answer| payload(Some(answer)));
        let decide = Decide { approved, feedback, decided_by, decision_id, answer };
        DecideRequest { namespace: request.by.namespace.clone(), approval: id, decide }
    });
    let signal = signal.map(SignalBody::read).transpose()?;
    let drive = DriveRequest { run: key.clone(), worker: worker.clone(), signal, decision };
    let (driven, frames) = verbs::claim_polled(&request.server, &request.by, ClaimPurpose::ToDrive, drive).await?;
    let given = !frames.is_empty();
    let view = if given { None } else { Some(request.server.runtime().read_run(&key).await?) };
    let document = DriveDocument {
        run: &key.id,
        status: view.as_ref().map_or(driven.head.status, |view| view.head.status),
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
        status: reply.head.status,
        worker: reply.success.then_some(&worker),
        frames: &frames,
        delivered: reply.appended.as_ref().map(|appended| Receipt::new(&key.id, appended)),
    };
    Ok(json(StatusCode::OK, &document))
}
