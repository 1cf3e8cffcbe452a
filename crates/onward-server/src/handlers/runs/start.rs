//! `POST /v1/runs`.

use std::collections::BTreeMap;

use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use onward_core::api::{StartRequest, verb};
use onward_core::budget::{Budget, WrittenBudget};
use onward_core::{Name, RunId, RunKey};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::signal::SignalBody;
use crate::handlers::attributes::{GivenValue, attributes};
use crate::http::documents::{Receipt, Run, StartedRun};
use crate::http::problem::Problem;
use crate::http::request::{Request, payload};
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
    let id = RunId::new(body.id.unwrap_or_else(|| new_id::run_id(request.server.runtime().clock().now())))?;
    let start = StartRequest {
        run: RunKey::new(request.namespace.clone(), id),
        kind: Name::new(body.kind)?,
        version: body.version.map(Name::new).transpose()?,
        input: payload(body.input),
        seed: new_id::random_u64(),
        signal: body.signal.map(SignalBody::read).transpose()?,
        attributes: attributes(body.attributes)?,
        trace: None,
        budget: body.budget.map(Budget::from),
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
