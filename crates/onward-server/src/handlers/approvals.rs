//! Approvals: questions to people with one decision each.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::{RunId, RunKey};
use onward_runtime::{CallRef, Decide, RuntimeError};
use onward_store::{Appended, Gaps, PAGE_DEFAULT, WaitQuery};
use serde::Deserialize;

use crate::http::documents::{Answer, Approval, Approvals, Partly};
use crate::http::limits::LIMIT_MAX;
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::http::response::json;
use crate::server::Server;
use crate::trace::Level;

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
    let gaps = Gaps::default();
    let query = WaitQuery { namespace, kind: None, run, below: below.is_some(), limit, gaps: Some(gaps.clone()) };
    let waits = runtime.list_approvals(query).await?;
    let approvals = Approvals { approvals: waits.iter().map(Approval::from).collect() };
    Ok(json(StatusCode::OK, &Partly::new(approvals, &gaps)))
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
    let call = request.call()?;
    let DecideBody { approved, feedback, decided_by, decision_id } = request.json().await?;
    // The name of the credential wins, so that a caller cannot decide in the name of another.
    let decided_by = request.caller.name.take().or(decided_by);
    let decide = Decide { approved, feedback, decided_by, decision_id };
    let appended = carry_out(&request.server, &call, decide).await?;
    Ok(json(StatusCode::OK, &Answer::new(&call.run.id, &appended)))
}

/// Decides an approval. A decision that came too late is in no log of a run, so it is traced with its id and decider.
pub(crate) async fn carry_out(server: &Server, call: &CallRef, decide: Decide) -> Result<Appended, RuntimeError> {
    let (approved, decision_id, decided_by) = (decide.approved, decide.decision_id.clone(), decide.decided_by.clone());
    let decided = server.runtime().decide_approval(call, decide).await;
    if let Err(error) = &decided
        && error.code() == "signal_lost"
    {
        let decided_by = decided_by.as_deref().unwrap_or("");
        let fields: [(&str, &dyn std::fmt::Display); 5] = [
            ("approval", call),
            ("decision_id", &decision_id),
            ("decided_by", &decided_by),
            ("approved", &approved),
            ("error", error),
        ];
        server.trace().say(Level::Warn, "a decision came too late", &fields);
    }
    decided
}
