//! For those who keep the server running: is it alive, is it ready, what has it done, what does it offer.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use onward_store::RunQuery;

use crate::answer::{text, typed};
use crate::openapi::document;
use crate::problem::{Problem, RequestError};
use crate::request::Request;

/// How long the store may take to answer before the server says that it is not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// `GET /`.
pub(crate) async fn index(_: Request) -> Result<Response, Problem> {
    let version = env!("CARGO_PKG_VERSION");
    Ok(text(
        StatusCode::OK,
        format!("onward {version}\n\nruns       /v1/runs\napprovals  /v1/approvals\nall routes /openapi.json\n"),
    ))
}

/// `GET /healthz`.
pub(crate) async fn healthz(_: Request) -> Result<Response, Problem> {
    Ok(text(StatusCode::OK, "ok\n"))
}

/// `GET /readyz`: somebody could be let in, the store answers a question and takes writes.
pub(crate) async fn readyz(request: Request) -> Result<Response, Problem> {
    if let Some(why) = request.server.options().auth.trouble() {
        return Err(RequestError::NotReady { why }.into());
    }
    if let Some(why) = request.server.options().probe.as_ref().and_then(|probe| probe.stopped()) {
        return Err(RequestError::NotReady { why }.into());
    }
    let ask = request.server.runtime().list_runs(RunQuery { limit: 1, ..RunQuery::default() });
    match tokio::time::timeout(READY_TIMEOUT, ask).await {
        Ok(Ok(_)) => Ok(text(StatusCode::OK, "ready\n")),
        Ok(Err(error)) => Err(RequestError::NotReady { why: error.to_string() }.into()),
        Err(_) => Err(RequestError::NotReady { why: "the store does not answer".to_owned() }.into()),
    }
}

/// `GET /metrics`.
pub(crate) async fn metrics(request: Request) -> Result<Response, Problem> {
    let stats = request.server.options().probe.as_ref().map(|probe| probe.stats());
    let page = request.server.metrics().page(stats);
    Ok(typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page))
}

/// `GET /openapi.json`.
pub(crate) async fn openapi(_: Request) -> Result<Response, Problem> {
    Ok(typed(StatusCode::OK, "application/json", document()))
}
