//! Kinds with their schemas, workers and defaults.

use std::collections::BTreeMap;

use onward_core::api::{DefaultsQuery, PutDefaultsRequest, verb};
use onward_core::task::RetryPolicy;
use onward_core::{KindDefaults, Name, NamedSchema, Payload, Timestamp};
use onward_runtime::{KindVersion, KindView};

use super::prelude::*;
use super::tasks::RetryBody;

bodies! {
    struct DefaultsBody as PutDefaults {
        queue: Option<String> as Option<Name>,
        /// Higher priorities first.
        priority: Option<i32>,
        /// Maximum number of attempts, or a retry policy.
        retry: Option<RetryBody>,
        /// The maximum wait for the first attempt.
        queued_timeout_ms: Option<u64>,
        /// The maximum duration of one attempt.
        attempt_timeout_ms: Option<u64>,
        /// The maximum duration of all attempts and the delays between them.
        total_timeout_ms: Option<u64>,
        /// The maximum time between two heartbeats of an attempt.
        heartbeat_timeout_ms: Option<u64>,
        /// The deadline of runs, after their start.
        deadline_ms: Option<u64>,
        /// The key of runs in their queue: a template over `input`, `kind` and `run`.
        key: Option<String>,
    }
}

impl DefaultsBody {
    fn defaults(self) -> Result<KindDefaults, Problem> {
        Ok(KindDefaults {
            queue: self.queue.map(Name::new).transpose()?,
            priority: self.priority,
            retry: self.retry.map(RetryPolicy::from),
            queued_timeout_ms: self.queued_timeout_ms,
            attempt_timeout_ms: self.attempt_timeout_ms,
            total_timeout_ms: self.total_timeout_ms,
            heartbeat_timeout_ms: self.heartbeat_timeout_ms,
            deadline_ms: self.deadline_ms,
            key: self.key,
        })
    }
}

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
        /// JSON Schemas of the signals of its runs, by name.
        signals: BTreeMap<&'a Name, &'a RawValue> = named(&version.signals),
        /// JSON Schemas of the updates of its runs, by name.
        updates: BTreeMap<&'a Name, &'a RawValue> = named(&version.updates),
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

fn named(schemas: &[NamedSchema]) -> BTreeMap<&Name, &RawValue> {
    schemas.iter().filter_map(|of| Some((&of.name, schema(&of.schema)?))).collect()
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

/// Handles `GET /v1/kinds/{kind}/defaults`.
pub(crate) async fn defaults(request: Request) -> Result<Response, Problem> {
    let kind = Name::new(request.id.as_deref().unwrap_or_default())?;
    let query = DefaultsQuery { namespace: request.by.namespace.clone(), kind: Some(kind.clone()) };
    let found = request.execute::<verb::ListDefaults>(query).await?;
    if found.defaults.is_empty() {
        return Err(RequestError::KindNotFound { kind: kind.to_string() }.into());
    }
    Ok(json(StatusCode::OK, &found))
}

/// Handles `PUT /v1/kinds/{kind}/defaults`.
pub(crate) async fn put_defaults(mut request: Request) -> Result<Response, Problem> {
    let (kind, namespace) = (Name::new(request.id.as_deref().unwrap_or_default())?, request.by.namespace.clone());
    let defaults = request.json::<DefaultsBody>().await?.defaults()?;
    let put = PutDefaultsRequest { namespace, kind, defaults };
    Ok(json(StatusCode::OK, &request.execute::<verb::PutDefaults>(put).await?))
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
