//! Standalone tasks: `/v1/tasks`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::api::{Blocker, StartTaskRequest, TaskView, verb};
use onward_core::task::{RetryPolicy, TaskOptions};
use onward_core::{Failure, Name, Namespace, Payload, RunId, RunKey, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::handlers::runs;
use crate::http::documents::{OneBlocker, Outcome};
use crate::http::problem::Problem;
use crate::http::request::{Request, payload};
use crate::http::response::json;
use crate::new_id;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskBody {
    kind: String,
    input: Option<Box<RawValue>>,
    id: Option<String>,
    queue: Option<String>,
    #[serde(default)]
    priority: i32,
    retry: Option<RetryBody>,
    #[serde(default)]
    timeouts: TimeoutsBody,
    idempotency_key: Option<String>,
    #[serde(default)]
    costs: bool,
}

/// Number of attempts, or the whole policy.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`retry` must be a number of attempts, or an object with `attempts_max` and optionally `first_delay_ms`, `growth_percent`, `delay_max_ms`"
)]
enum RetryBody {
    Attempts(u32),
    Policy(PolicyBody),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyBody {
    attempts_max: u32,
    first_delay_ms: Option<u64>,
    growth_percent: Option<u32>,
    delay_max_ms: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct TimeoutsBody {
    queued_ms: Option<u64>,
    attempt_ms: Option<u64>,
    total_ms: Option<u64>,
    heartbeat_ms: Option<u64>,
}

impl From<RetryBody> for RetryPolicy {
    fn from(body: RetryBody) -> RetryPolicy {
        let PolicyBody { attempts_max, first_delay_ms, growth_percent, delay_max_ms } = match body {
            RetryBody::Attempts(attempts) => return RetryPolicy::attempts(attempts),
            RetryBody::Policy(policy) => policy,
        };
        let usual = RetryPolicy::attempts(attempts_max);
        RetryPolicy {
            attempts_max,
            first_delay_ms: first_delay_ms.unwrap_or(usual.first_delay_ms),
            growth_percent: growth_percent.unwrap_or(usual.growth_percent),
            delay_max_ms: delay_max_ms.unwrap_or(usual.delay_max_ms),
        }
    }
}

#[derive(Serialize)]
struct StartedTask<'a> {
    id: &'a RunId,
    kind: &'a Name,
    created: bool,
    created_at: Timestamp,
}

#[derive(Serialize)]
struct TaskDocument<'a> {
    id: &'a RunId,
    namespace: &'a Namespace,
    kind: &'a Name,
    status: &'static str,
    attempts: u32,
    queue: Option<&'a Name>,
    priority: i32,
    input: &'a Payload,
    progress: Option<&'a Payload>,
    last_failure: Option<&'a Failure>,
    outcome: Option<Outcome<'a>>,
    blocked_on: Vec<OneBlocker<'a>>,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
}

impl<'a> TaskDocument<'a> {
    fn new(view: &'a TaskView, blocked_on: &'a [Blocker]) -> TaskDocument<'a> {
        TaskDocument {
            id: &view.head.key.id,
            namespace: &view.head.key.namespace,
            kind: &view.kind,
            status: view.state.as_str(),
            attempts: view.attempts,
            queue: view.options.queue.as_ref(),
            priority: view.options.priority,
            input: &view.input,
            progress: view.progress.as_ref(),
            last_failure: view.last_failure.as_ref(),
            outcome: view.outcome.as_ref().map(Outcome::from),
            blocked_on: blocked_on.iter().map(OneBlocker::from).collect(),
            created_at: view.head.created_at,
            ended_at: view.head.ended_at,
        }
    }
}

/// Handles `POST /v1/tasks`.
pub(crate) async fn start(mut request: Request) -> Result<Response, Problem> {
    let body: TaskBody = request.json().await?;
    let id = RunId::new(body.id.unwrap_or_else(|| new_id::run_id(request.server.runtime().clock().now())))?;
    let kind = Name::new(body.kind)?;
    let options = TaskOptions {
        queue: body.queue.map(Name::new).transpose()?,
        priority: body.priority,
        retry: body.retry.map(RetryPolicy::from).unwrap_or_default(),
        queued_timeout_ms: body.timeouts.queued_ms,
        attempt_timeout_ms: body.timeouts.attempt_ms,
        total_timeout_ms: body.timeouts.total_ms,
        heartbeat_timeout_ms: body.timeouts.heartbeat_ms,
        idempotency_key: body.idempotency_key,
        class: None,
        costs: body.costs,
    };
    let task = RunKey::new(request.namespace.clone(), id);
    let start = StartTaskRequest { task, kind: kind.clone(), input: payload(body.input), options, trace: None };
    let started = request.execute::<verb::StartTask>(start).await?;
    let status = if started.created { StatusCode::CREATED } else { StatusCode::OK };
    let (id, created, created_at) = (&started.head.key.id, started.created, started.head.created_at);
    Ok(json(status, &StartedTask { id, kind: &kind, created, created_at }))
}

/// Handles `GET /v1/tasks/{id}`.
pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let (runtime, key) = (request.server.runtime(), request.key()?);
    let view = request.execute::<verb::ReadTask>(key.clone().into()).await?;
    let blocked_on = runs::blocked_on(runtime, &key).await?;
    Ok(json(StatusCode::OK, &TaskDocument::new(&view, &blocked_on)))
}

/// Handles `GET /v1/tasks/{id}/result`: the result of the task's run.
pub(crate) async fn result(request: Request) -> Result<Response, Problem> {
    request.server.runtime().read_task(&request.key()?).await?;
    runs::result(request).await
}

/// Handles `POST /v1/tasks/{id}/cancel`.
pub(crate) async fn cancel(request: Request) -> Result<Response, Problem> {
    runs::act::<verb::CancelTask>(request).await
}
