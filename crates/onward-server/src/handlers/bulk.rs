//! `POST /v1/bulk` and `POST /v1/bulk/delete`: one verb for the runs that a filter matches, in batches.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::{Name, RunId, Timestamp};
use onward_runtime::{BULK_MAX, Bulk, BulkDone, BulkVerb};
use onward_store::RunQuery;
use serde::{Deserialize, Serialize};

use crate::auth::ceilings;
use crate::handlers::attributes::{GivenValue, matches};
use crate::handlers::runs::status;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;
use crate::new_id;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkBody {
    verb: Option<String>,
    #[serde(default)]
    filter: Filter,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    dry_run: bool,
    bulk_id: Option<String>,
    reason: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(default)]
    include_outcome_unknown: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Filter {
    kind: Option<String>,
    #[serde(default)]
    version: Vec<Option<String>>,
    #[serde(default)]
    status: Vec<String>,
    #[serde(default)]
    attributes: BTreeMap<String, GivenValue>,
    created_from: Option<Timestamp>,
    created_until: Option<Timestamp>,
}

#[derive(Serialize)]
struct Document<'a> {
    bulk_id: &'a str,
    verb: &'static str,
    dry_run: bool,
    matched: u64,
    done: u64,
    refused: Vec<Refused<'a>>,
    sample: &'a [RunId],
    next: Option<&'a str>,
}

#[derive(Serialize)]
struct Refused<'a> {
    run: &'a RunId,
    code: &'a str,
}

pub(crate) async fn act(mut request: Request) -> Result<Response, Problem> {
    let body: BulkBody = request.json().await?;
    let verb = body.verb.as_deref().and_then(BulkVerb::from_word).filter(|verb| *verb != BulkVerb::Delete);
    let why = || "`verb` must be one of cancel, terminate, pause, resume, retry".to_owned();
    let verb = verb.ok_or_else(|| RequestError::JsonInvalid { why: why() })?;
    answer(request, body, verb).await
}

/// Handles `POST /v1/bulk/delete`, a separate route because deletion needs another scope.
pub(crate) async fn delete(mut request: Request) -> Result<Response, Problem> {
    let body: BulkBody = request.json().await?;
    if body.verb.as_deref().is_some_and(|verb| verb != "delete") {
        return Err(RequestError::JsonInvalid { why: "`verb` must be `delete`".to_owned() }.into());
    }
    answer(request, body, BulkVerb::Delete).await
}

async fn answer(request: Request, body: BulkBody, verb: BulkVerb) -> Result<Response, Problem> {
    let bulk_id = body.bulk_id.unwrap_or_else(new_id::request_id);
    let limit = body.limit.unwrap_or_default();
    if limit > BULK_MAX {
        return Err(RequestError::JsonInvalid { why: format!("`limit` must be at most {BULK_MAX}") }.into());
    }
    let filter = body.filter;
    let version = |version: Option<String>| version.map(Name::new).transpose();
    let filter = RunQuery {
        namespace: request.namespace.clone(),
        kind: filter.kind.map(Name::new).transpose()?,
        versions: filter.version.into_iter().map(version).collect::<Result<_, _>>()?,
        statuses: filter.status.iter().map(|text| status(text)).collect::<Result<_, _>>()?,
        attributes: matches(filter.attributes)?,
        created_from: filter.created_from,
        created_until: filter.created_until,
        limit,
        cursor: body.cursor,
        gaps: None,
    };
    request.caller.bounds.check_filter(filter.kind.as_ref())?;
    let (all, dry_run, reason) = (body.all, body.dry_run, body.reason.unwrap_or_default());
    let budget_max = ceilings::of_copy(&request.namespace, &request.caller, &request.server);
    let (include_outcome_unknown, caller) = (body.include_outcome_unknown, request.caller.name.clone());
    let bulk = Bulk { verb, filter, all, dry_run, bulk_id: bulk_id.clone(), reason, include_outcome_unknown, caller, budget_max };
    let done = request.server.runtime().bulk_runs(bulk).await?;
    Ok(json(StatusCode::OK, &document(&bulk_id, verb, dry_run, &done)))
}

fn document<'a>(bulk_id: &'a str, verb: BulkVerb, dry_run: bool, done: &'a BulkDone) -> Document<'a> {
    Document {
        bulk_id,
        verb: verb.as_str(),
        dry_run,
        matched: done.matched,
        done: done.done,
        refused: done.refused.iter().map(|(run, code)| Refused { run, code }).collect(),
        sample: &done.sample,
        next: done.next.as_deref(),
    }
}
