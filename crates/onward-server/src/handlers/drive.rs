//! `POST /v1/drive/{run}`: runs on demand, for hosts that execute code only during a request.
//!
//! The caller becomes the run's worker, with a lease that expires by itself, and continues with
//! `POST /v1/workers/{worker}/frames`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::event::RunPaused;
use onward_core::view::Awaited;
use onward_core::{RunId, WorkerId};
use onward_runtime::{CallRef, Decide, DriveInput};
use onward_wire::worker::ServerFrame;
use serde::{Deserialize, Serialize};

use crate::auth::Scope;
use crate::auth::bounds;
use crate::handlers::runs::SignalBody;
use crate::http::documents::{Outcome, Receipt};
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;
use crate::new_id;
use crate::workers::ClaimPurpose;

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

/// Returns the scope that the delivery needs in addition to driving (S7).
pub(crate) fn scope_of(delivery: &DriveInput) -> Option<Scope> {
    match delivery {
        DriveInput::Nothing => None,
        DriveInput::Signal(_) => Some(Scope::Signal),
        DriveInput::Decision(..) => Some(Scope::Approve),
    }
}

/// Handles `POST /v1/drive/{run}`.
pub(crate) async fn drive(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let body: DriveBody = request.json_or_default().await?;
    let delivery = read(body, &request)?;
    if let (Some(scope), Some(pass)) = (scope_of(&delivery), &request.pass) {
        pass.check_also(scope, &request.server).await?;
    }
    if let DriveInput::Decision(call, _) = &delivery {
        bounds::check_run(&request.server, Scope::Approve, &request.caller, &call.run).await?;
    }
    let (runtime, sessions) = (request.server.runtime(), request.server.sessions());
    let worker = new_worker()?;
    let (server, pass) = (&request.server, (request.pass.as_ref(), &request.caller));
    let (driven, frames) = sessions.drive_polled(server, pass, worker.clone(), &key, (ClaimPurpose::ToDrive, delivery)).await?;
    let delivered = driven.appended.as_ref().map(|appended| Receipt::new(&key.id, appended));
    let given = !frames.is_empty();
    let view = if given { None } else { Some(runtime.read_run(&key).await?) };
    let document = DriveDocument {
        run: &key.id,
        status: view.as_ref().map_or(driven.head.status, |view| view.head.status).as_str(),
        worker: given.then_some(&worker),
        frames: &frames,
        delivered,
        awaiting: view.as_ref().map_or(&[], |view| &view.awaiting),
        pause: view.as_ref().and_then(|view| view.pause.as_ref()),
        outcome: view.as_ref().and_then(|view| view.outcome.as_ref()).map(Outcome::from),
    };
    Ok(json(StatusCode::OK, &document))
}

/// Returns a unique id for the worker of one run.
pub(crate) fn new_worker() -> Result<WorkerId, Problem> {
    Ok(WorkerId::new(format!("drive-{:016x}{:016x}", new_id::random_u64(), new_id::random_u64()))?)
}

fn read(body: DriveBody, request: &Request) -> Result<DriveInput, Problem> {
    Ok(match (body.signal, body.approval) {
        (None, None) => DriveInput::Nothing,
        (Some(signal), None) => DriveInput::Signal(signal.read()?),
        (None, Some(ApprovalBody { id, approved, feedback, decided_by, decision_id })) => {
            // The name of the credential, if it has one, is recorded as the decider (S8).
            let decided_by = request.caller.name.clone().or(decided_by);
            let call = CallRef::parse(&request.namespace, &id)?;
            DriveInput::Decision(call, Decide { approved, feedback, decided_by, decision_id })
        }
        (Some(_), Some(_)) => {
            return Err(RequestError::JsonInvalid { why: "send `signal` or `approval`, not both".to_owned() }.into());
        }
    })
}
