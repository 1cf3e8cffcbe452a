//! `POST /v1/runs`.

use std::collections::BTreeMap;

use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use onward_core::budget::{Budget, WrittenBudget};
use onward_core::{Name, RunId, RunKey};
use onward_runtime::StartRun;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::signal::SignalBody;
use crate::auth::Scope;
use crate::auth::ceilings;
use crate::handlers::attributes::{GivenValue, attributes};
use crate::http::documents::{Answer, Run, StartedRun};
use crate::http::problem::Problem;
use crate::http::request::{self, Request, payload};
use crate::http::response::json;
use crate::new_id;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartBody {
    kind: String,
    input: Option<Box<RawValue>>,
    id: Option<String>,
    version: Option<String>,
    signal: Option<SignalBody>,
    #[serde(default)]
    attributes: BTreeMap<String, GivenValue>,
    budget: Option<WrittenBudget>,
}

pub(crate) async fn start(mut request: Request) -> Result<Response, Problem> {
    let body: StartBody = request.json().await?;
    if let (Some(_), Some(pass)) = (&body.signal, &request.pass) {
        pass.check_also(Scope::Signal, &request.server).await?; // the run may exist already
    }
    let kind = Name::new(body.kind)?;
    request.caller.bounds.check_kind(&kind)?;
    let asked = body.budget.map(Budget::from);
    let budget = ceilings::of_start(asked, &request.namespace, &request.caller, request.pass.as_ref(), &request.server).await?;
    let runtime = request.server.runtime();
    let id = RunId::new(body.id.unwrap_or_else(|| new_id::run_id(runtime.clock().now())))?;
    let start = StartRun {
        key: RunKey::new(request.namespace.clone(), id),
        kind,
        version: body.version.map(Name::new).transpose()?,
        input: payload(body.input),
        seed: new_id::random_u64(),
        signal: body.signal.map(SignalBody::read).transpose()?,
        attributes: attributes(body.attributes)?,
        trace: request::trace(&request.headers),
        budget,
    };
    let runtime = runtime.clone();
    let requester = request.caller.name.clone();
    let started = request.carry_out(async move { runtime.start_run_for(requester, start).await }).await?;
    let id = &started.head.key.id;
    let signal = started.signal.as_ref().map(|appended| Answer::new(id, appended));
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
