//! Delivery of a verified webhook request: starts a run or sends a signal.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::id::NAME_BYTES_MAX;
use onward_core::{Index, Name, RunId, RunKey, Timestamp};
use onward_runtime::{CallContext, Signal, StartRequest};
use serde_json::Value;
use serde_json::value::RawValue;

use super::entry::{Named, Pointer, WebhookEntry, WebhookTarget};
use super::signature::text_at;
use crate::auth::ceilings;
use crate::http::declare::documents;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::{self, payload};
use crate::http::response::json;
use crate::server::Server;
use crate::{hex, new_id};

// HK3
documents! {
    /// Response to a webhook; the same for every repeat of a request.
    struct DeliveryReceipt<'a> as WebhookTaken {
        run: &'a RunId,
        /// Index of the signal in the run's log.
        #[serde(skip_serializing_if = "Option::is_none")]
        index: Option<Index> as Index,
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp> as Timestamp,
    }
}

pub(super) async fn deliver(server: &Server, webhook: &WebhookEntry, id: &str, body: &[u8]) -> Result<Response, Problem> {
    let runtime = server.runtime();
    let raw: Box<RawValue> = request::parse(body)?;
    let document: Value = request::parse(body)?;
    let key = |id: String| -> Result<RunKey, Problem> { Ok(RunKey::new(webhook.namespace.clone(), RunId::new(id)?)) };
    match &webhook.target {
        WebhookTarget::Start { kind, version, run_id } => {
            let run = match run_id {
                Some(pointer) => find(&document, pointer)?,
                None => joined(&[webhook.name.as_str(), id]),
            };
            let start = StartRequest {
                version: version.clone(),
                ..StartRequest::new(key(run)?, kind.clone(), payload(Some(raw)), new_id::random_u64())
            };
            let allowance = ceilings::of_namespace(&webhook.namespace, server);
            let started = runtime.start_run_for(start, CallContext { allowance, ..CallContext::default() }).await?;
            Ok(json(StatusCode::ACCEPTED, &DeliveryReceipt { run: &started.head.key.id, index: None, at: None }))
        }
        WebhookTarget::Signal { run_id, signal } => {
            let key = key(find(&document, run_id)?)?;
            let name = match signal {
                Named::Name(name) => name.clone(),
                Named::Pointer(pointer) => Name::new(find(&document, pointer)?)?,
            };
            let signal_id = Some(joined(&["webhook", webhook.name.as_str(), id]));
            let signal = Signal { name, payload: payload(Some(raw)), signal_id };
            let appended = runtime.signal_run(&key, signal).await?;
            Ok(json(StatusCode::ACCEPTED, &DeliveryReceipt { run: &key.id, index: Some(appended.index), at: Some(appended.at) }))
        }
    }
}

fn find(document: &Value, pointer: &Pointer) -> Result<String, RequestError> {
    text_at(document, pointer.as_str()).ok_or_else(|| RequestError::WebhookUnroutable { pointer: pointer.to_string() })
}

/// Joins the parts with colons; returns a hash of the text if it is too long for a name.
fn joined(parts: &[&str]) -> String {
    let whole = parts.join(":");
    if whole.len() <= NAME_BYTES_MAX {
        return whole;
    }
    hex::sha256(whole.as_bytes())
}
