//! `GET /v1/runs`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::{Name, Status};
use onward_store::{PAGE_DEFAULT, RunQuery};

use crate::answer::json;
use crate::document::{Run, Runs};
use crate::problem::{Problem, RequestError};
use crate::request::Request;

/// The largest page.
const LIMIT_MAX: usize = 1_000;

const STATUSES: [Status; 8] = [
    Status::Pending,
    Status::Running,
    Status::Waiting,
    Status::Paused,
    Status::Completed,
    Status::Failed,
    Status::Canceled,
    Status::Terminated,
];

pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let query = &request.query;
    let query = RunQuery {
        namespace: request.namespace.clone(),
        kind: query.get("kind").map(Name::new).transpose()?,
        statuses: query.all("status").map(status).collect::<Result<_, _>>()?,
        created_from: query.time("created_from")?,
        created_until: query.time("created_until")?,
        limit: query.limit(PAGE_DEFAULT, LIMIT_MAX)?,
        cursor: query.get("cursor").map(str::to_owned),
    };
    let page = request.server.runtime().list_runs(query).await?;
    Ok(json(StatusCode::OK, &Runs { runs: page.runs.iter().map(Run::from).collect(), next: page.next.as_deref() }))
}

fn status(text: &str) -> Result<Status, RequestError> {
    STATUSES.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
        let known: Vec<&str> = STATUSES.iter().map(|status| status.as_str()).collect();
        RequestError::QueryInvalid { why: format!("`status` is one of {}", known.join(", ")) }
    })
}
