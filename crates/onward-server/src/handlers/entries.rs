//! The conversation of an agent: `/v1/runs/{id}/entries`, `/v1/runs/{id}/branch` and `/v1/runs/{id}/messages`.

use onward_core::api::{
    AppendEntry, AppendEntryRequest, BranchEntry, BranchRequest, BranchRun, EntriesRequest, EntryQuery, MessageRequest, verb,
};
use onward_core::conversation::EntryCursor;
use onward_core::{Name, Payload};
use onward_runtime::RuntimeError;
use onward_store::StoreError;

use super::prelude::*;
use crate::http::documents::{Entries, EntryAnswer, Receipt};

bodies! {
    struct EntryBody as AppendEntry {
        /// `system`, `user`, `assistant`, `tool`, `summary`, or any other name.
        role: String as Name,
        content: Option<Box<RawValue>>,
        /// A repeat with the same key is the same entry.
        idempotency_key: Option<String> as Option<Name>,
    }

    struct BranchBody as BranchRun {
        /// Entry after which the conversation continues; default: its beginning.
        from: Option<String> as Option<EntryCursor>,
        entry: Option<BranchedEntry>,
        /// A repeat with the same key is the same branch.
        idempotency_key: Option<String> as Option<Name>,
    }

    /// First entry of the branch; an edit is a branch from the entry's parent with other content.
    struct BranchedEntry as BranchEntry {
        role: String as Name,
        content: Option<Box<RawValue>>,
    }

    /// `text` or `content`.
    struct MessageBody as SendMessage {
        text: Option<String>,
        /// Content for the agent: a text, or an object with `text` or `blocks`.
        content: Option<Box<RawValue>>,
        /// Idempotency key: a repeat with the same id is the same message.
        message_id: Option<String> as Option<Name>,
        /// Signal that the agent waits for; default `message`.
        signal: Option<String> as Option<Name>,
    }
}

/// Handles `GET /v1/runs/{id}/entries`.
pub(crate) async fn read(request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let named = |name| request.query.get(name).map(cursor).transpose();
    let query = EntryQuery { leaf: named("leaf")?, before: named("before")?, limit: request.query.limit()? };
    let page = request.execute::<verb::ReadEntries>(EntriesRequest { run: key.clone(), query }).await?;
    Ok(json(StatusCode::OK, &Entries::new(&key.id, &page)))
}

/// Parses the cursor of an entry.
fn cursor(text: &str) -> Result<EntryCursor, Problem> {
    let invalid = |_| RuntimeError::from(StoreError::CursorInvalid { cursor: text.chars().take(100).collect() });
    Ok(text.parse().map_err(invalid)?)
}

/// Parses the entry after which a branch begins.
fn branch_point(text: &str) -> Result<EntryCursor, Problem> {
    let why = || format!("`from` names no entry: `{}`", text.chars().take(100).collect::<String>());
    text.parse().map_err(|_| RequestError::JsonInvalid { why: why() }.into())
}

/// Handles `POST /v1/runs/{id}/entries`.
pub(crate) async fn append(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let EntryBody { role, content, idempotency_key } = request.json().await?;
    let entry = AppendEntry { role: Name::new(role)?, content: payload(content), idempotency_key };
    let append = AppendEntryRequest { run: key.clone(), entry, is_looked_up: false };
    let appended = request.execute::<verb::AppendEntry>(append).await?;
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
    let appended = request.execute::<verb::BranchRun>(BranchRequest { run: key.clone(), branch }).await?;
    Ok(json(StatusCode::ACCEPTED, &Receipt::new(&key.id, &appended)))
}

/// Handles `POST /v1/runs/{id}/messages`.
pub(crate) async fn message(mut request: Request) -> Result<Response, Problem> {
    let key = request.key()?;
    let MessageBody { text, content, message_id, signal } = request.json().await?;
    let content = match (text, content) {
        (Some(text), None) => Payload::json(&text).expect("a string serializes"),
        (None, Some(content)) => payload(Some(content)),
        _ => return Err(RequestError::JsonInvalid { why: "send either `text` or `content`".to_owned() }.into()),
    };
    let signal = signal.map(Name::new).transpose()?;
    let message = MessageRequest { run: key.clone(), content, message_id, signal };
    let appended = request.execute::<verb::SendMessage>(message).await?;
    Ok(json(StatusCode::ACCEPTED, &Receipt::new(&key.id, &appended)))
}
