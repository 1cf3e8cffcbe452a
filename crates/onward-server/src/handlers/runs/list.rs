//! `GET /v1/runs`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::{AttributeMatch, Name, NameError, Status};
use onward_store::{Gaps, PAGE_DEFAULT, RunQuery};

use crate::http::documents::{Partly, Run, Runs, Versions};
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;

/// Maximum number of runs on a page.
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
    let gaps = Gaps::default();
    let query = RunQuery {
        limit: request.query.limit(PAGE_DEFAULT, LIMIT_MAX)?,
        cursor: request.query.get("cursor").map(str::to_owned),
        gaps: Some(gaps.clone()),
        ..filter(&request)?
    };
    let page = request.server.runtime().list_runs(query).await?;
    let runs = Runs { runs: page.runs.iter().map(Run::from).collect(), next: page.next.as_deref() };
    Ok(json(StatusCode::OK, &Partly::new(runs, &gaps)))
}

/// Returns the filter of a query.
pub(crate) fn filter(request: &Request) -> Result<RunQuery, Problem> {
    let query = &request.query;
    let version = |text: &str| (!text.is_empty()).then(|| Name::new(text)).transpose();
    let attributes = query.with_prefix("attr.").map(|(name, text)| Ok(AttributeMatch::typed(Name::new(name)?, text)));
    Ok(RunQuery {
        namespace: request.namespace.clone(),
        kind: query.get("kind").map(Name::new).transpose()?,
        versions: query.all("version").map(version).collect::<Result<_, _>>()?,
        statuses: query.all("status").map(status).collect::<Result<_, _>>()?,
        attributes: attributes.collect::<Result<_, NameError>>()?,
        created_from: query.time("created_from")?,
        created_until: query.time("created_until")?,
        ..RunQuery::default()
    })
}

/// Handles `GET /v1/versions`.
pub(crate) async fn versions(request: Request) -> Result<Response, Problem> {
    let counts = request.server.runtime().list_versions(request.namespace.clone()).await?;
    Ok(json(StatusCode::OK, &Versions::from(counts.as_slice())))
}

pub(crate) fn status(text: &str) -> Result<Status, RequestError> {
    STATUSES.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
        let known: Vec<&str> = STATUSES.iter().map(|status| status.as_str()).collect();
        RequestError::QueryInvalid { why: format!("`status` must be one of {}", known.join(", ")) }
    })
}
