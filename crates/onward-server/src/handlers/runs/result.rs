//! `GET /v1/runs/{id}/result`.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;

use crate::http::documents::{Outcome, RunResult};
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::http::response::json;

pub(crate) async fn result(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let wait = request.query.wait(Duration::ZERO)?;
    let runtime = request.server.runtime();
    let outcome = match runtime.read_outcome(&key).await? {
        Some(outcome) => Some(outcome),
        None => tokio::select! {
            outcome = runtime.wait_for_outcome(&key) => Some(outcome?),
            () = tokio::time::sleep(wait) => None,
            () = request.server.closed() => None,
        },
    };
    let status = if outcome.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let head = runtime.read_head(&key).await?;
    let outcome = outcome.as_ref().map(Outcome::from);
    Ok(json(status, &RunResult { id: &key.id, status: head.status.as_str(), outcome }))
}
