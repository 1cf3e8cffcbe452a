//! Kinds with their schemas and workers.

use onward_core::{Name, Payload, Timestamp};
use onward_runtime::{KindVersion, KindView};

use super::prelude::*;

documents! {
    struct Kinds<'a> as KindList {
        kinds: Vec<Kind<'a>>,
    }

    struct Kind<'a>(view: &'a KindView) {
        kind: &'a Name = &view.kind,
        r#type: KindType = if view.is_task { KindType::Task } else { KindType::Workflow },
        versions: Vec<Version<'a>> = view.versions.iter().map(Version::from).collect(),
    }

    struct Version<'a> as KindVersion(version: &'a KindVersion) {
        /// Null for runs without a version.
        version: Option<&'a Name> = version.version.as_ref(),
        /// JSON Schema as registered, or null.
        input_schema: Option<&'a RawValue> = version.input.as_ref().and_then(schema),
        /// JSON Schema as registered, or null.
        output_schema: Option<&'a RawValue> = version.output.as_ref().and_then(schema),
        registered_at: Option<Timestamp> = version.registered_at,
        /// Number of workers of this server that have code for it.
        workers: usize = version.workers,
    }
}

words! {
    #[derive(Serialize)]
    enum KindType as KindType { Workflow / "workflow", Task / "task" }
}

/// Returns the schema as JSON; registered schemas were compiled, so they are JSON.
fn schema(payload: &Payload) -> Option<&RawValue> {
    serde_json::from_slice(payload.data()).ok()
}

/// Handles `GET /v1/kinds`.
pub(crate) async fn list(request: Request) -> Result<Response, Problem> {
    let views = request.server.runtime().list_kinds(&request.by.namespace).await?;
    Ok(json(StatusCode::OK, &Kinds { kinds: views.iter().map(Kind::from).collect() }))
}

/// Handles `DELETE /v1/kinds/{kind}`: removes the declarations of workers about it.
pub(crate) async fn remove(request: Request) -> Result<Response, Problem> {
    let kind = Name::new(request.id.as_deref().unwrap_or_default())?;
    match request.server.runtime().forget_kind(&request.by.namespace, &kind).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(RequestError::KindNotFound { kind: kind.to_string() }.into()),
    }
}

/// Handles `GET /v1/kinds/{kind}`: a workflow and a task may have the same name.
pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let kind = Name::new(request.id.as_deref().unwrap_or_default())?;
    let views = request.server.runtime().list_kinds(&request.by.namespace).await?;
    let kinds: Vec<Kind<'_>> = views.iter().filter(|view| view.kind == kind).map(Kind::from).collect();
    if kinds.is_empty() {
        return Err(RequestError::KindNotFound { kind: kind.to_string() }.into());
    }
    Ok(json(StatusCode::OK, &Kinds { kinds }))
}
