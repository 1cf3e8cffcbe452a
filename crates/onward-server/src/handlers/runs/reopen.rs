//! `POST /v1/runs/{id}/retry`, `fork`, `reset`: runs that continue from a copy of a log.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::reopen::Retry;
use onward_core::{Index, Name, RunId};
use onward_runtime::ForkRun;
use onward_store::Restored;
use serde::Deserialize;

use crate::auth::ceilings;
use crate::http::documents::{Run, StartedRun};
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;
use crate::new_id;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RetryBody {
    request_id: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    include_outcome_unknown: bool,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Signals {
    #[default]
    Keep,
    Drop,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Children {
    Await,
    Restart,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct CopyBody {
    /// Last event to copy, for a fork.
    from: Option<u64>,
    /// Last event to copy, for a reset.
    to: Option<u64>,
    id: Option<String>,
    generation: Option<u32>,
    #[serde(default)]
    signals: Signals,
    children: Option<Children>,
    version: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    include_outcome_unknown: bool,
}

pub(crate) async fn retry(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let body: RetryBody = request.json_or_default().await?;
    let request_id = body.request_id.unwrap_or_else(new_id::request_id);
    let (reason, include_outcome_unknown) = (body.reason.unwrap_or_default(), body.include_outcome_unknown);
    let budget_max = ceilings::of_copy(&request.namespace, &request.caller, &request.server);
    let caller = request.caller.name.clone();
    let retry = Retry { request_id, reason, include_outcome_unknown, caller, budget_max };
    let restored = request.server.runtime().retry_run(&key, &retry).await?;
    Ok(answer(StatusCode::ACCEPTED, &restored))
}

pub(crate) async fn fork(mut request: Request) -> Result<Response, Problem> {
    let body: CopyBody = request.json_or_default().await?;
    let from = only(body.from, "to", body.to)?;
    copy(request, body, from, false).await
}

pub(crate) async fn reset(mut request: Request) -> Result<Response, Problem> {
    let body: CopyBody = request.json_or_default().await?;
    let to = only(body.to, "from", body.from)?;
    copy(request, body, to, true).await
}

/// Refuses `to` in a fork and `from` in a reset: the caller may have confused the two verbs.
fn only(point: Option<u64>, other: &str, given: Option<u64>) -> Result<Option<u64>, RequestError> {
    match given {
        None => Ok(point),
        Some(_) => Err(RequestError::JsonInvalid { why: format!("unknown `{other}`; a fork has `from`, a reset `to`") }),
    }
}

async fn copy(request: Request, body: CopyBody, index: Option<u64>, is_reset: bool) -> Result<Response, Problem> {
    let key = request.key()?;
    let runtime = request.server.runtime();
    let seed = new_id::random_u64();
    let plain = if is_reset { ForkRun::reset(seed) } else { ForkRun::new(seed) };
    let fork = ForkRun {
        id: body.id.map(RunId::new).transpose()?,
        generation: body.generation,
        index: index.map(Index),
        keep_signals: body.signals == Signals::Keep,
        restart_children: body.children.map_or(plain.restart_children, |children| children == Children::Restart),
        version: body.version.map(Name::new).transpose()?,
        reason: body.reason.unwrap_or_default(),
        include_outcome_unknown: body.include_outcome_unknown,
        caller: request.caller.name.clone(),
        budget_max: ceilings::of_copy(&request.namespace, &request.caller, &request.server),
        ..plain
    };
    let restored = runtime.fork_run(&key, fork).await?;
    Ok(answer(StatusCode::CREATED, &restored))
}

fn answer(created: StatusCode, restored: &Restored) -> Response {
    let status = if restored.created { created } else { StatusCode::OK };
    json(status, &StartedRun { run: Run::from(&restored.head), created: restored.created, signal: None })
}
