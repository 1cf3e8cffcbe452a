//! The conversation of an agent: `/v1/runs/{id}/entries` and `/v1/runs/{id}/messages`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::conversation::{EntryCursor, MESSAGE};
use onward_core::{Name, Payload};
use onward_runtime::{AppendEntry, ENTRIES_DEFAULT, ENTRIES_MAX, EntryQuery, RuntimeError, SendSignal};
use onward_store::StoreError;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::answer::json;
use crate::document::{Answer, Entries, EntryAnswer};
use crate::problem::{Problem, RequestError};
use crate::request::{Request, payload};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryBody {
    role: String,
    content: Option<Box<RawValue>>,
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageBody {
    text: Option<String>,
    content: Option<Box<RawValue>>,
    message_id: Option<String>,
    signal: Option<String>,
}

/// `GET /v1/runs/{id}/entries`.
pub(crate) async fn read(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let named = |name| request.query.get(name).map(cursor).transpose();
    let query =
        EntryQuery { leaf: named("leaf")?, before: named("before")?, limit: request.query.limit(ENTRIES_DEFAULT, ENTRIES_MAX)? };
    let page = request.server.runtime().read_entries(&key, query).await?;
    Ok(json(StatusCode::OK, &Entries::new(&key.id, &page)))
}

/// Which entry is meant.
pub(crate) fn cursor(text: &str) -> Result<EntryCursor, Problem> {
    let invalid = |_| RuntimeError::from(StoreError::CursorInvalid { cursor: text.chars().take(100).collect() });
    Ok(text.parse().map_err(invalid)?)
}

/// `POST /v1/runs/{id}/entries`.
pub(crate) async fn append(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let EntryBody { role, content, idempotency_key } = request.json().await?;
    let append = AppendEntry { role: Name::new(role)?, content: payload(content), idempotency_key };
    let appended = request.server.runtime().append_entry(&key, append).await?;
    let status = if appended.already_existed { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(json(status, &EntryAnswer::new(&key.id, &appended)))
}

/// `POST /v1/runs/{id}/messages`.
pub(crate) async fn message(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let MessageBody { text, content, message_id, signal } = request.json().await?;
    let payload = match (text, content) {
        (Some(text), None) => Payload::json(&text).expect("a text is JSON"),
        (None, Some(content)) => payload(Some(content)),
        _ => return Err(RequestError::JsonInvalid { why: "it takes `text` or `content`, one of them".to_owned() }.into()),
    };
    let name = Name::new(signal.as_deref().unwrap_or(MESSAGE))?;
    let signal = SendSignal { name, payload, signal_id: message_id, sender: None };
    let appended = request.server.runtime().signal_run(&key, signal).await?;
    Ok(json(StatusCode::ACCEPTED, &Answer::new(&key.id, &appended)))
}
