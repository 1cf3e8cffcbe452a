//! `GET /v1/spend`: sums of what was spent.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::RunId;
use onward_core::api::verb;
use onward_core::ledger::{SpendBy, SpendQuery};
use onward_store::PAGE_DEFAULT;

use crate::http::documents::Spend;
use crate::http::limits::LIMIT_MAX;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;

pub(crate) async fn read(request: Request) -> Result<Response, Problem> {
    let query = SpendQuery {
        namespace: request.namespace.clone(),
        by: request.query.get("by").map_or(Ok(SpendBy::Model), by)?,
        from: request.query.time("from")?,
        until: request.query.time("to")?,
        tree: request.query.get("tree").map(RunId::new).transpose()?,
        limit: request.query.limit(PAGE_DEFAULT, LIMIT_MAX)?,
    };
    let (by, limit) = (query.by, query.limit);
    let rows = request.execute::<verb::ReadSpend>(query).await?.rows;
    Ok(json(StatusCode::OK, &Spend::new(by, &rows, limit)))
}

fn by(text: &str) -> Result<SpendBy, RequestError> {
    SpendBy::from_word(text).ok_or_else(|| {
        let known: Vec<&str> = SpendBy::ALL.iter().map(|by| by.as_str()).collect();
        RequestError::QueryInvalid { why: format!("`by` must be one of {}", known.join(", ")) }
    })
}
