//! `GET /v1/runs/{id}`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::RunKey;
use onward_runtime::{Blocker, Runtime};

use crate::http::documents::View;
use crate::http::problem::Problem;
use crate::http::request::Request;
use crate::http::response::json;

pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let (runtime, key) = (request.server.runtime(), request.key()?);
    let view = runtime.read_run(&key).await?;
    let blocked_on = blocked_on(runtime, &key).await?;
    let why_pending = runtime.why_pending_anywhere(&view.head).await;
    Ok(json(StatusCode::OK, &View::from(&view).with(&blocked_on, why_pending)))
}

/// Returns what the tasks of a run are blocked on; nothing if the run was deleted meanwhile.
pub(crate) async fn blocked_on(runtime: &Runtime, key: &RunKey) -> Result<Vec<Blocker>, Problem> {
    match runtime.blocked_on(key).await {
        Err(error) if error.code() == "run_not_found" => Ok(Vec::new()), // deleted meanwhile
        found => Ok(found?),
    }
}
