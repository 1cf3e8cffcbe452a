//! `GET /v1/runs/{id}/events`: a page of the log, or attach.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use onward_core::{Index, RunKey};
use onward_runtime::Runtime;

use crate::handlers::attach::{self, Attach, Reading, Until};
use crate::handlers::prelude::*;
use crate::http::documents::{EventPage, LogPosition};
use crate::http::log_page;

pub(crate) async fn events(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let from = Index(request.query.number("from")?.unwrap_or(0));
    let generation: Option<u32> = request.query.number("generation")?;
    let until = until(&request)?;
    if wants_stream(&request.headers) {
        no_limit(&request)?;
        let resumed = last_event_id(&request.headers)?;
        if let Some(at) = resumed {
            expect_generation(request.server.runtime(), &key, at).await?;
        }
        let (generation, from) = resumed.map_or((generation, from), |at| (Some(at.generation), at.from));
        let until = until.unwrap_or(Until::End);
        let attach = Attach { key, generation, from, until, reading: Reading::Log, pass: request.by.pass };
        return attach::attach(&request.server, attach).await;
    }
    if until.is_some() {
        let why = "`until` needs `Accept: text/event-stream`".to_owned();
        return Err(RequestError::QueryInvalid { why }.into());
    }
    let limit = request.query.limit()?;
    let runtime = request.server.runtime();
    let generation = match generation {
        Some(generation) => generation,
        None => runtime.read_head(&key).await?.generation,
    };
    let page = log_page::read(runtime, &key, LogPosition { generation, from }, limit).await?;
    let events: Vec<&RawValue> = page.lines.iter().map(|line| &*line.json).collect();
    Ok(json(StatusCode::OK, &EventPage { run: &key.id, events, next: page.next }))
}

fn until(request: &Request) -> Result<Option<Until>, RequestError> {
    match request.query.get("until") {
        None => Ok(None),
        Some("end") => Ok(Some(Until::End)),
        Some("pause") => Ok(Some(Until::Pause)),
        Some(_) => Err(RequestError::QueryInvalid { why: "`until` must be `end` or `pause`".to_owned() }),
    }
}

pub(crate) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    accepted.map(|kind| kind.split(';').next().unwrap_or_default().trim()).any(|kind| kind == "text/event-stream")
}

/// Fails if the request has a page size, which an attached reader cannot have.
pub(crate) fn no_limit(request: &Request) -> Result<(), RequestError> {
    match request.query.get("limit") {
        None => Ok(()),
        Some(_) => Err(RequestError::QueryInvalid { why: "`limit` is for pages, not for text/event-stream".to_owned() }),
    }
}

/// Fails if the run has no such generation: an error in the header, not a missing run.
pub(super) async fn expect_generation(runtime: &Runtime, key: &RunKey, at: LogPosition) -> Result<(), Problem> {
    if at.generation <= runtime.read_head(key).await?.generation {
        return Ok(());
    }
    let why = format!("the run has no generation {}", at.generation);
    Err(RequestError::HeaderInvalid { name: "Last-Event-ID", why }.into())
}

/// Returns the position after the event in `Last-Event-ID`, `GENERATION:INDEX`.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<LogPosition>, RequestError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let parse = |text: &str| {
        let (generation, index) = text.split_once(':')?;
        let next = index.parse::<u64>().ok()?.checked_add(1)?;
        Some(LogPosition { generation: generation.parse().ok()?, from: Index(next) })
    };
    let why = || "it is not GENERATION:INDEX of an event of this run".to_owned();
    let position = value.to_str().ok().and_then(parse);
    position.map(Some).ok_or_else(|| RequestError::HeaderInvalid { name: "Last-Event-ID", why: why() })
}
