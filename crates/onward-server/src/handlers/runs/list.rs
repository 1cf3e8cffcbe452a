//! Reading runs: one, lists of them, counts by version, deleted ones, and what they spent.

use onward_core::api::{Blocker, ChildrenQuery, DeletedQuery, DeletedReply, RunList, RunQuery, verb};
use onward_core::ledger::{SpendBy, SpendQuery};
use onward_core::{AttributeMatch, ErrorCode, Name, NameError, RunId, RunKey, Status};
use onward_runtime::Runtime;

use crate::handlers::prelude::*;
use crate::http::documents::{BlockedView, DeletedRuns, Partly, Run, Runs, Spend};

/// Handles `GET /v1/runs/{id}`.
pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let (runtime, key) = (request.server.runtime(), request.key()?);
    let view = runtime.read_run(&key).await?;
    let blocked_on = blocked_on(runtime, &key).await?;
    let mut active = None;
    if request.query.flag("active")? {
        let read = request.execute::<verb::ReadActive>(key.into()).await.map(|reply| reply.active);
        active = Some(read.or_else(|problem| if_deleted(problem, Vec::new()))?);
    }
    Ok(json(StatusCode::OK, &BlockedView::new(&view, &blocked_on, active.as_deref())))
}

/// Returns what a run and its tasks are blocked on; nothing if the run was deleted meanwhile.
pub(crate) async fn blocked_on(runtime: &Runtime, key: &RunKey) -> Result<Vec<Blocker>, Problem> {
    runtime.blocked_on(key).await.map_err(Problem::from).or_else(|problem| if_deleted(problem, Vec::new()))
}

/// Returns a value instead of the error that the run was deleted meanwhile.
fn if_deleted<T>(problem: Problem, value: T) -> Result<T, Problem> {
    if problem.code == ErrorCode::RunNotFound.as_str() { Ok(value) } else { Err(problem) }
}

/// Handles `GET /v1/runs`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let query = RunQuery {
        limit: request.query.limit()?,
        cursor: request.query.get("cursor").map(str::to_owned),
        partly: true,
        ..filter(&request)?
    };
    Ok(page(request.execute::<verb::ListRuns>(query).await?))
}

/// Handles `GET /v1/runs/{id}/children`.
pub(crate) async fn children(request: Request) -> Result<Response, Problem> {
    let query = ChildrenQuery {
        run: request.key()?,
        statuses: request.query.all("status").map(status).collect::<Result<_, _>>()?,
        limit: request.query.limit()?,
        cursor: request.query.get("cursor").map(str::to_owned),
        partly: true,
    };
    Ok(page(request.execute::<verb::ListChildren>(query).await?))
}

fn page(RunList { runs, next, missing }: RunList) -> Response {
    let runs = Runs { runs: runs.iter().map(Run::from).collect(), next: next.as_deref() };
    json(StatusCode::OK, &Partly::new(runs, missing))
}

/// Returns the filter of a query.
pub(crate) fn filter(request: &Request) -> Result<RunQuery, Problem> {
    let query = &request.query;
    let version = |text: &str| (!text.is_empty()).then(|| Name::new(text)).transpose();
    let attributes = query.with_prefix("attr.").map(|(name, text)| Ok(AttributeMatch::typed(Name::new(name)?, text)));
    Ok(RunQuery {
        namespace: request.by.namespace.clone(),
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
    let reply = request.execute::<verb::ListVersions>(request.by.namespace.clone().into()).await?;
    Ok(json(StatusCode::OK, &reply))
}

pub(crate) fn status(text: &str) -> Result<Status, RequestError> {
    Status::ALL.iter().copied().find(|status| status.as_str() == text).ok_or_else(|| {
        let known: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
        RequestError::QueryInvalid { why: format!("`status` must be one of {}", known.join(", ")) }
    })
}

/// Handles `GET /v1/deleted`.
pub(crate) async fn deleted(request: Request) -> Result<Response, Problem> {
    let (namespace, run) = (request.by.namespace.clone(), run_of(&request)?);
    let limit = request.query.limit()?;
    let query = DeletedQuery { namespace, run, limit, partly: true };
    let DeletedReply { runs, missing } = request.execute::<verb::ListDeleted>(query).await?;
    Ok(json(StatusCode::OK, &Partly::new(DeletedRuns::from(&*runs), missing)))
}

/// Returns the run that the query names.
pub(crate) fn run_of(request: &Request) -> Result<Option<RunKey>, Problem> {
    let run = request.query.get("run").map(RunId::new).transpose()?;
    Ok(run.map(|id| RunKey::new(request.by.namespace.clone(), id)))
}

/// Handles `GET /v1/spend`.
pub(crate) async fn spend(request: Request) -> Result<Response, Problem> {
    let query = SpendQuery {
        namespace: request.by.namespace.clone(),
        by: request.query.get("by").map_or(Ok(SpendBy::Model), by)?,
        from: request.query.time("from")?,
        until: request.query.time("to")?,
        tree: request.query.get("tree").map(RunId::new).transpose()?,
        limit: request.query.limit()?,
    };
    let (by, limit) = (query.by, query.limit);
    let rows = request.execute::<verb::ReadSpend>(query).await?.rows;
    Ok(json(StatusCode::OK, &Spend::new(by, &rows, limit)))
}

fn by(text: &str) -> Result<SpendBy, RequestError> {
    SpendBy::from_word(text).ok_or_else(|| {
        let known: Vec<&str> = SpendBy::ALL.iter().map(|by| by.as_str()).collect();
        RequestError::QueryInvalid { why: format!("`by` must be one of {}", known.join(", ")) }
    })
}
