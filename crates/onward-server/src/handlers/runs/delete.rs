//! `DELETE /v1/runs/{id}`.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onward_core::api::{ReasonRequest, verb};

use crate::http::problem::Problem;
use crate::http::request::Request;

pub(crate) async fn delete(request: Request) -> Result<Response, Problem> {
    let reason = request.query.get("reason").unwrap_or_default().to_owned();
    request.execute::<verb::DeleteRun>(ReasonRequest { run: request.key()?, reason }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
