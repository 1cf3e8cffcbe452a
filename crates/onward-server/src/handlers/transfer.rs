//! Export and import of runs as lines of JSON: `GET /v1/runs/{id}/export`, `GET /v1/export`, `POST /v1/import`.

use axum::http::HeaderValue;
use onward_core::api::{RefusedRun, RunQuery, verb};
use onward_core::transfer::{self, ExportWriter, ExportedRun, FlowRef, LeftOut};
use onward_core::{Name, RunId};
use onward_runtime::{RunExporter, RuntimeError, export_run, leaves_out};
use onward_store::StoreError;

use super::prelude::*;
use super::runs::filter;
use crate::auth::Scope;
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
        /// Definitions of flows that were stored for these runs; none was made current.
        flows: Vec<StoredFlow<'a>>,
    }

    struct StoredFlow<'a> as ImportedFlow(of: &'a FlowRef) {
        flow: &'a Name = &of.flow,
        version: &'a Name = &of.version,
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
    let (mut lines, mut writer, mut exporter) = (transfer::header(), ExportWriter::default(), RunExporter::new(runtime));
    for _ in 0..limit {
        let page = request.execute::<verb::ListRuns>(query.clone()).await?;
        for head in &page.runs {
            match exporter.read(&head.key).await {
                Ok(run) => lines += &writer.run(&run),
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
    let mut response = typed(StatusCode::OK, LINES, lines + &writer.footer(query.cursor.as_deref()));
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
    let missing = request.server.runtime().missing_flows(&runs).await?;
    if missing.flows().next().is_some() {
        // A definition is code for workers (S4). A key that is bound to kinds never has the scope of an import.
        request.by.check_also(Scope::Work, &request.server).await?;
    }
    let imported = request.server.runtime().import_with(runs, missing).await?;
    let refused = imported.refused.into_iter().map(|(run, code)| RefusedRun { run, code: code.to_owned() }).collect();
    let flows = imported.flows.iter().map(StoredFlow::from).collect();
    Ok(json(StatusCode::OK, &ImportDocument { created: &imported.created, unchanged: &imported.unchanged, refused, flows }))
}
