//! `POST /v1/bulk` and `POST /v1/bulk/delete`: one verb for the runs that a filter matches, in batches.

use std::collections::BTreeMap;

use onward_core::api::{BulkDone, BulkRequest, BulkVerb, RunQuery, verb};
use onward_core::{Name, Timestamp};
use onward_runtime::BULK_MAX;

use super::attributes::{PlainValue, matches};
use super::prelude::*;
use super::runs::status;
use crate::new_id;

bodies! {
    struct BulkBody as BulkRuns {
        verb: Option<String> as Option<BulkVerb>,
        #[serde(default)]
        filter: Filter,
        /// Required with an empty filter, which selects every run of the namespace.
        #[serde(default)]
        all: bool,
        /// Only count the runs and return a sample.
        #[serde(default)]
        dry_run: bool,
        /// Idempotency key, the same for all batches and repeats of one request.
        bulk_id: Option<String> as Option<Name>,
        reason: Option<String> as Option<LongText>,
        limit: Option<usize> as Option<BatchLimit>,
        /// The `next` of the previous batch.
        cursor: Option<String>,
        /// Lets `retry` execute calls again that failed with `outcome_unknown`; otherwise such runs are refused.
        #[serde(default)]
        include_outcome_unknown: bool,
    }

    #[derive(Default)]
    struct Filter as RunFilter {
        kind: Option<String> as Option<Name>,
        #[serde(default)]
        version: Vec<Option<String>> as Vec<Option<Name>>,
        #[serde(default)]
        status: Vec<String> as Vec<Status>,
        #[serde(default)]
        attributes: BTreeMap<String, PlainValue> as Attributes,
        created_from: Option<Timestamp>,
        created_until: Option<Timestamp>,
    }
}

documents! {
    struct BulkDocument<'a> as BulkDone {
        bulk_id: &'a str,
        verb: BulkVerb,
        dry_run: bool,
        #[serde(flatten)]
        done: &'a BulkDone,
    }
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
    Ok(json(StatusCode::OK, &BulkDocument { bulk_id: &bulk_id, verb, dry_run, done: &done }))
}
