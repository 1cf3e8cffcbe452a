//! Routes of rate-limited keys.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::{Name, Timestamp};
use serde::{Deserialize, Serialize};

use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::http::response::json;

#[derive(Serialize)]
struct RateLimitList {
    rate_limits: Vec<RateLimitDocument>,
}

#[derive(Serialize)]
struct RateLimitDocument {
    kind: Name,
    until: Timestamp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReopenBody {
    kind: String,
}

#[derive(Serialize)]
struct ReopenResult {
    kind: Name,
    /// Whether the kind was rate-limited.
    reopened: bool,
}

/// Handles `GET /v1/rate-limits`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let limits = request.server.runtime().list_rate_limits(&request.namespace).await;
    let rate_limits = limits.into_iter().map(|limit| RateLimitDocument { kind: limit.kind, until: limit.until }).collect();
    Ok(json(StatusCode::OK, &RateLimitList { rate_limits }))
}

/// Handles `POST /v1/rate-limits/reopen`.
pub(crate) async fn reopen(mut request: Request) -> Result<Response, Problem> {
    let body: ReopenBody = request.json().await?;
    let kind = Name::new(body.kind)?;
    // BK1: a key for some kinds does not release those of others.
    for released in request.server.runtime().kinds_sharing_limit(&request.namespace, &kind).await {
        request.caller.bounds.check_kind(&released)?;
    }
    let reopened = request.server.runtime().reopen_rate_limit(&request.namespace, &kind).await;
    Ok(json(StatusCode::OK, &ReopenResult { kind, reopened }))
}
