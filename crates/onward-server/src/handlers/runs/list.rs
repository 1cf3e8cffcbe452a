//! `GET /v1/runs`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::api::{ChildrenQuery, NamespaceRequest, RunList, RunQuery, verb};
use onward_core::{AttributeMatch, Name, NameError, Status};
use onward_store::PAGE_DEFAULT;

use crate::http::documents::{Partly, Run, Runs};
use crate::http::limits::LIMIT_MAX;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;

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
    let query = RunQuery {
        limit: request.query.limit(PAGE_DEFAULT, LIMIT_MAX)?,
        cursor: request.query.get("cursor").map(str::to_owned),
        partly: true,
        ..filter(&request)?
    };
    let RunList { runs, next, missing } = request.execute::<verb::ListRuns>(query).await?;
    let runs = Runs { runs: runs.iter().map(Run::from).collect(), next: next.as_deref() };
    Ok(json(StatusCode::OK, &Partly::new(runs, missing)))
}

/// Handles `GET /v1/runs/{id}/children`.
pub(crate) async fn children(request: Request) -> Result<Response, Problem> {
    let query = ChildrenQuery {
        run: request.key()?,
        statuses: request.query.all("status").map(status).collect::<Result<_, _>>()?,
        limit: request.query.limit(PAGE_DEFAULT, LIMIT_MAX)?,
        cursor: request.query.get("cursor").map(str::to_owned),
        partly: true,
    };
    let RunList { runs, next, missing } = request.execute::<verb::ListChildren>(query).await?;
    let runs = Runs { runs: runs.iter().map(Run::from).collect(), next: next.as_deref() };
    Ok(json(StatusCode::OK, &Partly::new(runs, missing)))
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
    let reply = request.execute::<verb::ListVersions>(NamespaceRequest { namespace: request.namespace.clone() }).await?;
    Ok(json(StatusCode::OK, &reply))
}

pub(crate) fn status(text: &str) -> Result<Status, RequestError> {
    STATUSES.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
        let known: Vec<&str> = STATUSES.iter().map(|status| status.as_str()).collect();
        RequestError::QueryInvalid { why: format!("`status` must be one of {}", known.join(", ")) }
    })
}
