//! Tasks: standalone ones (`/v1/tasks`), open ones of all runs, and rate-limited keys (`/v1/rate-limits`).

use onward_core::api::{Blocker, StartTaskRequest, TaskRequest, TaskStatus, TaskView, verb};
use onward_core::task::{RetryPolicy, TaskOptions, TaskState};
use onward_core::{Failure, Name, Namespace, Payload, RunId, RunKey, Timestamp};
use onward_runtime::RuntimeError;
use onward_store::{Gaps, TaskQuery};

use super::prelude::*;
use super::runs;
use crate::http::documents::{OneBlocker, OpenTasks, Outcome, Partly};
use crate::new_id;

bodies! {
    struct TaskBody as StartTask {
        kind: String as TaskKind,
        input: Option<Box<RawValue>>,
        /// A repeat with the same id, kind and input returns the existing task.
        id: Option<String> as Option<Name>,
        queue: Option<String> as Option<Name>,
        /// Its limits and its share of the queue apply to the task.
        key: Option<String> as Option<Name>,
        /// Higher priorities first; one level is worth a minute of waiting.
        priority: Option<i32>,
        /// Maximum number of attempts, or a retry policy.
        retry: Option<RetryBody>,
        #[serde(default)]
        timeouts: TimeoutsBody,
        /// Given to every attempt instead of the one derived from the id.
        idempotency_key: Option<String> as Option<Name>,
        /// Its attempts cost money and are counted in the spend of the run.
        #[serde(default)]
        costs: bool,
    }

    pub(super) struct PolicyBody as Retry {
        /// Maximum number of attempts; 0 is no limit.
        attempts_max: u32,
        first_delay_ms: Option<u64>,
        /// Each delay as a percentage of the previous one; 200 doubles it.
        growth_percent: Option<u32>,
        delay_max_ms: Option<u64>,
    }

    #[derive(Default)]
    struct TimeoutsBody as TaskTimeouts {
        /// Time limit until the first attempt begins.
        queued_ms: Option<u64>,
        /// Time limit of one attempt.
        attempt_ms: Option<u64>,
        /// Time limit of all attempts and the delays between them.
        total_ms: Option<u64>,
        /// Time limit between two heartbeats of an attempt.
        heartbeat_ms: Option<u64>,
    }

    struct ReopenBody as ReopenRateLimit {
        /// Kind of the tasks; `llm.NAME` for calls of a model.
        kind: String,
    }
}

/// Number of attempts, or the whole policy.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`retry` must be a number of attempts, or an object with `attempts_max` and optionally `first_delay_ms`, `growth_percent`, `delay_max_ms`"
)]
pub(super) enum RetryBody {
    Attempts(u32),
    Policy(PolicyBody),
}

#[cfg(test)]
impl crate::http::tests::shape::Shape for RetryBody {
    fn shape(schema: &mut onward_core::log::schema::Schema) -> serde_json::Value {
        serde_json::json!({"oneOf": [u32::shape(schema), PolicyBody::shape(schema)]})
    }
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

documents! {
    struct StartedTask<'a> {
        id: &'a RunId,
        kind: &'a Name,
        created: bool,
        created_at: Timestamp,
    }

    struct TaskDocument<'a> as TaskView(of: (&'a TaskView, &'a [Blocker])) {
        id: &'a RunId = &of.0.head.key.id,
        namespace: &'a Namespace = &of.0.head.key.namespace,
        kind: &'a Name = &of.0.kind,
        status: TaskStatus = of.0.state,
        /// Number of attempts begun.
        attempts: u32 = of.0.attempts,
        queue: Option<&'a Name> = of.0.options.queue.as_ref(),
        priority: i32 = of.0.options.priority(),
        input: &'a Payload = &of.0.input,
        progress: Option<&'a Payload> = of.0.progress.as_ref(),
        last_failure: Option<&'a Failure> = of.0.last_failure.as_ref(),
        outcome: Option<Outcome<'a>> = of.0.outcome.as_ref().map(Outcome::from),
        /// What the task is blocked on.
        blocked_on: Vec<OneBlocker<'a>> = of.1.iter().map(OneBlocker::from).collect(),
        created_at: Timestamp = of.0.head.created_at,
        ended_at: Option<Timestamp> = of.0.head.ended_at,
    }

    struct RateLimitList {
        rate_limits: Vec<RateLimitDocument>,
    }

    struct RateLimitDocument as RateLimit {
        /// Kind of the tasks; `llm.NAME` for calls of a model.
        kind: Name,
        until: Timestamp,
    }

    struct ReopenResult as ReopenedRateLimit {
        kind: Name,
        /// The kind was rate-limited.
        reopened: bool,
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
        retry: body.retry.map(RetryPolicy::from),
        queued_timeout_ms: body.timeouts.queued_ms,
        attempt_timeout_ms: body.timeouts.attempt_ms,
        total_timeout_ms: body.timeouts.total_ms,
        heartbeat_timeout_ms: body.timeouts.heartbeat_ms,
        idempotency_key: body.idempotency_key,
        class: None,
        costs: body.costs,
        from_kind: Vec::new(),
        key: body.key.map(Name::new).transpose()?,
    };
    let task = RunKey::new(request.by.namespace.clone(), id);
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
    let mut blocked_on = runs::blocked_on(runtime, &key).await?;
    blocked_on.retain(|blocker| blocker.task.is_some());
    Ok(json(StatusCode::OK, &TaskDocument::from((&view, &*blocked_on))))
}

/// Handles `GET /v1/tasks/{id}/result`: the result of the task's run.
pub(crate) async fn result(request: Request) -> Result<Response, Problem> {
    request.server.runtime().read_task(&request.key()?).await?;
    runs::result(request).await
}

/// Handles `GET /v1/tasks`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let (namespace, run) = (request.by.namespace.clone(), runs::run_of(&request)?);
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
    let limit = request.query.limit()?;
    let gaps = Gaps::default();
    let query = TaskQuery { namespace, state, run, limit, gaps: Some(gaps.clone()) };
    let mut tasks = request.server.runtime().store().list_tasks(query).await.map_err(RuntimeError::from)?;
    tasks.retain(|task| !task.is_slot());
    Ok(json(StatusCode::OK, &Partly::new(OpenTasks::from(&*tasks), gaps.names())))
}

/// Handles `POST /v1/tasks/{id}/retry`.
pub(crate) async fn retry(request: Request) -> Result<Response, Problem> {
    let task = request.call()?.to_string();
    request.execute::<verb::RetryTask>(TaskRequest { namespace: request.by.namespace.clone(), task }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Handles `GET /v1/rate-limits`.
pub(crate) async fn rate_limits(request: Request) -> Result<Response, Problem> {
    let limits = request.server.runtime().list_rate_limits(&request.by.namespace).await;
    let rate_limits = limits.into_iter().map(|limit| RateLimitDocument { kind: limit.kind, until: limit.until }).collect();
    Ok(json(StatusCode::OK, &RateLimitList { rate_limits }))
}

/// Handles `POST /v1/rate-limits/reopen`.
pub(crate) async fn reopen_rate_limit(mut request: Request) -> Result<Response, Problem> {
    let body: ReopenBody = request.json().await?;
    let kind = Name::new(body.kind)?;
    let by = &request.by;
    // A key for some kinds does not release those of others (BK1), and a key for one namespace none of another (S6).
    for (namespace, released) in request.server.runtime().kinds_sharing_limit(&by.namespace, &kind).await? {
        if namespace != by.namespace {
            by.check_all_namespaces(&request.server).await?;
        }
        by.caller.bounds.check_kind(&released)?;
    }
    let reopened = request.server.runtime().reopen_rate_limit(&request.by.namespace, &kind).await?;
    Ok(json(StatusCode::OK, &ReopenResult { kind, reopened }))
}
