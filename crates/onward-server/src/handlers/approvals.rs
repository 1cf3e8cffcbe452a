//! Approvals: questions to people with one decision each.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::api::{Decide, DecideRequest, WaitQuery, WaitsReply, verb};
use onward_core::{RunId, RunKey};
use onward_store::PAGE_DEFAULT;
use serde::Deserialize;

use crate::http::documents::{Approval, Approvals, Partly, Receipt};
use crate::http::limits::LIMIT_MAX;
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::http::response::json;

/// Handles `GET /v1/approvals`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let runtime = request.server.runtime();
    let namespace = request.namespace.clone();
    let below = request.query.get("below");
    let run = below.or(request.query.get("run")).map(RunId::new).transpose()?.map(|id| RunKey::new(namespace.clone(), id));
    if let Some(key) = &run {
        runtime.read_head(key).await?; // fails if the run does not exist
    }
    let limit = request.query.limit(PAGE_DEFAULT, LIMIT_MAX)?;
    let query = WaitQuery { namespace, run, below: below.is_some(), limit, partly: true };
    let WaitsReply { waits, missing } = request.execute::<verb::ListApprovals>(query).await?;
    let approvals = Approvals { approvals: waits.iter().map(Approval::from).collect() };
    Ok(json(StatusCode::OK, &Partly::new(approvals, missing)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecideBody {
    approved: bool,
    feedback: Option<String>,
    decided_by: Option<String>,
    decision_id: String,
}

/// Handles `POST /v1/approvals/{id}`.
pub(crate) async fn decide(mut request: Request) -> Result<Response, Problem> {
    let (namespace, call) = (request.namespace.clone(), request.call()?);
    let DecideBody { approved, feedback, decided_by, decision_id } = request.json().await?;
    let decide = Decide { approved, feedback, decided_by, decision_id };
    let decided = DecideRequest { namespace, approval: call.to_string(), decide };
    let appended = request.execute::<verb::DecideApproval>(decided).await?;
    Ok(json(StatusCode::OK, &Receipt::new(&call.run.id, &appended)))
}
