//! Routes for operators: liveness, readiness, metrics, OpenAPI.

use std::time::Duration;

use onward_core::Namespace;
use onward_store::RunQuery;

use super::prelude::*;
use crate::http::response::{text, typed};
use crate::serve::probe::{DatabaseState, Figure, Sample};
use crate::server::Server;

/// Time for the store to answer before the server is reported as not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// OpenAPI document; tests compare it with the generated one.
const DOCUMENT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json"));

documents! {
    struct RequestNamespace<'a> {
        namespace: &'a Namespace as NamespaceName,
    }
}

/// Handles `GET /v1/namespace`. An invalid key has the same response as none. Without readable keys the namespace is not known.
pub(crate) async fn namespace(request: Request) -> Result<Response, Problem> {
    if let Some(why) = request.server.options().auth.unavailable_reason() {
        return Err(RequestError::NotReady { why }.into());
    }
    Ok(json(StatusCode::OK, &RequestNamespace { namespace: &request.by.namespace }))
}

/// Handles `GET /healthz`.
pub(crate) async fn healthz(_: Request) -> Result<Response, Problem> {
    Ok(text(StatusCode::OK, "ok\n"))
}

/// Handles `GET /readyz`. Each database that is down has a line of its own; runs in the other databases continue.
pub(crate) async fn readyz(request: Request) -> Result<Response, Problem> {
    if let Some(why) = request.server.options().probe.as_ref().and_then(|probe| probe.stopped()) {
        return Err(RequestError::StoreStopped { why }.into());
    }
    let down = readiness(&request.server).await.map_err(|why| RequestError::NotReady { why })?;
    let lines: String = down.iter().map(|line| format!("degraded: {line}\n")).collect();
    Ok(text(StatusCode::OK, format!("ready\n{lines}")))
}

/// Checks that the keys are readable and that the store answers and accepts writes; returns the reason if not. One of several
/// databases is enough; the ones that are down are returned.
pub(crate) async fn readiness(server: &Server) -> Result<Vec<String>, String> {
    if let Some(why) = server.options().auth.unavailable_reason() {
        return Err(why);
    }
    let probe = server.options().probe.as_ref();
    if let Some(why) = probe.and_then(|probe| probe.stopped()) {
        return Err(why);
    }
    if let Some(probe) = probe {
        match tokio::time::timeout(READY_TIMEOUT, probe.unwritable()).await {
            Ok(None) => {}
            Ok(Some(why)) => return Err(why),
            Err(_) => return Err("the store does not answer".to_owned()),
        }
    }
    let databases = match probe {
        Some(probe) => probe.databases().await,
        None => Vec::new(),
    };
    if databases.is_empty() {
        return check_store(server).await.map(|()| Vec::new());
    }
    let describe = |database: &DatabaseState| Some(format!("{} is down: {}", database.name, database.down.as_ref()?));
    let down: Vec<String> = databases.iter().filter_map(describe).collect();
    if down.len() == databases.len() { Err(down.join("; ")) } else { Ok(down) }
}

async fn check_store(server: &Server) -> Result<(), String> {
    let query = server.runtime().store().list_runs(RunQuery { limit: 1, ..RunQuery::default() });
    match tokio::time::timeout(READY_TIMEOUT, query).await {
        Ok(answer) => answer.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err("the store does not answer".to_owned()),
    }
}

/// Handles `GET /metrics`.
pub(crate) async fn metrics(request: Request) -> Result<Response, Problem> {
    let probe = request.server.options().probe.as_ref();
    let mut figures = probe.map(|probe| probe.figures()).unwrap_or_default();
    if let Some(probe) = probe {
        figures.extend(up_or_down(&probe.databases().await));
    }
    figures.extend(request.server.metrics().open.figures(request.server.runtime()).await);
    let page = request.server.metrics().page(request.server.runtime(), &figures);
    Ok(typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page))
}

fn up_or_down(databases: &[DatabaseState]) -> Option<Figure> {
    let sample = |database: &DatabaseState| Sample {
        labels: vec![("database", database.name.clone())],
        value: if database.down.is_none() { 1.0 } else { 0.0 },
        ..Sample::default()
    };
    let (name, help) = ("onward_database_up", "1 if the database answers and accepts writes");
    (!databases.is_empty()).then(|| Figure { name, help, kind: "gauge", samples: databases.iter().map(sample).collect() })
}

/// Handles `GET /openapi.json`.
pub(crate) async fn openapi(_: Request) -> Result<Response, Problem> {
    Ok(typed(StatusCode::OK, "application/json", DOCUMENT.to_owned()))
}
