//! `POST /v1/runs/{id}/updates`.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::Name;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::documents::{Outcome, UpdateAnswer};
use crate::http::problem::Problem;
use crate::http::request::{Request, payload};
use crate::http::response::json;
use crate::new_id;

/// Default time to wait for a result.
pub(super) const WAIT_DEFAULT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateBody {
    name: String,
    payload: Option<Box<RawValue>>,
    update_id: Option<String>,
}

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
