//! `POST /v1/bulk` and `POST /v1/bulk/delete`: one verb for the runs that a filter matches, in batches.

use std::collections::BTreeMap;

use onward_core::api::{BulkDone, BulkRequest, BulkVerb, RunQuery, verb};
use onward_core::{Name, Timestamp};
use onward_runtime::BULK_MAX;

use super::attributes::{PlainValue, matches};
use super::prelude::*;
use super::runs::status;
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
    attributes: BTreeMap<String, PlainValue>,
    created_from: Option<Timestamp>,
    created_until: Option<Timestamp>,
}

#[derive(Serialize)]
struct BulkDocument<'a> {
    bulk_id: &'a str,
    verb: &'static str,
    dry_run: bool,
    #[serde(flatten)]
    done: &'a BulkDone,
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
        namespace: request.by.namespace.clone(),
        kind: filter.kind.map(Name::new).transpose()?,
        versions: filter.version.into_iter().map(version).collect::<Result<_, _>>()?,
        statuses: filter.status.iter().map(|text| status(text)).collect::<Result<_, _>>()?,
        attributes: matches(filter.attributes)?,
        created_from: filter.created_from,
        created_until: filter.created_until,
        limit,
        cursor: body.cursor,
        partly: false,
    };
    let bulk = BulkRequest {
        verb: verb.as_str().to_owned(),
        filter,
        all: body.all,
        dry_run: body.dry_run,
        bulk_id: bulk_id.clone(),
        reason: body.reason.unwrap_or_default(),
        include_outcome_unknown: body.include_outcome_unknown,
    };
    let dry_run = body.dry_run;
    let done = match verb {
        BulkVerb::Delete => request.execute::<verb::BulkDelete>(bulk).await?,
        _ => request.execute::<verb::BulkRuns>(bulk).await?,
    };
    Ok(json(StatusCode::OK, &BulkDocument { bulk_id: &bulk_id, verb: verb.as_str(), dry_run, done: &done }))
}
