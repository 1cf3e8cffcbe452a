//! For those who keep the server running: is it alive, is it ready, what has it done, what does it offer.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use onward_store::RunQuery;

use crate::answer::{text, typed};
use crate::openapi::document;
use crate::problem::{Problem, RequestError};
use crate::request::Request;
use crate::server::Server;

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

/// `GET /readyz`.
pub(crate) async fn readyz(request: Request) -> Result<Response, Problem> {
    readiness(&request.server).await.map_err(|why| RequestError::NotReady { why })?;
    Ok(text(StatusCode::OK, "ready\n"))
}

/// Whether somebody could be let in, the store answers a question and takes writes; otherwise why not.
pub(crate) async fn readiness(server: &Server) -> Result<(), String> {
    if let Some(why) = server.options().auth.trouble() {
        return Err(why);
    }
    if let Some(why) = server.options().probe.as_ref().and_then(|probe| probe.stopped()) {
        return Err(why);
    }
    let ask = server.runtime().list_runs(RunQuery { limit: 1, ..RunQuery::default() });
    match tokio::time::timeout(READY_TIMEOUT, ask).await {
        Ok(answer) => answer.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err("the store does not answer".to_owned()),
    }
}

/// `GET /metrics`.
pub(crate) async fn metrics(request: Request) -> Result<Response, Problem> {
    let stats = request.server.options().probe.as_ref().map(|probe| probe.stats());
    let page = request.server.metrics().page(request.server.runtime(), stats);
    Ok(typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page))
}

/// `GET /openapi.json`.
pub(crate) async fn openapi(_: Request) -> Result<Response, Problem> {
    Ok(typed(StatusCode::OK, "application/json", document()))
}
