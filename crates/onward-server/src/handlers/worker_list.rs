//! Workers, queues and open tasks: `/v1/workers`, `/v1/queues`, `GET /v1/tasks`.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onward_core::api::{DeletedQuery, DeletedReply, TaskRequest, verb};
use onward_core::task::TaskState;
use onward_core::{RunId, RunKey};
use onward_runtime::RuntimeError;
use onward_store::{Gaps, PAGE_DEFAULT, TaskQuery};

use crate::http::documents::{DeletedRuns, OpenTasks, Partly, Queues};
use crate::http::limits::LIMIT_MAX;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;

/// Handles `GET /v1/workers`.
pub(crate) async fn workers(request: Request) -> Result<Response, Problem> {
    let reply = request.execute::<verb::ListWorkers>(request.namespace.clone().into()).await?;
    Ok(json(StatusCode::OK, &reply))
}

/// Handles `GET /v1/queues`.
pub(crate) async fn queues(request: Request) -> Result<Response, Problem> {
    let reply = request.execute::<verb::ListQueues>(request.namespace.clone().into()).await?;
    Ok(json(StatusCode::OK, &Queues::from(&*reply.queues)))
}

/// Handles `GET /v1/tasks`.
pub(crate) async fn tasks(request: Request) -> Result<Response, Problem> {
    let (namespace, run) = (request.namespace.clone(), run_of(&request)?);
    let state = match request.query.get("state") {
        None => None,
        Some("queued") => Some(TaskState::Queued),
        Some("running") => Some(TaskState::Leased),
        Some("quarantined") => Some(TaskState::Quarantined),
        Some(_) => {
            let why = "`state` must be one of queued, running, quarantined".to_owned();
            return Err(RequestError::QueryInvalid { why }.into());
        }
    };
    let limit = request.query.limit(PAGE_DEFAULT, LIMIT_MAX)?;
    let gaps = Gaps::default();
    let query = TaskQuery { namespace, state, run, limit, gaps: Some(gaps.clone()) };
    let tasks = request.server.runtime().store().list_tasks(query).await.map_err(RuntimeError::from)?;
    Ok(json(StatusCode::OK, &Partly::new(OpenTasks::from(&*tasks), gaps.names())))
}

/// Handles `POST /v1/tasks/{id}/retry`.
pub(crate) async fn retry(request: Request) -> Result<Response, Problem> {
    let task = request.call()?.to_string();
    request.execute::<verb::RetryTask>(TaskRequest { namespace: request.namespace.clone(), task }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Handles `GET /v1/deleted`.
pub(crate) async fn deleted(request: Request) -> Result<Response, Problem> {
    let (namespace, run) = (request.namespace.clone(), run_of(&request)?);
    let limit = request.query.limit(PAGE_DEFAULT, LIMIT_MAX)?;
    let query = DeletedQuery { namespace, run, limit, partly: true };
    let DeletedReply { runs, missing } = request.execute::<verb::ListDeleted>(query).await?;
    Ok(json(StatusCode::OK, &Partly::new(DeletedRuns::from(&*runs), missing)))
}

fn run_of(request: &Request) -> Result<Option<RunKey>, Problem> {
    let run = request.query.get("run").map(RunId::new).transpose()?;
    Ok(run.map(|id| RunKey::new(request.namespace.clone(), id)))
}
