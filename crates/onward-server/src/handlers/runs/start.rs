//! Starting runs, and requests to their code: signals, updates, queries, results.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::LOCATION;
use onward_core::api::{AskRequest, Signal, SignalRequest, StartRequest, verb};
use onward_core::budget::{Budget, WrittenBudget};
use onward_core::{Name, RunId, RunKey, Timestamp};
use onward_runtime::RuntimeError;

use crate::handlers::attributes::{PlainValue, attributes};
use crate::handlers::prelude::*;
use crate::http::documents::{Outcome, Receipt, Run, RunResult, StartedRun, UpdateAnswer};
use crate::new_id;

/// Default time to wait for the result of an update or a query.
const WAIT_DEFAULT: Duration = Duration::from_secs(30);

bodies! {
    struct StartBody as StartRun {
        kind: String as Name,
        input: Option<Box<RawValue>>,
        /// A repeat with the same id, kind and input returns the existing run.
        id: Option<String> as Option<Name>,
        version: Option<String> as Option<Name>,
        signal: Option<SignalBody>,
        #[serde(default)]
        attributes: BTreeMap<String, PlainValue> as Attributes,
        budget: Option<WrittenBudget>,
        /// Time after which the run is canceled; time before `start_at` and while it is paused does not count.
        deadline_ms: Option<u64>,
        /// Time at which the code begins; at once if it has passed.
        start_at: Option<Timestamp>,
        /// Time after the request at which the code begins, instead of `start_at`.
        start_after_ms: Option<u64>,
        /// Queue that lets the run begin; without it, the default of its kind, if it has one.
        queue: Option<String> as Name,
        /// Key whose limits and share of the queue apply to the run.
        key: Option<String> as Name,
        /// Higher begins first, 0 by default; one level is worth a minute of waiting.
        priority: Option<i32>,
    }

    pub(crate) struct SignalBody as SendSignal {
        name: String as Name,
        payload: Option<Box<RawValue>>,
        /// Idempotency key: a repeat with the same id is the same signal.
        signal_id: Option<String> as Option<Name>,
    }

    struct UpdateBody as SendUpdate {
        name: String as Name,
        payload: Option<Box<RawValue>>,
        /// Idempotency key: a repeat with the same id waits for the same result.
        update_id: Option<String> as Option<Name>,
    }

    struct QueryBody as AskQuery {
        name: String as Name,
        input: Option<Box<RawValue>>,
    }
}

documents! {
    struct QueryAnswer<'a> {
        run: &'a RunId,
        outcome: Outcome<'a>,
    }
}

/// Handles `POST /v1/runs`.
pub(crate) async fn start(mut request: Request) -> Result<Response, Problem> {
    let body: StartBody = request.json().await?;
    let id = RunId::new(body.id.unwrap_or_else(|| new_id::run_id(request.server.runtime().clock().now())))?;
    let start = StartRequest {
        version: body.version.map(Name::new).transpose()?,
        signal: body.signal.map(SignalBody::read).transpose()?,
        attributes: attributes(body.attributes)?,
        budget: body.budget.map(Budget::from),
        deadline_ms: body.deadline_ms,
        start_at: body.start_at,
        start_after_ms: body.start_after_ms,
        queue: body.queue.map(Name::new).transpose()?,
        key: body.key.map(Name::new).transpose()?,
        priority: body.priority,
        ..StartRequest::new(
            RunKey::new(request.by.namespace.clone(), id),
            Name::new(body.kind)?,
            payload(body.input),
            new_id::random_u64(),
        )
    };
    let started = request.execute::<verb::StartRun>(start).await?;
    let id = &started.head.key.id;
    let signal = started.signal.as_ref().map(|appended| Receipt::new(id, appended));
    let status = if started.created { StatusCode::CREATED } else { StatusCode::OK };
    let document = StartedRun { run: Run::from(&started.head), created: started.created, signal };
    let mut response = json(status, &document);
    let location: String = form_urlencoded::byte_serialize(id.as_str().as_bytes()).collect();
    // Form encoding writes a blank as `+`, a path needs `%20`.
    if let Ok(location) = HeaderValue::try_from(format!("/v1/runs/{}", location.replace('+', "%20"))) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

impl SignalBody {
    pub fn read(self) -> Result<Signal, Problem> {
        Ok(Signal { name: Name::new(self.name)?, payload: payload(self.payload), signal_id: self.signal_id })
    }
}

/// Handles `POST /v1/runs/{id}/signals`.
pub(crate) async fn signal(mut request: Request) -> Result<Response, Problem> {
    let run = request.key()?;
    let signal = request.json::<SignalBody>().await?.read()?;
    let appended = request.execute::<verb::SignalRun>(SignalRequest { run: run.clone(), signal }).await?;
    Ok(json(StatusCode::ACCEPTED, &Receipt::new(&run.id, &appended)))
}

/// Handles `POST /v1/runs/{id}/updates`. Responds after the update is recorded, with its result if it comes in time.
pub(crate) async fn update(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let wait = request.query.wait(WAIT_DEFAULT)?;
    let body: UpdateBody = request.json().await?;
    let (name, payload) = (Name::new(body.name)?, payload(body.payload));
    let update_id = body.update_id.unwrap_or_else(new_id::update_id);
    let mut sent = request.server.runtime().send_update(&key, &update_id, name, payload).await?;
    let outcome = tokio::select! {
        biased;
        answer = sent.answer() => Some(answer?),
        () = tokio::time::sleep(wait) => None,
        () = request.server.closed() => None,
    };
    let status = if outcome.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let outcome = outcome.as_ref().map(Outcome::from);
    Ok(json(status, &UpdateAnswer { run: &key.id, update_id: &update_id, outcome }))
}

/// Handles `POST /v1/runs/{id}/queries`. Nothing is recorded, so a query that timed out can be repeated.
pub(crate) async fn query(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let wait = request.query.wait(WAIT_DEFAULT)?;
    let body: QueryBody = request.json().await?;
    let name = Name::new(body.name)?;
    let (run, payload, update_id) = (key.clone(), payload(body.input), String::new());
    let query = request.execute::<verb::QueryRun>(AskRequest { run, name: name.clone(), payload, update_id });
    let unanswered = || RuntimeError::Unanswered { key: key.clone(), name: name.clone() };
    let answered = tokio::time::timeout(wait, query).await.map_err(|_| unanswered())??;
    let unknown = || RequestError::UnknownQuery { run: key.id.to_string(), name: name.to_string() };
    let outcome = answered.answer.ok_or_else(unknown)?;
    Ok(json(StatusCode::OK, &QueryAnswer { run: &key.id, outcome: Outcome::from(&outcome) }))
}

/// Handles `GET /v1/runs/{id}/result`.
pub(crate) async fn result(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let wait = request.query.wait(Duration::ZERO)?;
    let runtime = request.server.runtime();
    let outcome = match runtime.read_outcome(&key).await? {
        Some(outcome) => Some(outcome),
        None => tokio::select! {
            outcome = runtime.wait_for_outcome(&key) => Some(outcome?),
            () = tokio::time::sleep(wait) => None,
            () = request.server.closed() => None,
        },
    };
    let status = if outcome.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let head = runtime.read_head(&key).await?;
    let outcome = outcome.as_ref().map(Outcome::from);
    Ok(json(status, &RunResult { id: &key.id, status: head.status, outcome }))
}
