//! Promises: ids that were handed out, each with one result.

use axum::http::StatusCode;
use axum::response::Response;
use onward_core::api::{ResolveRequest, verb};
use onward_core::{Failure, Payload};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::http::documents::Receipt;
use crate::http::problem::{Problem, RequestError};
use crate::http::request::{Request, payload};
use crate::http::response::json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResolveBody {
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    failure: Option<FailureBody>,
    resolution_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureBody {
    code: Option<String>,
    message: String,
    /// A retry may help; the code decides.
    #[serde(default)]
    retryable: bool,
    #[serde(default, deserialize_with = "present")]
    details: Option<Box<RawValue>>,
}

/// Returns `Some` for a field that is present, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

impl ResolveBody {
    fn answer(self) -> Result<(Result<Payload, Failure>, String), RequestError> {
        let answer = match (self.result, self.failure) {
            (Some(result), None) => Ok(payload(Some(result))),
            (None, Some(failure)) => Err(failure.read()),
            _ => return Err(RequestError::JsonInvalid { why: "send either `result` or `failure`".to_owned() }),
        };
        Ok((answer, self.resolution_id))
    }
}

impl FailureBody {
    fn read(self) -> Failure {
        let code = self.code.unwrap_or_else(|| "failed".to_owned());
        let failure = Failure { retryable: self.retryable, ..Failure::new(code, self.message) };
        match self.details {
            None => failure,
            details => failure.with_details(payload(details)),
        }
    }
}

/// Handles `POST /v1/promises/{id}`.
pub(crate) async fn resolve(mut request: Request) -> Result<Response, Problem> {
    let call = request.call()?;
    let (result, resolution_id) = request.json::<ResolveBody>().await?.answer()?;
    let (namespace, promise) = (request.namespace.clone(), call.to_string());
    let resolved = ResolveRequest { namespace, promise, result, resolution_id };
    let appended = request.execute::<verb::ResolvePromise>(resolved).await?;
    Ok(json(StatusCode::OK, &Receipt::new(&call.run.id, &appended)))
}
