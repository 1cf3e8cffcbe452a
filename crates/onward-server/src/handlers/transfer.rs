//! Export and import of runs as lines of JSON: `GET /v1/runs/{id}/export`, `GET /v1/export`, `POST /v1/import`.

use axum::http::HeaderValue;
use onward_core::RunId;
use onward_core::api::{RefusedRun, RunQuery, verb};
use onward_core::transfer::{self, ExportedRun, LeftOut};
use onward_runtime::{RuntimeError, export_run, leaves_out};
use onward_store::StoreError;

use super::prelude::*;
use super::runs::filter;
use crate::http::response::typed;

const LINES: &str = "application/x-ndjson";

/// Header with the cursor of the next page of an export.
const NEXT: &str = "onward-next";

/// Size after which a page of an export ends with the current run.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

documents! {
    struct ImportDocument<'a> as Imported {
        created: &'a [RunId],
        /// Runs that existed already with the same records.
        unchanged: &'a [RunId],
        refused: Vec<RefusedRun>,
    }
}

pub(crate) async fn export_one(request: Request) -> Result<Response, Problem> {
    let run = export_run(request.server.runtime(), &request.key()?).await?;
    Ok(typed(StatusCode::OK, LINES, transfer::write(&[run])))
}

pub(crate) async fn export(request: Request) -> Result<Response, Problem> {
    let limit = request.query.limit()?;
    let cursor = request.query.get("cursor").map(str::to_owned);
    // One run at a time, so that a page can end after any of them.
    let mut query = RunQuery { limit: 1, cursor, ..filter(&request)? };
    let runtime = request.server.runtime();
    let (mut lines, mut count) = (transfer::header(), 0);
    for _ in 0..limit {
        let page = request.execute::<verb::ListRuns>(query.clone()).await?;
        for head in &page.runs {
            match export_run(runtime, &head.key).await {
                Ok(run) => {
                    lines += &run.to_lines();
                    count += 1;
                }
                // The run was deleted after it was listed.
                Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => {}
                Err(error) if leaves_out(&error) => {
                    lines += &LeftOut { key: head.key.clone(), code: error.code().to_owned() }.to_line();
                }
                Err(error) => return Err(error.into()),
            }
        }
        query.cursor = page.next;
        if query.cursor.is_none() || lines.len() >= PAGE_BYTES {
            break;
        }
    }
    let mut response = typed(StatusCode::OK, LINES, lines + &transfer::footer(count, query.cursor.as_deref()));
    if let Some(next) = query.cursor.and_then(|next| HeaderValue::try_from(next).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    Ok(response)
}

pub(crate) async fn import(mut request: Request) -> Result<Response, Problem> {
    let bytes = request.lines().await?;
    let text = std::str::from_utf8(&bytes).map_err(|_| RequestError::ImportInvalid { why: "it is not UTF-8".to_owned() })?;
    let runs = transfer::read(text).map_err(|error| RequestError::ImportInvalid { why: error.to_string() })?;
    let foreign = |run: &&ExportedRun| run.key.namespace != request.by.namespace;
    if let Some(run) = runs.iter().find(foreign) {
        return Err(RequestError::ImportForeign { run: run.key.to_string(), namespace: request.by.namespace.to_string() }.into());
    }
    let imported = request.server.runtime().import_runs(runs).await?;
    let refused = imported.refused.into_iter().map(|(run, code)| RefusedRun { run, code: code.to_owned() }).collect();
    Ok(json(StatusCode::OK, &ImportDocument { created: &imported.created, unchanged: &imported.unchanged, refused }))
}
