//! `POST /v1/agents/{run}/resume`: claims an agent that no worker holds.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::{RunId, WorkerId};
use onward_runtime::DriveInput;
use onward_wire::worker::ServerFrame;
use serde::{Deserialize, Serialize};

use crate::handlers::drive::{new_worker, scope_of};
use crate::handlers::runs::SignalBody;
use crate::http::documents::Receipt;
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::http::response::json;
use crate::workers::ClaimPurpose;

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
    why: Option<&'static str>,
    status: &'static str,
    worker: Option<&'a WorkerId>,
    /// First frames of a worker session that was created for this request; an existing worker gets the run with its next request.
    frames: &'a [ServerFrame],
    delivered: Option<Receipt<'a>>,
}

pub(crate) async fn resume(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let body: ResumeBody = request.json_or_default().await?;
    let delivery = body.signal.map(SignalBody::read).transpose()?;
    let delivery = delivery.map_or(DriveInput::Nothing, DriveInput::Signal);
    if let (Some(scope), Some(pass)) = (scope_of(&delivery), &request.pass) {
        pass.check_also(scope, &request.server).await?;
    }
    let (server, sessions) = (&request.server, request.server.sessions());
    let (worker, (driven, frames)) = match body.worker {
        Some(name) => {
            let worker = WorkerId::new(name)?;
            let session = sessions.connected(&request.namespace, &worker, &request.caller)?;
            (worker, (session.take_up(&key, ClaimPurpose::ToResume, delivery).await?, Vec::new()))
        }
        None => {
            let worker = new_worker()?;
            let asked = (ClaimPurpose::ToResume, delivery);
            let pass = (request.pass.as_ref(), &request.caller);
            (worker.clone(), sessions.drive_polled(server, pass, worker, &key, asked).await?)
        }
    };
    let document = ResumedAgent {
        run: &key.id,
        success: driven.is_given,
        why: driven.why.map(|why| why.as_str()),
        status: driven.head.status.as_str(),
        worker: driven.is_given.then_some(&worker),
        frames: &frames,
        delivered: driven.appended.as_ref().map(|appended| Receipt::new(&key.id, appended)),
    };
    Ok(json(StatusCode::OK, &document))
}
