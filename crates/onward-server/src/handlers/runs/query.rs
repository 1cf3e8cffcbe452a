//! `POST /v1/runs/{id}/queries`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::{Name, RunId};
use onward_runtime::RuntimeError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::update::WAIT_DEFAULT;
use crate::http::documents::Outcome;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::{Request, payload};
use crate::http::response::json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryBody {
    name: String,
    input: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct QueryAnswer<'a> {
    run: &'a RunId,
    outcome: Outcome<'a>,
}

/// Queries the run's code. Nothing is recorded, so a query that timed out can be repeated.
pub(crate) async fn query(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let wait = request.query.wait(WAIT_DEFAULT)?;
    let body: QueryBody = request.json().await?;
    let name = Name::new(body.name)?;
    let asked = request.server.runtime().query_run(&key, name.clone(), payload(body.input));
    let unanswered = RuntimeError::Unanswered { key: key.clone(), name: name.clone() };
    let answered = tokio::time::timeout(wait, asked).await.unwrap_or(Err(unanswered))?;
    let unknown = || RequestError::UnknownQuery { run: key.id.to_string(), name: name.to_string() };
    let outcome = answered.ok_or_else(unknown)?;
    Ok(json(StatusCode::OK, &QueryAnswer { run: &key.id, outcome: Outcome::from(&outcome) }))
}
