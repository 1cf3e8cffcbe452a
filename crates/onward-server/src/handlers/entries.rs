//! The conversation of an agent: `/v1/runs/{id}/entries`, `/v1/runs/{id}/branch` and `/v1/runs/{id}/messages`.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::conversation::{EntryCursor, MESSAGE, is_callers_role};
use onward_core::{Name, Payload};
use onward_runtime::{
    AppendEntry, BranchEntry, BranchRun, ENTRIES_DEFAULT, ENTRIES_MAX, EntryQuery, Runtime, RuntimeError, SendSignal,
};
use onward_store::StoreError;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Server;
use crate::auth::{AuthRefusal, Pass, Scope};
use crate::http::documents::{Answer, Entries, EntryAnswer};
use crate::http::problem::{Problem, RequestError};
use crate::http::request::{Request, payload};
use crate::http::response::json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryBody {
    role: String,
    content: Option<Box<RawValue>>,
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BranchBody {
    from: Option<String>,
    entry: Option<BranchedEntry>,
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BranchedEntry {
    role: String,
    content: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageBody {
    text: Option<String>,
    content: Option<Box<RawValue>>,
    message_id: Option<String>,
    signal: Option<String>,
}

/// Handles `GET /v1/runs/{id}/entries`.
pub(crate) async fn read(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let named = |name| request.query.get(name).map(cursor).transpose();
    let query =
        EntryQuery { leaf: named("leaf")?, before: named("before")?, limit: request.query.limit(ENTRIES_DEFAULT, ENTRIES_MAX)? };
    let page = request.server.runtime().read_entries(&key, query).await?;
    Ok(json(StatusCode::OK, &Entries::new(&key.id, &page)))
}

/// Parses the cursor of an entry.
pub(crate) fn cursor(text: &str) -> Result<EntryCursor, Problem> {
    let invalid = |_| RuntimeError::from(StoreError::CursorInvalid { cursor: text.chars().take(100).collect() });
    Ok(text.parse().map_err(invalid)?)
}

/// Parses the entry after which a branch begins.
pub(crate) fn branch_point(text: &str) -> Result<EntryCursor, Problem> {
    let why = || format!("`from` names no entry: `{}`", text.chars().take(100).collect::<String>());
    text.parse().map_err(|_| RequestError::JsonInvalid { why: why() }.into())
}

/// Checks the scope that an entry of this role needs: `signal` is enough for the role of a user, other roles need `operate`.
pub(crate) async fn check_role(role: &Name, pass: Option<&Pass>, server: &Server) -> Result<(), Problem> {
    let Some(pass) = pass.filter(|_| !is_callers_role(role)) else { return Ok(()) };
    match pass.check_also(Scope::Operate, server).await {
        Err(AuthRefusal::Scope { scope }) => {
            let what = format!("the scope `{scope}`, which an entry of the role `{role}` needs");
            Err(RequestError::NotAllowed { what }.into())
        }
        checked => Ok(checked.map(drop)?),
    }
}

/// Handles `POST /v1/runs/{id}/entries`.
pub(crate) async fn append(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let EntryBody { role, content, idempotency_key } = request.json().await?;
    let append = AppendEntry { role: Name::new(role)?, content: payload(content), idempotency_key };
    check_role(&append.role, request.pass.as_ref(), &request.server).await?;
    let appended = request.server.runtime().append_entry(&key, append).await?;
    let status = if appended.already_existed { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(json(status, &EntryAnswer::new(&key.id, &appended)))
}

/// Handles `POST /v1/runs/{id}/branch`.
pub(crate) async fn branch(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let BranchBody { from, entry, idempotency_key } = request.json().await?;
    let from = from.as_deref().map(branch_point).transpose()?;
    let entry = entry.map(|BranchedEntry { role, content }| {
        Ok::<_, Problem>(BranchEntry { role: Name::new(role)?, content: payload(content) })
    });
    let branch = BranchRun { from, entry: entry.transpose()?, idempotency_key };
    if let Some(entry) = &branch.entry {
        check_role(&entry.role, request.pass.as_ref(), &request.server).await?;
    }
    let appended = request.server.runtime().branch_run(&key, branch).await?;
    Ok(json(StatusCode::ACCEPTED, &Answer::new(&key.id, &appended)))
}

/// Returns the first entry of a branch from the fields of a gRPC request.
pub(crate) fn branch_entry(role: Option<Name>, content: Option<Payload>) -> Result<Option<BranchEntry>, Problem> {
    match (role, content) {
        (None, None) => Ok(None),
        (Some(role), content) => Ok(Some(BranchEntry { role, content: content.unwrap_or_else(Payload::null) })),
        (None, Some(_)) => Err(RequestError::JsonInvalid { why: "`content` needs a `role`".to_owned() }.into()),
    }
}

/// Handles `POST /v1/runs/{id}/messages`.
pub(crate) async fn message(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let MessageBody { text, content, message_id, signal } = request.json().await?;
    let payload = match (text, content) {
        (Some(text), None) => Payload::json(&text).expect("a string serializes"),
        (None, Some(content)) => payload(Some(content)),
        _ => return Err(RequestError::JsonInvalid { why: "send either `text` or `content`".to_owned() }.into()),
    };
    Runtime::check_message(&payload)?;
    let name = Name::new(signal.as_deref().unwrap_or(MESSAGE))?;
    let signal = SendSignal { name, payload, signal_id: message_id, sender: None };
    let appended = request.server.runtime().signal_run(&key, signal).await?;
    Ok(json(StatusCode::ACCEPTED, &Answer::new(&key.id, &appended)))
}
