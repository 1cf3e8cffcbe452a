//! Kinds with their schemas and workers.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onward_core::{Name, Payload, Timestamp};
use onward_runtime::{KindVersion, KindView};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;

#[derive(Serialize)]
struct Kinds<'a> {
    kinds: Vec<Kind<'a>>,
}

#[derive(Serialize)]
struct Kind<'a> {
    kind: &'a Name,
    r#type: &'static str,
    versions: Vec<Version<'a>>,
}

#[derive(Serialize)]
struct Version<'a> {
    version: Option<&'a Name>,
    /// Schema text as registered.
    input_schema: Option<&'a RawValue>,
    output_schema: Option<&'a RawValue>,
    registered_at: Option<Timestamp>,
    workers: usize,
}

impl<'a> From<&'a KindView> for Kind<'a> {
    fn from(view: &'a KindView) -> Kind<'a> {
        let r#type = if view.is_task { "task" } else { "workflow" };
        Kind { kind: &view.kind, r#type, versions: view.versions.iter().map(Version::from).collect() }
    }
}

impl<'a> From<&'a KindVersion> for Version<'a> {
    fn from(version: &'a KindVersion) -> Version<'a> {
        Version {
            version: version.version.as_ref(),
            input_schema: version.input.as_ref().and_then(schema),
            output_schema: version.output.as_ref().and_then(schema),
            registered_at: version.registered_at,
            workers: version.workers,
        }
    }
}

/// Returns the schema as JSON; registered schemas were compiled, so they are JSON.
fn schema(payload: &Payload) -> Option<&RawValue> {
    serde_json::from_slice(payload.data()).ok()
}

/// Handles `GET /v1/kinds`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let views = request.server.runtime().list_kinds(&request.namespace).await?;
    Ok(json(StatusCode::OK, &Kinds { kinds: views.iter().map(Kind::from).collect() }))
}

/// Handles `DELETE /v1/kinds/{kind}`: removes the declarations of workers about it.
pub(crate) async fn remove(request: Request) -> Result<Response, Problem> {
    let kind = Name::new(request.id.as_deref().unwrap_or_default())?;
    match request.server.runtime().forget_kind(&request.namespace, &kind).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(RequestError::KindNotFound { kind: kind.to_string() }.into()),
    }
}

/// Handles `GET /v1/kinds/{kind}`: a workflow and a task may have the same name.
pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let kind = Name::new(request.id.as_deref().unwrap_or_default())?;
    let views = request.server.runtime().list_kinds(&request.namespace).await?;
    let kinds: Vec<Kind<'_>> = views.iter().filter(|view| view.kind == kind).map(Kind::from).collect();
    if kinds.is_empty() {
        return Err(RequestError::KindNotFound { kind: kind.to_string() }.into());
    }
    Ok(json(StatusCode::OK, &Kinds { kinds }))
}
