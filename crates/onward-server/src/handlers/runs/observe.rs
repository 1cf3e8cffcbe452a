//! How runs proceed: `/v1/runs/{id}/timeline`, `/v1/runs/{id}/at/{index}`, `/v1/counts` and `/v1/activity`.

use onward_core::Index;
use onward_core::api::{ActivityQuery, BUCKETS_MAX, CountQuery, MomentRequest, RunQuery, TimelineRequest, verb};
use onward_runtime::{CALLS_DEFAULT, CALLS_MAX};

use super::filter;
use crate::handlers::prelude::*;
use crate::http::documents::RunAt;

/// Handles `GET /v1/runs/{id}/timeline`.
pub(crate) async fn timeline(request: Request) -> Result<Response, Problem> {
    let query = TimelineRequest {
        run: request.key()?,
        generation: request.query.number("generation")?,
        limit: request.query.within("limit", CALLS_DEFAULT, CALLS_MAX)?,
        cursor: request.query.get("cursor").map(str::to_owned),
    };
    Ok(json(StatusCode::OK, &request.execute::<verb::ReadTimeline>(query).await?))
}

/// Handles `GET /v1/runs/{id}/at/{index}`.
pub(crate) async fn at(request: Request) -> Result<Response, Problem> {
    let (run, generation) = (request.key()?, request.query.number("generation")?);
    let index = request.index.as_deref().and_then(|index| index.parse().ok()).map(Index);
    let why = || "the index in the path is not a number".to_owned();
    let index = index.ok_or_else(|| RequestError::QueryInvalid { why: why() })?;
    let moment = request.execute::<verb::ReadAt>(MomentRequest { run, generation, index }).await?;
    Ok(json(StatusCode::OK, &RunAt::from(&moment)))
}

/// Handles `GET /v1/counts`.
pub(crate) async fn counts(request: Request) -> Result<Response, Problem> {
    let RunQuery { namespace, kind, created_from, created_until, attributes, .. } = filter(&request)?;
    let query = CountQuery { namespace, kinds: kind.into_iter().collect(), created_from, created_until, attributes };
    Ok(json(StatusCode::OK, &request.execute::<verb::CountRuns>(query).await?))
}

/// Handles `GET /v1/activity`.
pub(crate) async fn activity(request: Request) -> Result<Response, Problem> {
    let RunQuery { namespace, kind, .. } = filter(&request)?;
    let (from, until) = (request.query.time("from")?, request.query.time("until")?);
    if from.zip(until).is_some_and(|(from, until)| from >= until) {
        return Err(RequestError::QueryInvalid { why: "`from` must be before `until`".to_owned() }.into());
    }
    let buckets = request.query.within("buckets", 0, BUCKETS_MAX as usize)? as u32;
    let query = ActivityQuery { namespace, kinds: kind.into_iter().collect(), from, until, buckets };
    Ok(json(StatusCode::OK, &request.execute::<verb::ReadActivity>(query).await?))
}
