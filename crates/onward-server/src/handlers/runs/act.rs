//! `POST /v1/runs/{id}/cancel`, `terminate`, `pause`, `resume`: one input each.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::api::{Appended, ReasonRequest, ResumeRequest, Verb, verb};
use onward_core::budget::{Budget, WrittenBudget};
use serde::Deserialize;

use crate::http::documents::Receipt;
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::http::response::json;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ReasonBody {
    reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ResumeBody {
    budget: Option<WrittenBudget>,
}

pub(crate) async fn cancel(request: Request) -> Result<Response, Problem> {
    act::<verb::CancelRun>(request).await
}

pub(crate) async fn terminate(request: Request) -> Result<Response, Problem> {
    act::<verb::TerminateRun>(request).await
}

pub(crate) async fn pause(request: Request) -> Result<Response, Problem> {
    act::<verb::PauseRun>(request).await
}

pub(crate) async fn resume(mut request: Request) -> Result<Response, Problem> {
    let run = request.key()?;
    let body: ResumeBody = request.json_or_default().await?;
    let resume = ResumeRequest { run: run.clone(), budget: body.budget.map(Budget::from) };
    let appended = request.execute::<verb::ResumeRun>(resume).await?;
    Ok(json(StatusCode::ACCEPTED, &Receipt::new(&run.id, &appended)))
}

/// Executes a verb that has a run, a reason and a receipt.
pub(crate) async fn act<V: Verb<Request = ReasonRequest, Reply = Appended>>(mut request: Request) -> Result<Response, Problem> {
    let run = request.key()?;
    let body: ReasonBody = request.json_or_default().await?;
    let reason = body.reason.unwrap_or_default();
    let appended = request.execute::<V>(ReasonRequest { run: run.clone(), reason }).await?;
    Ok(json(StatusCode::ACCEPTED, &Receipt::new(&run.id, &appended)))
}
