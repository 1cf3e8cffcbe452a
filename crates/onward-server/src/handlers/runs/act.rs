//! `POST /v1/runs/{id}/cancel`, `terminate`, `pause`, `resume`: one input each.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::RunKey;
use onward_core::budget::{Budget, WrittenBudget};
use onward_core::event::{PauseReason, RunPaused};
use onward_store::Appended;
use serde::Deserialize;

use crate::auth::ceilings;
use crate::http::documents::Answer;
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::http::response::json;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReasonBody {
    pub reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ResumeBody {
    budget: Option<WrittenBudget>,
}

pub(crate) async fn cancel(mut request: Request) -> Result<Response, Problem> {
    let (key, reason) = reason(&mut request).await?;
    Ok(appended(&key, request.server.runtime().cancel_run(&key, &reason).await?))
}

pub(crate) async fn terminate(mut request: Request) -> Result<Response, Problem> {
    let (key, reason) = reason(&mut request).await?;
    Ok(appended(&key, request.server.runtime().terminate_run(&key, &reason).await?))
}

pub(crate) async fn pause(mut request: Request) -> Result<Response, Problem> {
    let (key, message) = reason(&mut request).await?;
    let pause = RunPaused::because(PauseReason::Requested, message);
    Ok(appended(&key, request.server.runtime().pause_run(&key, pause).await?))
}

pub(crate) async fn resume(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let body: ResumeBody = request.json_or_default().await?;
    let asked = body.budget.map(Budget::from);
    let budget = ceilings::of_resume(asked, &request.namespace, &request.caller, &request.server)?;
    Ok(appended(&key, request.server.runtime().resume_run(&key, budget).await?))
}

async fn reason(request: &mut Request) -> Result<(RunKey, String), Problem> {
    let key = request.key()?;
    let body: ReasonBody = request.json_or_default().await?;
    Ok((key, body.reason.unwrap_or_default()))
}

fn appended(key: &RunKey, appended: Appended) -> Response {
    json(StatusCode::ACCEPTED, &Answer::new(&key.id, &appended))
}
