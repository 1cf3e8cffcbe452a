//! `DELETE /v1/runs/{id}`.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::http::problem::Problem;
use crate::http::request::Request;

pub(crate) async fn delete(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    request.server.runtime().delete_run(&key, request.query.get("reason").unwrap_or_default()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
