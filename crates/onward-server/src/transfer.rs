//! Runs as lines of JSON: `GET /v1/runs/{id}/export`, `GET /v1/export`, `POST /v1/import`.

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use onward_core::RunId;
use onward_core::transfer::{self, ExportedRun};
use onward_runtime::RuntimeError;
use onward_store::{RunQuery, StoreError};
use serde::Serialize;

use crate::answer::{json, typed};
use crate::problem::{Problem, RequestError};
use crate::request::Request;
use crate::runs::filter;

const LINES: &str = "application/x-ndjson";

/// Where the next page of an export begins.
const NEXT: &str = "onward-next";

/// How many runs a page of an export has at most.
const RUNS_MAX: usize = 1_000;

const RUNS_DEFAULT: usize = 100;

#[derive(Serialize)]
struct Document<'a> {
    created: &'a [RunId],
    unchanged: &'a [RunId],
    refused: Vec<Refused<'a>>,
}

#[derive(Serialize)]
struct Refused<'a> {
    run: &'a RunId,
    code: &'a str,
}

pub(crate) async fn export_one(request: Request) -> Result<Response, Problem> {
    let run = request.server.runtime().export_run(&request.key()?).await?;
    Ok(typed(StatusCode::OK, LINES, transfer::write(&[run])))
}

pub(crate) async fn export(request: Request) -> Result<Response, Problem> {
    let query = RunQuery {
        limit: request.query.limit(RUNS_DEFAULT, RUNS_MAX)?,
        cursor: request.query.get("cursor").map(str::to_owned),
        ..filter(&request)?
    };
    let runtime = request.server.runtime();
    let page = runtime.list_runs(query).await?;
    let (mut lines, mut count) = (transfer::header(), 0);
    for head in &page.runs {
        match runtime.export_run(&head.key).await {
            Ok(run) => {
                lines += &run.to_lines();
                count += 1;
            }
            // It was deleted since it was listed.
            Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut response = typed(StatusCode::OK, LINES, lines + &transfer::footer(count));
    if let Some(next) = page.next.and_then(|next| HeaderValue::try_from(next).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    Ok(response)
}

pub(crate) async fn import(mut request: Request) -> Result<Response, Problem> {
    let bytes = request.lines().await?;
    let text = std::str::from_utf8(&bytes).map_err(|_| RequestError::ImportInvalid { why: "it is not UTF-8".to_owned() })?;
    let runs = transfer::read(text).map_err(|error| RequestError::ImportInvalid { why: error.to_string() })?;
    let foreign = |run: &&ExportedRun| run.key.namespace != request.namespace;
    if let Some(run) = runs.iter().find(foreign) {
        return Err(RequestError::NotAllowed { what: format!("runs of namespace `{}`", run.key.namespace) }.into());
    }
    let imported = request.server.runtime().import_runs(runs).await?;
    let refused = imported.refused.iter().map(|(run, code)| Refused { run, code }).collect();
    Ok(json(StatusCode::OK, &Document { created: &imported.created, unchanged: &imported.unchanged, refused }))
}
