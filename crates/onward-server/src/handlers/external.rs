//! `/v1/external`: external runs, whose engines store their logs here.
//!
//! Their events and states are JSON that is not interpreted; it is returned as it was stored.

mod page;
mod write;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onward_core::Index;
use serde_json::value::RawValue;

use crate::handlers::attach::{self, Attach, Reading, Until};
use crate::handlers::runs::{last_event_id, wants_stream};
use crate::http::documents::{ExternalEvents, ExternalView};
use crate::http::problem::{Problem, RequestError};
use crate::http::request::Request;
use crate::http::response::json;

pub(crate) use page::{raw, read};
pub(crate) use write::{append, set_state};

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;

pub(crate) async fn show(request: Request) -> Result<Response, Problem> {
    let run = request.server.runtime().read_external(&request.key()?).await?;
    let data = run.state.as_ref().map(|state| raw(&state.data));
    Ok(json(StatusCode::OK, &ExternalView::new(&run, data)))
}

pub(crate) async fn delete(request: Request) -> Result<Response, Problem> {
    let reason = request.query.get("reason").unwrap_or_default();
    request.server.runtime().delete_external(&request.key()?, reason).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns a page of the engine's events, or attaches.
pub(crate) async fn events(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let from = Index(request.query.number("from")?.unwrap_or(0));
    let runtime = request.server.runtime();
    if wants_stream(&request.headers) {
        if request.query.get("limit").is_some() {
            let why = "`limit` is for pages, not for text/event-stream".to_owned();
            return Err(RequestError::QueryInvalid { why }.into());
        }
        let from = last_event_id(&request.headers)?.map_or(from, |at| at.from);
        let at = runtime.find_external(&key, from).await?.at;
        let reading = Reading::External { from };
        let attach = Attach { key, generation: Some(0), from: at, until: Until::End, reading, pass: request.pass };
        return attach::attach(&request.server, attach).await;
    }
    let limit = request.query.limit(LIMIT_DEFAULT, LIMIT_MAX)?;
    let position = runtime.find_external(&key, from).await?;
    let page = read(runtime, &key, position.at, from, limit).await?;
    let read_to = page.lines.last().map(|line| line.index.plus(1));
    let next_index = position.next_index.max(read_to.unwrap_or_default());
    let next = read_to.filter(|read_to| *read_to < next_index);
    let events: Vec<&RawValue> = page.lines.iter().map(|line| &*line.json).collect();
    Ok(json(StatusCode::OK, &ExternalEvents { run: &key.id, events, next, next_index }))
}
